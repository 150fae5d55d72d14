"""A world of one drive per split, and a cache that the runs of a session share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_cases import R1
from rich.console import Console

from rsd_planner.demo.world.dataset import write_split
from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.rotary import Rope
from rsd_planner.training.train_draft import Request, train_draft

CAP = 24


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    for split in (Split.TRAIN, Split.VAL, Split.OFF_SHELF):
        assert len(list(write_split(folder, split, drives=1))) == 1
    return folder


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def distilled(world: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[DraftKind, Path]:
    """Distilled as far as to agree with the target here and there."""
    found = {}
    for kind in DraftKind:
        out = found[kind] = tmp_path_factory.mktemp(kind.name)
        numbers: dict[str, Any] = {"steps": 8, "batch": 2, "validations": 1, "validation_frames": 1, "anchors": 8}
        train_draft(
            Request(R1, kind, Rope.FLAT, world, out, cache=shared_cache, max_tokens=CAP, rate=1e-2, **numbers),
            Console(quiet=True),
        )
    return found
