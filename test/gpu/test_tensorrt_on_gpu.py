"""The planner on engines built here for this GPU, against PyTorch on the CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.engine.trt_module import capabilities, device_capability, load_module
from rsd_planner.errors import EngineError
from rsd_planner.planner import Planner, PlannerSettings


def _trt() -> object:
    """The module to test with; skips where there is none, or none for this GPU."""
    try:
        trt = load_module()
    except EngineError as error:
        pytest.skip(str(error))
    here, known = device_capability(), capabilities(trt)
    if known and here not in known:
        pytest.skip(f"this GPU is {here}, {trt.__name__} {trt.__version__} compiles for {', '.join(known)}")
    return trt


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _trt()
    from rich.console import Console

    from rsd_planner.engine.build import build_engines
    from rsd_planner.engine.export import export

    model = tmp_path_factory.mktemp("tensorrt") / "model"
    shutil.copytree(R1, model)
    quiet = Console(quiet=True)
    export(model, model / "onnx", precision="fp32", draft=None, console=quiet)
    build_engines(model / "onnx", model / "engines", targets="", module="", console=quiet)
    return model


def test_plans_are_pytorchs(model: Path) -> None:
    before = torch.cuda.current_stream()
    settings = PlannerSettings(backend="tensorrt", device="cuda")
    try:
        engines, plain = Planner.load(model, settings), Planner.load(model)
        for number in (1, 2, 1):
            observation = golden_case(R1, number).observation
            found, expected = engines.plan(observation), plain.plan(observation)
            assert found.token_ids == expected.token_ids
            assert abs(found.positions - expected.positions).max() < 1e-2
    finally:
        torch.cuda.set_stream(before)


def test_verify_waits_for_nothing(model: Path) -> None:
    before = torch.cuda.current_stream()
    try:
        target = Planner.load(model, PlannerSettings(backend="tensorrt", device="cuda")).target
        target.prefill(target.prompt(golden_case(R1, 1).observation))
        target.verify([1, 2, 3])
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        target.verify([1, 2, 3])
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.set_stream(before)
