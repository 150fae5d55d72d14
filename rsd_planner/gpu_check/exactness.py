"""Whether a pass over many tokens says what single steps say: in bfloat16 only up to near ties, which are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

TOKENS = 64  # read behind the past, with each number of tokens per pass
EPSILON = 0.125  # logits: four steps of bfloat16 where the leading logits are; a smaller lead is a near tie

# tokens -> (tokens, vocab) float32 logits, read behind what is in the cache, which then holds them
Read = Callable[[Sequence[int]], Tensor]


def logits_by(count: int, tokens: Sequence[int], read: Read, rewind: Callable[[], None]) -> Tensor:
    """(tokens, vocab) logits after each of the tokens, read `count` at a time behind the same past."""
    rewind()
    return torch.cat([read(tokens[i : i + count]).clone() for i in range(0, len(tokens), count)])


def agreement(single: Tensor, together: Tensor, bins: range) -> dict[str, Any]:
    """How two readings of the same tokens differ.

    Args:
        single, together: (T, vocab) float32 raw logits.
        bins: Ids that are never said.
    """
    difference = (single - together).abs().amax(dim=-1)
    masked = [logits.clone() for logits in (single, together)]
    for logits in masked:
        logits[:, bins.start : bins.stop] = -torch.inf
    leads = masked[0].topk(2, dim=-1).values.diff(dim=-1).neg()[:, 0]
    differing = masked[0].argmax(dim=-1) != masked[1].argmax(dim=-1)
    largest = float(leads[differing].max()) if differing.any() else 0.0
    return {
        "tokens": len(single),
        "differing_tokens": int(differing.sum()),
        "largest_margin_where_differing": largest,
        "near_ties": int((leads < EPSILON).sum()),
        "epsilon": EPSILON,
        "within_epsilon": largest < EPSILON,
        "largest_logit_difference": float(difference.max()),
        "median_logit_difference": float(difference.median()),
        "logit_deviation": float(single.std()),
    }
