"""Exports that several tests share: they take longest."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from golden_cases import R1, V1_5
from rich.console import Console

from rsd_planner.engine.build import build_engines
from rsd_planner.engine.export import export

sys.path.insert(0, str(Path(__file__).parents[1] / "draft"))

from draft_files import DFLASH, EAGLE3, random_draft


def _model(golden: Path, kind: str, rope: str, to: Path) -> Path:
    """The golden target with a draft of random weights."""
    shutil.copytree(golden, to)
    random_draft(kind, rope, to / "draft")
    return to


@pytest.fixture(scope="session")
def r1_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alpamayo R1 with an EAGLE-3 draft and, under onnx/, its graphs in fp32."""
    model = _model(R1, EAGLE3, "mirrored", tmp_path_factory.mktemp("r1") / "model")
    export(model, model / "onnx", precision="fp32", draft=None, console=Console(quiet=True))
    return model


@pytest.fixture(scope="session")
def v1_5_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alpamayo 1.5 with a DFlash draft and, under onnx/, its graphs in fp32."""
    model = _model(V1_5, DFLASH, "flat", tmp_path_factory.mktemp("v1_5") / "model")
    export(model, model / "onnx", precision="fp32", draft=None, console=Console(quiet=True))
    return model


@pytest.fixture(scope="session")
def r1_engines(r1_model: Path) -> Path:
    """Engines of `r1_model`."""
    return _engines(r1_model)


@pytest.fixture(scope="session")
def v1_5_engines(v1_5_model: Path) -> Path:
    """Engines of `v1_5_model`."""
    return _engines(v1_5_model)


def _engines(model: Path) -> Path:
    out = model / "engines"
    build_engines(model / "onnx", out, targets="sm89,sm120", module="", console=Console(quiet=True))
    return out
