"""Where the bundled demo model lies."""

from __future__ import annotations

from pathlib import Path

from rsd_planner.errors import CheckpointError


def demo_model_dir() -> Path:
    """The demo model: a tiny Alpamayo R1 checkpoint. Its NOTICE.txt says what to expect of it.

    In a source tree it is the golden checkpoint of the tests; an installation (pip, colcon) has a copy in `share/`.

    Raises:
        CheckpointError: Neither is there.
    """
    here = Path(__file__).resolve()
    candidates = [here.parents[2] / "test" / "golden" / "alpamayo_r1"]
    candidates += [prefix / "share" / "rsd_planner" / "demo_model" for prefix in here.parents]
    for candidate in candidates:
        if (candidate / "checkpoint").is_dir():
            return candidate
    searched = f"{candidates[0]} and share/rsd_planner/demo_model in every directory above {here}"
    raise CheckpointError(f"the demo model is not installed: looked at {searched}; give a model directory instead")
