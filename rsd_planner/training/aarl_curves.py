"""The course of an AARL run as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rsd_planner.evaluation.theme import HISTORY, PLAN, RECORDED, style

_SMOOTHED = 5  # logged steps per point of the smooth curve
_WATCHED = (
    ("reward", "reward"),
    ("kl", "KL to the frozen draft, where that agreed"),
    ("flipped", "share of places that differ from the target"),
    ("action_mse", "MSE of the candidates' actions"),
)


def draw_curves(log: Path, before: Mapping[str, float], out: Path) -> None:
    """Draw `curves.png` from a run's log: reward, KL, flipped places, action MSE, anchor sets and L.

    Args:
        before: Figures of the draft that the run began with.
    """
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "loss" in line]
    measured = [line for line in lines if "validation" in line]
    shown = [(name, title) for name, title in _WATCHED if any(name in line for line in steps)] or [("loss", "loss")]
    counted = any("static_set" in line for line in steps)
    with style():
        count = len(shown) + counted + 1
        columns = min(count, 3)
        rows = -(-count // columns)
        figure = Figure(figsize=(4.2 * columns, 3.0 * rows), layout="constrained")
        axes = list(np.atleast_1d(figure.subplots(rows, columns)).flat)
        for axis, (name, title) in zip(axes, shown, strict=False):
            _watched(axis, steps, name, title)
        if counted:
            _anchor_sets(axes[len(shown)], steps)
        _accepted_length(axes[count - 1], measured, before)
        for axis in axes[count:]:
            axis.set_axis_off()
        figure.savefig(out, dpi=120)


def _watched(axis: Axes, steps: Sequence[Mapping[str, Any]], name: str, title: str) -> None:
    places = np.array([line["step"] for line in steps if name in line])
    values = np.array([line[name] for line in steps if name in line])
    axis.plot(places, values, color=HISTORY, linewidth=0.8)
    if len(values) >= 2 * _SMOOTHED:
        kernel = np.full(_SMOOTHED, 1 / _SMOOTHED)
        axis.plot(np.convolve(places, kernel, "valid"), np.convolve(values, kernel, "valid"), color=PLAN)
    axis.set(title=title, xlabel="step")


def _anchor_sets(axis: Axes, steps: Sequence[Mapping[str, Any]]) -> None:
    """Relative to the frozen draft's set, over the same frames each time."""
    counted = [line for line in steps if line.get("static_set")]
    places = [line["step"] for line in counted]
    size = np.array([line["static_set"] for line in counted])
    kept = size - np.array([line["left_set"] for line in counted])
    policy = np.array([line["policy_set"] for line in counted])
    axis.plot(places, size, color=RECORDED, linestyle="--", label="static: frozen draft agreed")
    axis.plot(places, policy, color=PLAN, label="policy: draft agrees now")
    axis.plot(places, kept, color=HISTORY, label="of the static ones, agree still")
    axis.set(title="anchor sets, places", xlabel="step")
    axis.legend(loc="lower left", fontsize="small")


def _accepted_length(axis: Axes, measured: Sequence[Mapping[str, Any]], before: Mapping[str, float]) -> None:
    places = [0, *(line["step"] for line in measured)]
    lengths = [before["accepted_length"], *(line["validation"]["accepted_length"] for line in measured)]
    axis.plot(places, lengths, color=PLAN, marker="o", label="accepted length L, real loop")
    axis.axhline(before["accepted_length"], color=RECORDED, linestyle="--", label="before")
    axis.set(title="validation", xlabel="step")
    axis.legend(loc="lower left", fontsize="small")
