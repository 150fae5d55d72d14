"""What a candidate is worth to the vehicle and to the text, advantages in its group, and the pull to the frozen draft.

Source: GRPO as the paper on action-aware RL of drafts uses it; the metres are ours.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rsd_planner.target.action_space import DT_S, ActionScaling, roll_out

HORIZONS_S = (1.0, 6.4)  # of the displacement errors
_SMALLEST_STD = 1e-6


class Metric(str, Enum):
    """In what a change of the action is measured."""

    MSE = "mse"  # of the normalised (64, 2) actions
    METRES = "metres"  # average displacement of the path, mean of that over 1 s and over 6.4 s


class Advantage(str, Enum):
    """How rewards of a group become advantages."""

    CENTRED = "centred"  # minus their mean
    NORMALISED = "normalised"  # and divided by their standard deviation


class Anchor(str, Enum):
    """Where the draft is held to the frozen one."""

    STATIC = "static"  # where the frozen draft agrees with the target: the same places for the whole run
    POLICY = "policy"  # where the draft itself agrees now: a place that flips is let go for good
    NONE = "none"


def action_errors(actions: Tensor, own: Tensor) -> Tensor:
    """(M,) mean squared error of (M, draws, 64, 2) actions against (draws, 64, 2), draw by draw under one noise."""
    return (actions - own).square().mean(dim=(1, 2, 3))


def path_errors(actions: Tensor, own: Tensor, v0: float, scaling: ActionScaling) -> NDArray[np.float64]:
    """(M, 2) m: average displacement over 1 s and over 6.4 s of the rolled-out paths, mean over the draws.

    Args:
        actions, own: As in `action_errors`.
        v0: Speed at t0, m/s.
    """
    paths = np.array([[roll_out(draw, v0, scaling).positions for draw in one] for one in actions.numpy()])
    reference = np.array([roll_out(draw, v0, scaling).positions for draw in own.numpy()])
    distances = np.linalg.norm(paths - reference, axis=-1)  # (M, draws, 64)
    return np.stack([distances[..., : round(s / DT_S)].mean(axis=(1, 2)) for s in HORIZONS_S], axis=-1)


def text_shares(candidates: Tensor, own: Tensor) -> Tensor:
    """(K,) share of the (K, changed) tokens that are the target's own (changed,)."""
    return (candidates == own).float().mean(dim=1)


def rewards(errors: Tensor, shares: Tensor, action_weight: float, text_weight: float) -> Tensor:
    """(K,) of (K,) action errors and (K,) shares of matching tokens."""
    return text_weight * shares - action_weight * errors


def advantages(found: Tensor, kind: Advantage) -> Tensor:
    """(K,) of the (K,) rewards of one group; where all are equal, nothing is learned."""
    centred = found - found.mean()
    if kind is Advantage.CENTRED:
        return centred
    return centred / found.std(correction=0).clamp(min=_SMALLEST_STD)


def anchored(kind: Anchor, frozen_agrees: Tensor, draft_agrees: Tensor) -> Tensor:
    """Which places are anchors, of those where the frozen draft and the current one say what the target says."""
    if kind is Anchor.STATIC:
        return frozen_agrees
    return draft_agrees if kind is Anchor.POLICY else torch.zeros_like(frozen_agrees)


def divergence(logits: Tensor, frozen: Tensor) -> Tensor:
    """(...,) KL(draft || frozen draft) of (..., words) logits, exact: over every word, no sample."""
    log_p, log_q = logits.log_softmax(dim=-1), frozen.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)
