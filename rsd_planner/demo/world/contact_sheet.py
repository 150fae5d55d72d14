"""Sheets of pictures with their sentences: what the world looks like, cause by cause, near to far.

Run `python -m rsd_planner.demo.world.contact_sheet OUT --split off_shelf` to write one PNG per cause.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import cv2
import numpy as np
import typer

from rsd_planner.demo.world.facts import CauseKind
from rsd_planner.demo.world.samples import Camerawork, Sample, drive_samples, frame_of
from rsd_planner.demo.world.splits import SEEDS, Split
from rsd_planner.scene.observation import RgbImage

_ROWS, _COLUMNS = 6, 4
_CELL = (448, 192)
_CAPTION_PX = 38


def collect(split: Split, drives: int) -> dict[CauseKind, list[Sample]]:
    """Samples of the first drives of a split, by cause."""
    camerawork, found = Camerawork(), defaultdict(list)
    for seed in SEEDS[split][:drives]:
        for sample in drive_samples(seed, camerawork):
            found[sample.facts.cause.kind].append(sample)
    return found


def sheet(samples: list[Sample]) -> RgbImage:
    """Samples over the whole range of distances, nearest first, each with its sentence below."""
    ordered = sorted(samples, key=lambda sample: sample.facts.cause.distance)
    picked = [ordered[i] for i in np.unique(np.linspace(0, len(ordered) - 1, _ROWS * _COLUMNS).astype(int))]
    cells = [_cell(sample) for sample in picked]
    while len(cells) % _COLUMNS:
        cells.append(np.full_like(cells[0], 255))
    rows = [np.hstack(cells[i : i + _COLUMNS]) for i in range(0, len(cells), _COLUMNS)]
    return np.vstack(rows)


def _cell(sample: Sample) -> RgbImage:
    picture = cv2.resize(frame_of(sample), _CELL, interpolation=cv2.INTER_CUBIC)
    caption = np.full((_CAPTION_PX, _CELL[0], 3), 255, np.uint8)
    for line, text in enumerate(textwrap.wrap(sample.text, 58)[:2]):
        cv2.putText(caption, text, (3, 14 + 18 * line), cv2.FONT_HERSHEY_SIMPLEX, 0.42, (0, 0, 0), 1, cv2.LINE_AA)
    return np.vstack([picture, caption]).astype(np.uint8)


def main(
    folder: Path,
    split: Annotated[Split, typer.Option()] = Split.TEST,
    drives: Annotated[int, typer.Option(help="drives to pick from")] = 40,
) -> None:
    """Write a sheet per cause into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, samples in collect(split, drives).items():
        path = folder / f"{split.value}_{kind.value}.png"
        cv2.imwrite(str(path), sheet(samples)[:, :, ::-1])
        typer.echo(str(path))


if __name__ == "__main__":
    typer.run(main)
