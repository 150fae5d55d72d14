"""The KV cache: fixed buffers, one row per token, so that rolling back is making a number smaller."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextDecoderLayer

# transformers renamed the argument between 5.17 and 5.24; both are served
_ARGUMENT = "cache" if "cache" in inspect.signature(Qwen3VLTextDecoderLayer.forward).parameters else "past_key_values"
GRAIN = 512  # rows: a reasoning, its closing tokens and 64 waypoints


class KeysValues(Protocol):
    """Where a layer's keys and values go, and what is to be attended to comes from."""

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """New rows, (B, KV heads, T, head_dim) -> those before them and they themselves."""


class KVCache:
    """Keys and values of all text layers in buffers that are written in place.

    It answers the one call transformers' attention layers make, `update`. Rows beyond `length` are scratch: a pass
    writes there and `commit` keeps them. The action expert writes its 64 waypoints there and keeps nothing.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        grain: int = GRAIN,
    ) -> None:
        """
        Args:
            grain: Rows by which the buffers grow. A pass that reads whole buffers wants a small one.
        """
        self._layers = layers
        self._row = (kv_heads, head_dim)
        self._options: dict[str, Any] = {"dtype": dtype, "device": device}
        self._grain = grain
        self.length = 0
        self.keys: list[Tensor] = []  # per layer (1, KV heads, capacity, head dim)
        self.values: list[Tensor] = []

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2] if self.keys else 0

    @property
    def used_bytes(self) -> int:
        """Of the committed rows."""
        return sum(buffer[:, :, : self.length].nbytes for buffer in (*self.keys, *self.values))

    def clear(self) -> None:
        """Forget everything; the buffers stay."""
        self.length = 0

    @torch.inference_mode()
    def wipe(self) -> None:
        """Zero all rows: what is not finite would get past a mask, for a pass that reads whole buffers."""
        for buffer in (*self.keys, *self.values):
            buffer.zero_()

    def reserve(self, count: int) -> None:
        """Make room for `count` more rows. Buffers grow in steps, so that a running planner stops growing soon."""
        needed = self.length + count
        if needed <= self.capacity:
            return
        capacity = -(-(needed + self._grain) // self._grain) * self._grain
        self.keys = [self._grown(layer, self.keys, capacity) for layer in range(self._layers)]
        self.values = [self._grown(layer, self.values, capacity) for layer in range(self._layers)]

    def _grown(self, layer: int, old: list[Tensor], capacity: int) -> Tensor:
        heads, dim = self._row
        new = torch.zeros((1, heads, capacity, dim), **self._options)
        if old:
            new[:, :, : self.length] = old[layer][:, :, : self.length]
        return new

    def update(self, key: Tensor, value: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """Write one layer's new rows behind the committed ones; return committed and new rows together.

        Args:
            key, value: (1, KV heads, new tokens, head dim).
        """
        end = self.length + key.shape[2]
        self.keys[layer][:, :, self.length : end] = key
        self.values[layer][:, :, self.length : end] = value
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def commit(self, count: int) -> None:
        """Keep `count` rows written by the last pass."""
        self.length += count

    def rollback(self, count: int) -> None:
        """Drop the last `count` committed rows."""
        if not 0 <= count <= self.length:
            raise ValueError(f"cannot roll back {count} of {self.length} tokens")
        self.length -= count


def for_layers(cache: Any) -> dict[str, Any]:
    """The keyword by which transformers' layers take a cache: anything that answers `update`."""
    return {_ARGUMENT: cache}
