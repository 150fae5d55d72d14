"""From raw logits to a choice: mask, temperature, top-p, in this order and in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rsd_planner.errors import ModelOutputError


@dataclass(frozen=True)
class Sampling:
    """Greedy at temperature 0, otherwise temperature and nucleus sampling."""

    temperature: float = 0.0
    top_p: float = 1.0


def distribution(logits: Tensor, forbidden: range, sampling: Sampling) -> Tensor:
    """Probabilities of the next token.

    Args:
        logits: (..., vocab) float32, raw.
        forbidden: Token ids that are never said (trajectory bins), masked before temperature and top-p.
        sampling: With a temperature above 0.

    Returns:
        (..., vocab) summing to 1.
    """
    masked = _mask(logits, forbidden) / sampling.temperature
    probabilities = masked.softmax(dim=-1)
    if sampling.top_p < 1.0:
        ordered, index = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        kept = ordered.masked_fill(before >= sampling.top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, index, kept)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return probabilities


def choose(logits: Tensor, forbidden: range, sampling: Sampling, generator: torch.Generator) -> int:
    """The next token.

    Args:
        logits: (vocab,) float32, raw.
        generator: Used when sampling; on the CPU, so that a seed means the same everywhere.

    Raises:
        ModelOutputError: The logits hold a value that is not finite.
    """
    peak, token = _mask(logits, forbidden).max(dim=-1)
    if not torch.isfinite(peak):
        raise ModelOutputError(f"the model's logits are not finite (largest is {float(peak)})")
    if sampling.temperature == 0.0:
        return int(token)
    probabilities = distribution(logits, forbidden, sampling).cpu()
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _mask(logits: Tensor, forbidden: range) -> Tensor:
    masked = logits.clone()
    masked[..., forbidden.start : forbidden.stop] = -torch.inf
    return masked
