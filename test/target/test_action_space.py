"""Rollout and v0 against numbers that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from rsd_planner.target.action_space import ActionScaling, roll_out, solve_v0
from rsd_planner.target.trajectory_tokens import HistoryTokenizer

PLAIN = ActionScaling(accel_mean=0.0, accel_std=1.0, curvature_mean=0.0, curvature_std=1.0)
TIMES = np.arange(-15, 1) * 0.1


def test_constant_speed_runs_straight() -> None:
    path = roll_out(np.zeros((64, 2)), 10.0, PLAIN, z=0.5)
    np.testing.assert_allclose(path.positions[:, 0], 1.0 * np.arange(1, 65))
    np.testing.assert_allclose(path.positions[:, 1], 0.0)
    np.testing.assert_allclose(path.positions[:, 2], 0.5)
    np.testing.assert_allclose(path.rotations, np.broadcast_to(np.eye(3), (64, 3, 3)))
    np.testing.assert_allclose(path.speeds, 10.0)


def test_constant_acceleration_is_integrated_exactly() -> None:
    scaling = ActionScaling(accel_mean=0.5, accel_std=2.0, curvature_mean=0.0, curvature_std=1.0)
    path = roll_out(np.tile([0.25, 0.0], (64, 1)), 3.0, scaling)  # 0.25 * 2 + 0.5 = 1 m/s^2
    t = 0.1 * np.arange(1, 65)
    np.testing.assert_allclose(path.speeds, 3.0 + t)
    np.testing.assert_allclose(path.positions[:, 0], 3.0 * t + t**2 / 2)


def test_constant_curvature_drives_a_circle_to_the_left() -> None:
    path = roll_out(np.tile([0.0, 0.1], (64, 1)), 5.0, PLAIN)
    centre = np.array([0.0, 10.0])
    np.testing.assert_allclose(np.linalg.norm(path.positions[:, :2] - centre, axis=1), 10.0, atol=0.01)
    assert path.positions[5, 1] > 0
    yaw = np.arctan2(path.rotations[:, 1, 0], path.rotations[:, 0, 0])
    np.testing.assert_allclose(yaw[:10], 0.05 * np.arange(1, 11))


def history(speed: np.ndarray | float, yaw_rate: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Poses of a vehicle that drove a circle arc at a constant signed speed and ends at the origin."""
    yaw = yaw_rate * TIMES
    fine = np.linspace(-1.5, 0.0, 15001)
    velocity = speed * np.stack([np.cos(yaw_rate * fine), np.sin(yaw_rate * fine)], axis=-1)
    steps = (velocity[1:] + velocity[:-1]) / 2 * np.diff(fine)[:, None]
    path = np.concatenate([[[0.0, 0.0]], np.cumsum(steps, axis=0)])
    path = (path - path[-1])[::1000]
    return np.column_stack([path, np.zeros(16)]), Rotation.from_euler("z", yaw[:, None]).as_matrix()


@pytest.mark.parametrize("speed", [0.0, 0.4, 12.5, -3.0])
@pytest.mark.parametrize("yaw_rate", [0.0, 0.3])
def test_v0_of_a_steady_drive(speed: float, yaw_rate: float) -> None:
    assert solve_v0(*history(speed, yaw_rate)) == pytest.approx(speed, abs=2e-3)


def test_v0_of_a_braking_vehicle() -> None:
    x = 5.0 * TIMES - 2.0 * TIMES**2 / 2  # -2 m/s^2, 5 m/s at t0
    positions = np.column_stack([x, np.zeros(16), np.zeros(16)])
    assert solve_v0(positions, np.broadcast_to(np.eye(3), (16, 3, 3))) == pytest.approx(5.0, abs=0.01)


def test_v0_across_the_yaw_wrap() -> None:
    positions, rotations = history(8.0, 0.5)
    turn = Rotation.from_euler("z", np.pi - 0.3).as_matrix()  # yaw passes pi on the way
    assert solve_v0(positions @ turn.T, turn @ rotations) == pytest.approx(8.0, abs=5e-3)


def test_history_bins_by_hand() -> None:
    tokenizer = HistoryTokenizer(bin_start=100, num_bins=1000, low=(-4.0, -4.0, -10.0), high=(4.0, 4.0, 10.0))
    positions = np.zeros((16, 3))
    positions[0] = [-20.0, 4.0, 0.0]  # the first step is the position itself: clamped, highest bin, middle
    positions[1] = [-19.0, 3.0, 1.0]  # step (1, -1, 1)
    positions[2:] = positions[1]
    ids = tokenizer.encode(positions).reshape(16, 3) - 100
    assert ids[0].tolist() == [0, 999, 500]
    assert ids[1].tolist() == [624, 375, 549]  # 5/8 * 999 = 624.4, 3/8 * 999 = 374.6, 11/20 * 999 = 549.45
    assert (ids[2:] == 500).all()  # 499.5 rounds to the even 500
