"""Draws one plan: cameras above, the scene from above with the path coloured by speed, the reasoning beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea, VPacker
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rsd_planner.evaluation import theme
from rsd_planner.evaluation.plots import VEHICLE_LENGTH_M, VEHICLE_WIDTH_M
from rsd_planner.messages.markers import AMBER, FULL_GREEN_MPS, RIBBON_WIDTH_M, speed_colour, words_by_origin
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan import WAYPOINTS, Plan
from rsd_planner.scene.observation import Observation

WIDTH_IN, HEIGHT_IN, DPI = 16.0, 9.0, 110
BACKGROUND = "#202226"  # as in config/rsd_planner.rviz
INK, MUTED, GRID, RECORDED, HISTORY = (
    theme.COLOURS[name][1] for name in ("ink", "muted", "grid", "recorded", "history")
)
LEFT_TO_RIGHT = (3, 0, 1, 6, 2, 5, 4)  # camera ids as one sees them standing in the vehicle; rear last
NAMES = ("front left", "front", "front right", "rear left", "rear", "rear right", "front tele")
MARGIN_M = 4.0
COLUMNS = 44  # of the reasoning
SPEEDS = LinearSegmentedColormap.from_list("speed", [speed_colour(FULL_GREEN_MPS * share) for share in (0, 0.5, 1)])


@dataclass(frozen=True)
class Shown:
    """One plan and what it was made from."""

    title: str
    observation: Observation
    plan: Plan
    future: NDArray[np.float64]  # (n, 3) m, frame of t0: what the vehicle did, as far as it is recorded
    withheld: str | None  # why the node would not publish the plan
    model: ModelInfo


def draw(shown: Shown) -> Figure:
    """The picture, 16:9."""
    dark = {
        **theme.STYLE,
        **dict.fromkeys(("text.color", "axes.titlecolor"), INK),
        **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), MUTED),
        "grid.color": GRID,
        "axes.facecolor": BACKGROUND,
    }
    with theme.style(dark):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, layout="constrained", facecolor=BACKGROUND)
        grid = figure.add_gridspec(2, 2, height_ratios=(0.42, 0.58), width_ratios=(0.66, 0.34))
        above, left, right = (figure.add_subfigure(grid[place]) for place in np.s_[(0, slice(None)), (1, 0), (1, 1)])
        for part in (above, left, right):
            part.set_facecolor(BACKGROUND)
        _draw_cameras(above, shown.observation)
        _draw_from_above(left, shown)
        _draw_words(right, shown)
    return figure


def _draw_cameras(figure: SubFigure, observation: Observation) -> None:
    cameras = [camera for camera in LEFT_TO_RIGHT if camera in observation.cameras]
    images = [observation.cameras[camera][-1].image for camera in cameras]
    shapes = [image.shape[1] / image.shape[0] for image in images]
    row = figure.subplots(1, len(cameras), squeeze=False, width_ratios=shapes)[0]
    for axes, camera, image in zip(row, cameras, images, strict=True):
        axes.imshow(image)
        axes.set_axis_off()
        axes.set_title(f"{NAMES[camera]} ({camera})", color=MUTED, fontsize=10)


def _draw_from_above(figure: SubFigure, shown: Shown) -> None:
    """x forward to the right, y left upwards, metres in the frame of t0."""
    plan, history = shown.plan, shown.observation.history.positions
    axes = figure.subplots()
    corner = (-VEHICLE_LENGTH_M / 2, -VEHICLE_WIDTH_M / 2)
    axes.add_patch(Rectangle(corner, VEHICLE_LENGTH_M, VEHICLE_WIDTH_M, fill=False, ec=INK, lw=1.4, zorder=4))
    axes.plot(history[:, 0], history[:, 1], ".-", color=HISTORY, lw=1.2, ms=5, label="ego history, 1.5 s")
    if len(shown.future):
        axes.plot(*shown.future[:, :2].T, "--", color=RECORDED, lw=2, zorder=3, label="what the vehicle then did")
    axes.add_collection(_ribbon(plan))
    seconds = plan.positions[9::10, :2]  # 1 s, 2 s, ... ahead
    axes.plot(*seconds.T, "o", color=INK, ms=4, zorder=4, label="plan, dot every 1 s")
    _set_limits(axes, np.concatenate([np.zeros((1, 3)), history, plan.positions, shown.future]))
    axes.set_xlabel("x, forward (m)")
    axes.set_ylabel("y, left (m)")
    axes.legend(loc="upper left", ncols=3)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, FULL_GREEN_MPS), SPEEDS), ax=axes, fraction=0.025, pad=0.01, extend="max"
    )
    bar.set_label("planned speed (m/s)")
    bar.outline.set_visible(False)


def _ribbon(plan: Plan) -> PolyCollection:
    centres = np.vstack([np.zeros(2), plan.positions[:, :2]])
    left = RIBBON_WIDTH_M / 2 * np.vstack([[0.0, 1.0], plan.rotations[:, :2, 1]])
    one, other = centres + left, centres - left
    quads = list(np.stack([one[:-1], one[1:], other[1:], other[:-1]], axis=1))  # 64 of (4, 2)
    colours = [(*speed_colour(speed), 1.0) for speed in plan.speeds]
    return PolyCollection(quads, facecolors=colours, edgecolors="face", lw=0.5, zorder=2)


def _set_limits(axes: Axes, points: NDArray[np.float64]) -> None:
    axes.set_aspect("equal", adjustable="datalim")
    axes.update_datalim(np.stack([points[:, :2].min(axis=0) - MARGIN_M, points[:, :2].max(axis=0) + MARGIN_M]))
    axes.autoscale_view()


def _draw_words(figure: SubFigure, shown: Shown) -> None:
    axes = figure.subplots()
    axes.set_axis_off()
    lines: list[Artist] = [_text(line, size, colour) for line, size, colour in _above(shown)]
    lines += [HPacker(children=[_text(*word) for word in line], pad=0, sep=5) for line in _reasoning(shown.plan)]
    lines += [_text(line, size, colour) for line, size, colour in _below(shown)]
    box = VPacker(children=lines, pad=0, sep=7, align="left")
    axes.add_artist(AnchoredOffsetbox("upper left", child=box, frameon=False, pad=0, borderpad=0))


def _text(text: str, size: float, colour: str | tuple[float, float, float]) -> TextArea:
    return TextArea(text, textprops={"size": size, "color": colour, "parse_math": False})


Line = tuple[str, float, str | tuple[float, float, float]]


def _above(shown: Shown) -> Iterator[Line]:
    yield shown.title, 11, MUTED
    yield f"t0 = {shown.plan.stamp_ns * 1e-9:.3f} s", 11, MUTED
    yield " ", 6, MUTED


def _reasoning(plan: Plan) -> Iterator[list[Line]]:
    """The words in lines; amber where the model wrote itself what was guessed elsewhere."""
    words = words_by_origin(plan) or [("(no reasoning)", False)]
    mixed = len({own for _, own in words}) == 2
    line: list[Line] = []
    for word, own in words:
        if line and sum(len(other) + 1 for other, _, _ in line) + len(word) > COLUMNS:
            yield line
            line = []
        line.append((word, 15, AMBER if mixed and own else INK))
    yield line


def _below(shown: Shown) -> Iterator[Line]:
    plan = shown.plan
    yield " ", 6, MUTED
    length_m = float(np.abs(plan.speeds).sum() * 0.1)
    yield f"{length_m:.0f} m in {WAYPOINTS / 10:g} s, {plan.v0:.1f} to {plan.speeds[-1]:.1f} m/s", 11, INK
    yield f"{len(plan.token_ids)} tokens, ended by {plan.finish_reason.value}", 11, MUTED
    if shown.withheld is not None:
        for line in textwrap.wrap(f"The node would withhold this plan: {shown.withheld}", COLUMNS + 12):
            yield line, 11, theme.COLOURS["velocity"][1]
    yield f"{shown.model.name}, {shown.model.parameters:,} parameters", 11, MUTED
    for line in textwrap.wrap(shown.model.notice, COLUMNS + 16):
        yield line, 10, MUTED
