"""Masks over the whole buffers of a KV cache, which graphs read to their end."""

from __future__ import annotations

import torch
from torch import Tensor


def causal(start: int, count: int, capacity: int, device: torch.device) -> Tensor:
    """(1, 1, count, capacity) float32 to be added: token i at row `start + i` sees the rows up to its own."""
    rows = torch.arange(start, start + count, device=device)[:, None]
    return _hidden(torch.arange(capacity, device=device)[None] > rows)


def open_to(length: int, count: int, capacity: int, device: torch.device) -> Tensor:
    """(1, 1, count, capacity) float32 to be added: `count` tokens that all see the first `length` rows."""
    return _hidden((torch.arange(capacity, device=device) >= length).expand(count, -1))


def _hidden(unseen: Tensor) -> Tensor:
    mask = torch.zeros(unseen.shape, dtype=torch.float32, device=unseen.device)
    return mask.masked_fill_(unseen, -torch.inf)[None, None]
