"""Consecutive 10 Hz ticks of drives in the driving world, drawn once and kept on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rsd_planner.bench.stretches import Stretch
from rsd_planner.demo.world.cameras import FRONT, make_camera
from rsd_planner.demo.world.dataset import WORLD_VERSION
from rsd_planner.demo.world.drive import run_drive
from rsd_planner.demo.world.looks import make_look
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.samples import FRAMES, Camerawork
from rsd_planner.demo.world.splits import SEEDS, Split
from rsd_planner.scene.observation import STEP_NS, EgoHistory, Frame, Observation, Pose

TICKS = 50  # of one drive: 5 s


def drive_stretches(split: Split, count: int, folder: Path) -> Iterator[Stretch]:
    """`count` ticks in all, TICKS of each of the split's first drives, from a moment chosen by the drive's seed.

    A frame that several ticks show is one and the same Frame, as in the node.

    Args:
        folder: Where drawn drives are kept; made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    camerawork: Camerawork | None = None
    for seed in SEEDS[split]:
        if count <= 0:
            return
        path = folder / f"{split.value}-{seed}-{TICKS}-world{WORLD_VERSION}.npz"
        if not path.exists():
            camerawork = camerawork or Camerawork()
            _draw(split, seed, camerawork, path)
        stretch = _read(path)[:count]
        count -= len(stretch)
        yield stretch


def _draw(split: Split, seed: int, camerawork: Camerawork, path: Path) -> None:
    drive = run_drive(make_layout(split, seed))
    last_start = max(drive.ticks.stop - TICKS, drive.ticks.start)
    start = int(np.random.default_rng([seed, TICKS]).integers(drive.ticks.start, last_start + 1))
    ticks = range(start, min(start + TICKS, drive.ticks.stop))
    camera = make_camera(FRONT)
    scene = camerawork.scene(drive, make_look(split, seed))
    try:
        shown = range(ticks.start - FRAMES + 1, ticks.stop)
        pictures = np.stack([scene.picture(tick * STEP_NS, camera) for tick in shown])
    finally:
        scene.release()
    histories = [drive.path.history(tick * STEP_NS) for tick in ticks]
    columns: dict[str, Any] = {
        "pictures": pictures,
        "ticks": np.array(ticks),
        "positions": np.stack([history.positions for history in histories]),
        "rotations": np.stack([history.rotations for history in histories]),
        "pose_positions": np.stack([history.pose_t0.position for history in histories]),
        "pose_rotations": np.stack([history.pose_t0.rotation for history in histories]),
    }
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **columns)
    temporary.rename(path)


def _read(path: Path) -> list[Observation]:
    with np.load(path) as drawn:
        columns = {name: drawn[name] for name in drawn.files}
    first = int(columns["ticks"][0]) - FRAMES + 1
    frames = [Frame.from_image((first + k) * STEP_NS, picture) for k, picture in enumerate(columns["pictures"])]
    observations = []
    for i, tick in enumerate(columns["ticks"]):
        pose = Pose(columns["pose_positions"][i], columns["pose_rotations"][i])
        history = EgoHistory(columns["positions"][i], columns["rotations"][i], pose)
        observations.append(Observation(int(tick) * STEP_NS, {FRONT: tuple(frames[i : i + FRAMES])}, history))
    return observations
