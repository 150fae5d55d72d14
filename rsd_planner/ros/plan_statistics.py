"""What happened to plans since the node was configured; read by diagnostics."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from rsd_planner.plan import FinishReason, Plan

WINDOW = 100  # plans that percentiles and means are taken over


class Withheld(NamedTuple):
    """Why there is no plan: the reason to count by, and a sentence naming what was found and what was expected."""

    reason: str
    detail: str


@dataclass
class PlanStatistics:
    """Counters of one configuration."""

    plans: int = 0  # published
    busy: int = 0  # frames of the reference camera that passed while the worker was planning
    outdated: int = 0  # results from before a reset, a deactivation or a time jump
    deadlines: int = 0  # plans whose reasoning was closed by the deadline
    withheld: Counter[str] = field(default_factory=Counter)  # by reason
    last_withheld: Withheld | None = None
    last_plan: Plan | None = None
    inference_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    latency_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))  # t0 to publishing
    overhead_s: deque[float] = field(
        default_factory=lambda: deque(maxlen=WINDOW)
    )  # input to publishing, less the model
    passes: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))  # verify passes of each plan
    verified_tokens: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))  # committed by them
    routine_share: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    frames_encoded: int = 0
    frames_reused: int = 0

    def published(self, plan: Plan, seconds: float, latency_s: float, overhead_s: float) -> None:
        """Note a plan that went out."""
        self.plans += 1
        self.last_plan = plan
        self.deadlines += plan.finish_reason is FinishReason.DEADLINE
        self.last_withheld = None
        self.inference_s.append(seconds)
        self.latency_s.append(latency_s)
        self.overhead_s.append(overhead_s)
        self.passes.append(len(plan.tokens_per_pass))
        self.verified_tokens.append(sum(plan.tokens_per_pass))
        self.routine_share.append(plan.routine_share)
        self.frames_encoded += plan.frames_encoded
        self.frames_reused += plan.frames_reused
