"""A dataset whose samples also tell what is to be said had the ego come otherwise: worked out once, not rendered.

Pictures and history of a drive agree: whoever reads only one of them is mostly right. The same pictures with another
history, and what follows from that one, teach a model to read it.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from rsd_planner.demo.progress import Progress
from rsd_planner.demo.world.dataset import WORLD_VERSION, Dataset
from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.facts import ego_motion, observe
from rsd_planner.demo.world.origins import deliberative
from rsd_planner.demo.world.pairs import drivable, history_at
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.sentences import say
from rsd_planner.demo.world.splits import split_of

_DRIVES_PER_JOB = 16
_TRIES = 8
_STANDING = 0.2  # of the tries
_FASTEST_MPS = 16.0
_ACCEL_MPS2 = 1.2
_MAX_TOKENS = 48
Drives = list[tuple[int, list[int]]]  # seeds, each with its ticks


@dataclass(frozen=True)
class Other:
    """Another way to have come to a tick."""

    history: NDArray[np.float64]  # (16, 3) m, frame of t0
    text: str
    deliberative: list[bool]


def with_other_histories(data: Dataset, cache: Path, workers: int, console: Console) -> Dataset:
    """The same samples with the columns `other_history` (N, 16, 3), `other_text` ("" where there is none) and
    `other_deliberative` (N, 48); kept in the folder `cache` for the next time.
    """
    path = cache / "other_histories.npz"
    key = np.array([WORLD_VERSION, len(data), int(data.columns["seed"][0]), int(data.columns["seed"][-1])])
    if not (path.exists() and np.array_equal(np.load(path)["key"], key)):
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez_compressed(file, key=key, **_columns(_others(data, workers, console)))
        part.rename(path)
    with np.load(path) as saved:
        return replace(data, columns={**data.columns, **{name: saved[name] for name in saved.files if name != "key"}})


def _others(data: Dataset, workers: int, console: Console) -> list[Other | None]:
    pairs = zip(data.columns["seed"].tolist(), data.columns["tick"].tolist(), strict=True)
    drives = [(seed, [tick for _, tick in group]) for seed, group in groupby(pairs, key=lambda pair: pair[0])]
    jobs = [drives[i : i + _DRIVES_PER_JOB] for i in range(0, len(drives), _DRIVES_PER_JOB)]
    others: list[Other | None] = []
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, Progress(console) as progress:
        progress.start("other histories, drives", len(drives))
        for number, found in enumerate(pool.map(others_of_drives, jobs), start=1):
            others += found
            progress.at(min(number * _DRIVES_PER_JOB, len(drives)))
    return others


def others_of_drives(drives: Drives) -> list[Other | None]:
    """One for each tick of some drives, in order; None where no other speed fits the scene."""
    found: list[Other | None] = []
    for seed, ticks in drives:
        drive = run_drive(make_layout(split_of(seed), seed))
        found += [_other(drive, tick, np.random.default_rng([seed, tick, 18])) for tick in ticks]
    return found


def _other(drive: Drive, tick: int, rng: np.random.Generator) -> Other | None:
    facts = observe(drive, tick)
    for _ in range(_TRIES):
        standing = rng.random() < _STANDING
        speed = 0.0 if standing else float(rng.uniform(0.5, _FASTEST_MPS))
        accel = 0.0 if standing or rng.random() < 0.5 else float(rng.uniform(-_ACCEL_MPS2, _ACCEL_MPS2))
        if drivable(speed, facts):
            history = history_at(drive.path, tick, speed, accel)
            seen = replace(facts, ego=ego_motion(history))
            return Other(history.positions, say(seen), deliberative(seen))
    return None


def _columns(others: list[Other | None]) -> dict[str, Any]:
    history = np.zeros((len(others), 16, 3), np.float32)
    flags = np.full((len(others), _MAX_TOKENS), -1, np.int8)
    for row, other in enumerate(others):
        if other is not None:
            history[row] = other.history
            flags[row, : len(other.deliberative)] = other.deliberative
    texts = np.array(["" if other is None else other.text for other in others])
    return {"other_history": history, "other_text": texts, "other_deliberative": flags}
