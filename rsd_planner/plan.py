"""The planner's output: reasoning and a path, both belonging to one instant t0."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rsd_planner.scene.observation import STEP_NS

WAYPOINTS = 64


class TokenOrigin(str, Enum):
    """Who wrote a token: the draft (accepted by the target), the target itself, or the loop that had to close."""

    ROUTINE = "routine"
    DELIBERATIVE = "deliberative"
    FORCED = "forced"


class TokenSource(str, Enum):
    """Who proposed a routine token."""

    MEMORY = "memory"  # the reasoning of an earlier tick
    DRAFT = "draft"  # the draft network


class ReasoningPart(NamedTuple):
    """Consecutive tokens of one origin as text, spaces included."""

    text: str
    origin: TokenOrigin


class FinishReason(str, Enum):
    """How the reasoning ended."""

    STOP = "stop"  # the model closed its reasoning and asked for the trajectory
    EMPTY = "empty"  # the same, without a word said (about 5% of real outputs)
    MAX_TOKENS = "max_tokens"  # the cap came before the end of the reasoning: closed by us
    MISSING_STOP = "missing_stop"  # the reasoning ended but the trajectory was never asked for: closed by us
    DEADLINE = "deadline"  # the time allowed for it was over: closed by us


@dataclass(frozen=True)
class StageTimes:
    """Wall time of the stages of one plan, in milliseconds."""

    decode_images: float
    encode: float
    prefill: float
    decode: float
    action: float

    @property
    def total(self) -> float:
        return self.decode_images + self.encode + self.prefill + self.decode + self.action


@dataclass(frozen=True)
class ProposalOutcome:
    """One proposal and what the target made of it."""

    source: TokenSource
    offered: int  # drafted tokens the target was asked about
    accepted: int  # how many of them were committed: always the first ones


@dataclass(frozen=True)
class Speculation:
    """How one reasoning was guessed and verified.

    Times are wall time from the end of the prefill to the last committed token, in milliseconds.
    """

    reasoning_tokens: int = 0  # those before the closing tokens
    prefill_committed: int = 1  # tokens committed by the prefill
    sources: tuple[TokenSource | None, ...] = ()  # one per token: who proposed a routine one
    proposals: tuple[ProposalOutcome, ...] = ()  # in the order of the passes, the prefill's own first
    tolerated: tuple[int, ...] = ()  # places of accepted tokens the target would not have said; only in a lossy plan
    draft_ms: float = 0.0  # drafts at work
    verify_ms: float = 0.0  # verify passes, the choice of tokens included
    overhead_ms: float = 0.0  # everything else

    def acceptance(self, source: TokenSource) -> tuple[tuple[int, int], ...]:
        """Per position in a proposal: how often it was offered, and how often accepted."""
        outcomes = [outcome for outcome in self.proposals if outcome.source is source]
        positions = range(max((outcome.offered for outcome in outcomes), default=0))
        return tuple((sum(o.offered > i for o in outcomes), sum(o.accepted > i for o in outcomes)) for i in positions)


@dataclass(frozen=True)
class Plan:
    """What the vehicle should do over the next 6.4 s and why. Positions and rotations are in the frame `ego_t0`."""

    stamp_ns: int  # t0
    sequence: int  # counts the plans of one Planner
    reasoning: str
    token_ids: tuple[int, ...]  # all committed tokens, closing ones included
    origins: tuple[TokenOrigin, ...]  # one per token
    finish_reason: FinishReason
    positions: NDArray[np.float64]  # (64, 3) m; point i is at t0 + 0.1 (i + 1) s
    rotations: NDArray[np.float64]  # (64, 3, 3), vehicle at point i to ego_t0
    speeds: NDArray[np.float64]  # (64,) m/s, signed
    v0: float  # m/s, solved from the ego history
    stage_times: StageTimes
    tokens_per_pass: tuple[int, ...]  # committed by each pass after the prefill
    frames_encoded: int  # images that went through the vision tower for this plan
    frames_reused: int  # images whose features were still there
    speculation: Speculation = Speculation()
    lossy: bool = False  # made with `accept: action_tolerant`: the reasoning may not be the model's own
    parts: tuple[ReasoningPart, ...] = ()  # `reasoning` by who wrote it: joined and stripped they are the same text

    @property
    def times_ns(self) -> NDArray[np.int64]:
        """(64,) absolute stamps of the waypoints."""
        return self.stamp_ns + STEP_NS * np.arange(1, WAYPOINTS + 1, dtype=np.int64)

    @property
    def finish_text(self) -> str:
        """How the reasoning ended, for messages; a lossy plan says that it is one."""
        return f"{self.finish_reason.value}, lossy" if self.lossy else self.finish_reason.value

    @property
    def routine_share(self) -> float:
        """Share of the reasoning, closing tokens apart, that was drafted and accepted; 0 for an empty reasoning."""
        count = self.speculation.reasoning_tokens
        return sum(origin is TokenOrigin.ROUTINE for origin in self.origins[:count]) / max(count, 1)
