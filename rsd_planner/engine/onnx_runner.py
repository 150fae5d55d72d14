"""Runs exported graphs in ONNX Runtime on the CPU, with all tensors bound where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rsd_planner.engine.manifest import ExportManifest, Graph
from rsd_planner.engine.runner import output_shapes
from rsd_planner.engine.specifications import cache_names
from rsd_planner.errors import EngineError, one_line
from rsd_planner.target.kv_cache import KVCache

_GRAIN = 64  # rows: attention reads whole buffers, so they are kept short
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "int8-weight": torch.float16}


class OnnxRuntimeRunner:
    """One session per graph. See `runner.Runner`."""

    def __init__(self, directory: Path, manifest: ExportManifest) -> None:
        """
        Raises:
            EngineError: A graph is missing or damaged, its precision is not for a CPU, or ONNX Runtime is not there.
        """
        if manifest.precision not in _DTYPES:
            raise EngineError(
                f"{directory}: graphs of precision {manifest.precision}, ONNX Runtime's CPU kernels run "
                f"{', '.join(_DTYPES)}; run: rsd_planner export --precision fp32"
            )
        self.device, self.dtype = torch.device("cpu"), _DTYPES[manifest.precision]
        self._graphs = manifest.graphs
        self._sessions = {name: _session(directory / graph.onnx_file) for name, graph in manifest.graphs.items()}
        self._bindings = {name: session.io_binding() for name, session in self._sessions.items()}
        self._bound: dict[str, list[int]] = {}  # graph -> addresses of the cache it is bound to

    def ports(self, graph: str) -> Graph:
        """See `runner.Runner.ports`."""
        return self._graphs[graph]

    def padded(self, count: int) -> int:
        """See `runner.Runner.padded`."""
        return count

    def new_cache(self, layers: int, kv_heads: int, head_dim: int) -> KVCache:
        """See `runner.Runner.new_cache`."""
        return KVCache(layers, kv_heads, head_dim, dtype=self.dtype, device=self.device, grain=_GRAIN)

    def run(self, graph: str, inputs: Mapping[str, Tensor], cache: KVCache | None = None) -> Mapping[str, Tensor]:
        """See `runner.Runner.run`."""
        described, binding = self._graphs[graph], self._bindings[graph]
        given = {name: tensor.contiguous() for name, tensor in inputs.items()}
        for name, tensor in given.items():
            binding.bind_input(*_bound(name, tensor))
        dtypes = {port.name: getattr(torch, port.dtype) for port in described.outputs}
        shapes = output_shapes(described, inputs)
        out = {name: torch.empty(shape, dtype=dtypes[name]) for name, shape in shapes.items()}
        for name, tensor in out.items():
            binding.bind_output(*_bound(name, tensor))
        if cache is not None:
            self._bind_cache(graph, binding, cache)
        self._sessions[graph].run_with_iobinding(binding)
        return out

    def _bind_cache(self, graph: str, binding: Any, cache: KVCache) -> None:
        """The same memory goes in and comes out: nothing is copied, whatever is written."""
        buffers = [*cache.keys, *cache.values]
        addresses = [buffer.data_ptr() for buffer in buffers]
        if self._bound.get(graph) == addresses:
            return
        for name, buffer in zip(cache_names(len(buffers)), buffers, strict=True):
            binding.bind_input(*_bound(name, buffer))
            binding.bind_output(*_bound(f"{name}_out", buffer))
        self._bound[graph] = addresses


def _bound(name: str, tensor: Tensor) -> tuple[Any, ...]:
    """Arguments of ONNX Runtime's bind_input and bind_output."""
    element = tensor.new_empty(0).numpy().dtype
    return name, "cpu", 0, element, tuple(tensor.shape), tensor.data_ptr()


def _session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError(f"backend onnxruntime: {error}; install what is in requirements-engines.txt") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # sessions take turns on the same cores
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise EngineError(f"{path}: ONNX Runtime cannot load it ({one_line(error)})") from None
