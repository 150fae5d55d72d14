"""What is committed in one frame, token by token, and how the reasoning ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rsd_planner.decoding.protocols import Proposal
from rsd_planner.plan import FinishReason, ProposalOutcome, Speculation, TokenOrigin, TokenSource


@dataclass(frozen=True)
class Closing:
    """The tokens that end a reasoning, and those that are never said."""

    cot_end: int
    future_start: int  # the stop token
    forbidden: range


@dataclass(frozen=True)
class Reasoning:
    """All tokens committed after the prompt. Their keys and values are in the target's cache, the stop token's too."""

    token_ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]
    finish_reason: FinishReason
    tokens_per_pass: tuple[int, ...]  # committed by each verify pass
    speculation: Speculation
    prefill_ms: float
    decode_ms: float  # to the last key and value in the cache


@dataclass
class Transcript:
    """What has been committed in one frame, and how."""

    closing: Closing
    max_tokens: int
    tokens: list[int] = field(default_factory=list)
    sources: list[TokenSource | None] = field(default_factory=list)
    outcomes: list[ProposalOutcome] = field(default_factory=list)
    tolerated: list[int] = field(default_factory=list)  # places of tokens the target would not have said
    passes: list[int] = field(default_factory=list)  # tokens committed by each verify pass
    new: list[int] = field(default_factory=list)  # committed by the last pass
    read: int = 0  # committed tokens whose keys and values are in the cache
    forced: list[int] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.max_tokens - len(self.tokens)

    @property
    def stopped(self) -> bool:
        return self.tokens[-1] == self.closing.future_start

    @property
    def finished(self) -> bool:
        return self.stopped or self.room == 0

    def commit(self, proposal: Proposal, accepted: int, own: int, other: Sequence[int] = ()) -> None:
        """Commit the accepted tokens and the target's own one, unless the stop token is among the accepted.

        Args:
            other: Which of the accepted tokens the target would not have said.
        """
        self.tolerated += [len(self.tokens) + i for i in other]
        new = list(proposal.tokens[:accepted])
        stopped = self.closing.future_start in new
        self.new = new if stopped else [*new, own]
        self.tokens += self.new
        self.sources += [proposal.source] * accepted + [None] * (len(self.new) - accepted)
        self.read = len(self.tokens) - (0 if stopped else 1)
        if proposal.tokens:
            self.outcomes.append(ProposalOutcome(proposal.source, len(proposal.tokens), accepted))

    def close(self) -> list[int]:
        """Force the closing tokens that are missing."""
        if not self.stopped:
            cot_end, future_start = self.closing.cot_end, self.closing.future_start
            self.forced = [future_start] if cot_end in self.tokens else [cot_end, future_start]
            self.tokens += self.forced
            self.sources += [None] * len(self.forced)
        return self.forced

    def reasoning(self, clock: Clock, prefill_ms: float, decode_ms: float) -> Reasoning:
        said = len(self.tokens) - len(self.forced)
        origins = [TokenOrigin.ROUTINE if source else TokenOrigin.DELIBERATIVE for source in self.sources[:said]]
        closing = (self.closing.cot_end, self.closing.future_start)
        return Reasoning(
            token_ids=tuple(self.tokens),
            origins=(*origins, *[TokenOrigin.FORCED] * len(self.forced)),
            finish_reason=self._finish_reason(said),
            tokens_per_pass=tuple(self.passes),
            speculation=Speculation(
                reasoning_tokens=next(i for i, token in enumerate(self.tokens) if token in closing),
                prefill_committed=said - sum(self.passes),
                sources=tuple(self.sources),
                proposals=tuple(self.outcomes),
                tolerated=tuple(self.tolerated),
                draft_ms=clock.draft_ms,
                verify_ms=clock.verify_ms,
                overhead_ms=clock.overhead_ms,
            ),
            prefill_ms=prefill_ms,
            decode_ms=decode_ms,
        )

    def _finish_reason(self, said: int) -> FinishReason:
        if not self.forced:
            closing = (self.closing.cot_end, self.closing.future_start)
            return FinishReason.EMPTY if self.tokens[0] in closing else FinishReason.STOP
        if said < self.max_tokens:
            return FinishReason.DEADLINE
        return FinishReason.MISSING_STOP if self.forced == [self.closing.future_start] else FinishReason.MAX_TOKENS


@dataclass
class Clock:
    """Where the time goes, in milliseconds."""

    draft_ms: float = 0.0
    verify_ms: float = 0.0
    overhead_ms: float = 0.0
    _last: float = field(default_factory=time.perf_counter)

    @property
    def reasoning_ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.overhead_ms

    def lap(self) -> float:
        now = time.perf_counter()
        elapsed, self._last = (now - self._last) * 1e3, now
        return elapsed
