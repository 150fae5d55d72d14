"""Which instants are to be planned, and what became of each."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from rsd_planner.scene.observation import STEP_NS


@dataclass
class _Tick:
    stamp_ns: int
    reason: str | None = None
    detail: str = ""


class Ticks:
    """A tick is due at the reference camera's first frame, and then every `stride` x 0.1 s.

    Frames need not fall on that grid: the first one later than half a step before a due time makes the tick.
    A tick is pending until a plan at its time or later is possible; those passed over by then are skipped.
    """

    def __init__(self, stride: int) -> None:
        self.skipped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # reason -> detail of its first tick
        self._stride = stride
        self._pending: deque[_Tick] = deque()
        self._anchor_ns: int | None = None
        self._next = 0  # steps of 0.1 s after the anchor

    def reference_frame(self, stamp_ns: int) -> None:
        """Notes a frame of the reference camera; it makes a tick when one is due."""
        if self._anchor_ns is None:
            self._anchor_ns = stamp_ns
        step = (stamp_ns - self._anchor_ns + STEP_NS // 2) // STEP_NS
        if step >= self._next:
            self._pending.append(_Tick(stamp_ns))
            self._next = step + self._stride

    @property
    def oldest_pending_ns(self) -> int | None:
        return self._pending[0].stamp_ns if self._pending else None

    @property
    def newest_pending_ns(self) -> int | None:
        return self._pending[-1].stamp_ns if self._pending else None

    def explain(self, reason: str, detail: str) -> None:
        """Says why the newest pending tick cannot be planned yet; it counts if it never can."""
        if self._pending:
            self._pending[-1].reason, self._pending[-1].detail = reason, detail

    def reached(self, t0_ns: int) -> bool:
        """Resolves the ticks up to t0.

        Returns:
            Whether one of them is to be planned at t0: the last, if t0 is less than half a step later. The others are
            skipped.
        """
        reached = False
        while self._pending and self._pending[0].stamp_ns <= t0_ns:
            tick = self._pending.popleft()
            reached = t0_ns - tick.stamp_ns < STEP_NS // 2
            if not reached:
                self._skip(tick)
        return reached

    def failed(self, reason: str, detail: str) -> None:
        """Counts a tick that was reached and could not be planned."""
        self.skipped[reason] += 1
        self.examples.setdefault(reason, detail)

    def restart(self) -> None:
        """Ends the sequence: pending ticks are skipped, the next frame anchors a new one."""
        while self._pending:
            self._skip(self._pending.popleft())
        self._anchor_ns, self._next = None, 0

    def _skip(self, tick: _Tick) -> None:
        self.failed(tick.reason or "not_reached", tick.detail)
