"""The pictures of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from rsd_planner.evaluation import theme
from rsd_planner.evaluation.metrics import HORIZONS_S, Displacements, RecordedTrack, constant_velocity
from rsd_planner.evaluation.results import PlanRecord
from rsd_planner.evaluation.summary import STAGES, latency
from rsd_planner.plan import WAYPOINTS

VEHICLE_LENGTH_M, VEHICLE_WIDTH_M = 4.8, 1.9
TOP_VIEW_ASPECT = 16 / 9  # as the camera frame beside it
MAX_POINTS = 600
STEP_S = 0.1


def top_view(record: PlanRecord) -> str:
    """`top_view_of` a plan of an evaluation."""
    return top_view_of(record.history, record.positions, record.future(), record.v0)


def top_view_of(
    history: NDArray[np.float64], positions: NDArray[np.float64], future: NDArray[np.float64], v0: float
) -> str:
    """History, plan, recorded future and constant velocity seen from above: x forward to the right, y left upwards.

    Args:
        history: (16, 3) m, frame of t0, as all that follow.
        positions: (64, 3) of the plan.
        future: (n, 3).
        v0: m/s.
    """
    figure, axes = theme.new_figure(7.2, 7.2 / TOP_VIEW_ASPECT)
    velocity = constant_velocity(v0)
    axes.plot(*_xy(velocity), "--", color=theme.VELOCITY, lw=1.6, label="constant velocity")
    axes.plot(*_xy(_from_origin(future)), color=theme.RECORDED, lw=5, alpha=0.55, label="recorded future")
    every_second = range(10, WAYPOINTS + 1, 10)  # point 0 is the vehicle
    plan = _xy(_from_origin(positions))
    axes.plot(*plan, "-o", markevery=every_second, ms=4, color=theme.PLAN, lw=2, label="plan, dot every 1 s")
    axes.plot(*_xy(history), ".-", color=theme.HISTORY, lw=1, ms=4, label="history, 1.5 s")
    corner = (-VEHICLE_LENGTH_M / 2, -VEHICLE_WIDTH_M / 2)
    axes.add_patch(Rectangle(corner, VEHICLE_LENGTH_M, VEHICLE_WIDTH_M, fill=False, ec=theme.INK, lw=1.2))
    _frame(axes, np.concatenate([history, positions, velocity, future]))
    axes.set_xlabel("x, forward (m)")
    axes.set_ylabel("y, left (m)")
    figure.legend(loc="outside upper left", ncols=4)
    return theme.as_svg(figure, "top view of one plan")


def error_growth(both: Sequence[tuple[Displacements, Displacements]]) -> str:
    """Distance to the recorded future against time ahead: median, and the middle 80% of the plans.

    Args:
        both: Errors of each plan, and of constant velocity there.
    """
    figure, axes = theme.new_figure(6, 3.4)
    for name, colour, style, errors in (
        ("constant velocity", theme.VELOCITY, "--", [baseline for _, baseline in both]),
        ("plan", theme.PLAN, "-", [ours for ours, _ in both]),
    ):
        low, median, high = _spread(errors)
        ahead = STEP_S * np.arange(1, len(median) + 1)
        axes.fill_between(ahead, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(ahead, median, style, color=colour, lw=2, label=f"{name}, median")
    axes.set_title("Distance to the recorded future (band: 10-90% of plans)")
    axes.set_xlabel("time ahead of t0 (s)")
    axes.set_ylabel("distance (m)")
    axes.set_xlim(0, HORIZONS_S[-1])
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    return theme.as_svg(figure, "error growth with time ahead")


def error_over_time(records: Sequence[PlanRecord], horizon_s: float) -> str:
    """ADE of each plan that has that much recorded future, along the recording."""
    figure, axes = theme.new_figure(6, 3.4)
    steps = round(horizon_s / STEP_S)
    seconds, ours, baseline = [], [], []
    for record, time in zip(records, _seconds(records), strict=True):
        plan_error, velocity_error = record.errors()
        if len(plan_error) >= steps:
            seconds.append(time)
            ours.append(plan_error[:steps].mean())
            baseline.append(velocity_error[:steps].mean())
    marker = "." if len(seconds) <= MAX_POINTS else ""
    axes.plot(seconds, baseline, "--", marker=marker, color=theme.VELOCITY, lw=1.2, label="constant velocity")
    axes.plot(seconds, ours, "-", marker=marker, color=theme.PLAN, lw=1.2, label="plan")
    axes.set_title(f"ADE over {horizon_s:g} s of each plan")
    axes.set_xlabel("t0, since the first plan (s)")
    axes.set_ylabel("ADE (m)")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower left", ncols=2)
    return theme.as_svg(figure, "average displacement error along the recording")


def latency_bars(records: Sequence[PlanRecord]) -> str:
    """Median of each stage, with p95 and p99 marked."""
    figure, axes = theme.new_figure(6, 3.0)
    table = latency(records)
    for row, (stage, colour) in enumerate(zip(STAGES, theme.STAGE_COLOURS, strict=True)):
        value = table[stage]
        axes.barh(row, value.p50, color=colour, height=0.6)
        axes.plot([value.p50, value.p99], [row, row], color=theme.INK, lw=1)
        axes.plot(value.p95, row, "|", color=theme.INK, ms=11, mew=1.6)
        axes.plot(value.p99, row, "d", color=theme.INK, ms=4)
    axes.set_yticks(range(len(STAGES)), [stage.replace("_", " ") for stage in STAGES])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_title("Stages: bar p50, tick p95, diamond p99")
    axes.set_xlabel("latency (ms)")
    return theme.as_svg(figure, "latency by stage")


def latency_over_time(records: Sequence[PlanRecord]) -> str:
    """Stages stacked along the recording."""
    figure, axes = theme.new_figure(6, 3.0)
    group = -(-len(records) // MAX_POINTS)
    stages = np.array([[getattr(record.stage_times, stage) for stage in STAGES] for record in records])
    cuts = np.arange(0, len(records), group)
    means = np.add.reduceat(stages, cuts) / np.diff(np.append(cuts, len(records)))[:, None]
    seconds = _seconds(records)[cuts]
    labels = [stage.replace("_", " ") for stage in STAGES]
    axes.stackplot(seconds, means.T, colors=theme.STAGE_COLOURS, labels=labels, lw=0)
    axes.set_title("Latency of each plan" if group == 1 else f"Latency, mean of {group} plans")
    axes.set_xlabel("t0, since the first plan (s)")
    axes.set_ylabel("latency (ms)")
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower left", ncols=5, handlelength=1, columnspacing=1)
    return theme.as_svg(figure, "latency along the recording")


def drive_map(tracks: Sequence[RecordedTrack], shown: Sequence[PlanRecord]) -> str:
    """The recorded drive in the odometry frame, with the plans that are shown."""
    figure, axes = theme.new_figure(12.3, 3.4)
    for number, track in enumerate(tracks):
        _, positions = track.arrays()
        thin = positions[:: max(1, len(positions) // (4 * MAX_POINTS))]
        label = "recorded" if number == 0 else None
        axes.plot(*_xy(thin), color=theme.RECORDED, lw=5, alpha=0.45, label=label)
        axes.plot(*_xy(thin[:1]), "s", color=theme.RECORDED, ms=6, label="start" if number == 0 else None)
    for number, record in enumerate(shown):
        path = _from_origin(record.positions) @ record.pose_t0.rotation.T + record.pose_t0.position
        axes.plot(*_xy(path), color=theme.PLAN, lw=1.5, label="plans shown" if number == 0 else None)
        axes.plot(*_xy(path[:1]), "o", color=theme.PLAN, ms=3.5)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_title("The drive, in the odometry frame")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    figure.legend(loc="outside upper right", ncols=3)
    return theme.as_svg(figure, "map of the drive")


def _xy(points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return points[:, 0], points[:, 1]


def _from_origin(path: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros((1, 3)), path]) if len(path) else path


def _frame(axes: Axes, points: NDArray[np.float64]) -> None:
    """Limits that hold all points with equal scales, in the shape of the figure."""
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    centre, span = (low + high) / 2, np.maximum(high - low, VEHICLE_LENGTH_M) * 1.12
    width = max(span[0], span[1] * TOP_VIEW_ASPECT * 1.3, 20.0)
    axes.set_xlim(centre[0] - width / 2, centre[0] + width / 2)
    axes.set_ylim(centre[1] - width / TOP_VIEW_ASPECT / 2, centre[1] + width / TOP_VIEW_ASPECT / 2)
    axes.set_aspect("equal")


def _spread(errors: Sequence[Displacements]) -> NDArray[np.float64]:
    """(3, n) the 10th, 50th and 90th percentile at each step that any plan reaches."""
    longest = max(map(len, errors), default=0)
    at_step = ([error[step] for error in errors if len(error) > step] for step in range(longest))
    spread = [np.percentile(values, (10, 50, 90)) for values in at_step]
    return np.array(spread, dtype=np.float64).reshape(-1, 3).T


def _seconds(records: Sequence[PlanRecord]) -> NDArray[np.float64]:
    """t0 of each plan since the first, s."""
    stamps = np.array([record.stamp_ns for record in records], dtype=np.int64)
    return np.asarray(stamps - stamps[:1], dtype=np.float64) * 1e-9
