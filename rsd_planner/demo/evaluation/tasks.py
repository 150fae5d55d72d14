"""What is asked of the model, cut into tasks that processes share and that a stopped run need not repeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import product

from rsd_planner.demo.world.drive import run_drive
from rsd_planner.demo.world.pairs import pair_seeds
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.splits import SEEDS, Split

SPLITS = (Split.VAL, Split.TEST, Split.OFF_SHELF)
HARD_SPLITS = (Split.TEST, Split.OFF_SHELF)
PAIRS = 100  # per kind and split
TICKS, TICKS_PER_DRIVE = 1200, 150
_SAMPLES_PER_TASK, _TICKS_PER_TASK = 5, 15
_FIRST_DRIVE = 50_000  # no dataset gets there


class Kind(str, Enum):
    """Where the questions come from."""

    SAMPLES = "samples"  # of the dataset
    DRIVE = "drive"  # consecutive ticks, 10 Hz
    PAIR_BY_IMAGE = "pair_by_image"  # one history, two scenes
    PAIR_BY_HISTORY = "pair_by_history"  # one scene, two histories


@dataclass(frozen=True)
class Part:
    """One kind of questions on one split; `size` counts samples, ticks or pairs."""

    kind: Kind
    split: Split
    size: int

    @property
    def name(self) -> str:
        return f"{self.kind.value}_{self.split.value}"

    @property
    def is_pairs(self) -> bool:
        return self.kind in (Kind.PAIR_BY_IMAGE, Kind.PAIR_BY_HISTORY)

    def tasks(self) -> Iterator[Task]:
        """Endless for pairs: not every seed has one."""
        if self.kind is Kind.SAMPLES:
            for first in range(0, self.size, _SAMPLES_PER_TASK):
                yield Task(self.kind, self.split, 0, first, min(_SAMPLES_PER_TASK, self.size - first))
        elif self.kind is Kind.DRIVE:
            yield from self._drive_tasks()
        else:
            for seed in pair_seeds(self.split):
                yield Task(self.kind, self.split, seed, 0, 2)

    def _drive_tasks(self) -> Iterator[Task]:
        left = self.size
        for seed in SEEDS[self.split][_FIRST_DRIVE:]:
            ticks = run_drive(make_layout(self.split, seed)).ticks[: min(TICKS_PER_DRIVE, left)]
            left -= len(ticks)
            for first in ticks[::_TICKS_PER_TASK]:
                yield Task(self.kind, self.split, seed, first, min(_TICKS_PER_TASK, ticks.stop - first))
            if left == 0:
                return


@dataclass(frozen=True)
class Task:
    """Some questions in a row: samples by their number, ticks of a seed's drive, or the pair of a seed."""

    kind: Kind
    split: Split
    seed: int
    first: int
    count: int

    @property
    def key(self) -> str:
        """Names the task among those of its part."""
        return f"{self.seed}-{self.first}-{self.count}"


def parts(samples: dict[Split, int], limit: int | None) -> list[Part]:
    """All that is asked.

    Args:
        samples: How many the dataset has of each split.
        limit: Samples per split, pairs per kind and ticks at most.
    """
    most = TICKS + max(samples.values()) if limit is None else limit
    pairs = product((Kind.PAIR_BY_IMAGE, Kind.PAIR_BY_HISTORY), HARD_SPLITS)
    return [
        *(Part(Kind.SAMPLES, split, min(samples[split], most)) for split in SPLITS),
        *(Part(kind, split, min(PAIRS, most)) for kind, split in pairs),
        Part(Kind.DRIVE, Split.OFF_SHELF, min(TICKS, most)),
    ]
