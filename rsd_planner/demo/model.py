"""Where the bundled demo model lies."""

from __future__ import annotations

from pathlib import Path

from rsd_planner.errors import CheckpointError

MODEL_DIR = Path(__file__).parent / "model"  # in a source tree


def demo_model_dir() -> Path:
    """The demo model: a small Alpamayo R1. Its NOTICE.txt says what to expect of it, its MODEL_CARD.md how good it is.

    In a source tree it lies beside this file; an installation (pip, colcon) has it in `share/`.

    Raises:
        CheckpointError: Neither is there.
    """
    here = Path(__file__).resolve()
    installed = [prefix / "share" / "rsd_planner" / "demo_model" for prefix in here.parents]
    for candidate in (MODEL_DIR, *installed):
        if (candidate / "checkpoint" / "model.safetensors").is_file():
            return candidate
    searched = f"{MODEL_DIR} and share/rsd_planner/demo_model in every directory above {here}"
    raise CheckpointError(f"the demo model is not installed: looked at {searched}; give a model directory instead")
