"""`rsd_planner demo render`: the splits of the driving world on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from rsd_planner.demo.progress import Progress
from rsd_planner.demo.world.dataset import DRIVES_PER_SHARD, write_split
from rsd_planner.demo.world.splits import Split


def render(out: Path, drives: Mapping[Split, int], workers: int, console: Console) -> None:
    """Write what is missing of each split into `out`; shards that are there are kept.

    Raises:
        DatasetError: The directory holds samples of other cameras or of another version of the world.
        RenderError: The machine has no OpenGL over EGL.
    """
    with Progress(console) as progress:
        for split, count in drives.items():
            missing = -(-count // DRIVES_PER_SHARD) - len(list((out / split.value).glob("shard-*.npz")))
            progress.start(f"{split.value}, shards to write", max(missing, 0))
            for written, _ in enumerate(write_split(out, split, count, workers=workers), start=1):
                progress.at(written)
