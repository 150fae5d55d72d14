"""What computes target and draft: PyTorch, ONNX Runtime or TensorRT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch

from rsd_planner.decoding.protocols import Draft
from rsd_planner.draft.config import DraftConfig
from rsd_planner.draft.load import load_draft
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.engine.manifest import FILE_NAME, ExportManifest
from rsd_planner.engine.runner import Runner
from rsd_planner.errors import EngineError, ParameterError
from rsd_planner.target.alpamayo import AlpamayoTarget, read_parts
from rsd_planner.target.checkpoint import ModelDirectory

GRAPHS_FOLDER, ENGINES_FOLDER = "onnx", "engines"  # in a model directory, where nothing else is said


class BackendName(str, Enum):
    """As settings and parameters name them."""

    AUTO = "auto"  # ONNX Runtime on a CPU where the model directory has graphs, PyTorch elsewhere
    PYTORCH = "pytorch"
    ONNXRUNTIME = "onnxruntime"
    TENSORRT = "tensorrt"


@dataclass(frozen=True)
class Backend:
    """A loaded target, and how its draft is loaded to run beside it."""

    name: str  # for people: "ONNX Runtime 1.32.0"
    target: AlpamayoTarget
    dtype: str  # of the weights, as torch names it, or the graphs' precision
    load_draft: Callable[[Path, TargetParts], tuple[Draft, DraftConfig]]


def load_backend(name: BackendName, model: Path, engine: Path | None, *, device: str, dtype: str) -> Backend:
    """Load the target of a model directory.

    Args:
        engine: Directory of exported graphs or built engines; None for that in the model directory.
        device, dtype: As torch names them. Graphs and engines have a precision of their own.

    Raises:
        CheckpointError: A part is missing, damaged or does not fit the others (EngineError: graphs or engines do not).
        ParameterError: The backend does not run on the device.
    """
    if name is BackendName.AUTO:
        return _fastest(model, engine, device=device, dtype=dtype)
    if name is BackendName.PYTORCH:
        target = AlpamayoTarget.load(model, device=device, dtype=getattr(torch, dtype))
        return Backend(f"PyTorch {torch.__version__}", target, dtype, load_draft)
    kind = torch.device(device).type
    if kind != (wanted := "cpu" if name is BackendName.ONNXRUNTIME else "cuda"):
        raise ParameterError(f"device is {device!r}, expected {wanted}: backend {name.value} runs there")
    if name is BackendName.ONNXRUNTIME:
        return _onnxruntime(model, engine or model / GRAPHS_FOLDER)
    return _tensorrt(model, engine or model / ENGINES_FOLDER, torch.device(device))


def _fastest(model: Path, engine: Path | None, *, device: str, dtype: str) -> Backend:
    ModelDirectory.find(model)  # what is wrong with the directory itself is said first
    graphs = engine or model / GRAPHS_FOLDER
    on_cpu = torch.device(device).type == "cpu" and dtype == "float32"
    if engine is not None and not (engine / FILE_NAME).exists():
        raise EngineError(f"{engine}: found no {FILE_NAME}, expected a directory of exported graphs or engines")
    if not (on_cpu and (graphs / FILE_NAME).exists()):
        return load_backend(BackendName.PYTORCH, model, engine, device=device, dtype=dtype)
    try:
        return load_backend(BackendName.ONNXRUNTIME, model, engine, device=device, dtype=dtype)
    except EngineError as error:
        raise EngineError(f"{error}; or ask for backend pytorch") from None


def _onnxruntime(model: Path, directory: Path) -> Backend:
    from importlib.metadata import version

    from rsd_planner.engine.onnx_runner import OnnxRuntimeRunner
    from rsd_planner.engine.specifications import graph_names

    manifest = ExportManifest.read(directory)
    manifest.require_files(directory, graph_names(manifest.draft))
    manifest.require_model(directory, model, ModelDirectory.find(model).draft)
    runner = OnnxRuntimeRunner(directory, manifest)
    return _in_graphs(f"ONNX Runtime {version('onnxruntime')}", model, runner, manifest.taps, manifest.precision)


def _tensorrt(model: Path, directory: Path, device: torch.device) -> Backend:
    from rsd_planner.engine.tensorrt_runner import open_engines

    runner, manifest = open_engines(directory, model, ModelDirectory.find(model).draft, device)
    return _in_graphs(f"{manifest.module} {manifest.version}", model, runner, manifest.taps, manifest.precision)


def _in_graphs(name: str, model: Path, runner: Runner, taps: tuple[int, ...], precision: str) -> Backend:
    from rsd_planner.engine.graph_drafts import load_graph_draft
    from rsd_planner.engine.graph_target import GraphTarget

    def load(path: Path, parts: TargetParts) -> tuple[Draft, DraftConfig]:
        return load_graph_draft(path, parts, runner)

    return Backend(name, GraphTarget(read_parts(model), runner, taps), precision, load)
