"""Inputs of graphs: masks over the whole buffers of a KV cache, and all of a flow step."""

from __future__ import annotations

import torch
from torch import Tensor

from rsd_planner.target.kv_cache import KVCache
from rsd_planner.target.uploads import upload


def causal(start: int, count: int, capacity: int, device: torch.device) -> Tensor:
    """(1, 1, count, capacity) float32 to be added: token i at row `start + i` sees the rows up to its own."""
    rows = torch.arange(start, start + count, device=device)[:, None]
    return _hidden(torch.arange(capacity, device=device)[None] > rows)


def open_to(length: int, count: int, capacity: int, device: torch.device) -> Tensor:
    """(1, 1, count, capacity) float32 to be added: `count` tokens that all see the first `length` rows."""
    return _hidden((torch.arange(capacity, device=device) >= length).expand(count, -1))


def flow_step(actions: Tensor, time: float, positions: Tensor, cache: KVCache) -> dict[str, Tensor]:
    """Inputs of the `action` graph, behind what the cache holds.

    Args:
        actions: (64, 2) float32 noisy actions.
        time: Flow time in [0, 1].
        positions: (3, 1, 64) rotary positions.
    """
    device, count = positions.device, len(actions)
    return {
        "actions": upload(actions, device)[None],
        "time": torch.full((1,), time, dtype=torch.float32, device=device),
        "positions": positions,
        "mask": open_to(cache.length + count, count, cache.capacity, device),
        "write_index": torch.full((1,), cache.length, device=device),
    }


def _hidden(unseen: Tensor) -> Tensor:
    mask = torch.zeros(unseen.shape, dtype=torch.float32, device=unseen.device)
    return mask.masked_fill_(unseen, -torch.inf)[None, None]
