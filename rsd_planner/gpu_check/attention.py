"""Attention of a few tokens over a cache of fixed size: several ways to have it, since none is best on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

HIDDEN_SCORE = -1e4  # added to what may not be seen: finite, so that a stretch of which nothing is seen weighs nothing
_STRETCHES = 16

# (heads, T, head dim) queries, (KV heads, rows, head dim) keys and values, (heads / KV heads * T, rows) score bias
# -> (heads, T, head dim)
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal_bias(write: Tensor, capacity: int, group: int, dtype: torch.dtype) -> Tensor:
    """(group * T, capacity) score bias: a token sees all rows up to its own.

    Args:
        write: (T,) the row each token is written to.
        group: Query heads per KV head.
    """
    rows = torch.arange(capacity, device=write.device)
    return visible_bias(rows[None] <= write[:, None], group, dtype)


def visible_bias(visible: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """(group * T, capacity) score bias of a (T, capacity) mask."""
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return bias.masked_fill(~visible, HIDDEN_SCORE).repeat(group, 1)


def repeated(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Keys and values copied for every query head, as transformers does under a mask."""
    group = queries.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(group, 0)[None], values.repeat_interleave(group, 0)[None]
    return functional.scaled_dot_product_attention(queries[None], keys, values, attn_mask=bias[: queries.shape[1]])[0]


def grouped(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Query heads that share a KV head become rows of one head: nothing is copied."""
    folded = queries.reshape(1, keys.shape[0], -1, queries.shape[2])
    mixed = functional.scaled_dot_product_attention(folded, keys[None], values[None], attn_mask=bias)
    return mixed.reshape(queries.shape)


def grouped_cudnn(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """`grouped` by cuDNN's kernel."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return grouped(queries, keys, values, bias)


def split(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """`grouped`, the rows cut into stretches that are attended to in parallel and put together by their weight."""
    heads, rows, dim = keys.shape
    stretch = rows // _STRETCHES
    folded = queries.reshape(1, heads, -1, dim).expand(_STRETCHES, -1, -1, -1)
    cut_keys, cut_values = (x.view(heads, _STRETCHES, stretch, dim).transpose(0, 1) for x in (keys, values))
    cut_bias = bias.view(-1, _STRETCHES, stretch).transpose(0, 1)[:, None].expand(-1, heads, -1, -1)
    mixed, log_weight = _with_log_weight(folded, cut_keys, cut_values, cut_bias)
    weight = log_weight[..., : folded.shape[2]].softmax(dim=0)[..., None]
    together: Tensor = (mixed.float() * weight).sum(0)
    return together.to(queries.dtype).reshape(queries.shape)


def _with_log_weight(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Attention, (B, heads, T, head dim), and the logarithm of the sum of each query's weights, (B, heads, >= T)."""
    mixed, log_weight, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(queries, keys, values, bias, True)
    return mixed, log_weight


CPU_KINDS: Mapping[str, Attend] = {"grouped": grouped, "repeated": repeated}
CUDA_KINDS: Mapping[str, Attend] = {**CPU_KINDS, "split": split, "grouped, cuDNN": grouped_cudnn}


def reference(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """The same in float32, step by step."""
    folded = queries.reshape(keys.shape[0], -1, queries.shape[2]).float()
    scores = folded @ keys.float().transpose(1, 2) / queries.shape[2] ** 0.5 + bias.float()
    mixed: Tensor = scores.softmax(dim=-1) @ values.float()
    return mixed.reshape(queries.shape)
