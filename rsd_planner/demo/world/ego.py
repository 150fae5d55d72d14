"""The ego vehicle: a kinematic unicycle under piecewise constant acceleration and curvature, and its exact path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS, EgoHistory, Pose

Floats = NDArray[np.float64]

DT_S = 0.1
FUTURE_STEPS = 64
FRONT_M = 3.8  # front bumper before the rear axle, the vehicle frame's origin
HALF_WIDTH_M = 0.93

# Alpamayo's normalisation of actions (acceleration m/s^2, curvature 1/m)
ACTION_MEAN = np.array([0.02902694707164455, 0.0002692167976330542])
ACTION_STD = np.array([0.6810426736454882, 0.026148280660833106])


@dataclass(frozen=True)
class State:
    """Rear axle in the world, m and rad, and speed."""

    x: float
    y: float
    yaw: float
    speed: float

    def moved(self, accel: float, curvature: float, seconds: float = DT_S) -> State:
        """The state after `seconds` of constant acceleration and curvature; the vehicle never rolls back."""
        if accel < 0 and self.speed + accel * seconds < 0:
            seconds = self.speed / -accel
        length = self.speed * seconds + accel * seconds**2 / 2
        turn = curvature * length
        chord = length * np.sinc(turn / 2 / np.pi)
        direction = self.yaw + turn / 2
        return State(
            float(self.x + chord * np.cos(direction)),
            float(self.y + chord * np.sin(direction)),
            float(self.yaw + turn),
            float(self.speed + accel * seconds),
        )


@dataclass(frozen=True)
class Path:
    """Where the ego was: state and controls every 0.1 s from stamp 0, exact at any time in between."""

    states: tuple[State, ...]  # one more than controls
    controls: Floats  # (ticks, 2): acceleration m/s^2, curvature 1/m

    @property
    def end_ns(self) -> int:
        return len(self.controls) * STEP_NS

    def state(self, stamp_ns: int) -> State:
        """The state at a time.

        Raises:
            ValueError: The time lies outside the drive.
        """
        if not 0 <= stamp_ns <= self.end_ns:
            raise ValueError(f"{stamp_ns} ns is outside the drive, 0..{self.end_ns} ns")
        tick, rest = divmod(stamp_ns, STEP_NS)
        if rest == 0:
            return self.states[tick]
        accel, curvature = self.controls[tick]
        return self.states[tick].moved(float(accel), float(curvature), rest * 1e-9)

    def pose(self, stamp_ns: int) -> Pose:
        """The pose in the world frame."""
        state = self.state(stamp_ns)
        return Pose(np.array([state.x, state.y, 0.0]), yaw_rotation(state.yaw))

    def history(self, t0_ns: int) -> EgoHistory:
        """16 poses up to t0, in the frame of t0."""
        stamps = [t0_ns - STEP_NS * back for back in range(HISTORY_STEPS - 1, -1, -1)]
        positions, rotations = self._in_frame(stamps, t0_ns)
        return EgoHistory(positions, rotations, self.pose(t0_ns))

    def future(self, t0_ns: int) -> tuple[Floats, Floats]:
        """(64, 3) m and (64, 3, 3): the poses 0.1 .. 6.4 s after t0, in the frame of t0."""
        return self._in_frame([t0_ns + STEP_NS * (step + 1) for step in range(FUTURE_STEPS)], t0_ns)

    def actions(self, t0_ns: int) -> Floats:
        """(64, 2) normalised acceleration and curvature that roll out to the future path."""
        states = [self.state(t0_ns + STEP_NS * step) for step in range(FUTURE_STEPS + 1)]
        speed = np.array([state.speed for state in states])
        turn = np.diff([state.yaw for state in states])
        accel = np.diff(speed) / DT_S
        length = speed[:-1] * DT_S + accel * DT_S**2 / 2
        curvature = np.divide(turn, length, out=np.zeros_like(turn), where=length > 1e-3)
        return np.asarray((np.stack([accel, curvature], axis=-1) - ACTION_MEAN) / ACTION_STD)

    def _in_frame(self, stamps: list[int], t0_ns: int) -> tuple[Floats, Floats]:
        origin = self.pose(t0_ns)
        poses = [self.pose(stamp) for stamp in stamps]
        positions = np.stack([origin.rotation.T @ (pose.position - origin.position) for pose in poses])
        rotations = np.stack([origin.rotation.T @ pose.rotation for pose in poses])
        return positions, rotations


def yaw_rotation(yaw: float) -> Floats:
    """(3, 3) rotation about z."""
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
