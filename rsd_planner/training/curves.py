"""The course of a run as a picture: loss, and accepted length against its ceiling."""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

from rsd_planner.evaluation.theme import HISTORY, PLAN, RECORDED, style


def draw_curves(log: Path, out: Path) -> None:
    """Draw `curves.png` from a run's log."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "loss" in line]
    measured = [line for line in lines if "validation" in line]
    with style():
        figure = Figure(figsize=(9.0, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot([line["step"] for line in steps], [line["loss"] for line in steps], color=HISTORY, linewidth=0.8)
        left.set(title="training loss", xlabel="step", ylim=(0, None))
        places = [line["step"] for line in measured]
        found = [line["validation"] for line in measured]
        lengths = [figures["accepted_length"] for figures in found]
        right.plot(places, lengths, color=PLAN, marker="o", label="accepted length L, real loop")
        right.plot(places, [f["ceiling"] for f in found], color=RECORDED, linestyle="--", label="a perfect draft's")
        right.set(title="validation", xlabel="step", ylim=(0, None))
        right.legend(loc="lower right")
        figure.savefig(out, dpi=120)
