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
    """EAGLE-3: first the rows of the whole sequence, then one row per chain and step; later steps have fewer chains."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """See `draft.layers.KeysValues`."""
        chains = key.shape[2]
        self._keys = [*self._keys[:1], *(earlier[:, :, :chains] for earlier in self._keys[1:]), key]
        self._values = [*self._values[:1], *(earlier[:, :, :chains] for earlier in self._values[1:]), value]
        return torch.cat(self._keys, dim=2), torch.cat(self._values, dim=2)


def leading(right: Tensor) -> Tensor:
    """How many along the last axis are true before the first that is not."""
    return right.long().cumprod(dim=-1).sum(dim=-1)
