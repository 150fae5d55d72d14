"""Measured drives as poses of a vehicle (x forward, y left, z up), for tests of histories and speeds."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
CAMERA_TO_VEHICLE_AXES = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])  # columns: forward, left, up


@dataclass(frozen=True)
class Drive:
    """Recorded poses at about 10 Hz and the speed measured beside them."""

    stamps_ns: NDArray[np.int64]  # (N,)
    positions: NDArray[np.float64]  # (N, 3) m
    rotations: Rotation  # N, vehicle to world
    speeds: NDArray[np.float64]  # (N,) m/s, horizontal


def boreas(name: str) -> Drive:
    """A Boreas drive. The orientation is that of the front camera, turned to vehicle axes.

    The published angles give C_enu_sensor = R(roll) P(pitch) Y(heading) with each factor a rotation by minus the angle
    (pyboreas, `yawPitchRollToRot`); the sensor is a camera (x right, y down, z forward) that looks straight ahead
    within 0.2 degrees and 1 degree off the horizontal, so its axes are taken for the vehicle's.
    """
    path = _existing(DATA / "boreas_poses" / f"boreas-{name}.camera_poses.csv.gz")
    with gzip.open(path, "rt") as file:
        stamps_us = [int(line.split(",", 1)[0]) for line in list(file)[1:]]
    with gzip.open(path, "rt") as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1)
    minus_angles = -rows[
        :, [7, 8, 9]
    ]  # roll, pitch, heading; extrinsic z first, so R @ P @ Y reads "XYZ" intrinsically
    camera = Rotation.from_euler("XYZ", minus_angles).as_matrix()
    return Drive(
        np.array(stamps_us) * 1000,
        rows[:, 1:4],
        Rotation.from_matrix(camera @ CAMERA_TO_VEHICLE_AXES),
        np.hypot(rows[:, 4], rows[:, 5]),
    )


def comma2k19() -> Drive:
    """The comma2k19 minute; its yaw is the direction of the velocity, its speed that of GNSS and inertial sensors.

    The wheel speed of the CAN bus, also recorded, reads 1.1% less than both that and the positions.
    """
    rows = np.loadtxt(
        _existing(DATA / "comma2k19_odometry" / "odom_10hz.csv"), delimiter=",", skiprows=1, usecols=range(6)
    )
    stamps_ns = 1_533_000_000_000_000_000 + np.rint(rows[:, 0] * 1e9).astype(np.int64)
    return Drive(stamps_ns, rows[:, 1:4], Rotation.from_euler("ZYX", rows[:, [4]] * [1.0, 0.0, 0.0]), rows[:, 5])


def load_drive(name: str) -> Drive:
    """A drive by its test id; skips the test, saying so, where the recordings are not at hand."""
    return comma2k19() if name == "comma2k19" else boreas(name)


def _existing(path: Path) -> Path:
    if not path.is_file():
        pytest.skip(f"recorded motion is not at hand: {path}")
    return path
