"""A dataset whose texts are long reasonings: worked out once from its seeds and ticks, nothing is rendered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rsd_planner.demo.progress import Progress
from rsd_planner.demo.world.dataset import WORLD_VERSION, Dataset
from rsd_planner.demo.world.descriptions import flags_of, reasoning_of, text_of
from rsd_planner.demo.world.drive import run_drive
from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.splits import split_of

_DRIVES_PER_JOB = 16
Texts = list[tuple[str, list[bool]]]
Job = tuple[list[tuple[int, list[int]]], Reasoning]  # seeds, each with its ticks


def with_long_texts(data: Dataset, length: Reasoning, cache: Path, workers: int, console: Console) -> Dataset:
    """The same samples with long texts and their token flags; kept in the folder `cache` for the next time."""
    path = cache / f"{length.value}.npz"
    key = np.array([WORLD_VERSION, len(data), int(data.columns["seed"][0]), int(data.columns["seed"][-1])])
    if not (path.exists() and np.array_equal(np.load(path)["key"], key)):
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez_compressed(file, key=key, **_columns(_texts(data, length, workers, console)))
        part.rename(path)
    with np.load(path) as saved:
        return replace(data, columns={**data.columns, "text": saved["text"], "deliberative": saved["deliberative"]})


def _texts(data: Dataset, length: Reasoning, workers: int, console: Console) -> Texts:
    pairs = zip(data.columns["seed"].tolist(), data.columns["tick"].tolist(), strict=True)
    drives = [(seed, [tick for _, tick in group]) for seed, group in groupby(pairs, key=lambda pair: pair[0])]
    jobs: list[Job] = [(drives[i : i + _DRIVES_PER_JOB], length) for i in range(0, len(drives), _DRIVES_PER_JOB)]
    texts: Texts = []
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, Progress(console) as progress:
        progress.start(f"{length.value} texts, drives", len(drives))
        for number, found in enumerate(pool.map(describe_drives, jobs), start=1):
            texts += found
            progress.at(min(number * _DRIVES_PER_JOB, len(drives)))
    return texts


def describe_drives(job: Job) -> Texts:
    """Texts and flags of some drives' ticks, in order."""
    drives, length = job
    texts: Texts = []
    for seed, ticks in drives:
        drive = run_drive(make_layout(split_of(seed), seed))
        for tick in ticks:
            pieces = reasoning_of(drive, tick, length)
            texts.append((text_of(pieces), flags_of(pieces)))
    return texts


def _columns(texts: Sequence[tuple[str, list[bool]]]) -> dict[str, Any]:
    deliberative = np.full((len(texts), max(len(flags) for _, flags in texts)), -1, np.int8)
    for row, (_, flags) in enumerate(texts):
        deliberative[row, : len(flags)] = flags
    return {"text": np.array([text for text, _ in texts]), "deliberative": deliberative}
