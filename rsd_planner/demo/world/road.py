"""A road: a centre line with a curvature profile, lanes on both sides of it, junctions across it.

Road coordinates: s, metres along the centre line; l, metres to the left of it. Traffic keeps right; the ego drives
towards growing s. World frame: x east, y north, z up, the road in the plane z = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import cos, sin

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

SHARP_RADIUS_M = 48.0  # a tighter curve is called sharp
CROSSWALK_M = (1.0, 4.0)  # behind the stop line of a junction
CROSSROAD_M = (6.0, 14.0)
SIGNAL_M = 18.0  # the signal mast stands on the far side
_BEFORE_M = 60.0  # road behind s = 0
_STEP_M = 0.5


@dataclass(frozen=True)
class Curve:
    """A bend: curvature rises over `ramp`, stays, and falls again."""

    start: float  # s where the bend begins, m
    length: float  # m, ramps included
    radius: float  # m, positive bends left
    ramp: float  # m

    @property
    def end(self) -> float:
        return self.start + self.length

    @property
    def sharp(self) -> bool:
        return abs(self.radius) < SHARP_RADIUS_M

    @property
    def side(self) -> str:
        return "left" if self.radius > 0 else "right"

    def curvature(self, s: Floats) -> Floats:
        """Curvature at s, 1/m."""
        shape = np.clip(np.minimum(s - self.start, self.end - s) / self.ramp, 0.0, 1.0)
        return np.asarray(shape * shape * (3 - 2 * shape) / self.radius)


@dataclass(frozen=True)
class Junction:
    """A crossing road. The stop line lies at `stop`, everything else behind it."""

    stop: float
    signals: bool


@dataclass(frozen=True)
class Road:
    """Lanes around a centre line; without backward lanes the centre line is the left edge of a one-way road."""

    length: float
    forward: int  # lanes in the ego's direction
    backward: int
    lane_width: float
    strip: float  # parking strip beyond the outermost lanes, 0 if there is none
    ego_lane: int  # 0 is the outermost (right) lane
    curves: tuple[Curve, ...]
    junctions: tuple[Junction, ...]
    sway: tuple[float, float] = field(default=(0.0, 0.0))  # amplitude (1/m) and phase (rad) of the faint winding

    @property
    def right_edge(self) -> float:
        """l of the right edge of the outermost lane."""
        return -self.forward * self.lane_width

    @property
    def left_edge(self) -> float:
        return self.backward * self.lane_width

    @property
    def right_kerb(self) -> float:
        return self.right_edge - self.strip

    @property
    def left_kerb(self) -> float:
        return self.left_edge + self.strip

    @property
    def lane_centre(self) -> float:
        """l of the middle of the ego's lane."""
        return self.right_edge + (self.ego_lane + 0.5) * self.lane_width

    @cached_property
    def _line(self) -> tuple[Floats, Floats, Floats, Floats]:
        """s, x, y, yaw of the centre line, every half metre."""
        s = np.arange(-_BEFORE_M, self.length + _STEP_M, _STEP_M)
        yaw = np.concatenate([[0.0], np.cumsum(self.curvature(s[:-1] + _STEP_M / 2) * _STEP_M)])
        middle = (yaw[1:] + yaw[:-1]) / 2
        x = np.concatenate([[0.0], np.cumsum(np.cos(middle) * _STEP_M)])
        y = np.concatenate([[0.0], np.cumsum(np.sin(middle) * _STEP_M)])
        return s, x, y, yaw

    def curvature(self, s: ArrayLike) -> Floats:
        """Curvature of the centre line, 1/m, positive to the left."""
        at = np.asarray(s, np.float64)
        amplitude, phase = self.sway
        total = np.asarray(amplitude * np.sin(at / 45.0 + phase))
        for junction in self.junctions:  # a crossing lies on a straight stretch
            total = total * np.clip((np.abs(at - junction.stop - 8.0) - 18.0) / 15.0, 0.0, 1.0)
        for curve in self.curves:
            total = total + curve.curvature(at)
        return total

    def heading(self, s: float | Floats) -> Floats:
        """Yaw of the centre line, rad."""
        line_s, _, _, yaw = self._line
        return np.asarray(np.interp(s, line_s, yaw))

    def point(self, s: float | Floats, l: float | Floats) -> Floats:  # noqa: E741  (the field's name for the lateral coordinate)
        """World points (..., 2) of road coordinates."""
        line_s, x, y, _ = self._line
        yaw = self.heading(s)
        side = np.asarray(l, np.float64)
        return np.stack(
            [np.interp(s, line_s, x) - side * np.sin(yaw), np.interp(s, line_s, y) + side * np.cos(yaw)], -1
        )

    @cached_property
    def _rows(self) -> list[tuple[float, float, float]]:
        return [(float(x), float(y), float(yaw)) for _, x, y, yaw in zip(*self._line, strict=True)]

    def spot(self, s: float, l: float = 0.0) -> tuple[float, float, float]:  # noqa: E741
        """World x, y and the road's yaw at one place: `point` and `heading` without arrays."""
        rows = self._rows
        place = min(max((s + _BEFORE_M) / _STEP_M, 0.0), len(rows) - 1.001)
        share = place - int(place)
        (x0, y0, yaw0), (x1, y1, yaw1) = rows[int(place)], rows[int(place) + 1]
        yaw = yaw0 + share * (yaw1 - yaw0)
        return x0 + share * (x1 - x0) - l * sin(yaw), y0 + share * (y1 - y0) + l * cos(yaw), yaw

    def locate(self, x: float, y: float, near: float) -> tuple[float, float]:
        """Road coordinates (s, l) of a world point, found from a station close to it."""
        s, lateral = near, 0.0
        for _ in range(6):
            on_x, on_y, yaw = self.spot(s)
            along = (x - on_x) * cos(yaw) + (y - on_y) * sin(yaw)
            lateral = (y - on_y) * cos(yaw) - (x - on_x) * sin(yaw)
            bend = (self.spot(s + _STEP_M)[2] - yaw) / _STEP_M
            s += along / max(1.0 - bend * lateral, 0.3)
            if abs(along) < 1e-3:
                break
        return s, lateral
