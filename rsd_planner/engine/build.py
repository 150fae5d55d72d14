"""Compiles exported graphs to TensorRT engines: one code path for TensorRT-RTX and full TensorRT."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rsd_planner.engine.engine_manifest import Engine, EngineManifest
from rsd_planner.engine.manifest import FILE_NAME, ExportManifest, Graph, Port
from rsd_planner.engine.trt_module import capabilities, device_capability, load_module, log_of
from rsd_planner.errors import EngineError, ParameterError
from rsd_planner.evaluation.interrupt import Interrupt, on_interrupt

_TIMING_CACHE = "timing.cache"
_STATIC = "capacity"  # TensorRT wants the length of a KV cache to be a number
_DTYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "INT64": "int64"}


def build_engines(onnx: Path, out: Path, *, targets: str, module: str, console: Console) -> EngineManifest:
    """Build an engine of every graph. Engines that are there already, built of the same for the same, are kept.

    Args:
        onnx: Directory that `export` wrote.
        targets: Compute capabilities, such as "sm89,sm120"; "" for the GPU of this machine.
        module: tensorrt_rtx | tensorrt; "" for the first that is installed.

    Raises:
        EngineError: The graphs are damaged, TensorRT is not installed or refuses one.
        ParameterError: A target is none that the module compiles for, or `out` cannot be written.
        KeyboardInterrupt: Ctrl-C; what was built until then is kept.
    """
    exported = ExportManifest.read(onnx)
    exported.require_files(onnx, list(exported.graphs))
    trt = load_module(module)
    names = _targets(trt, targets)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(f"--out: cannot write {out}: {error.strerror or error}") from error
    manifest = _header(trt, onnx, exported, names)
    manifest = replace(manifest, engines=_kept(out, manifest, exported))
    with on_interrupt(console, under_way="step of the builder") as interrupt, _progress(console) as progress:
        for name, graph in exported.graphs.items():
            task = progress.add_task(name, total=None)
            if name not in manifest.engines:
                builder = _Builder(trt, names, out, interrupt, progress, task)
                engine = builder.build(name, onnx, graph)
                manifest = replace(manifest, engines={**manifest.engines, name: engine})
                manifest.write(out)
            size = manifest.engines[name].bytes / 1e6
            progress.update(task, total=1, completed=1, description=f"{name}: {size:.1f} MB")
    return manifest


def _targets(trt: Any, given: str) -> tuple[str, ...]:
    names = tuple(name.strip().lower() for name in given.split(",") if name.strip())
    known = capabilities(trt)
    here = () if names and known else (device_capability(),)
    if unknown := [name for name in names if name not in (known or here)]:
        raise ParameterError(
            f"--target is {unknown[0]!r}, {trt.__name__} {trt.__version__} compiles for {', '.join(known or here)}"
        )
    return names or here


def _header(trt: Any, onnx: Path, exported: ExportManifest, names: tuple[str, ...]) -> EngineManifest:
    return EngineManifest(
        module=trt.__name__,
        version=trt.__version__,
        capabilities=names,
        onnx=str(onnx),
        model_name=exported.model_name,
        fingerprint=exported.fingerprint,
        draft=exported.draft,
        draft_fingerprint=exported.draft_fingerprint,
        precision=exported.precision,
        taps=exported.taps,
        capacity=exported.capacity,
    )


def _kept(out: Path, manifest: EngineManifest, exported: ExportManifest) -> dict[str, Engine]:
    """Engines of an earlier run that was asked for the same, as far as they are whole and of these graphs."""
    if not (out / FILE_NAME).exists():
        return {}
    try:
        before = EngineManifest.read(out)
    except EngineError:
        return {}
    if replace(before, engines={}, onnx=manifest.onnx) != manifest:
        return {}
    kept = {}
    for name, engine in before.engines.items():
        path = out / engine.file
        same = name in exported.graphs and engine.onnx_sha256 == exported.graphs[name].sha256
        if same and path.is_file() and path.stat().st_size == engine.bytes:
            kept[name] = engine
    return kept


def _progress(console: Console) -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console)


@dataclass(frozen=True)
class _Builder:
    """Builds one engine."""

    trt: Any
    targets: tuple[str, ...]
    out: Path
    interrupt: Interrupt
    progress: Progress
    task: TaskID

    def build(self, name: str, onnx: Path, graph: Graph) -> Engine:
        trt, log = self.trt, log_of(self.trt)
        log.clear()
        builder = trt.Builder(log.logger)
        network = builder.create_network(_strongly_typed(trt))
        parser = trt.OnnxParser(network, log.logger)
        path = onnx / graph.onnx_file
        if not parser.parse(_with_static_cache(path, graph), str(path)):
            raise EngineError(f"{path}: {trt.__name__} {trt.__version__} cannot read it: {log.summary()}")
        inputs, outputs = _ports(trt, network, graph)
        config = builder.create_builder_config()
        config.add_optimization_profile(_profile(builder, graph, inputs))
        self._set_targets(config)
        cache = self._timing_cache(config)
        monitor = _monitor(trt, self.progress, self.task, self.interrupt, name)
        config.progress_monitor = monitor
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            if self.interrupt.requested:
                raise KeyboardInterrupt
            raise EngineError(f"{path}: {trt.__name__} {trt.__version__} cannot build it: {log.summary()}")
        if cache is not None:
            _write(self.out / _TIMING_CACHE, config.get_timing_cache().serialize())
        file = f"{name}.engine"
        _write(self.out / file, plan)
        return Engine(file, plan.nbytes, graph.sha256, inputs, outputs, graph.dimensions)

    def _set_targets(self, config: Any) -> None:
        known = capabilities(self.trt)
        if known and self.targets[0] in known:
            config.num_compute_capabilities = len(self.targets)
            for i, name in enumerate(self.targets):
                config.set_compute_capability(known[name], i)

    def _timing_cache(self, config: Any) -> Any:
        """Of earlier builds in this directory; None for TensorRT-RTX, which times nothing while it builds."""
        if capabilities(self.trt):
            return None
        path = self.out / _TIMING_CACHE
        cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
        config.set_timing_cache(cache, ignore_mismatch=False)
        return cache


def _strongly_typed(trt: Any) -> int:
    """Flag that lets every tensor keep the type the graph says; TensorRT 11 knows nothing else and has no flag."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


def _with_static_cache(path: Path, graph: Graph) -> bytes:
    """The graph with the cache's length written in; external weights stay beside it."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == _STATIC:
                dim.dim_value = graph.dimensions[_STATIC].most
    del model.graph.value_info[:]  # lengths inside follow from these
    content: bytes = model.SerializeToString()
    return content


def _ports(trt: Any, network: Any, graph: Graph) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs as TensorRT read them, with the memory they share as its cache layers have it.

    Raises:
        EngineError: They are not the graph's.
    """
    caches = {}
    for i in range(network.num_layers):
        layer = network.get_layer(i)
        if layer.type == trt.LayerType.KV_CACHE_UPDATE:
            caches[layer.get_output(0).name] = layer.get_input(0).name
    found = []
    for ports, count, get in (
        (graph.inputs, network.num_inputs, network.get_input),
        (graph.outputs, network.num_outputs, network.get_output),
    ):
        tensors = {tensor.name: tensor for tensor in (get(i) for i in range(count))}
        if list(tensors) != [port.name for port in ports]:
            raise EngineError(f"{graph.onnx_file}: TensorRT sees {list(tensors)}, expected {[p.name for p in ports]}")
        found.append(tuple(_port(tensors[port.name], port, graph, caches) for port in ports))
    return found[0], found[1]


def _port(tensor: Any, port: Port, graph: Graph, caches: dict[str, str]) -> Port:
    static = {_STATIC: graph.dimensions[_STATIC].most} if _STATIC in graph.dimensions else {}
    wanted = tuple(static.get(dim, dim) if isinstance(dim, str) else dim for dim in port.shape)
    shape = tuple(wanted[i] if dim == -1 else dim for i, dim in enumerate(tensor.shape))
    read = Port(port.name, _DTYPES.get(tensor.dtype.name, tensor.dtype.name), shape, caches.get(port.name, ""))
    if read != replace(port, shape=wanted):
        raise EngineError(f"{graph.onnx_file}: TensorRT reads {read}, expected {replace(port, shape=wanted)}")
    return read


def _profile(builder: Any, graph: Graph, inputs: Sequence[Port]) -> Any:
    profile = builder.create_optimization_profile()
    for port in inputs:
        if any(isinstance(dim, str) for dim in port.shape):
            least, usual, most = (
                tuple(getattr(graph.dimensions[dim], size) if isinstance(dim, str) else dim for dim in port.shape)
                for size in ("least", "usual", "most")
            )
            profile.set_shape(port.name, least, usual, most)
    return profile


def _monitor(trt: Any, progress: Progress, task: TaskID, interrupt: Interrupt, name: str) -> Any:
    """Shows the builder's phases; the builder calls it from threads of its own."""
    lock, phases = threading.Lock(), list[str]()

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, _parent: str | None, num_steps: int) -> None:
            with lock:
                phases.append(phase_name)
                progress.update(task, description=f"{name}: {phase_name}", total=num_steps, completed=0)

        def step_complete(self, phase_name: str, step: int) -> bool:
            with lock:
                if phases and phases[-1] == phase_name:
                    progress.update(task, completed=step + 1)
            return not interrupt.requested

        def phase_finish(self, phase_name: str) -> None:
            with lock:
                phases.remove(phase_name)

    return Monitor()


def _write(path: Path, data: Any) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)
