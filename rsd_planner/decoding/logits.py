"""From raw logits to a choice: mask, temperature, top-p, in this order and in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rsd_planner.errors import ModelOutputError


@dataclass(frozen=True)
class Sampling:
    """Greedy at temperature 0, otherwise temperature and nucleus sampling."""

    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Choice:
    """How a token is chosen, by the target and by a draft alike: only then are their probabilities comparable."""

    sampling: Sampling
    forbidden: range  # ids that are never said (trajectory bins), masked before temperature and top-p
    generator: torch.Generator  # on the CPU, so that a seed means the same everywhere

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature == 0.0

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Largest allowed logit and its token, each (...), of (..., vocab) raw logits."""
        peak, token = self._mask(logits).max(dim=-1)
        return peak, token

    def distribution(self, logits: Tensor) -> Tensor:
        """(..., vocab) raw float32 logits -> (..., vocab) probabilities that sum to 1. Not for greedy."""
        probabilities = (self._mask(logits) / self.sampling.temperature).softmax(dim=-1)
        if self.sampling.top_p < 1.0:
            ordered, index = probabilities.sort(dim=-1, descending=True)
            before = ordered.cumsum(dim=-1) - ordered
            kept = ordered.masked_fill(before >= self.sampling.top_p, 0.0)
            probabilities = torch.zeros_like(probabilities).scatter(-1, index, kept)
            probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
        return probabilities

    def draw(self, probabilities: Tensor) -> int:
        """A token from (vocab,) probabilities, which need not sum to 1."""
        return int(torch.multinomial(probabilities.cpu(), 1, generator=self.generator))

    def chance(self) -> float:
        """Uniform in [0, 1)."""
        return float(torch.rand((), generator=self.generator))

    def _mask(self, logits: Tensor) -> Tensor:
        masked = logits.clone()
        masked[..., self.forbidden.start : self.forbidden.stop] = -torch.inf
        return masked


def require_finite(peak: float) -> None:
    """Raises ModelOutputError when the largest logit is not finite: then none of them means anything."""
    if not math.isfinite(peak):
        raise ModelOutputError(f"the model's logits are not finite (largest is {peak})")
