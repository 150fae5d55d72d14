"""How many drafted tokens a verify pass should read: the number that promises the most committed tokens per second."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rsd_planner.decoding.protocols import Draft, Target
from rsd_planner.plan import ProposalOutcome, TokenSource

LONGEST = 15  # drafted tokens per pass
_FORGETTING = 0.98  # weight of a past proposal against the one after it
_PRIOR = 4.0  # proposals that the estimate of the position before counts for at one seldom offered
_FIRST_GUESS = 0.8  # acceptance before anything is known
_MEASURED = (1, 2, 4, 8, 16)  # tokens per pass that are timed at warm-up
_REPEATS = 5


@dataclass(frozen=True)
class StepCosts:
    """Times in units of a target step of one token."""

    verify: Sequence[float]  # [k]: a pass over the last committed token and k drafted ones
    draft: Mapping[TokenSource, Sequence[float]]  # [k]: proposing k tokens; a source that is absent costs nothing


class VerifyLength:
    """The rule, its costs and the acceptance seen so far, per position in a proposal and per source."""

    def __init__(self, fixed: int | None = None) -> None:
        """
        Args:
            fixed: Always this many drafted tokens; None to go by cost and acceptance once costs are known.
        """
        self.costs: StepCosts | None = None
        self._fixed = fixed
        self.forget()

    def forget(self) -> None:
        """Forget the acceptance seen so far; costs stay."""
        self._offered: dict[TokenSource, NDArray[np.float64]] = defaultdict(lambda: np.zeros(LONGEST))
        self._accepted: dict[TokenSource, NDArray[np.float64]] = defaultdict(lambda: np.zeros(LONGEST))

    def limit(self, draft: Draft) -> int:
        """Drafted tokens to ask of this draft for the next verify pass."""
        longest = min(draft.longest, LONGEST)
        if self._fixed is not None or self.costs is None:
            return min(self._fixed or LONGEST, longest)
        committed = 1 + np.concatenate([[0.0], np.cumsum(np.cumprod(self.acceptance(draft.source)))])  # [k]
        cost = np.asarray(self.costs.verify) + self.costs.draft.get(draft.source, np.zeros(LONGEST + 1))
        best = int(np.argmax((committed / cost)[: longest + 1]))
        if best == 0:  # nothing is learned of a draft that is not asked: what is held against it fades
            self._fade(draft.source)
        return best

    def observe(self, outcome: ProposalOutcome) -> None:
        """Count a proposal. A position behind a rejected one was not looked at."""
        self._fade(outcome.source)
        self._offered[outcome.source][: min(outcome.accepted + 1, outcome.offered)] += 1
        self._accepted[outcome.source][: outcome.accepted] += 1

    def acceptance(self, source: TokenSource) -> NDArray[np.float64]:
        """(LONGEST,) chance that a position is accepted when all before it were."""
        chances, chance = np.empty(LONGEST), _FIRST_GUESS
        for i, (offered, accepted) in enumerate(zip(self._offered[source], self._accepted[source], strict=True)):
            chances[i] = chance = (accepted + _PRIOR * chance) / (offered + _PRIOR)
        return chances

    def _fade(self, source: TokenSource) -> None:
        self._offered[source] *= _FORGETTING
        self._accepted[source] *= _FORGETTING


def measure_costs(target: Target[Any], drafts: Sequence[Draft]) -> StepCosts:
    """Time passes and proposals behind a frame that was just decoded; target and drafts stay as they are."""

    def verify(count: int) -> None:
        step = target.verify([0] * count)
        float(step.logits[-1, 0])  # waits for the device
        target.rollback(count)

    passes = _seconds(verify, _MEASURED)
    single = passes[0]
    proposals = {}
    for draft in drafts:
        draft.propose(1)  # takes in the prompt
        counts = [*(count for count in _MEASURED if count < draft.longest), draft.longest]
        proposals[draft.source] = _spread([0, *counts], [0.0, *_seconds(draft.propose, counts)], LONGEST + 1, single)
    return StepCosts(_spread([count - 1 for count in _MEASURED], passes.tolist(), LONGEST + 1, single), proposals)


def _seconds(act: Callable[[int], object], counts: Sequence[int]) -> NDArray[np.float64]:
    """Shortest time per count, never shorter than that of fewer; rounds are interleaved, so that all suffer alike."""
    rounds = np.empty((_REPEATS, len(counts)))
    for times in rounds:
        for i, count in enumerate(counts):
            started = time.perf_counter()
            act(count)
            times[i] = time.perf_counter() - started
    return np.asarray(np.maximum.accumulate(rounds.min(axis=0)))


def _spread(drafted: Sequence[int], seconds: Sequence[float], length: int, unit: float) -> tuple[float, ...]:
    """Times by number of drafted tokens, 0 to length - 1, in units of one step."""
    return tuple(float(t) for t in np.interp(range(length), drafted, np.asarray(seconds) / unit))
