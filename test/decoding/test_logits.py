"""Mask, temperature and top-p against a distribution worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from rsd_planner.decoding.acceptance import accept
from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.errors import ModelOutputError
from rsd_planner.plan import TokenSource

NOTHING = range(0)
LOGITS = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))


def choice(forbidden: range = NOTHING, **sampling: float) -> Choice:
    return Choice(Sampling(**sampling), forbidden, torch.Generator().manual_seed(3))


def own_token(logits: torch.Tensor, rule: Choice) -> int:
    return accept(logits[None], Proposal(TokenSource.DRAFT), rule)[1]


def test_greedy_takes_the_largest_allowed() -> None:
    assert own_token(LOGITS, choice()) == 0
    assert own_token(LOGITS, choice(range(0, 2))) == 2


def test_temperature_and_mask() -> None:
    p = choice(range(3, 4), temperature=0.5).distribution(LOGITS)
    expected = np.array([0.5, 0.25, 0.15, 0.0]) ** 2
    np.testing.assert_allclose(p.numpy(), expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize(("top_p", "kept"), [(0.4, 1), (0.5, 1), (0.51, 2), (0.76, 3), (1.0, 4)])
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: int) -> None:
    p = choice(temperature=1.0, top_p=top_p).distribution(LOGITS)
    assert int((p > 0).sum()) == kept
    assert float(p.sum()) == pytest.approx(1.0)


def test_the_mask_comes_before_top_p() -> None:
    p = choice(range(0, 1), temperature=1.0, top_p=0.6).distribution(LOGITS)
    np.testing.assert_allclose(p.numpy(), [0, 0.625, 0.375, 0], rtol=1e-6)


def test_rows_are_independent() -> None:
    rule = choice(range(1, 2), temperature=0.7, top_p=0.8)
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    torch.testing.assert_close(rule.distribution(rows), torch.stack([rule.distribution(row) for row in rows]))


def test_samples_follow_the_distribution() -> None:
    rule = choice(temperature=0.6, top_p=0.98)
    draws = [own_token(LOGITS, rule) for _ in range(4000)]
    p = rule.distribution(LOGITS).double()
    expected = (p / p.sum()).numpy() * len(draws)
    counts = np.bincount(draws, minlength=4)
    possible = expected > 0
    assert (counts[~possible] == 0).all()
    assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_are_an_error(value: float) -> None:
    for rule in (choice(), choice(temperature=0.6)):
        with pytest.raises(ModelOutputError, match="not finite"):
            own_token(torch.full((4,), value), rule)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_only_rows_that_decide_must_be_finite(temperature: float) -> None:
    said_zero = torch.tensor([50.0, 0.0, 0.0, 0.0])
    logits = torch.stack([said_zero, torch.full((4,), float("nan"))])
    assert accept(logits, Proposal(TokenSource.DRAFT, (1,)), choice(temperature=temperature)) == (0, 0)
    with pytest.raises(ModelOutputError, match="not finite"):
        accept(logits, Proposal(TokenSource.DRAFT, (0,)), choice(temperature=temperature))
