"""What a target or draft in graphs asks of whatever runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rsd_planner.engine.manifest import Port
from rsd_planner.target.kv_cache import KVCache


class Ports(Protocol):
    """Inputs and outputs of a graph."""

    @property
    def inputs(self) -> tuple[Port, ...]: ...

    @property
    def outputs(self) -> tuple[Port, ...]: ...


@dataclass(frozen=True)
class Described:
    """Ports by themselves."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


class Runner(Protocol):
    """Runs graphs by name on its device. Owned by one thread."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """Of embeddings, features and caches."""

    def ports(self, graph: str) -> Ports:
        """Of one of the graphs."""

    def padded(self, count: int) -> int:
        """Rows of the cache that a pass of `count` tokens may write."""

    def new_cache(self, layers: int, kv_heads: int, head_dim: int) -> KVCache:
        """A cache whose buffers `run` can work in."""

    def run(self, graph: str, inputs: Mapping[str, Tensor], cache: KVCache | None = None) -> Mapping[str, Tensor]:
        """One pass.

        Args:
            inputs: By name, all but the cache's buffers, on `device`.
            cache: What the graph reads and writes in place.

        Returns:
            All outputs but the cache's, in memory of their own.
        """


def output_shapes(graph: Ports, inputs: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Shapes of all outputs that share no input's memory."""
    lengths: dict[str, int] = {}
    for port in graph.inputs:
        if port.name in inputs:
            named = zip(port.shape, inputs[port.name].shape, strict=True)
            lengths.update({name: length for name, length in named if isinstance(name, str)})
    if "patches" in lengths:
        lengths["image_tokens"] = lengths["patches"] // 4
    return {
        port.name: tuple(lengths[dim] if isinstance(dim, str) else dim for dim in port.shape)
        for port in graph.outputs
        if not port.shares
    }
