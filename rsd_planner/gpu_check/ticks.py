"""Whole ticks: encode the new images, prefill, draft and verify as often as was recorded, ten flow steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rsd_planner.gpu_check.draft_passes import DFlashPasses, Eagle3Passes
from rsd_planner.gpu_check.shapes import FLOW_STEPS, NEW_IMAGES
from rsd_planner.gpu_check.target_passes import TargetPasses
from rsd_planner.gpu_check.timing import WARM_UP, synchronize
from rsd_planner.gpu_check.traces import VERIFIED, Trace, TracedFrame

FRAMES = 20  # of a trace at most, evenly spread
_STAGES = ("encode", "prefill", "reasoning", "action")


@dataclass(frozen=True)
class Tick:
    """Wall time of the stages in milliseconds, each waited for."""

    encode: float
    prefill: float
    reasoning: float  # drafting, verifying, and the pass that leaves the stop token's keys and values
    action: float

    @property
    def total(self) -> float:
        return self.encode + self.prefill + self.reasoning + self.action


class TickRunner:
    """Runs ticks from passes made before. What is said is nonsense; how often is said by the trace."""

    def __init__(
        self,
        target: TargetPasses,
        drafts: dict[str, DFlashPasses | Eagle3Passes],
        passes: Callable[[str], Callable[[], Any]],
    ) -> None:
        """
        Args:
            passes: A pass by its name in the table, as fast as there is one.
        """
        self._target, self._drafts, self._pass = target, drafts, passes

    def measure(self, trace: Trace) -> dict[str, Any]:
        """Medians over the trace's frames, with its draft and without any."""
        frames = [trace.frames[int(i)] for i in np.linspace(0, len(trace.frames) - 1, min(FRAMES, len(trace.frames)))]
        for _ in range(WARM_UP):
            self.run(frames[0], trace.draft)
            self.run(frames[0], None)
        drafted, plain = [], []
        for frame in frames:
            drafted.append(self.run(frame, trace.draft))
            plain.append(self.run(frame, None))
        ratio = np.sum([tick.reasoning for tick in plain]) / np.sum([tick.reasoning for tick in drafted])
        return {
            "name": trace.name,
            "draft": trace.draft,
            "frames": len(frames),
            "tokens_per_frame": float(np.mean([frame.tokens for frame in frames])),
            "accepted_length": trace.accepted_length,
            "drafted_ms": _medians(drafted),
            "plain_ms": _medians(plain),
            "reasoning_speedup": float(ratio),
            "tick_speedup": float(
                np.median([tick.total for tick in plain]) / np.median([tick.total for tick in drafted])
            ),
        }

    def run(self, frame: TracedFrame, draft: str | None) -> Tick:
        """One tick.

        Args:
            draft: `dflash`, `eagle3`, or None for one token per pass.
        """
        target, times = self._target, [time.perf_counter()]
        self._pass(f"encode {NEW_IMAGES} images")()
        synchronize(target.device)
        times.append(time.perf_counter())
        self._pass("prefill")()
        target.length.fill_(target.shape.prompt_tokens + frame.prefill_committed - 1)
        target.best[:1].tolist()
        times.append(time.perf_counter())
        if draft is None:
            self._plain(frame.tokens - frame.prefill_committed)
        elif frame.tokens_per_pass:
            self._drafted(frame, draft)
        self._step(1)  # the stop token's keys and values
        synchronize(target.device)
        times.append(time.perf_counter())
        self._pass(f"{FLOW_STEPS[0]} flow steps")()
        target.actions.cpu()
        times.append(time.perf_counter())
        return Tick(*(float(stage) for stage in np.diff(times) * 1e3))

    def _plain(self, count: int) -> None:
        for _ in range(count):
            self._step(1)
            self._target.best[:1].tolist()
            self._target.tokens[:1].copy_(self._target.best[:1])

    def _drafted(self, frame: TracedFrame, draft: str) -> None:
        """As the decoding loop does it; the host waits once per pass, to learn what stands."""
        passes, count = self._drafts[draft], VERIFIED[draft]
        self._pass(f"{draft} reads the prompt")()
        passes.begin()
        for committed in frame.tokens_per_pass:
            self._pass(f"{draft} proposal")()
            self._pass(_step_name(count))()
            self._target.best[:count].tolist()
            passes.extend(committed)
            self._target.length.add_(committed)

    def _step(self, count: int) -> None:
        self._pass(_step_name(count))()
        self._target.length.add_(count)


def _step_name(count: int) -> str:
    return f"step of {count}"


def _medians(ticks: Sequence[Tick]) -> dict[str, float]:
    stages = {name: float(np.median([getattr(tick, name) for tick in ticks])) for name in _STAGES}
    totals = [tick.total for tick in ticks]
    return {**stages, "tick": float(np.median(totals)), "tick_p95": float(np.percentile(totals, 95))}
