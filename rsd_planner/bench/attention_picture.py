"""Attention per cluster as a picture: mass beside the share of tokens, and how spread out it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rsd_planner.bench.attention import Cluster, DraftAttention
from rsd_planner.evaluation import theme

_COLOURS = dict(zip(Cluster, (theme.PLAN, theme.VELOCITY, theme.HISTORY, theme.RECORDED), strict=True))
_READABLE = 0.045  # share of a bar that has room for a number


def draw_attention(drafts: Sequence[DraftAttention], path: Path) -> None:
    """Write a PNG: one bar per draft and layer, the share of the tokens on top for comparison."""
    rows = [(_label(each, number), layer.as_json()) for each in drafts for number, layer in enumerate(each.layers)]
    shares = {name: values["token_share"] for name, values in rows[0][1].items()}
    bars = [("share of the tokens", shares)]
    bars += [(label, {name: values["mass"] for name, values in found.items()}) for label, found in rows]
    with theme.style():
        figure = Figure(figsize=(11.0, 1.9 + 0.5 * len(bars)), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2.2, 1), sharey=True)
        _mass(left, bars)
        spread = [
            {name: values["entropy"] / max(values["uniform_entropy"], 1e-9) for name, values in found.items()}
            for _, found in rows
        ]
        _entropy(right, spread)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(Cluster))
        figure.savefig(path, dpi=160, facecolor="white")


def _label(each: DraftAttention, layer: int) -> str:
    name = f"{each.name} ({each.path.name})"
    return f"{name}, layer {layer}" if len(each.layers) > 1 else name


def _mass(axes: Axes, bars: Sequence[tuple[str, dict[str, float]]]) -> None:
    for place, (_, values) in enumerate(bars):
        left = 0.0
        for cluster in Cluster:
            width = values[cluster.value]
            colour, faded = _COLOURS[cluster], 0.45 if place == 0 else 1.0
            label = cluster.value if place == 1 else None
            axes.barh(place, width, left=left, color=colour, alpha=faded, height=0.66, label=label)
            if width > _READABLE:
                ink = theme.INK if place == 0 else "white"
                axes.text(left + width / 2, place, f"{width:.0%}", ha="center", va="center", fontsize=9, color=ink)
            left += width
    axes.set_yticks(range(len(bars)), [label for label, _ in bars], color=theme.INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_title("Attention mass", fontweight="bold")


def _entropy(axes: Axes, spread: Sequence[dict[str, float]]) -> None:
    for place, values in enumerate(spread, start=1):
        for offset, cluster in enumerate(Cluster):
            height = place + (offset - 1.5) * 0.16
            axes.plot(values[cluster.value], height, "o", color=_COLOURS[cluster], ms=6)
    axes.set_xlim(0, 1.02)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.set_title("Entropy within the cluster,\nof an even spread's", fontweight="bold")
