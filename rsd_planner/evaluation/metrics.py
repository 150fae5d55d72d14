"""How far a plan is from what the vehicle then did, and latency percentiles."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rsd_planner.plan import WAYPOINTS
from rsd_planner.scene.observation import STEP_NS, Pose

HORIZONS_S = (1.0, 3.0, 6.4)
MAX_GAP_NS = 200_000_000  # no position is interpolated across a longer gap

Displacements = NDArray[np.float64]  # (n,) m at t0 + 0.1 s, 0.2 s, ...; n <= 64, as far as the recording goes


class RecordedTrack:
    """Where the vehicle was, by odometry. Positions may come in any order."""

    def __init__(self) -> None:
        self.newest_ns: int | None = None
        self._stamps = array("q")
        self._positions = array("d")
        self._sorted: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None

    def add(self, stamp_ns: int, position: ArrayLike) -> None:
        """Adds one position (3,), m, in the odometry frame."""
        self._stamps.append(stamp_ns)
        self._positions.extend(np.asarray(position, dtype=np.float64).tolist())
        self.newest_ns = stamp_ns if self.newest_ns is None else max(stamp_ns, self.newest_ns)
        self._sorted = None

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Stamps (n,) ns, strictly ascending, and positions (n, 3) m."""
        if self._sorted is None:
            stamps, first = np.unique(np.array(self._stamps, dtype=np.int64), return_index=True)
            self._sorted = stamps, np.array(self._positions).reshape(-1, 3)[first]
        return self._sorted

    def future(self, t0_ns: int, pose_t0: Pose) -> NDArray[np.float64]:
        """What followed t0, at t0 + 0.1 s, 0.2 s, ... 6.4 s.

        Returns:
            (n, 3) m in the frame of t0; n < 64 where the recording ends or has a gap of more than 0.2 s.
        """
        stamps, positions = self.arrays()
        wanted = t0_ns + STEP_NS * np.arange(1, WAYPOINTS + 1, dtype=np.int64)
        begin, end = np.searchsorted(stamps, (t0_ns, wanted[-1]))
        around = slice(max(begin - 1, 0), end + 1)
        stamps, positions = stamps[around], positions[around]
        after = np.searchsorted(stamps, wanted)  # index of the first position at or after each
        inside = (after > 0) & (after < len(stamps))
        gaps = np.diff(stamps, prepend=stamps[:1])  # before each position
        covered = inside & (gaps[np.minimum(after, len(stamps) - 1)] <= MAX_GAP_NS)
        count = WAYPOINTS if covered.all() else int(np.argmin(covered))
        seconds, at = (stamps - t0_ns) * 1e-9, (wanted[:count] - t0_ns) * 1e-9
        in_odometry = np.stack([np.interp(at, seconds, axis) for axis in positions.T], axis=1)
        future: NDArray[np.float64] = (in_odometry - pose_t0.position) @ pose_t0.rotation
        return future


def constant_velocity(v0: float) -> NDArray[np.float64]:
    """(64, 3) m: on with the speed and heading of t0, the prediction a planner has to beat."""
    ahead = np.zeros((WAYPOINTS, 3))
    ahead[:, 0] = v0 * np.arange(1, WAYPOINTS + 1) * (STEP_NS * 1e-9)
    return ahead


def displacements(path: NDArray[np.float64], future: NDArray[np.float64]) -> Displacements:
    """Distance in the ground plane (x, y) between a path (64, 3) and the recorded future (n, 3), step by step."""
    distances: Displacements = np.linalg.norm(path[: len(future), :2] - future[:, :2], axis=1)
    return distances


@dataclass(frozen=True)
class HorizonError:
    """Errors at one horizon, over the plans whose recorded future is that long."""

    horizon_s: float
    plans: int
    ade_m: float | None  # mean distance up to the horizon, mean over plans; None without plans
    fde_m: float | None  # distance at the horizon, mean over plans


def horizon_errors(errors: Sequence[Displacements]) -> list[HorizonError]:
    """ADE and FDE at each horizon of HORIZONS_S."""
    result = []
    for horizon in HORIZONS_S:
        steps = round(horizon * 1e9 / STEP_NS)
        long_enough = [error[:steps] for error in errors if len(error) >= steps]
        ade = float(np.mean([error.mean() for error in long_enough])) if long_enough else None
        fde = float(np.mean([error[-1] for error in long_enough])) if long_enough else None
        result.append(HorizonError(horizon, len(long_enough), ade, fde))
    return result


@dataclass(frozen=True)
class Percentiles:
    """Of one stage, in milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float


def percentiles(values: Sequence[float]) -> Percentiles:
    """Linear-interpolated percentiles of a non-empty sequence."""
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return Percentiles(float(p50), float(p95), float(p99), float(max(values)))
