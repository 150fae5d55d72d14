"""Diagnostics name the backend, and warn when it is not the one that was asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

from diagnostic_msgs.msg import DiagnosticStatus

from rsd_planner.model_info import ModelInfo
from rsd_planner.ros.diagnostics import _model
from rsd_planner.ros.plan_statistics import PlanStatistics

INFO = ModelInfo("Alpamayo R1", Path("/model"), 7, "cpu", "fp32", (1,), 4, False, "", backend="ONNX Runtime 1.32.0")


def status(info: ModelInfo) -> tuple[bytes, str, dict[str, object]]:
    worker = SimpleNamespace(pid=1, restarts=0, lost="")
    publishers = SimpleNamespace(typed=False)
    return _model(SimpleNamespace(model=info, statistics=PlanStatistics(), worker=worker, publishers=publishers))


def test_the_backend_is_named() -> None:
    level, message, values = status(INFO)
    assert (level, message) == (DiagnosticStatus.OK, "Alpamayo R1")
    assert values["backend"] == "ONNX Runtime 1.32.0"
    assert "backend not used" not in values


def test_a_fallback_is_a_warning() -> None:
    fallen = dataclasses.replace(INFO, backend="PyTorch 2.13.0", backend_refused="/model/onnx: exported from others")
    level, message, values = status(fallen)
    assert level == DiagnosticStatus.WARN
    assert message == "Alpamayo R1: runs on PyTorch, the backend asked for cannot"
    assert values["backend not used"] == "/model/onnx: exported from others"
