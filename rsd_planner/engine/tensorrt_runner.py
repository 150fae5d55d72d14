"""Runs built engines on an NVIDIA GPU. What of this has run on a device, and what has not, is in docs/engines.md.

All memory is PyTorch's: caches, outputs, and one scratch buffer that the engines share, since passes follow each other
on the thread's own stream. Nothing here waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rsd_planner.engine.capture import LENGTHS, CapturedRunner, named_lengths, own_stream
from rsd_planner.engine.engine_manifest import Engine, EngineManifest
from rsd_planner.engine.runner import Runner, output_shapes
from rsd_planner.engine.specifications import cache_names, graph_names
from rsd_planner.engine.trt_module import device_capability, load_module, log_of
from rsd_planner.errors import EngineError, ObservationError
from rsd_planner.target.kv_cache import KVCache

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8-weight": torch.float16}


def open_engines(
    directory: Path, model: Path, draft: Path | None, device: torch.device
) -> tuple[Runner, EngineManifest]:
    """Load the engines of a model, ready to run on this thread's own stream.

    Raises:
        EngineError: They are incomplete, damaged, of other weights, of another TensorRT or for another GPU; or there
            is no TensorRT or no GPU. The message says both sides and what builds them anew.
    """
    manifest = EngineManifest.read(directory)
    manifest.require_files(directory, graph_names(manifest.draft))
    manifest.require_model(directory, model, draft)
    trt = load_module(manifest.module)
    manifest.require_version(directory, trt.__version__)
    manifest.require_capability(directory, device_capability())
    own_stream(device)
    return CapturedRunner(TensorRTRunner(trt, directory, manifest, device)), manifest


class FixedCache(KVCache):
    """A cache of the length that was compiled in."""

    def __init__(self, rows: int, layers: int, kv_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(layers, kv_heads, head_dim, **options)
        self.keys = [self._grown(layer, self.keys, rows) for layer in range(layers)]
        self.values = [self._grown(layer, self.values, rows) for layer in range(layers)]
        self.rows = rows

    def reserve(self, count: int) -> None:
        """Raises ObservationError when there is no room for `count` more rows."""
        if (needed := self.length + count) > self.rows:
            raise ObservationError(
                f"prompt and reasoning need {needed} rows of the KV cache, the engines were built for {self.rows}: "
                "show fewer cameras or smaller images, or lower max_reasoning_tokens"
            )


class TensorRTRunner:
    """One engine per graph, and an execution context for each length of its short passes. See `runner.Runner`."""

    def __init__(self, trt: Any, directory: Path, manifest: EngineManifest, device: torch.device) -> None:
        """
        Raises:
            EngineError: TensorRT cannot load an engine, or sees other inputs and outputs than were built.
        """
        self.device, self.dtype = device, _DTYPES[manifest.precision]
        self._trt, self._log, self._manifest = trt, log_of(trt), manifest
        self._runtime = trt.Runtime(self._log.logger)
        self._engines = {name: self._load(directory / engine.file) for name, engine in manifest.engines.items()}
        for name, engine in manifest.engines.items():
            require_ports(directory, name, engine, dict(_described(trt, self._engines[name])))
        size = max(engine.device_memory_size_v2 for engine in self._engines.values())
        self._scratch = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
        self._contexts: dict[tuple[str, int], Any] = {}

    def ports(self, graph: str) -> Engine:
        """See `runner.Runner.ports`."""
        return self._manifest.engines[graph]

    def padded(self, count: int) -> int:
        """See `runner.Runner.padded`."""
        return count

    def new_cache(self, layers: int, kv_heads: int, head_dim: int) -> KVCache:
        """See `runner.Runner.new_cache`."""
        options = {"dtype": self.dtype, "device": self.device}
        return FixedCache(self._manifest.capacity, layers, kv_heads, head_dim, **options)

    def run(self, graph: str, inputs: Mapping[str, Tensor], cache: KVCache | None = None) -> Mapping[str, Tensor]:
        """See `runner.Runner.run`. Only queues work, so that it may be recorded."""
        engine = self.ports(graph)
        context = self._context(graph, named_lengths(engine.inputs, inputs).get("tokens", 0))
        given, out = prepare(engine, inputs, self.device)
        for name, tensor in given.items():
            context.set_input_shape(name, tuple(tensor.shape))
        for name, tensor in bindings(engine, given, out, cache).items():
            context.set_tensor_address(name, tensor.data_ptr())
        if not context.execute_async_v3(torch.cuda.current_stream(self.device).cuda_stream):
            raise EngineError(f"{graph}: {self._trt.__name__} could not run the engine: {self._log.summary()}")
        return out

    def _load(self, path: Path) -> Any:
        self._log.clear()
        engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise EngineError(f"{path}: {self._trt.__name__} {self._trt.__version__} refuses it: {self._log.summary()}")
        return engine

    def _context(self, graph: str, tokens: int) -> Any:
        """One per recorded length, since a recorded pass holds on to its context, and one for all longer passes."""
        key = (graph, tokens if tokens <= LENGTHS[-1] else 0)
        if key not in self._contexts:
            context = new_context(self._trt, self._engines[graph])
            if context is None:
                raise EngineError(f"{graph}: {self._trt.__name__} cannot run the engine here: {self._log.summary()}")
            context.set_device_memory(self._scratch.data_ptr(), self._scratch.numel())
            self._contexts[key] = context
        return self._contexts[key]


def new_context(trt: Any, engine: Any) -> Any:
    """An execution context without memory of its own, whose kernels are final once a shape has run."""
    config = engine.create_runtime_config()
    config.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    compiling = getattr(trt, "DynamicShapesKernelSpecializationStrategy", None)
    if compiling is not None:  # TensorRT-RTX compiles on the device: at once, not behind a recorded pass's back
        config.dynamic_shapes_kernel_specialization_strategy = compiling.EAGER
    return engine.create_execution_context(config)


def prepare(
    engine: Engine, inputs: Mapping[str, Tensor], device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs as they can be bound, and memory for all outputs that are not the cache's."""
    given = {name: tensor.contiguous() for name, tensor in inputs.items()}
    dtypes = {port.name: getattr(torch, port.dtype) for port in engine.outputs}
    shapes = output_shapes(engine, given)
    return given, {name: torch.empty(shape, dtype=dtypes[name], device=device) for name, shape in shapes.items()}


def bindings(
    engine: Engine, given: Mapping[str, Tensor], out: Mapping[str, Tensor], cache: KVCache | None
) -> dict[str, Tensor]:
    """Which memory each input and output of an engine is given; what a cache layer writes is what it reads.

    Raises:
        EngineError: A tensor is missing, of another type, or of a shape that was not built.
    """
    buffers = [] if cache is None else [*cache.keys, *cache.values]
    held = {**given, **out, **dict(zip(cache_names(len(buffers)), buffers, strict=True))}
    bound = {}
    for port in (*engine.inputs, *engine.outputs):
        tensor = held.get(port.shares or port.name)
        if tensor is None:
            raise EngineError(f"{engine.file}: nothing is bound to {port.name}")
        spans = [engine.dimensions.get(dim) if isinstance(dim, str) else None for dim in port.shape]
        fits = len(spans) == tensor.ndim and all(
            size == dim if isinstance(dim, int) else span is None or span.least <= size <= span.most
            for size, dim, span in zip(tensor.shape, port.shape, spans, strict=True)
        )
        if not fits or str(tensor.dtype) != f"torch.{port.dtype}":
            raise EngineError(
                f"{engine.file}: {port.name} is given {tensor.dtype} {tuple(tensor.shape)}, built for {port.dtype} "
                f"{port.shape} with {engine.dimensions}"
            )
        bound[port.name] = tensor
    return bound


def require_ports(directory: Path, name: str, engine: Engine, found: Mapping[str, tuple[str, str]]) -> None:
    """Raises EngineError unless a loaded engine has the names, types and shared memory that its sidecar says.

    Args:
        found: Tensor name -> type as torch names it, and the input that it shares memory with, if any.
    """
    said = {port.name: (port.dtype, port.shares) for port in (*engine.inputs, *engine.outputs)}
    if said != found:
        differing = sorted(set(said.items()) ^ set(found.items()))
        raise EngineError(
            f"{directory / engine.file}: engine {name} has other inputs and outputs than its manifest says: {differing}"
        )


def _described(trt: Any, engine: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    types = {
        trt.DataType.FLOAT: "float32",
        trt.DataType.HALF: "float16",
        trt.DataType.BF16: "bfloat16",
        trt.DataType.INT64: "int64",
    }
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        yield name, (types[engine.get_tensor_dtype(name)], engine.get_aliased_input_tensor(name) or "")
