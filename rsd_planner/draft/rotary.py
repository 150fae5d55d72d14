"""Rotary positions of a draft: flat, by place in the token sequence, or mirrored, by the target's own three axes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import torch
from torch import Tensor


class Rope(str, Enum):
    """Which positions a draft was trained with. Served otherwise it guesses badly."""

    FLAT = "flat"  # 0, 1, 2, ...: every image token counts
    MIRRORED = "mirrored"  # time, height and width of the target, interleaved over its M-RoPE sections


_GRAIN = 512  # rows that a table grows by


class Rotary:
    """cos and sin of the tokens of one sequence, for queries and keys alike; worked out once, then looked up."""

    def __init__(
        self, rope: Rope, head_dim: int, theta: float, sections: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        """
        Args:
            theta: The draft's own.
            sections: Frequencies per axis as the target has them; they add up to head_dim / 2. Flat needs none.
        """
        self.rope = rope
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        self._frequencies = theta**-exponent  # (head_dim / 2,)
        self._axis = torch.zeros(head_dim // 2, dtype=torch.int64, device=device)
        if rope is Rope.MIRRORED:
            for axis in (1, 2):
                self._axis[axis : 3 * sections[axis] : 3] = axis
        self._prompt = torch.zeros(3, 1, dtype=torch.int64, device=device)
        self._table = (torch.empty(0), torch.empty(0))

    def begin(self, positions: Tensor) -> None:
        """A new sequence, whose prompt has these (3, L) positions in the target. They are read, never written."""
        self._prompt = positions
        if self.rope is Rope.MIRRORED:
            self._table = (torch.empty(0), torch.empty(0))

    def rows(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        """cos and sin, (count, head_dim) float32, of the tokens from place `start` in the sequence."""
        end = start + count
        if end > len(self._table[0]):
            with torch.inference_mode(False):  # a table may serve training, whenever it was made
                self._table = self._rows(-(-end // _GRAIN) * _GRAIN)
        cos, sin = self._table
        return cos[start:end], sin[start:end]

    def _rows(self, count: int) -> tuple[Tensor, Tensor]:
        place = torch.arange(count, device=self._axis.device)
        if self.rope is Rope.FLAT:
            return self.angles(place.expand(3, -1))
        known = place.clamp(max=self._prompt.shape[1] - 1)
        return self.angles(self._prompt[:, known] + (place - known))  # behind the prompt all axes count on together

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin, (T, head_dim) float32, of (3, T) positions."""
        angles = positions[self._axis].T * self._frequencies  # (T, head_dim / 2)
        both = torch.cat([angles, angles], dim=-1)
        return both.cos(), both.sin()


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Apply (T, head_dim) cos and sin to (..., T, head_dim) queries or keys."""
    cos, sin = (table.to(x.dtype) for table in rotary)
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin
