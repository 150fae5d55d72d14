"""The bundled model: evaluated on ONNX Runtime it says what it says in PyTorch, and TensorRT builds all its graphs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from rsd_planner.cli import app
from rsd_planner.demo.make_bag import BAG_DIR
from rsd_planner.demo.model import demo_model_dir
from rsd_planner.engine.build import build_engines
from rsd_planner.engine.export import export
from rsd_planner.engine.manifest import ExportManifest

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("demo") / "model"
    shutil.copytree(demo_model_dir(), model)
    export(model, model / "onnx", precision="fp32", draft=None, console=QUIET)
    return model


def test_evaluated_on_both_backends(model: Path, tmp_path: Path) -> None:
    plans = {}
    for backend in ("pytorch", "onnxruntime"):
        out = tmp_path / backend
        flags = ["--stride", "30", "--model", str(model), "--backend", backend, "--out", str(out)]
        result = CliRunner().invoke(app, ["evaluate", str(BAG_DIR), *flags])
        assert result.exit_code == 0, result.output
        plans[backend] = [json.loads(line) for line in (out / "plans.jsonl").read_text().splitlines()]
    assert "ONNX Runtime 1." in (tmp_path / "onnxruntime" / "index.html").read_text()
    assert len(plans["pytorch"]) >= 3
    for found, expected in zip(plans["onnxruntime"], plans["pytorch"], strict=True):
        assert found["reasoning"] == expected["reasoning"]
        np.testing.assert_allclose(found["v0"], expected["v0"])


def test_engines_for_two_capabilities(model: Path, tmp_path: Path) -> None:
    manifest = build_engines(model / "onnx", tmp_path, targets="sm89,sm120", module="", console=QUIET)
    exported = ExportManifest.read(model / "onnx")
    assert list(manifest.engines) == list(exported.graphs)
    assert manifest.capabilities == ("sm89", "sm120")
    weights = sum(path.stat().st_size for path in (model / "onnx").glob("*.onnx"))
    assert sum(engine.bytes for engine in manifest.engines.values()) < 2 * weights  # one copy for both
