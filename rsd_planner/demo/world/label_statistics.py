"""What the labels are like: variety, repetition, length, and how much of them takes the image.

Run `python -m rsd_planner.demo.world.label_statistics --drives 60`: every tick of each split's first drives, 10 Hz.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
import typer

from rsd_planner.demo.world.drive import run_drive
from rsd_planner.demo.world.facts import Facts, observe
from rsd_planner.demo.world.origins import deliberative
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.sentences import action_of, say
from rsd_planner.demo.world.splits import SEEDS, Split

_MASKED_EVERY = 7  # ticks: token origins are the same on average, and slow to work out


@dataclass(frozen=True)
class Statistics:
    """Of all ticks of some drives."""

    sentences: int
    distinct: int
    top_100: float  # share of the 100 most frequent sentences
    repeated: float  # share identical to the tick before
    words: tuple[int, float, int]  # fewest, mean, most
    tokens: float  # mean
    routine: float  # share of tokens
    causes: dict[str, tuple[float, float]]  # share of ticks; share of those that repeat the tick before
    actions: dict[str, float]


def measure(drives: list[list[Facts]]) -> Statistics:
    """Statistics of drives given as the facts of their ticks."""
    texts = [[say(facts) for facts in drive] for drive in drives]
    kinds = [[facts.cause.kind.value for facts in drive] for drive in drives]
    counts = Counter(text for drive in texts for text in drive)
    total = sum(counts.values())
    again = Counter(
        kind
        for drive, names in zip(texts, kinds, strict=True)
        for (a, b), kind in zip(pairwise(drive), names[1:], strict=True)
        if a == b
    )
    shares = Counter(kind for names in kinds for kind in names)
    lengths = [len(text.split()) for drive in texts for text in drive]
    masks = [deliberative(facts) for drive in drives for facts in drive[::_MASKED_EVERY]]
    actions = Counter(action_of(text) for drive in texts for text in drive)
    return Statistics(
        sentences=total,
        distinct=len(counts),
        top_100=sum(count for _, count in counts.most_common(100)) / total,
        repeated=sum(again.values()) / (total - len(drives)),
        words=(min(lengths), float(np.mean(lengths)), max(lengths)),
        tokens=float(np.mean([len(mask) for mask in masks])),
        routine=1 - sum(map(sum, masks)) / sum(map(len, masks)),
        causes={kind: (count / total, again[kind] / count) for kind, count in shares.most_common()},
        actions={action: count / total for action, count in actions.most_common()},
    )


def main(drives: Annotated[int, typer.Option(help="drives per split")] = 60) -> None:
    """Print the statistics of every split."""
    for split in Split:
        runs = [run_drive(make_layout(split, seed)) for seed in SEEDS[split][:drives]]
        found = measure([[observe(run, tick) for tick in run.ticks] for run in runs])
        fewest, mean, most = found.words
        typer.echo(
            f"{split.value}: {found.sentences} sentences, {found.distinct} distinct, "
            f"100 most frequent {found.top_100:.1%}, as the tick before {found.repeated:.1%}\n"
            f"  words {fewest}-{most}, mean {mean:.1f}; tokens {found.tokens:.1f}, routine {found.routine:.1%}"
        )
        typer.echo("  " + ", ".join(f"{kind} {share:.3f} ({same:.2f})" for kind, (share, same) in found.causes.items()))
        typer.echo("  " + ", ".join(f"{action} {share:.3f}" for action, share in found.actions.items()))


if __name__ == "__main__":
    typer.run(main)
