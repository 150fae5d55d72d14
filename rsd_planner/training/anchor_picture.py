"""The places that hold a draft to what it was, step by step, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rsd_planner.evaluation import theme

_KINDS = {"dflash": "DFlash", "eagle3": "EAGLE-3"}
_ROWS = {"aarl_static": ("static anchors", theme.PLAN), "aarl_policy": ("policy anchors", theme.VELOCITY)}


def draw_anchor_sets(sets: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Write a PNG: relative to the places where the frozen draft agreed, how many of these agree still, and how many
    places agree at all; a line per run.

    Args:
        sets: Run's name, as `reproduce.Run.name` -> `step`, `static_set`, `policy_set`, `left_set`.
    """
    kinds = list(dict.fromkeys(name.partition("_")[0] for name in sets))
    with theme.style():
        figure = Figure(figsize=(10.0, 3.6 * len(kinds)), layout="constrained")
        for kind, (held, agreeing) in zip(kinds, figure.subplots(len(kinds), 2, squeeze=False), strict=True):
            own = {name: one for name, one in sets.items() if name.startswith(f"{kind}_") and one["step"]}
            for axes in (held, agreeing):
                axes.axhline(100.0, color=theme.RECORDED, linestyle="--", label="static set, fixed")
                axes.set_xlabel("step")
                axes.set_ylabel("% of the static set")
            for name, one in own.items():
                _draw_run(held, name, one, np.array(one["static_set"]) - np.array(one["left_set"]))
                _draw_run(agreeing, name, one, np.array(one["policy_set"]))
            held.set_title(f"{_KINDS[kind]}: of the static set, the draft agrees still", fontweight="bold")
            agreeing.set_title(f"{_KINDS[kind]}: policy set, all places that agree now", fontweight="bold")
            held.legend(loc="lower left", fontsize="small")
        figure.savefig(path, dpi=160, facecolor="white")


def _draw_run(axes: Axes, name: str, one: Mapping[str, Sequence[float]], places: NDArray[np.float64]) -> None:
    row, _, seed = name.partition("_")[2].rpartition("_")
    title, colour = _ROWS[row]
    share = 100.0 * places / np.maximum(one["static_set"], 1.0)
    steps = [0, *one["step"]]
    axes.plot(steps, [100.0, *share], color=colour, label=title if seed == "0" else None)
