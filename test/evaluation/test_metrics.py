from __future__ import annotations

import numpy as np
import pytest

from rsd_planner.evaluation.metrics import (
    RecordedTrack,
    constant_velocity,
    displacements,
    horizon_errors,
    percentiles,
)
from rsd_planner.scene.observation import Pose

T0 = 1_700_000_000_000_000_000


def track(stamps_s: np.ndarray, positions: np.ndarray) -> RecordedTrack:
    recorded = RecordedTrack()
    for stamp, position in zip(stamps_s, positions, strict=True):
        recorded.add(T0 + round(stamp * 1e9), position)
    return recorded


def straight(stamps_s: np.ndarray, speed: float = 10.0) -> np.ndarray:
    return np.stack([speed * stamps_s, np.zeros_like(stamps_s), np.zeros_like(stamps_s)], axis=1)


def test_future_is_interpolated_into_the_frame_of_t0() -> None:
    stamps = np.arange(-1.0, 7.001, 0.03)  # off the 0.1 s grid
    quarter_turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # facing odometry's y
    future = track(stamps, straight(stamps)).future(T0, Pose(np.zeros(3), quarter_turn))
    assert future.shape == (64, 3)
    steps = 0.1 * np.arange(1, 65)
    np.testing.assert_allclose(future, np.stack([0 * steps, -10 * steps, 0 * steps], axis=1), atol=1e-6)


def test_future_ends_with_the_recording() -> None:
    stamps = np.arange(0, 2.0001, 0.1)
    future = track(stamps, straight(stamps)).future(T0, Pose(np.zeros(3), np.eye(3)))
    np.testing.assert_allclose(future[:, 0], np.arange(1, 21), atol=1e-6)


def test_future_ends_at_a_gap() -> None:
    stamps = np.concatenate([np.arange(0, 1.0001, 0.1), np.arange(1.3, 8, 0.1)])
    future = track(stamps, straight(stamps)).future(T0, Pose(np.zeros(3), np.eye(3)))
    assert len(future) == 10


def test_future_at_the_end_is_empty() -> None:
    stamps = np.arange(-2, 0.0001, 0.1)
    assert track(stamps, straight(stamps)).future(T0, Pose(np.zeros(3), np.eye(3))).shape == (0, 3)


def test_future_tolerates_disorder_and_duplicates() -> None:
    stamps = np.arange(-0.5, 7.0001, 0.05)
    order = np.random.default_rng(0).permutation(np.concatenate([np.arange(len(stamps)), np.arange(10)]))
    future = track(stamps[order], straight(stamps)[order]).future(T0, Pose(np.zeros(3), np.eye(3)))
    np.testing.assert_allclose(future[:, 0], np.arange(1, 65), atol=1e-6)


def test_errors_by_hand() -> None:
    """A plan that is 0.1, 0.2, ... m off to the side: ADE over n steps is 0.05 (n + 1), FDE 0.1 n."""
    future = constant_velocity(5.0)
    path = future.copy()
    path[:, 1] += 0.1 * np.arange(1, 65)
    path[:, 2] += 100.0  # height does not count
    one, three, all_of_it = horizon_errors([displacements(path, future)])
    assert (one.ade_m, one.fde_m) == pytest.approx((0.55, 1.0))
    assert (three.ade_m, three.fde_m) == pytest.approx((1.55, 3.0))
    assert (all_of_it.ade_m, all_of_it.fde_m) == pytest.approx((3.25, 6.4))


def test_each_horizon_counts_the_plans_that_reach_it() -> None:
    errors = [np.full(64, 1.0), np.full(30, 3.0), np.full(29, 5.0), np.zeros(0)]
    one, three, all_of_it = horizon_errors(errors)
    assert (one.plans, one.ade_m) == (3, pytest.approx(3.0))
    assert (three.plans, three.fde_m) == (2, pytest.approx(2.0))
    assert (all_of_it.plans, all_of_it.ade_m) == (1, pytest.approx(1.0))
    assert [error.ade_m for error in horizon_errors([])] == [None, None, None]


def test_constant_velocity_goes_straight_ahead() -> None:
    path = constant_velocity(20.0)
    np.testing.assert_allclose(path[[0, 63]], [[2, 0, 0], [128, 0, 0]])


def test_percentiles_by_hand() -> None:
    result = percentiles([float(n) for n in range(1, 102)])
    assert (result.p50, result.p95, result.p99, result.max) == (51, 96, 100, 101)
