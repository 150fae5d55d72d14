"""The rows as a table for the terminal and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rsd_planner.bench.ngram import NAME
from rsd_planner.evaluation import theme

Row = Mapping[str, Any]

_KINDS = {
    "independent": "Reasoning alone, single frames",
    "consecutive": "Whole tick, consecutive frames at 10 Hz",
}
_COLUMNS = {  # heading, key, format
    "independent": (
        ("L", "accepted_length", "{:.2f}"),
        ("max L", "ceiling", "{:.2f}"),
        ("passes", "passes_per_frame", "{:.2f}"),
        ("routine", "routine_share", "{:.0%}"),
        ("ms", "reasoning_ms", "{:.1f}"),
        ("S", "speedup_vs_plain", "{:.2f}"),
        ("S/HF", "speedup_vs_reference", "{:.2f}"),
    ),
    "consecutive": (
        ("prefill", "prefill_committed", "{:.2f}"),
        ("passes", "passes_per_frame", "{:.2f}"),
        ("routine", "routine_share", "{:.0%}"),
        ("ms", "tick_ms", "{:.0f}"),
        ("S", "tick_speedup_vs_plain", "{:.2f}"),
        ("S/HF", "tick_speedup_vs_reference", "{:.2f}"),
    ),
}


def print_table(rows: Sequence[Row], console: Console) -> None:
    """Print a table per kind of frames; bench.json holds more."""
    for kind, title in _KINDS.items():
        chosen = [row for row in rows if row["frames"] == kind]
        if not chosen:
            continue
        table = Table(
            title=f"{title} ({chosen[0]['ticks']})", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        table.add_column("", no_wrap=True)
        for heading, _, _ in _COLUMNS[kind]:
            table.add_column(heading, justify="right")
        table.add_column("exact", justify="right")
        for row in chosen:
            cells = ["-" if row[key] is None else form.format(row[key]) for _, key, form in _COLUMNS[kind]]
            table.add_row(row["name"], *cells, _exact(row))
        console.print(table)


def _exact(row: Row) -> str:
    if row["inexact_frames"]:
        return f"[bold red]{row['inexact_frames']} differ[/]"
    return f"{row['ties']} ties" if row["ties"] else "yes"


def draw_chart(rows: Sequence[Row], machine: str, path: Path) -> None:
    """A bar per row: reasoning time on single frames, tick time on consecutive ones, shorter is better."""
    panels = [(kind, [row for row in rows if row["frames"] == kind]) for kind in _KINDS]
    panels = [(kind, chosen) for kind, chosen in panels if chosen]
    if not panels:
        return
    with theme.style():
        counts = [len(chosen) for _, chosen in panels]
        figure = Figure(figsize=(9.0, 1.3 + 0.46 * sum(counts) + 0.7 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=counts)[:, 0]
        for place, (kind, chosen) in zip(axes, panels, strict=True):
            _panel(place, kind, chosen)
        figure.supxlabel(
            f"median in ms, and times faster than Hugging Face generate\n{machine}", fontsize=9, color=theme.MUTED
        )
        figure.savefig(path, dpi=160, facecolor="white")


def _panel(axes: Axes, kind: str, rows: Sequence[Row]) -> None:
    single = kind == "independent"
    time, speedup = ("reasoning_ms", "speedup_vs_reference") if single else ("tick_ms", "tick_speedup_vs_reference")
    longest = max(row[time] for row in rows)
    for place, row in enumerate(rows):
        axes.barh(place, row[time], color=_colour(row), height=0.66)
        axes.text(row[time] + 0.01 * longest, place, _label(row, time, speedup, single), va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], color=theme.INK)
    axes.invert_yaxis()
    axes.set_xlim(0, longest * 1.34)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(_KINDS[kind], fontweight="bold")


def _label(row: Row, time: str, speedup: str, single: bool) -> str:
    parts = [f"{row[time]:.0f} ms"]
    if row[speedup] is not None and round(row[speedup], 2) != 1.0:
        parts.append(f"{row[speedup]:.1f}x")
    if single and row["draft"]:
        parts.append(f"{row['accepted_length']:.1f} tokens a pass")
    if not single and row["accepted_length"] is None:
        parts.append(f"{row['passes_per_frame']:.1f} passes a frame")
    return "  ·  ".join(parts)


def _colour(row: Row) -> str:
    if row["name"] == "Hugging Face generate":
        return theme.HISTORY
    if row["name"].startswith("plain loop"):
        return theme.STAGE_COLOURS[2]
    return theme.PLAN if row["draft"] and not row["name"].startswith(NAME) else theme.STAGE_COLOURS[3]
