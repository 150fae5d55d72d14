"""Whether a strategy said what the plain loop said, and left the same keys and values behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from rsd_planner.scene.observation import Observation
from rsd_planner.target.alpamayo import AlpamayoTarget

TIE = 1e-4  # margin between the two likeliest tokens below which rounding may decide
KV_BOUND = 1e-4  # relative to the largest value


@dataclass(frozen=True)
class Agreement:
    """One frame of a strategy beside the plain loop."""

    margin: float | None  # of the two likeliest tokens where the words part; None if they do not
    kv_difference: float | None  # largest, relative to the plain loop's largest; None where there is nothing to compare

    @property
    def exact(self) -> bool:
        """Equal tokens, and keys and values equal within the bound; or a tie decided otherwise."""
        if self.margin is not None:
            return self.margin < TIE
        return self.kv_difference is None or self.kv_difference <= KV_BOUND


def kv_difference(expected: Tensor | None, found: Tensor | None) -> float | None:
    """Largest difference, relative to the largest expected value; infinite where the lengths differ."""
    if expected is None or found is None:
        return None
    if expected.shape != found.shape:
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max())


@torch.inference_mode()
def margin(
    target: AlpamayoTarget, observation: Observation, expected: Sequence[int], found: Sequence[int]
) -> float | None:
    """The likeliest token's lead over the second where `found` begins to differ; None if it does not."""
    if tuple(expected) == tuple(found):
        return None
    pairs = zip(expected, found, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    logits = target.prefill(target.prompt(observation), expected[:same]).logits[-1]
    bins = target.vocabulary.bins
    logits[bins.start : bins.stop] = -torch.inf
    first, second = logits.topk(2).values.tolist()
    return float(first - second)
