"""Passes of few tokens as CUDA graphs: padded to one of a few lengths, recorded once, replayed with one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rsd_planner.engine.manifest import Port
from rsd_planner.engine.runner import Ports, Runner
from rsd_planner.target.kv_cache import KVCache

LENGTHS = (1, 2, 4, 8, 16)  # tokens of a verify pass: the last committed one and up to 15 drafted ones
_WARM_UPS = 2  # runs before recording, in which libraries choose their kernels and workspaces
_PADDED = ("tokens", "asked")

Tensors = Mapping[str, Tensor]


def own_stream(device: torch.device) -> None:
    """Give this thread a stream of its own, on which all that it asks of a GPU happens in order."""
    torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def padded_length(count: int) -> int:
    """Tokens that a pass of `count` is padded to; itself where it is too long to be recorded."""
    return next((length for length in LENGTHS if length >= count), count)


class CapturedRunner:
    """Runs short passes of another runner as CUDA graphs. See `runner.Runner`.

    What a padded pass writes behind its own rows of the cache is overwritten by the next pass. On a CPU the passes are
    padded all the same and run one by one.
    """

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.device, self.dtype = inner.device, inner.dtype
        self._recorded: dict[tuple[Any, ...], _Recorded] = {}

    def ports(self, graph: str) -> Ports:
        """See `runner.Runner.ports`."""
        return self._inner.ports(graph)

    def padded(self, count: int) -> int:
        """See `runner.Runner.padded`."""
        return count + LENGTHS[-1]

    def new_cache(self, layers: int, kv_heads: int, head_dim: int) -> KVCache:
        """See `runner.Runner.new_cache`."""
        return self._inner.new_cache(layers, kv_heads, head_dim)

    def run(self, graph: str, inputs: Tensors, cache: KVCache | None = None) -> Tensors:
        """See `runner.Runner.run`."""
        ports = self.ports(graph)
        lengths = named_lengths(ports.inputs, inputs)
        tokens = lengths.get("tokens")
        fixed = tokens is None and "patches" not in lengths  # such as a flow step
        if not fixed and (tokens is None or tokens > LENGTHS[-1]):
            return self._inner.run(graph, inputs, cache)
        wanted = {name: padded_length(length) for name, length in lengths.items() if name in _PADDED}
        given = padded(ports.inputs, inputs, wanted)
        out = self._pass(graph, given, cache, tuple(sorted(wanted.items())))
        return {port.name: _cut(out[port.name], port, lengths) for port in ports.outputs if not port.shares}

    def _pass(self, graph: str, given: Tensors, cache: KVCache | None, lengths: tuple[Any, ...]) -> Tensors:
        if self.device.type != "cuda":
            return self._inner.run(graph, given, cache)
        buffers = () if cache is None else (cache.capacity, cache.keys[0].data_ptr())
        key = (graph, lengths, *buffers)
        if key not in self._recorded:
            self._forget(graph, buffers)
            self._recorded[key] = _Recorded(lambda static: self._inner.run(graph, static, cache), given)
        return self._recorded[key](given)

    def _forget(self, graph: str, buffers: tuple[int, ...]) -> None:
        """Drop what was recorded over buffers that are no more."""
        for key in [key for key in self._recorded if key[0] == graph and key[2:] != buffers]:
            del self._recorded[key]


class _Recorded:
    """One CUDA graph with the memory it reads from and writes to."""

    def __init__(self, compute: Callable[[Tensors], Tensors], example: Tensors) -> None:
        self._inputs = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in example.items()}
        for _ in range(_WARM_UPS):
            compute(self._inputs)
        self._graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        if stream == torch.cuda.default_stream():
            raise RuntimeError("nothing can be recorded on the default stream: call own_stream in this thread first")
        with torch.cuda.graph(self._graph, stream=stream):
            self._outputs = compute(self._inputs)

    def __call__(self, given: Tensors) -> Tensors:
        for name, tensor in given.items():
            self._inputs[name].copy_(tensor, non_blocking=True)
        self._graph.replay()
        return self._outputs


def named_lengths(ports: tuple[Port, ...], tensors: Tensors) -> dict[str, int]:
    """Name of a length -> what it is in these tensors."""
    return {
        dim: tensors[port.name].shape[axis]
        for port in ports
        if port.name in tensors
        for axis, dim in enumerate(port.shape)
        if isinstance(dim, str)
    }


def padded(ports: tuple[Port, ...], tensors: Tensors, lengths: Mapping[str, int]) -> dict[str, Tensor]:
    """The tensors brought to these lengths by repeating their last rows."""
    out = dict(tensors)
    for port in ports:
        for axis, dim in enumerate(port.shape):
            if port.name in out and dim in lengths:
                tensor = out[port.name]
                missing = lengths[str(dim)] - tensor.shape[axis]
                if missing:
                    last = tensor.narrow(axis, tensor.shape[axis] - 1, 1)
                    out[port.name] = torch.cat([tensor, last.expand(*_repeat(last, axis, missing))], dim=axis)
    return out


def _repeat(last: Tensor, axis: int, count: int) -> list[int]:
    shape = list(last.shape)
    shape[axis] = count
    return shape


def _cut(tensor: Tensor, port: Port, lengths: Mapping[str, int]) -> Tensor:
    """Without the padding, in memory of its own: the next pass writes over this."""
    for axis, dim in enumerate(port.shape):
        if isinstance(dim, str) and dim in lengths:
            tensor = tensor.narrow(axis, 0, lengths[dim])
    return tensor.clone()
