"""Tests that need an NVIDIA GPU. Without one they are skipped, and say why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rsd_planner.engine.trt_module import device_capability
from rsd_planner.errors import EngineError


def _why_not() -> str:
    try:
        capability = device_capability()
    except EngineError as error:
        return str(error)
    return "" if torch.cuda.is_available() else f"a GPU ({capability}), but PyTorch {torch.__version__} cannot use it"


REASON = _why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if REASON and item.path.parent == Path(__file__).parent:  # pytest hands in every test there is
            item.add_marker(pytest.mark.skip(reason=REASON))
