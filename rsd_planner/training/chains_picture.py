"""What the length of a reasoning costs, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rsd_planner.evaluation import theme

_CACHES = (("target_cache_mb", "target"), ("draft_cache_mb", "draft"))


def draw_chains(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a PNG: reasoning time per way of decoding, and the size of the caches, over tokens per frame.

    Args:
        rows: Of `chains.chain_rows`.
    """
    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    colours = dict(zip(names, (theme.HISTORY, theme.PLAN, theme.VELOCITY, *theme.STAGE_COLOURS), strict=False))
    with theme.style():
        figure = Figure(figsize=(10.0, 4.2), layout="constrained")
        times, caches = figure.subplots(1, 2)
        for name in names:
            own = [row for row in rows if row["name"] == name]
            tokens = [row["tokens_per_frame"] for row in own]
            times.plot(tokens, [row["reasoning_ms"] for row in own], "o-", color=colours[name], label=name)
            for (size, whose), line in zip(_CACHES, ("-", "--"), strict=True):
                known = [(row["tokens_per_frame"], row[size]) for row in own if row[size] is not None]
                if known and (whose == "draft" or name == names[0]):
                    label = f"{whose} ({name})" if whose == "draft" else whose
                    caches.plot(*zip(*known, strict=True), "o", ls=line, color=colours[name], label=label)
        times.set_title("Reasoning, median ms", fontweight="bold")
        caches.set_title("Keys and values in use, MB", fontweight="bold")
        for axes in (times, caches):
            axes.set_xlabel("tokens per frame")
            axes.set_ylim(bottom=0)
            axes.legend()
        figure.savefig(path, dpi=160, facecolor="white")
