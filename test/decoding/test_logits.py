"""Mask, temperature and top-p against a distribution worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from rsd_planner.decoding.logits import Sampling, choose, distribution
from rsd_planner.errors import ModelOutputError

NOTHING = range(0)
LOGITS = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))


def test_greedy_takes_the_largest_allowed() -> None:
    assert choose(LOGITS, NOTHING, Sampling(), torch.Generator()) == 0
    assert choose(LOGITS, range(0, 2), Sampling(), torch.Generator()) == 2


def test_temperature_and_mask() -> None:
    p = distribution(LOGITS, range(3, 4), Sampling(temperature=0.5))
    expected = np.array([0.5, 0.25, 0.15, 0.0]) ** 2
    np.testing.assert_allclose(p.numpy(), expected / expected.sum(), rtol=1e-6)


@pytest.mark.parametrize(("top_p", "kept"), [(0.4, 1), (0.5, 1), (0.51, 2), (0.76, 3), (1.0, 4)])
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: int) -> None:
    p = distribution(LOGITS, NOTHING, Sampling(temperature=1.0, top_p=top_p))
    assert int((p > 0).sum()) == kept
    assert float(p.sum()) == pytest.approx(1.0)


def test_the_mask_comes_before_top_p() -> None:
    p = distribution(LOGITS, range(0, 1), Sampling(temperature=1.0, top_p=0.6))
    np.testing.assert_allclose(p.numpy(), [0, 0.625, 0.375, 0], rtol=1e-6)


def test_samples_follow_the_distribution() -> None:
    generator = torch.Generator().manual_seed(3)
    sampling = Sampling(temperature=0.6, top_p=0.98)
    draws = [choose(LOGITS, NOTHING, sampling, generator) for _ in range(4000)]
    p = distribution(LOGITS, NOTHING, sampling).double()
    expected = (p / p.sum()).numpy() * len(draws)
    counts = np.bincount(draws, minlength=4)
    possible = expected > 0
    assert (counts[~possible] == 0).all()
    assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_are_an_error(value: float) -> None:
    logits = torch.full((4,), value)
    for sampling in (Sampling(), Sampling(temperature=0.6)):
        with pytest.raises(ModelOutputError, match="not finite"):
            choose(logits, NOTHING, sampling, torch.Generator())
