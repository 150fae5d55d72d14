"""Where the vehicle was: a rolling buffer of odometry, read out as the ego history of an instant."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation, Slerp

from rsd_planner.errors import ObservationError
from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS, EgoHistory, Pose
from rsd_planner.scene.skip import Skip, SkipReason
from rsd_planner.scene.time_jump import jumps_back

SPAN_NS = (HISTORY_STEPS - 1) * STEP_NS
KEPT_NS = 5_000_000_000  # the span, and images that come up to 3.5 s later than odometry


class TrajectoryHistory:
    """Stamped poses of the last seconds, at any rate, in any order of arrival.

    A second pose with the same stamp is ignored: a pose that a plan was made from does not change afterwards.
    """

    def __init__(self, max_gap_s: float = 0.2) -> None:
        """Args: max_gap_s: The longest time between two poses that is still interpolated, s."""
        self._max_gap_ns = round(max_gap_s * 1e9)
        self._stamps: list[int] = []  # ascending, ns
        self._positions: list[NDArray[np.float64]] = []  # (3,) m
        self._quaternions: list[NDArray[np.float64]] = []  # (4,) x, y, z, w; unit

    def __len__(self) -> int:
        return len(self._stamps)

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest pose."""
        return self._stamps[-1] if self._stamps else None

    def add(self, stamp_ns: int, position: ArrayLike, quaternion_xyzw: ArrayLike) -> bool:
        """Insert a pose of the vehicle in the odometry frame; a stamp that jumps back in time empties the buffer first.

        Args:
            stamp_ns: Time of the pose, ns.
            position: (3,) m.
            quaternion_xyzw: (4,), vehicle to odometry; normalised here.

        Returns:
            Whether time jumped back.

        Raises:
            ObservationError: A value is not finite, or the quaternion is zero. The buffer is left as it was.
        """
        position = _finite_vector("position", position, 3, stamp_ns)
        quaternion = _unit_quaternion(quaternion_xyzw, stamp_ns)
        jumped = jumps_back(stamp_ns, self.newest_ns)
        if jumped:
            self.clear()
        index = bisect_left(self._stamps, stamp_ns)
        if index < len(self._stamps) and self._stamps[index] == stamp_ns:
            return jumped
        self._stamps.insert(index, stamp_ns)
        self._positions.insert(index, position)
        self._quaternions.insert(index, quaternion)
        if self._stamps[-1] - self._stamps[0] > 2 * KEPT_NS:  # rarely, so that adding stays O(1) on average
            self._forget_before(self._stamps[-1] - KEPT_NS)
        return jumped

    def clear(self) -> None:
        """Forget everything."""
        for column in (self._stamps, self._positions, self._quaternions):
            column.clear()

    def at(self, t0_ns: int) -> EgoHistory | Skip:
        """The 16 poses at t0-1.5 s .. t0: positions interpolated linearly, rotations spherically.

        Args:
            t0_ns: The instant, ns; the poses are expressed in the vehicle's full 3-D frame at it.

        Returns:
            The history, or the reason why there is none: no odometry, t0 or t0-1.5 s outside of it, or a gap.
        """
        skip = self._refusal(t0_ns)
        if skip is not None:
            return skip
        positions, rotations = self._interpolate([t0_ns - k * STEP_NS for k in reversed(range(HISTORY_STEPS))])
        origin, to_ego = positions[-1], rotations[-1].T
        ego_positions = (positions - origin) @ to_ego.T
        ego_rotations = to_ego @ rotations
        ego_positions[-1], ego_rotations[-1] = 0.0, np.eye(3)  # exactly, whatever the rounding
        return EgoHistory(ego_positions, ego_rotations, Pose(origin, rotations[-1]))

    def _refusal(self, t0_ns: int) -> Skip | None:
        if not self._stamps:
            return Skip(SkipReason.NO_ODOMETRY, "no odometry received")
        start_ns = t0_ns - SPAN_NS
        if self._stamps[-1] < t0_ns:
            behind_s = (t0_ns - self._stamps[-1]) / 1e9
            detail = f"newest odometry is {behind_s:.3f} s older than t0 = {t0_ns} ns, expected at or after t0"
            return Skip(SkipReason.ODOMETRY_BEHIND, detail)
        if self._stamps[0] > start_ns:
            covered_s = (t0_ns - self._stamps[0]) / 1e9
            detail = f"odometry reaches back {covered_s:.3f} s before t0 = {t0_ns} ns, expected {SPAN_NS / 1e9:.1f} s"
            return Skip(SkipReason.HISTORY_NOT_COVERED, detail)
        return self._gap(start_ns, t0_ns)

    def _gap(self, start_ns: int, t0_ns: int) -> Skip | None:
        """The longest time between two poses that touches the span, where it is too long."""
        first = bisect_right(self._stamps, start_ns) - 1
        last = bisect_left(self._stamps, t0_ns)
        stamps = np.array(self._stamps[first : last + 1])
        gaps = np.diff(stamps)
        if len(gaps) == 0 or gaps.max() <= self._max_gap_ns:
            return None
        worst = int(gaps.argmax())
        detail = (
            f"odometry gap of {gaps[worst] / 1e9:.3f} s ending {(t0_ns - int(stamps[worst + 1])) / 1e9:.3f} s before "
            f"t0 = {t0_ns} ns, expected at most {self._max_gap_ns / 1e9:.3f} s"
        )
        return Skip(SkipReason.ODOMETRY_GAP, detail)

    def _interpolate(self, instants_ns: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Positions (N, 3) and rotations (N, 3, 3) in the odometry frame at covered instants, ascending."""
        before = [bisect_right(self._stamps, t) - 1 for t in instants_ns]
        knots = sorted({*before, *(min(i + 1, len(self._stamps) - 1) for i in before)})
        # Integers are subtracted before anything becomes a float: at 1.7e18 ns a float steps by 256 ns.
        epoch_ns = instants_ns[-1]
        knot_times = np.array([self._stamps[i] - epoch_ns for i in knots]) / 1e9
        times = np.array([t - epoch_ns for t in instants_ns]) / 1e9

        knot_positions = np.array([self._positions[i] for i in knots])
        positions = np.column_stack([np.interp(times, knot_times, axis) for axis in knot_positions.T])
        knot_rotations = Rotation.from_quat(np.array([self._quaternions[i] for i in knots]))
        return positions, Slerp(knot_times, knot_rotations)(times).as_matrix()

    def _forget_before(self, stamp_ns: int) -> None:
        count = bisect_left(self._stamps, stamp_ns)
        for column in (self._stamps, self._positions, self._quaternions):
            del column[:count]


def _finite_vector(name: str, value: ArrayLike, length: int, stamp_ns: int) -> NDArray[np.float64]:
    vector = np.array(value, dtype=np.float64)
    if vector.shape != (length,) or not np.isfinite(vector).all():
        raise ObservationError(
            f"odometry at {stamp_ns} ns: {name} is {vector.tolist()}, expected {length} finite numbers"
        )
    return vector


def _unit_quaternion(value: ArrayLike, stamp_ns: int) -> NDArray[np.float64]:
    quaternion = _finite_vector("orientation (x, y, z, w)", value, 4, stamp_ns)
    largest = float(np.abs(quaternion).max())
    if largest < 1e-6:
        raise ObservationError(
            f"odometry at {stamp_ns} ns: orientation (x, y, z, w) is zero, expected a unit quaternion"
        )
    scaled = quaternion / largest  # whose norm does not overflow
    return scaled / np.linalg.norm(scaled)
