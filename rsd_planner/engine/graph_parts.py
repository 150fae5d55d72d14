"""What stands in for KV cache and attention kernel when the network becomes a graph of static shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

ATTENTION, PACKED_ATTENTION = "rsd_planner_graph", "rsd_planner_packed"  # as transformers knows them


@torch.library.custom_op("rsd_planner::write_rows", mutates_args=())
def write_rows(buffer: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """The buffer with rows written from an index on: ONNX's TensorScatter, which runs in place where memory is shared.

    Args:
        buffer: (1, KV heads, capacity, head dim).
        rows: (1, KV heads, T, head dim).
        index: (1,) int64.
    """
    place = torch.arange(rows.shape[2], device=rows.device) + index
    return buffer.index_copy(2, place, rows)


@write_rows.register_fake
def _(buffer: Tensor, rows: Tensor, index: Tensor) -> Tensor:  # noqa: ARG001
    return torch.empty_like(buffer)


def write_rows_in_place(buffer: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """As `write_rows`, but in the buffer itself."""
    place = torch.arange(rows.shape[2], device=rows.device) + index
    return buffer.index_copy_(2, place, rows)


class BufferCache:
    """A KV cache inside a graph: whole buffers in, whole buffers out, an index that says where new rows go.

    It answers what transformers' attention layers and the drafts ask of a KVCache: `update`.
    """

    def __init__(self, buffers: Sequence[Tensor], index: Tensor, *, in_place: bool = False) -> None:
        """
        Args:
            buffers: Keys, then values, one (1, KV heads, capacity, head dim) per layer.
            index: (1,) int64, rows in use.
            in_place: Not for export, which knows no writing in place.
        """
        self.buffers = list(buffers)
        self._write = write_rows_in_place if in_place else write_rows
        self._index = index
        self._layers = len(buffers) // 2

    def update(self, key: Tensor, value: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """Write one layer's new rows; the whole buffers, of which a mask says what may be seen."""
        for at, rows in ((layer, key), (self._layers + layer, value)):
            self.buffers[at] = self._write(self.buffers[at], rows, self._index)
        return self.buffers[layer], self.buffers[self._layers + layer]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Grouped-query attention as MatMul, Softmax and MatMul, which every runtime and every TensorRT builds.

    Query heads that share a KV head become rows of one product, so that keys and values are never repeated.

    Args:
        query: (1, heads, T, head dim).
        key, value: (1, KV heads, S, head dim).
        mask: (1, 1, heads / KV heads * T, S) float32, added to the scores; None where all is seen.

    Returns:
        (1, heads, T, head dim).
    """
    shape = query.shape
    rows = query.reshape(1, key.shape[1], -1, shape[3])
    scores = ((rows * scale) @ key.transpose(2, 3)).float()
    if mask is not None:
        scores = scores + mask
    mixed = scores.softmax(dim=-1).to(value.dtype) @ value
    return mixed.reshape(shape)


def _attention(
    _: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *, scaling: float, **__: Any
) -> tuple[Tensor, None]:
    """As transformers calls an attention kernel."""
    return attend(query, key, value, attention_mask, scaling).transpose(1, 2), None


def _packed_attention(
    _: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *, scaling: float, **__: Any
) -> tuple[Tensor, None]:
    """The same by PyTorch's own kernels."""
    assert attention_mask is not None
    rows = query.reshape(1, key.shape[1], -1, query.shape[3])
    mask = attention_mask.to(query.dtype)
    mixed = functional.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scaling)
    return mixed.reshape(query.shape).transpose(1, 2), None


AttentionInterface.register(ATTENTION, _attention)
AttentionInterface.register(PACKED_ATTENTION, _packed_attention)


@contextmanager
def graph_attention(*configs: Any, name: str = ATTENTION) -> Iterator[None]:
    """Let the modules that share these transformers configs attend by whole buffers and a mask."""
    before = [config._attn_implementation for config in configs]
    for config in configs:
        config._attn_implementation = name
    try:
        yield
    finally:
        for config, earlier in zip(configs, before, strict=True):
            config._attn_implementation = earlier
