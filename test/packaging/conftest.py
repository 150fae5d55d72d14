from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = (".*", "__pycache__", "*.egg-info", "build", "install", "log", "out")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree in a workspace's src/, so that builds leave the tree alone."""
    copy = tmp_path_factory.mktemp("workspace") / "src" / "rsd_planner"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*BUILT))
    return copy
