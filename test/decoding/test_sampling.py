"""Sampled output with drafts against the exact distribution, on a small vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats
from scripted import CLOSING, FUTURE, VOCAB, ScriptedDraft, run
from torch import Tensor

from rsd_planner.decoding.acceptance import accept
from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.plan import TokenOrigin, TokenSource

SAMPLING = Sampling(temperature=0.7, top_p=0.9)
DRAWS = 800
Said = tuple[int, ...]


@cache
def language(said: Said) -> Tensor:
    """Another distribution behind every text."""
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(hash(said) % 2**31))


def another_language(said: Said) -> Tensor:
    return language((*said, 99))


@cache
def chances(said: Said, speak: Callable[[Said], Tensor] = language) -> Tensor:
    return Choice(SAMPLING, CLOSING.forbidden, torch.Generator()).distribution(speak(said))


def joint(length: int) -> dict[Said, float]:
    """Exact probability of every text of at most `length` tokens, shorter ones ended by the stop token."""
    texts = {(): 1.0}
    for _ in range(length):
        grown: dict[Said, float] = {}
        for text, probability in texts.items():
            if text[-1:] == (FUTURE,):
                grown[text] = probability
                continue
            p = chances(text).double()
            for token in p.nonzero()[:, 0].tolist():
                grown[(*text, token)] = probability * float(p[token] / p.sum())
        texts = grown
    return texts


class SamplingDraft(ScriptedDraft):
    """Draws each token from a distribution of its own, masked and tempered as the target's."""

    def __init__(self, count: int, speak: Callable[[Said], Tensor] = another_language) -> None:
        super().__init__(lambda said: ())
        self.count, self.speak = count, speak

    def propose(self, limit: int) -> Proposal:
        tokens: Said = ()
        q: list[Tensor] = []
        while self.begun and len(tokens) < min(self.count, limit):
            q.append(chances((*self.said, *tokens), self.speak))
            tokens = (*tokens, self.choice.draw(q[-1]))
        return Proposal(self.source, tokens, torch.stack(q) if q else None)


def likely(said: Said) -> Said:
    first = int(chances(said).argmax())
    return (first, int(chances((*said, first)).argmax()))


def unlikely(said: Said) -> Said:
    p = chances(said)
    return (int(torch.where(p > 0, p, 2.0).argmin()), 3)


DRAFTS: dict[str, Callable[[], tuple[ScriptedDraft, ...]]] = {
    "none": lambda: (),
    "a likely memory inside the prefill": lambda: (ScriptedDraft(likely, early=True),),
    "an unlikely memory inside the prefill": lambda: (ScriptedDraft(unlikely, early=True),),
    "a likely memory in a pass": lambda: (ScriptedDraft(likely),),
    "a network unlike the target": lambda: (SamplingDraft(2),),
    "a network that is the target": lambda: (SamplingDraft(3, language),),
    "memory, then network": lambda: (
        ScriptedDraft(lambda said: () if said else likely(said), early=True),
        SamplingDraft(2),
    ),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_what_is_said_follows_the_targets_distribution(name: str) -> None:
    drafts = DRAFTS[name]()
    texts = Counter[Said]()
    for seed in range(DRAWS):
        reasoning, _ = run(language, *drafts, sampling=SAMPLING, max_tokens=4, seed=seed)
        own = sum(origin is not TokenOrigin.FORCED for origin in reasoning.origins)
        texts[reasoning.token_ids[:own]] += 1
    for length in (1, 2, 3):
        counts = Counter[Said]()
        for text, count in texts.items():
            counts[text[:length]] += count
        assert p_value(counts, joint(length)) > 1e-3


def p_value(counts: Counter[Said], expected: dict[Said, float]) -> float:
    """Of a chi-square test, in which all texts too rare for it count as one."""
    assert set(counts) <= set(expected)
    rare = [text for text, p in expected.items() if p * DRAWS < 10]
    cells = [(counts[text], p) for text, p in expected.items() if text not in rare]
    cells.append((sum(counts[text] for text in rare), sum(expected[text] for text in rare)))
    observed, probabilities = (np.array(column, float) for column in zip(*cells, strict=True))
    possible = probabilities > 0
    assert possible.sum() > 3
    probabilities = probabilities[possible] / probabilities.sum()
    return float(stats.chisquare(observed[possible], probabilities * DRAWS).pvalue)


def rule(**sampling: float) -> Choice:
    return Choice(Sampling(**sampling), range(0), torch.Generator().manual_seed(1))


def test_a_token_drawn_from_the_targets_own_distribution_always_stands() -> None:
    choice, logits = rule(temperature=1.0), torch.randn(2, 6, generator=torch.Generator().manual_seed(2))
    p = choice.distribution(logits[0])
    for _ in range(200):
        token = choice.draw(p)
        assert accept(logits, Proposal(TokenSource.DRAFT, (token,), p[None]), choice)[0] == 1


def test_a_rejection_where_nothing_is_left_draws_from_the_target() -> None:
    choice, logits = rule(temperature=1.0), torch.zeros(2, 6)
    p = choice.distribution(logits[0])
    larger = p * 4  # no distribution: it rejects, and takes all there is
    outcomes = [accept(logits, Proposal(TokenSource.DRAFT, (2,), larger[None]), choice) for _ in range(200)]
    assert {token for accepted, token in outcomes if not accepted} == set(range(6))


def test_a_certain_token_is_never_replaced() -> None:
    choice = rule(temperature=0.01)
    logits = torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0]])
    for _ in range(50):
        assert accept(logits, Proposal(TokenSource.MEMORY, (1,)), choice) == (1, 0)
        assert accept(logits, Proposal(TokenSource.MEMORY, (2,)), choice) == (0, 1)


def test_a_rejected_guess_is_not_said_in_its_own_place() -> None:
    choice, logits = rule(temperature=1.0), torch.zeros(2, 4)
    outcomes = [accept(logits, Proposal(TokenSource.MEMORY, (2,)), choice) for _ in range(400)]
    rejected = [token for accepted, token in outcomes if not accepted]
    assert set(rejected) == {0, 1, 3}
    assert 0.6 < len(rejected) / len(outcomes) < 0.9  # accepted with p(x) = 1/4
