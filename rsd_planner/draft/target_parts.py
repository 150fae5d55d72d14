"""What a draft must know of its target, and what it shares with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TargetParts:
    """Facts that a draft has to fit, and the two modules it borrows."""

    hidden_size: int
    layers: int
    vocab_size: int
    longest_prompt: int  # tokens
    rope_sections: Sequence[int]  # frequencies of time, height, width
    forbidden: range  # trajectory bins
    closing: tuple[int, int]  # cot_end, traj_future_start
    embedding: Callable[[Tensor], Tensor]  # (...) ids -> (..., hidden)
    lm_head: Callable[[Tensor], Tensor]  # (..., hidden) -> (..., vocab)
    dtype: torch.dtype
    device: torch.device
