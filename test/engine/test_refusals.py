"""Graphs and engines that do not fit: one error that names both sides and what to run."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from draft_files import EAGLE3, random_draft
from golden_cases import R1, golden_case
from rich.console import Console
from safetensors.torch import load_file, save_file

from rsd_planner.engine.engine_manifest import EngineManifest
from rsd_planner.engine.export import export
from rsd_planner.engine.manifest import ExportManifest
from rsd_planner.engine.tensorrt_runner import open_engines
from rsd_planner.errors import EngineError, ParameterError
from rsd_planner.planner import Planner, PlannerSettings

CUDA = torch.device("cuda")


@pytest.fixture
def model(r1_model: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the model with graphs and engines, to be damaged."""
    request.getfixturevalue("r1_engines")
    return Path(shutil.copytree(r1_model, tmp_path / "model"))


def test_graphs_of_other_weights_are_refused_where_nothing_was_asked_for(r1_model: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(r1_model, tmp_path / "model"))
    change_weights(model)
    with pytest.raises(EngineError, match=r"exported from weights .*; or ask for backend pytorch"):
        Planner.load(model)


def load_graphs(model: Path) -> None:
    Planner.load(model, PlannerSettings(backend="onnxruntime"))


def load_engines(model: Path) -> None:
    draft = model / "draft"
    open_engines(model / "engines", model, draft if draft.is_dir() else None, CUDA)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def drop(path: Path, field: str, name: str) -> None:
    values = json.loads(path.read_text())
    del values[field][name]
    path.write_text(json.dumps(values))


def change_weights(model: Path) -> None:
    path = model / "checkpoint" / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    tensors[name] = tensors[name] + 0.01
    save_file(tensors, path)


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda m: shutil.rmtree(m / "onnx"), r"onnx/manifest.json: no such file; make it with: rsd_planner export"),
        (lambda m: (m / "onnx/manifest.json").write_text("{"), "manifest.json: not a readable manifest"),
        (lambda m: (m / "onnx/manifest.json").write_text("[]"), "manifest of format None, expected 1"),
        (
            lambda m: edit(m / "onnx/manifest.json", format=7),
            "manifest of format 7, expected 1; run: rsd_planner export",
        ),
        (lambda m: edit(m / "onnx/manifest.json", taps=None), "manifest.json: not a manifest of exported graphs"),
        (lambda m: (m / "onnx/text.onnx").unlink(), "text.onnx: the text graph is missing; run: rsd_planner export"),
        (
            lambda m: drop(m / "onnx/manifest.json", "graphs", "action"),
            "onnx: the action graph is not there, its export",
        ),
        (lambda m: truncate(m / "onnx/text.onnx"), r"text.onnx: the text graph has \d+ bytes, expected \d+ as its"),
        (lambda m: overwrite(m / "onnx/text.onnx"), "text.onnx: ONNX Runtime cannot load it"),
        (change_weights, r"onnx: exported from weights \w{16}, .*model has \w{16}; run: rsd_planner export --model"),
        (
            lambda m: edit(m / "checkpoint/config.json", min_pixels=65536),
            r"exported from weights \w{16}, .* has \w{16}",
        ),
        (
            lambda m: random_draft(EAGLE3, "mirrored", m / "draft", seed=3),
            r"exported with draft \w{16}, .*draft has \w{16}",
        ),
        (
            lambda m: shutil.rmtree(m / "draft"),
            r"exported with draft \w{16}, .*model has none; run: rsd_planner export",
        ),
        (
            lambda m: edit(m / "onnx/manifest.json", precision="bf16"),
            "graphs of precision bf16, ONNX Runtime's CPU kernels",
        ),
    ],
)
def test_graphs(model: Path, damage: Damage, said: str) -> None:
    damage(model)
    with pytest.raises(EngineError, match=said) as caught:
        load_graphs(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda m: shutil.rmtree(m / "engines"),
            r"engines/manifest.json: no such file; make it with: rsd_planner build",
        ),
        (lambda m: edit(m / "engines/manifest.json", taps=3), "manifest.json: not a manifest of engines"),
        (
            lambda m: (m / "engines/text.engine").unlink(),
            "text.engine: engine text is missing; run: rsd_planner build-",
        ),
        (
            lambda m: drop(m / "engines/manifest.json", "engines", "vision"),
            "engine vision was not built; run: rsd_planner",
        ),
        (lambda m: truncate(m / "engines/action.engine"), r"engine action has \d+ bytes, expected \d+ as its manifest"),
        (
            change_weights,
            r"engines: built from weights \w{16}, .* has \w{16}; run: rsd_planner export .* && rsd_planner b",
        ),
        (lambda m: shutil.rmtree(m / "draft"), r"engines: built from draft \w{16}, .*model has none"),
        (
            lambda m: edit(m / "engines/manifest.json", version="1.5.0.0"),
            r"built by tensorrt_rtx 1.5.0.0, here is tensorrt_rtx 1.7.1.116; run: rsd_planner build-engine "
            r"--onnx .*onnx --out .*engines --module tensorrt_rtx --target sm89,sm120",
        ),
        (lambda m: edit(m / "engines/manifest.json", module="tensorrt"), "TensorRT is not installed"),
    ],
)
def test_engines(model: Path, damage: Damage, said: str) -> None:
    damage(model)
    with pytest.raises(EngineError, match=said) as caught:
        load_engines(model)
    assert "\n" not in str(caught.value)


def test_another_gpu_than_they_were_built_for(r1_engines: Path) -> None:
    manifest = EngineManifest.read(r1_engines)
    manifest.require_capability(r1_engines, "sm89")
    with pytest.raises(
        EngineError,
        match=r"built for sm89, sm120, this machine's GPU is sm86; run: rsd_planner build-engine .* --target sm86",
    ):
        manifest.require_capability(r1_engines, "sm86")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu_is_one_error(model: Path) -> None:
    with pytest.raises(EngineError, match=r"no CUDA driver on this machine|no usable NVIDIA GPU on this machine"):
        load_engines(model)
    with pytest.raises(ParameterError, match="device is 'cuda', but this machine shows 0 CUDA devices"):
        PlannerSettings(backend="tensorrt", device="cuda")
    with pytest.raises(ParameterError, match="device is 'cpu', expected cuda: backend tensorrt runs there"):
        Planner.load(model, PlannerSettings(backend="tensorrt"))


def test_nothing_is_fallen_back_to_unless_that_is_allowed(model: Path) -> None:
    truncate(model / "onnx" / "text.onnx")
    with pytest.raises(EngineError):
        load_graphs(model)
    planner = Planner.load(model, PlannerSettings(backend="onnxruntime", allow_fallback=True))
    assert planner.info.backend.startswith("PyTorch 2.")
    assert "text.onnx: the text graph has" in planner.info.backend_refused
    assert planner.plan(golden_case(R1, 1).observation).reasoning


def test_graphs_elsewhere(model: Path, tmp_path: Path) -> None:
    shutil.move(model / "onnx", tmp_path / "graphs")
    with pytest.raises(EngineError, match="no such file"):
        load_graphs(model)
    with pytest.raises(EngineError, match=r"nowhere: found no .*, expected a directory of exported graphs or engines"):
        Planner.load(model, PlannerSettings(engine=str(tmp_path / "nowhere")))
    planner = Planner.load(model, PlannerSettings(backend="onnxruntime", engine=str(tmp_path / "graphs")))
    assert planner.info.backend_refused == ""


def test_an_export_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rsd_planner.engine.export.find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(EngineError, match=r"found no onnxscript; install what is in requirements-engines\.txt"):
        export(R1, tmp_path, precision="fp32", draft=None, console=Console(quiet=True))


def test_an_unknown_backend() -> None:
    with pytest.raises(ParameterError, match="backend is 'jax', expected one of auto, pytorch, onnxruntime, tensorrt"):
        PlannerSettings(backend="jax")
    with pytest.raises(ParameterError, match="backend is 'onnx'"):
        dataclasses.replace(PlannerSettings(), backend="onnx")


def test_what_fits_is_not_refused(model: Path) -> None:
    manifest = ExportManifest.read(model / "onnx")
    manifest.require_files(model / "onnx", list(manifest.graphs))
    manifest.require_model(model / "onnx", model, model / "draft")
    engines = EngineManifest.read(model / "engines")
    engines.require_files(model / "engines", tuple(engines.engines))
    engines.require_model(model / "engines", model, model / "draft")
