"""A pass of few tokens through the layers of text model or action expert in as few calls as it takes.

Behind a prompt the target reads one token or a few, and the expert 64 waypoints: a layer is then little arithmetic and
many calls; transformers' general layer makes three times as many as are needed. Tests hold both to the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rsd_planner.target.kv_cache import KVCache


class ShortPass:
    """The layers of a Qwen3-VL's text model, for rows of one sequence that carry no image."""

    def __init__(self, model: Any) -> None:
        """
        Args:
            model: Has `layers` and `rotary_emb` of transformers. Parameters are used, not copied.
        """
        self._rotary, config = model.rotary_emb, model.rotary_emb.config
        self._layers = [_Layer(layer, config) for layer in model.layers]
        self._groups = config.num_attention_heads // config.num_key_value_heads

    def outputs(self, hidden: Tensor, positions: Tensor, cache: KVCache, *, causal: bool = True) -> Iterator[Tensor]:
        """The output of each layer, (T, hidden). Keys and values are written behind the committed ones.

        Args:
            hidden: (T, hidden) embeddings.
            positions: (3, 1, T) rotary positions.
            causal: Whether a row is hidden from those before it.
        """
        cos, sin = (table[0][:, None] for table in self._rotary(hidden[None], positions))  # (T, 1, head_dim)
        low, high = sin.chunk(2, dim=-1)
        rotation = cos, torch.cat([-low, high], dim=-1)
        mask = self._mask(len(hidden), cache.length, hidden) if causal and len(hidden) > 1 else None
        for number, layer in enumerate(self._layers):
            hidden = layer(hidden, rotation, mask, cache, number)
            yield hidden

    def _mask(self, count: int, read: int, like: Tensor) -> Tensor:
        """(heads per KV head * count, read + count) to be added; the heads that share keys lie one after the other."""
        mask = torch.full((count, read + count), -torch.inf, dtype=like.dtype, device=like.device).triu(read + 1)
        return mask.repeat(self._groups, 1)


class _Layer:
    """One decoder layer: what `Qwen3VLTextDecoderLayer.forward` computes."""

    def __init__(self, layer: Any, config: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._query, self._key, self._value = attention.q_proj, attention.k_proj, attention.v_proj
        self._out, self._gate, self._up, self._down = attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj
        self._norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self._head_norms = attention.q_norm.weight, attention.k_norm.weight
        self._activation = mlp.act_fn
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._head_dim, self._hidden, self._eps = config.head_dim, config.hidden_size, config.rms_norm_eps

    def __call__(
        self, hidden: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache, number: int
    ) -> Tensor:
        normed = torch.rms_norm(hidden, (self._hidden,), self._norms[0], self._eps)
        queries = self._rotated(_linear(normed, self._query), self._head_norms[0], rotation)
        keys = self._rotated(_linear(normed, self._key), self._head_norms[1], rotation)
        values = _linear(normed, self._value).view(-1, self._kv_heads, self._head_dim)
        past = cache.update(keys.transpose(0, 1)[None], values.transpose(0, 1)[None], number)
        hidden = hidden + _linear(self._attend(queries, *past, mask), self._out)
        normed = torch.rms_norm(hidden, (self._hidden,), self._norms[1], self._eps)
        inner = self._activation(_linear(normed, self._gate)) * _linear(normed, self._up)
        return hidden + _linear(inner, self._down)

    def _rotated(self, projected: Tensor, norm: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """(T, heads * head_dim) -> (T, heads, head_dim), normalised and turned."""
        cos, sin = rotation
        x = torch.rms_norm(projected.view(len(projected), -1, self._head_dim), (self._head_dim,), norm, self._eps)
        return torch.addcmul(x * cos, x.roll(self._head_dim // 2, -1), sin)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """(T, heads * head_dim). Heads that share keys are rows of one head, so that no key is copied."""
        count, groups = len(queries), self._heads // self._kv_heads
        packed = (
            queries.view(count, self._kv_heads, groups, -1)
            .permute(1, 2, 0, 3)
            .reshape(1, self._kv_heads, -1, self._head_dim)
        )
        mixed = functional.scaled_dot_product_attention(packed, keys, values, attn_mask=mask)
        return mixed.view(self._kv_heads, groups, count, -1).permute(2, 0, 1, 3).reshape(count, -1)


def _linear(x: Tensor, module: Any) -> Tensor:
    return functional.linear(x, module.weight, module.bias)
