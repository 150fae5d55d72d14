"""A world of one drive per split, and a cache that the runs of a session share."""

from __future__ import annotations

from pathlib import Path

import pytest

from rsd_planner.demo.world.dataset import write_split
from rsd_planner.demo.world.splits import Split


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    for split in (Split.TRAIN, Split.VAL):
        assert len(list(write_split(folder, split, drives=1))) == 1
    return folder


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
