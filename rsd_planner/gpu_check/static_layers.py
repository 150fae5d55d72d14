"""A decoder layer over a cache of fixed size, for text model, action expert and drafts.

The arithmetic is that of the modules the planner runs; the weights are theirs. Every shape is static, the row a token
is written to is a tensor and nothing waits for the host, so that a pass can be captured as a CUDA graph and replayed at
any length of the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from rsd_planner.gpu_check.attention import Attend

EPS = 1e-6


class LayerWeights(NamedTuple):
    """One layer's matrices. Tensors and no modules, so that one compilation serves all layers."""

    input_norm: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    query_norm: Tensor | None  # per head; EAGLE-3 has none
    key_norm: Tensor | None
    output: Tensor
    post_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor

    @classmethod
    def of(cls, layer: Any) -> LayerWeights:
        """Those of a transformers or draft layer, which name their parts alike."""
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            layer.input_layernorm.weight,
            attention.q_proj.weight,
            attention.k_proj.weight,
            attention.v_proj.weight,
            getattr(attention.q_norm, "weight", None),
            getattr(attention.k_norm, "weight", None),
            attention.o_proj.weight,
            layer.post_attention_layernorm.weight,
            mlp.gate_proj.weight,
            mlp.up_proj.weight,
            mlp.down_proj.weight,
        )


class Rows(NamedTuple):
    """Where the tokens of a pass stand: the same for all layers."""

    cos: Tensor  # (T, 1, head dim)
    sin: Tensor  # its first half negated, see `rotation`
    write: Tensor  # (T,) int64 rows of the cache
    bias: Tensor | None  # as `Attend` takes it; None for the first tokens of all, which see each other causally


LayerPass = Callable[[Tensor, Tensor | None, Rows, Tensor, Tensor, LayerWeights, Attend], Tensor]


class StaticCache:
    """Keys and values of fixed capacity, one (KV heads, capacity, head dim) each per layer."""

    def __init__(
        self, layers: int, kv_heads: int, capacity: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        size = (kv_heads, capacity, head_dim)
        self.capacity = capacity
        self.keys, self.values = (
            [torch.zeros(size, dtype=dtype, device=device) for _ in range(layers)] for _ in range(2)
        )


def decoder_layer(
    hidden: Tensor,
    inputs: Tensor | None,
    rows: Rows,
    keys: Tensor,
    values: Tensor,
    weights: LayerWeights,
    attend: Attend,
) -> Tensor:
    """(T, hidden) -> (T, hidden); the tokens' keys and values are written into their rows.

    Args:
        inputs: (T, inputs) what attention reads, normed; None for `hidden` after the layer's own norm.
    """
    normed = norm(hidden, weights.input_norm) if inputs is None else inputs
    mixed = _attention(normed, rows, keys, values, weights, attend)
    hidden = hidden + functional.linear(mixed, weights.output)
    normed = norm(hidden, weights.post_norm)
    gated = functional.silu(functional.linear(normed, weights.gate)) * functional.linear(normed, weights.up)
    return hidden + functional.linear(gated, weights.down)


def write_keys_values(
    normed: Tensor, rows: Rows, keys: Tensor, values: Tensor, weights: LayerWeights
) -> tuple[Tensor, Tensor]:
    """Write the tokens' keys and values; return them, (KV heads, T, head dim) each."""
    key = _rotated(functional.linear(normed, weights.key), weights.key_norm, rows)
    value = functional.linear(normed, weights.value).view(-1, keys.shape[0], keys.shape[2]).transpose(0, 1)
    keys.index_copy_(1, rows.write, key)
    values.index_copy_(1, rows.write, value)
    return key, value


def rotation(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Tables as `Rows` holds them, of (T, head dim) cos and sin: signs change here once and not in every layer."""
    low, high = sin.chunk(2, dim=-1)
    return cos[:, None].to(dtype).contiguous(), torch.cat([-low, high], dim=-1)[:, None].to(dtype)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, EPS)


def _attention(
    normed: Tensor, rows: Rows, keys: Tensor, values: Tensor, weights: LayerWeights, attend: Attend
) -> Tensor:
    """(T, heads * head dim) before the output projection."""
    query = _rotated(functional.linear(normed, weights.query), weights.query_norm, rows)
    key, value = write_keys_values(normed, rows, keys, values, weights)
    if rows.bias is None:
        mixed = functional.scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, enable_gqa=True
        )[0]
    else:
        mixed = attend(query, keys, values, rows.bias)
    return mixed.transpose(0, 1).flatten(1)


def _rotated(x: Tensor, weight: Tensor | None, rows: Rows) -> Tensor:
    """(T, heads * head dim) -> (heads, T, head dim), normed per head where there is a weight, then turned."""
    heads = x.view(x.shape[0], -1, rows.cos.shape[2])
    if weight is not None:
        heads = norm(heads, weight)
    turned = torch.addcmul(heads * rows.cos, heads.roll(heads.shape[2] // 2, -1), rows.sin)
    return turned.transpose(0, 1)
