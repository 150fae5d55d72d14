"""The ways to make a plan that are compared: each one object that turns an observation into a timed tick."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from rsd_planner.decoding.protocols import Draft
from rsd_planner.decoding.verify_length import LONGEST
from rsd_planner.draft.feature_draft import FeatureDraft
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan import Plan, TokenOrigin
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import Frame, Observation
from rsd_planner.target.alpamayo import AlpamayoTarget


@dataclass(frozen=True)
class Tick:
    """What one strategy made of one observation. Times are wall time in milliseconds."""

    token_ids: tuple[int, ...]  # all committed tokens, forced ones apart
    tokens_per_pass: tuple[int, ...]
    prefill_committed: int
    reasoning_tokens: int
    routine_tokens: int  # of these, the drafted and accepted ones
    draft_ms: float
    reasoning_ms: float  # from the end of the prefill to the last committed token
    tick_ms: float  # from the observation to the path
    target_cache_bytes: int = 0  # keys and values of prompt and reasoning; 0 where they are not ours
    draft_cache_bytes: int = 0


class Strategy(Protocol):
    """One row of the table."""

    @property
    def name(self) -> str: ...

    @property
    def backend(self) -> str:
        """What computes it: accelerations are stated against the plain loop of the same backend."""

    @property
    def depth(self) -> int | None:
        """Drafted tokens per verify pass at most; None where a memory proposes too, which knows no such limit."""

    @property
    def origin(self) -> str:
        """Where its draft comes from, for the record; "" without one."""

    def run(self, observation: Observation) -> Tick: ...

    def keys_values(self) -> Tensor | None:
        """(layers * 2, KV heads, tokens, head dim) of the target after `run`; None if there is no such cache."""

    def forget(self) -> None:
        """What follows is another drive."""


class OwnFrames:
    """Frames of its own for each strategy, so that none profits from what another has encoded."""

    def __init__(self) -> None:
        self._own: dict[Frame, Frame] = {}

    def __call__(self, observation: Observation) -> Observation:
        """The observation with frames that are the same from tick to tick and nobody else's."""
        shown = [frame for frames in observation.cameras.values() for frame in frames]
        self._own = {f: self._own.get(f) or Frame.from_image(f.stamp_ns, f.image) for f in shown}
        cameras = {camera: tuple(self._own[f] for f in frames) for camera, frames in observation.cameras.items()}
        return replace(observation, cameras=cameras)


class PlannerStrategy:
    """The planner as the node runs it, on a target that strategies may share."""

    def __init__(
        self,
        name: str,
        target: AlpamayoTarget,
        info: ModelInfo,
        settings: PlannerSettings,
        *,
        draft: Draft | None = None,
        taps: tuple[int, ...] = (),
        origin: str = "",
    ) -> None:
        """
        Args:
            settings: `memory_ticks` decides on the memory. The length of verify passes is fixed at the longest.
            taps: Target layers the draft reads.
        """
        self.name, self.origin, self.backend = name, origin, settings.backend
        self.depth = None if settings.memory_ticks else 0 if draft is None else draft.longest
        self.target, self._taps = target, taps
        self._planner = Planner(target, info, replace(settings, verify_length=LONGEST), draft)
        self._draft_cache = draft.cache if isinstance(draft, FeatureDraft) else None
        self._frames = OwnFrames()

    def run(self, observation: Observation) -> Tick:
        """See `Strategy`."""
        self.target.taps = self._taps
        own = self._frames(observation)
        started = time.perf_counter()
        plan = self._planner.plan(own)
        tick = _tick(plan, (time.perf_counter() - started) * 1e3)
        read = self._draft_cache.used_bytes if self._draft_cache else 0
        return replace(tick, target_cache_bytes=self.target.cache.used_bytes, draft_cache_bytes=read)

    def keys_values(self) -> Tensor | None:
        """See `Strategy`."""
        cache = self.target.cache
        rows = [t[0, :, : cache.length] for pair in (cache.keys, cache.values) for t in pair]
        return torch.stack(rows)

    def forget(self) -> None:
        """See `Strategy`."""
        self._planner.reset()


def _tick(plan: Plan, tick_ms: float) -> Tick:
    said = sum(origin is not TokenOrigin.FORCED for origin in plan.origins)
    guessed = plan.speculation
    return Tick(
        token_ids=plan.token_ids[:said],
        tokens_per_pass=plan.tokens_per_pass,
        prefill_committed=guessed.prefill_committed,
        reasoning_tokens=guessed.reasoning_tokens,
        routine_tokens=round(plan.routine_share * guessed.reasoning_tokens),
        draft_ms=guessed.draft_ms,
        reasoning_ms=guessed.draft_ms + guessed.verify_ms + guessed.overhead_ms,
        tick_ms=tick_ms,
    )
