"""Keys and values of training passes, in the place of a served draft's cache."""

from __future__ import annotations

import torch
from torch import Tensor


class BlockStore:
    """DFlash: first the context of every layer, then the blocks behind it, which nothing comes after."""

    def __init__(self) -> None:
        self._context: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """See `draft.layers.KeysValues`."""
        if layer not in self._context:
            self._context[layer] = (key, value)
            return key, value
        keys, values = self._context[layer]
        return torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)


class ChainStore:
    """EAGLE-3: the prompt's rows, the reasoning's, then one row per chain and step; later steps have fewer chains."""

    _SEQUENCE = 2  # parts that are no chains

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """See `draft.layers.KeysValues`."""
        self._keys = self._with(self._keys, key)
        self._values = self._with(self._values, value)
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)

    def _with(self, parts: list[Tensor], new: Tensor) -> list[Tensor]:
        chains = new.shape[2]
        return [*parts[: self._SEQUENCE], *(part[:, :, :chains] for part in parts[self._SEQUENCE :]), new]


def leading(right: Tensor) -> Tensor:
    """How many along the last axis are true before the first that is not."""
    return right.long().cumprod(dim=-1).sum(dim=-1)
