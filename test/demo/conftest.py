from __future__ import annotations

from pathlib import Path

import pytest
from small_world import render_world


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_world(tmp_path_factory.mktemp("world"))
