"""One set of colours for plots and page, in light and dark.

matplotlib draws in the light colours; in the SVG each becomes a CSS variable, so the page decides.
"""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# name -> (light, dark); told apart with any colour vision, and by line style as well
COLOURS = {
    "ink": ("#1b1f24", "#e6e9ec"),
    "muted": ("#667078", "#98a2aa"),
    "grid": ("#dfe3e6", "#343b42"),
    "plan": ("#0068b8", "#5ab4f5"),
    "recorded": ("#008f66", "#3fcf9f"),
    "velocity": ("#cf5a00", "#f5a05a"),
    "history": ("#7a828a", "#a8b0b8"),
    "stage1": ("#7b5ea7", "#b79be0"),
    "stage2": ("#4a64a8", "#8fa5e8"),
    "stage3": ("#2a9bc4", "#7fd3f0"),
    "stage4": ("#c98a00", "#f0c050"),
    "stage5": ("#b8446b", "#f08fb0"),
}
INK, MUTED, GRID = (COLOURS[name][0] for name in ("ink", "muted", "grid"))
PLAN, RECORDED, VELOCITY, HISTORY = (COLOURS[name][0] for name in ("plan", "recorded", "velocity", "history"))
STAGE_COLOURS = tuple(COLOURS[f"stage{number}"][0] for number in range(1, 6))

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "rsd_planner",
}


def style(settings: dict[Any, Any] = STYLE) -> AbstractContextManager[None]:
    """Within it figures are drawn in our style, or in one made from it."""
    return matplotlib.rc_context(settings)


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of width x height inches with one axes. No global list knows it, so nothing has to be closed."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def as_svg(figure: Figure, label: str) -> str:
    """Inline SVG whose colours follow the page.

    Args:
        figure: Drawn with the colours of this module only.
        label: What it shows, for screen readers.
    """
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for name, (light, _) in COLOURS.items():
        svg = svg.replace(light, f"var(--{name})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def css_variables(dark: bool) -> str:
    """The colours as CSS custom properties."""
    return "".join(f"--{name}:{colours[dark]};" for name, colours in COLOURS.items())
