"""What the target makes of a proposal: greedy comparison, or rejection sampling that keeps its distribution."""

from __future__ import annotations

from collections.abc import Container

import torch
from torch import Tensor

from rsd_planner.decoding.logits import Choice, require_finite
from rsd_planner.decoding.protocols import Proposal

Substitution = tuple[int, int]  # the target's own token, and a drafted one that stands in its place
EXACT: Container[Substitution] = ()


def accept(
    logits: Tensor, proposal: Proposal, choice: Choice, allowed: Container[Substitution] = EXACT
) -> tuple[int, int]:
    """How many drafted tokens stand, and the target's own token after them.

    Args:
        logits: (k + 1, vocab) raw float32: row i is what the target says after i of the k drafted tokens.
        allowed: Lossy if not empty, and for a greedy choice only: differing tokens that stand all the same.

    Raises:
        ModelOutputError: A row that decides holds a value that is not finite.
    """
    return (
        _accept_greedy(logits, proposal, choice, allowed)
        if choice.greedy
        else _accept_sampled(logits, proposal, choice)
    )


def differing(logits: Tensor, proposal: Proposal, accepted: int, choice: Choice) -> list[int]:
    """Which of the accepted tokens of a proposal are not the target's own; for a greedy choice."""
    best = choice.best(logits[:accepted])[1].tolist()
    return [i for i, token in enumerate(proposal.tokens[:accepted]) if token != best[i]]


def _accept_greedy(
    logits: Tensor, proposal: Proposal, choice: Choice, allowed: Container[Substitution]
) -> tuple[int, int]:
    peaks, best = (values.tolist() for values in choice.best(logits))
    for i, token in enumerate(proposal.tokens):
        require_finite(peaks[i])
        if token != best[i] and (best[i], token) not in allowed:
            return i, best[i]
    require_finite(peaks[-1])
    return len(proposal.tokens), best[-1]


def _accept_sampled(logits: Tensor, proposal: Proposal, choice: Choice) -> tuple[int, int]:
    for i, token in enumerate(proposal.tokens):
        p = _distribution(logits[i], choice)
        q = _one_hot(token, p) if proposal.probabilities is None else proposal.probabilities[i]
        if choice.chance() * q[token] >= p[token]:  # accepted with probability min(1, p/q)
            return i, choice.draw(_residual(p, q))
    return len(proposal.tokens), choice.draw(_distribution(logits[-1], choice))


def _distribution(logits: Tensor, choice: Choice) -> Tensor:
    require_finite(float(choice.best(logits)[0]))
    return choice.distribution(logits)


def _one_hot(token: int, like: Tensor) -> Tensor:
    q = torch.zeros_like(like)
    q[token] = 1.0
    return q


def _residual(p: Tensor, q: Tensor) -> Tensor:
    """What p has more than q. Where rounding leaves nothing of it, p and q are equal and p serves."""
    residual = (p - q).clamp(min=0.0)
    return residual if float(residual.sum()) > 0.0 else p
