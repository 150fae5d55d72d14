"""The rolling buffer of odometry against a motion that can be written down."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from rsd_planner.errors import ObservationError
from rsd_planner.scene.observation import EgoHistory
from rsd_planner.scene.skip import Skip, SkipReason
from rsd_planner.scene.trajectory_history import TrajectoryHistory

S = 1_000_000_000
T0 = 1_722_000_000_123_456_789  # a float64 near this steps by 256 ns
UTM = np.array([623_426.155, 4_848_821.131, 153.6])  # m
SPEED, YAW_RATE, RADIUS = 15.0, 0.3, 50.0
TILT = Rotation.from_euler("YX", [0.1, -0.05])  # the road climbs and leans


def on_circle(offset_ns: NDArray[np.int64] | int) -> tuple[NDArray[np.float64], Rotation]:
    """Positions and rotations in the odometry frame on a left turn on a tilted road."""
    angle = np.asarray(offset_ns) / S * YAW_RATE
    flat = np.stack([RADIUS * np.sin(angle), RADIUS * (1 - np.cos(angle)), 0.0 * angle], axis=-1)
    yaw = Rotation.from_rotvec(angle[..., None] * np.array([0.0, 0.0, 1.0]))
    return UTM + TILT.apply(flat), TILT * yaw


def fill(trajectory: TrajectoryHistory, offsets_ns: NDArray[np.int64]) -> None:
    positions, rotations = on_circle(offsets_ns)
    for offset_ns, position, quaternion in zip(offsets_ns, positions, rotations.as_quat(), strict=True):
        trajectory.add(T0 + int(offset_ns), position, quaternion)


def still(trajectory: TrajectoryHistory, *stamps_ns: int) -> None:
    for stamp_ns in stamps_ns:
        trajectory.add(stamp_ns, (1.0, 2.0, 0.0), (0.0, 0.0, 0.0, 1.0))


def history(trajectory: TrajectoryHistory, t0_ns: int = T0) -> EgoHistory:
    answer = trajectory.at(t0_ns)
    assert isinstance(answer, EgoHistory), answer
    return answer


def skip(trajectory: TrajectoryHistory, t0_ns: int = T0) -> Skip:
    answer = trajectory.at(t0_ns)
    assert isinstance(answer, Skip)
    return answer


def expected_history() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    positions, rotations = on_circle(np.arange(-15, 1) * (S // 10))
    to_ego = rotations[-1].inv()
    return to_ego.apply(positions - positions[-1]), (to_ego * rotations).as_matrix()


def test_poses_on_the_grid_come_out_as_they_went_in() -> None:
    trajectory = TrajectoryHistory()
    fill(trajectory, np.arange(-16, 2) * (S // 10))
    answer = history(trajectory)
    positions, rotations = expected_history()
    np.testing.assert_allclose(answer.positions, positions, atol=5e-9)  # UTM northings resolve 1e-9 m
    np.testing.assert_allclose(answer.rotations, rotations, atol=1e-14)


def test_the_last_pose_is_exactly_the_frame_itself() -> None:
    trajectory = TrajectoryHistory()
    fill(trajectory, np.arange(-200, 20) * 9_999_999)
    answer = history(trajectory)
    assert np.array_equal(answer.positions[-1], np.zeros(3))
    assert np.array_equal(answer.rotations[-1], np.eye(3))
    assert answer.positions.shape == (16, 3)
    assert answer.rotations.shape == (16, 3, 3)


def test_the_past_lies_behind_in_the_full_frame_of_t0() -> None:
    trajectory = TrajectoryHistory()
    fill(trajectory, np.arange(-16, 2) * (S // 10))
    answer = history(trajectory)
    assert answer.positions[0, 0] == pytest.approx(-RADIUS * np.sin(0.45))
    assert answer.positions[0, 1] == pytest.approx(RADIUS * (1 - np.cos(0.45)))  # a left turn: the past is on the left
    np.testing.assert_allclose(answer.positions[:, 2], 0.0, atol=5e-9)  # on the tilted road, which is flat from within
    yaw_of_oldest = np.arctan2(answer.rotations[0, 1, 0], answer.rotations[0, 0, 0])
    assert yaw_of_oldest == pytest.approx(-0.45)


def test_pose_t0_leads_back_to_the_odometry_frame() -> None:
    trajectory = TrajectoryHistory()
    fill(trajectory, np.arange(-320, 20) * 5_000_000 + 1_234_567)
    answer = history(trajectory)
    position, rotation = on_circle(0)
    np.testing.assert_allclose(answer.pose_t0.position, position, atol=1e-4)
    np.testing.assert_allclose(answer.pose_t0.rotation, rotation.as_matrix(), atol=1e-6)
    oldest, _ = on_circle(-15 * (S // 10))
    back = answer.pose_t0.position + answer.pose_t0.rotation @ answer.positions[0]
    np.testing.assert_allclose(back, oldest, atol=1e-4)


@pytest.mark.parametrize("rate_hz", [10, 13, 30, 50, 100, 400])
def test_any_rate_phase_and_jitter(rate_hz: int) -> None:
    rng = np.random.default_rng(rate_hz)
    period = S // rate_hz
    offsets = np.arange(-1.5 * S - 3 * period, 4 * period, period) + rng.uniform(-0.3, 0.3) * period
    offsets += rng.uniform(-0.2, 0.2, len(offsets)) * period
    trajectory = TrajectoryHistory()
    fill(trajectory, offsets.astype(np.int64))
    answer = history(trajectory)
    positions, rotations = expected_history()
    chord = YAW_RATE * SPEED * (1.4 / rate_hz) ** 2 / 8  # how far an arc rises over the chord between two poses
    np.testing.assert_allclose(answer.positions, positions, atol=2 * chord + 1e-8)
    np.testing.assert_allclose(answer.rotations, rotations, atol=1e-9)  # slerp is exact on a constant turn


def test_a_nanosecond_counts_at_the_size_of_real_stamps() -> None:
    trajectory = TrajectoryHistory()
    for k in range(-20, 3):  # 1000 m/s, so that 256 ns would be 0.26 mm
        trajectory.add(T0 + k * (S // 10) + 37, (k * 100.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    answer = history(trajectory)
    np.testing.assert_allclose(answer.pose_t0.position[0], -37e-9 * 1000.0, atol=1e-10)


def test_order_of_arrival_and_duplicates_change_nothing() -> None:
    offsets = np.arange(-200, 30) * 10_000_000
    in_order, shuffled = TrajectoryHistory(), TrajectoryHistory()
    fill(in_order, offsets)
    arrival = np.argsort(offsets + np.random.default_rng(0).uniform(0, 0.4 * S, len(offsets)))
    fill(shuffled, np.repeat(offsets[arrival], 2))
    assert len(shuffled) == len(in_order)
    assert np.array_equal(history(shuffled).positions, history(in_order).positions)
    assert np.array_equal(history(shuffled).rotations, history(in_order).rotations)


def test_a_quaternion_and_its_negative_are_the_same_rotation() -> None:
    trajectory, flipped = TrajectoryHistory(), TrajectoryHistory()
    offsets = np.arange(-20, 5) * 83_000_000
    fill(trajectory, offsets)
    positions, rotations = on_circle(offsets)
    for k, (offset_ns, position, quaternion) in enumerate(zip(offsets, positions, rotations.as_quat(), strict=True)):
        flipped.add(T0 + int(offset_ns), position, quaternion * (-1) ** k)
    np.testing.assert_allclose(history(flipped).rotations, history(trajectory).rotations, atol=1e-12)


def test_a_quaternion_that_is_not_quite_unit_is_normalised() -> None:
    trajectory, loose = TrajectoryHistory(), TrajectoryHistory()
    offsets = np.arange(-20, 5) * 83_000_000
    fill(trajectory, offsets)
    positions, rotations = on_circle(offsets)
    for k, (offset_ns, position, quaternion) in enumerate(zip(offsets, positions, rotations.as_quat(), strict=True)):
        loose.add(T0 + int(offset_ns), position, quaternion * (1 + 0.01 * (k % 3)))
    np.testing.assert_allclose(history(loose).rotations, history(trajectory).rotations, atol=1e-12)


@pytest.mark.parametrize(
    ("position", "quaternion", "named"),
    [
        ((1.0, float("nan"), 0.0), (0.0, 0.0, 0.0, 1.0), "position"),
        ((1.0, float("inf"), 0.0), (0.0, 0.0, 0.0, 1.0), "position"),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), "orientation"),
        ((0.0, 0.0, 0.0), (0.0, float("nan"), 0.0, 1.0), "orientation"),
        ((0.0, 0.0), (0.0, 0.0, 0.0, 1.0), "position"),
    ],
)
def test_a_pose_that_is_none_is_refused_and_leaves_no_trace(
    position: tuple[float, ...], quaternion: tuple[float, ...], named: str
) -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, T0)
    with pytest.raises(ObservationError, match=f"odometry at {T0 - 9 * S} ns: {named}"):
        trajectory.add(T0 - 9 * S, position, quaternion)
    assert len(trajectory) == 1
    assert trajectory.newest_ns == T0


@pytest.mark.parametrize("length", [1e-5, 7.0, 1e200, 1e308])
def test_a_quaternion_of_any_length_is_normalised(length: float) -> None:
    trajectory = TrajectoryHistory()
    for tenths in range(16):
        trajectory.add(tenths * S // 10, (0.0, 0.0, 0.0), (0.0, 0.0, 0.6 * length, 0.8 * length))
    expected = Rotation.from_quat([0.0, 0.0, 0.6, 0.8]).as_matrix()
    np.testing.assert_allclose(history(trajectory, 3 * S // 2).pose_t0.rotation, expected, atol=1e-12)


def test_without_odometry_says_so() -> None:
    assert skip(TrajectoryHistory()).reason is SkipReason.NO_ODOMETRY


def test_t0_beyond_the_newest_pose_is_refused() -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, *range(T0 - 2 * S, T0, S // 10))
    answer = skip(trajectory)
    assert answer.reason is SkipReason.ODOMETRY_BEHIND
    assert "0.100 s" in answer.detail


def test_a_span_that_is_not_covered_is_refused() -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, *range(T0 - S, T0 + S // 10, S // 10))
    answer = skip(trajectory)
    assert answer.reason is SkipReason.HISTORY_NOT_COVERED
    assert "1.000 s" in answer.detail
    assert "1.5 s" in answer.detail


def test_exactly_the_span_is_enough() -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, *range(T0 - 15 * (S // 10), T0 + 1, S // 10))
    assert history(trajectory).positions.shape == (16, 3)


@pytest.mark.parametrize(("gap_ns", "refused"), [(200_000_000, False), (200_000_001, True), (700_000_000, True)])
def test_only_a_gap_longer_than_allowed_is_refused(gap_ns: int, refused: bool) -> None:
    trajectory = TrajectoryHistory(max_gap_s=0.2)
    gap_end = T0 - 300_000_000
    still(
        trajectory,
        *range(gap_end - gap_ns - 2 * S, gap_end - gap_ns + 1, 20_000_000),
        *range(gap_end, T0 + 1, 20_000_000),
    )
    answer = trajectory.at(T0)
    assert isinstance(answer, Skip) is refused
    if isinstance(answer, Skip):
        assert answer.reason is SkipReason.ODOMETRY_GAP
        assert f"{gap_ns / 1e9:.3f} s ending 0.300 s before t0" in answer.detail
        assert "at most 0.200 s" in answer.detail


def test_a_gap_across_either_end_of_the_span_is_refused() -> None:
    for hole in (T0 - 15 * (S // 10), T0):
        trajectory = TrajectoryHistory()
        stamps = range(T0 - 2 * S, T0 + S, 20_000_000)
        still(trajectory, *(stamp for stamp in stamps if abs(stamp - hole) > 150_000_000))
        assert skip(trajectory).reason is SkipReason.ODOMETRY_GAP


def test_a_gap_outside_the_span_does_not_matter() -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, T0 - 3 * S, *range(T0 - 16 * (S // 10), T0 + 1, S // 10), T0 + S)
    assert history(trajectory).positions.shape == (16, 3)


def test_time_jumping_back_empties_and_a_late_pose_does_not() -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, *range(T0 - 2 * S, T0 + 1, S // 10))
    still(trajectory, T0 - S)  # merely late
    assert trajectory.newest_ns == T0
    still(trajectory, T0 - S - 1)
    assert trajectory.newest_ns == T0 - S - 1
    assert len(trajectory) == 1


def test_memory_stays_bounded_and_the_newest_seconds_stay() -> None:
    trajectory = TrajectoryHistory()
    still(trajectory, *range(T0 - 60 * S, T0 + 1, S // 400))
    assert len(trajectory) <= 10 * 400 + 1
    assert history(trajectory, T0 - 3 * S).positions.shape == (16, 3)
