"""What both draft networks are built of, under the published parameter names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional

from rsd_planner.draft.rotary import rotate

Rotation = tuple[Tensor, Tensor]  # cos and sin, each (T, head_dim)


class Mix(Protocol):
    """An attention kernel over (B, heads, T, head_dim) queries and (B, KV heads, keys, head_dim) keys and values."""

    def __call__(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool
    ) -> Tensor: ...


def scaled_dot_product(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool = False
) -> Tensor:
    """PyTorch's own kernel."""
    grouped = keys.shape[1] != queries.shape[1]
    return functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=grouped
    )


@dataclass(frozen=True)
class Shape:
    """Sizes of a draft network."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    taps: int  # target layers it reads
    eps: float

    def norm(self) -> nn.RMSNorm:
        return nn.RMSNorm(self.hidden, eps=self.eps)


class Attention(nn.Module):
    """Grouped-query attention in parts, so that keys and queries may come from different tokens."""

    def __init__(self, shape: Shape, inputs: int, *, head_norms: bool) -> None:
        super().__init__()
        self._head_dim = shape.head_dim
        self.mix: Mix = scaled_dot_product
        self.q_proj = nn.Linear(inputs, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(inputs, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(inputs, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.eps) if head_norms else nn.Identity()
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.eps) if head_norms else nn.Identity()

    def queries(self, x: Tensor, rotation: Rotation) -> Tensor:
        """(B, T, inputs) -> (B, heads, T, head_dim)."""
        return rotate(self.q_norm(self._split(self.q_proj(x))), rotation)

    def keys_values(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """(B, T, inputs) -> keys and values, each (B, KV heads, T, head_dim)."""
        return rotate(self.k_norm(self._split(self.k_proj(x))), rotation), self._split(self.v_proj(x))

    def attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        """Mix values, (B, T, hidden).

        Args:
            mask: (..., T, keys), True where a key may be seen; None for everywhere.
            causal: Instead of a mask, where there are as many keys as queries.
        """
        mixed = self.mix(queries, keys, values, mask, causal=causal)
        merged: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return merged

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], -1, self._head_dim).transpose(1, 2)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out
