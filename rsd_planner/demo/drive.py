"""The drive of the demo bag: a road that bends left and right, and the cars on it. Everything is a function of time.

World frame = odometry frame: x, y on the ground, z up, metres. `s` is the arc length along the centre line, `d` the
distance to its left. Curvature and speed are piecewise cubics with exact integrals, so poses, speed and yaw rate
belong together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import cumulative_simpson
from scipy.interpolate import CubicSpline, PchipInterpolator

from rsd_planner.scene.observation import Pose

Floats = NDArray[np.float64]

DURATION_S = 12.0
ROAD_START_M, ROAD_END_M = -60.0, 420.0
LANE_WIDTH_M = 3.5
MARKING_HALF_WIDTH_M = 0.08
DASH_M, DASH_PERIOD_M = 4.0, 10.0  # centre line


class Road:
    """A flat two-lane road given by its curvature along the centre line."""

    _CURVATURE = ((-80.0, 0.0), (35.0, 0.0), (65.0, 1 / 75), (105.0, 1 / 75), (140.0, -1 / 90), (185.0, -1 / 90))
    _TAIL = ((220.0, 0.0), (440.0, 0.0))

    def __init__(self) -> None:
        s_knots, curvature = np.array(self._CURVATURE + self._TAIL).T
        self.curvature = PchipInterpolator(s_knots, curvature)
        self.heading = self.curvature.antiderivative()
        s = np.linspace(-80.0, 440.0, 5201)
        x = cumulative_simpson(np.cos(self.heading(s)), x=s, initial=0.0)
        y = cumulative_simpson(np.sin(self.heading(s)), x=s, initial=0.0)
        self._centre = CubicSpline(s, np.stack([x, y], axis=-1))

    def points(self, s: ArrayLike, d: ArrayLike, z: float = 0.0) -> Floats:
        """(N, 3) m: points at arc lengths `s` (N,) and offsets to the left `d` (scalar or (N,))."""
        s = np.atleast_1d(np.asarray(s, dtype=np.float64))
        heading = self.heading(s)
        left = np.stack([-np.sin(heading), np.cos(heading)], axis=-1)
        ground = self._centre(s) + left * np.broadcast_to(np.asarray(d, dtype=np.float64), s.shape)[:, None]
        return np.column_stack([ground, np.full(s.shape, z)])


@dataclass(frozen=True)
class Motion:
    """Where a vehicle is at one instant and how it moves."""

    pose: Pose
    speed: float  # m/s along its own x axis
    yaw_rate: float  # rad/s


class Car:
    """A vehicle that keeps its lane: `d` to the left of the centre line, driven by a speed profile along the road."""

    def __init__(self, road: Road, start_m: float, d: float, speed_profile: list[tuple[float, float]]) -> None:
        times, speeds = np.array(speed_profile).T
        self._road = road
        self._start = start_m
        self._d = d
        self._speed = PchipInterpolator(times, speeds)  # along the centre line; negative = oncoming
        self._distance = self._speed.antiderivative()

    def at(self, time_s: float) -> Motion:
        """The motion `time_s` seconds after the start of the drive."""
        s = self._start + float(self._distance(time_s))
        along = float(self._speed(time_s))
        curvature = float(self._road.curvature(s))
        yaw = float(self._road.heading(s)) + (np.pi if along < 0 else 0.0)
        cos, sin = np.cos(yaw), np.sin(yaw)
        rotation = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        pose = Pose(self._road.points(s, self._d)[0], rotation)
        return Motion(pose, speed=abs(along) * (1.0 - curvature * self._d), yaw_rate=curvature * along)


class Drive:
    """The recorded 12 s: the ego car slows for the bends behind a lead car, one car comes the other way."""

    def __init__(self) -> None:
        self.road = Road()
        right, left = -LANE_WIDTH_M / 2, LANE_WIDTH_M / 2
        slow_for_bend = [(0.0, 13.5), (2.0, 13.5), (5.0, 10.0), (8.0, 10.0), (12.0, 13.0)]
        lead_slows_first = [(0.0, 13.0), (1.0, 13.0), (4.0, 9.6), (7.0, 10.2), (12.0, 13.5)]
        self.ego = Car(self.road, 0.0, right, slow_for_bend)
        self.lead = Car(self.road, 24.0, right, lead_slows_first)
        self.oncoming = Car(self.road, 150.0, left, [(0.0, -11.0), (12.0, -12.0)])
