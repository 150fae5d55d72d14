"""Keys and values of a prefix that several variants go on from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class VariantKV:
    """Rows beyond `length` are scratch: a pass writes there, and who wants to keep them adds to `length`."""

    def __init__(self, rows: Tensor) -> None:
        """
        Args:
            rows: (layers, 2, variants, KV heads, capacity, head dim).
        """
        self._rows = rows
        self.length = 0

    @classmethod
    def empty(cls, config: Any, variants: int, capacity: int, like: Tensor) -> VariantKV:
        """For a text model of this config, with the dtype and device of a tensor."""
        shape = (config.num_hidden_layers, 2, variants, config.num_key_value_heads, capacity, config.head_dim)
        return cls(torch.empty(shape, dtype=like.dtype, device=like.device))

    def spread(self, times: int, room: int) -> VariantKV:
        """Every variant `times` in a row, with room for more tokens."""
        layers, two, variants, heads, _, width = self._rows.shape
        new = self._rows.new_empty((layers, two, variants, times, heads, self.length + room, width))
        new[..., : self.length, :] = self._rows[:, :, :, None, :, : self.length]
        spread = VariantKV(new.flatten(2, 3))
        spread.length = self.length
        return spread

    def update(self, key: Tensor, value: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """See `target.kv_cache.KeysValues`."""
        end = self.length + key.shape[2]
        rows = self._rows[layer]
        rows[0, :, :, self.length : end] = key
        rows[1, :, :, self.length : end] = value
        return rows[0, :, :, :end], rows[1, :, :, :end]
