"""Reward, advantage, anchors and KL are what is computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rsd_planner.target.action_space import ActionScaling
from rsd_planner.training.aarl_reward import (
    Advantage,
    Anchor,
    action_errors,
    advantages,
    anchored,
    divergence,
    path_errors,
    rewards,
    text_shares,
)


def test_reward_by_hand() -> None:
    own = torch.zeros(2, 64, 2)
    actions = torch.stack([own, own.clone(), own.clone()])
    actions[1, :, :, 0] = 3.0  # every acceleration off by 3, no curvature: (9 + 0) / 2
    actions[2, 0, 5, 1] = 8.0  # one number of 2 * 64 * 2 off by 8: 64 / 256
    errors = action_errors(actions, own)
    assert errors.tolist() == [0.0, 4.5, 0.25]
    said = torch.tensor([[7, 8, 9, 4], [7, 8, 9, 9], [1, 2, 3, 4]])
    shares = text_shares(said, torch.tensor([7, 8, 9, 9]))
    assert shares.tolist() == [0.75, 1.0, 0.0]
    assert rewards(errors, shares, 1.0, 0.5).tolist() == [0.375, -4.0, -0.25]
    assert rewards(errors, shares, 0.0, 0.5).tolist() == [0.375, 0.5, 0.0]


def test_metres_by_hand() -> None:
    """1 m/s^2 more from 10 m/s on a straight road: after k steps 0.005 k^2 m ahead."""
    scaling = ActionScaling(accel_mean=0.0, accel_std=1.0, curvature_mean=0.0, curvature_std=1.0)
    own = torch.zeros(2, 64, 2)
    faster = own.clone()
    faster[0, :, 0] = 1.0  # in one of two draws
    found = path_errors(torch.stack([own, faster]), own, 10.0, scaling)
    ahead = 0.005 * np.arange(1, 65) ** 2
    assert found.shape == (2, 2)
    assert np.allclose(found[0], 0.0)
    assert np.allclose(found[1], [ahead[:10].mean() / 2, ahead.mean() / 2])


def test_advantages_by_hand() -> None:
    found = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert advantages(found, Advantage.CENTRED).tolist() == [-2.0, -1.0, 0.0, 3.0]
    deviation = math.sqrt((4 + 1 + 0 + 9) / 4)
    expected = torch.tensor([-2.0, -1.0, 0.0, 3.0]) / deviation
    assert torch.allclose(advantages(found, Advantage.NORMALISED), expected)
    assert advantages(torch.full((3,), 0.5), Advantage.NORMALISED).tolist() == [0.0, 0.0, 0.0]


def test_anchors_by_hand() -> None:
    """Two places flipped: they stay in the static set and leave the policy's; a newly right one joins only there."""
    frozen = torch.tensor([True, True, True, False, False])
    now = torch.tensor([True, False, False, True, False])
    assert anchored(Anchor.STATIC, frozen, now).tolist() == frozen.tolist()
    assert anchored(Anchor.POLICY, frozen, now).tolist() == now.tolist()
    assert not anchored(Anchor.NONE, frozen, now).any()


def test_divergence_by_hand() -> None:
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.25, 0.25, 0.5])
    expected = 0.5 * math.log(2) + 0.25 * math.log(0.5)
    logits = torch.stack([p.log() + 3.0, q.log()])  # a constant changes nothing
    found = divergence(logits, torch.stack([q.log(), q.log()]))
    assert found.tolist() == pytest.approx([expected, 0.0], abs=1e-6)
