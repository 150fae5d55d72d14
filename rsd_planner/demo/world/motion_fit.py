"""How people really drive: the numbers behind the ego, fitted to the Boreas poses and kept in motion.json.

Run `python -m rsd_planner.demo.world.motion_fit ../shared/data/boreas_poses` to write motion.json again.
"""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.signal import savgol_filter

Floats = NDArray[np.float64]

SOURCE = "Boreas drives 2021-08-05-13-34 and 2021-09-02-11-42 (Burnett et al., IJRR 2023), CC BY 4.0"
_FILE = Path(__file__).with_name("motion.json")
_DT_S = 0.1
_MOVING_MPS = 0.3
_FREE_MPS = 5.0
_TREND_MPS2 = 0.25
_WINDOW = 41  # samples, 4 s


@dataclass(frozen=True)
class Motion:
    """What the ego's controller takes from measured driving."""

    source: str
    free_speed_quantiles_mps: tuple[float, ...]  # 5, 25, 50, 75, 95 % of speeds held steadily above 5 m/s
    accel_mps2: float  # 95 % of positive accelerations
    braking_mps2: float  # 95 % of decelerations, positive
    jerk_mps3: float  # 98 % of |jerk|
    lateral_mps2: float  # 99 % of |lateral acceleration|: what curves are taken at
    unrest_mps2: float  # std of acceleration about its 4 s mean while the speed is held: the foot is never still
    unrest_time_s: float  # its correlation time
    wave_mps: float  # std of speed about its 16 s mean while it is held
    standing_share: float


@cache
def load_motion() -> Motion:
    """The fitted numbers shipped with the package."""
    fields = json.loads(_FILE.read_text())
    return Motion(**{**fields, "free_speed_quantiles_mps": tuple(fields["free_speed_quantiles_mps"])})


def fit_motion(folder: Path) -> Motion:
    """Fit to every `*.camera_poses.csv.gz` of a folder, resampled to 10 Hz."""
    drives = [_read_drive(path) for path in sorted(folder.glob("*.camera_poses.csv.gz"))]
    smooth = [savgol_filter(speed, 9, 2) for speed, _ in drives]
    speed = np.concatenate(smooth)
    accel = np.concatenate([savgol_filter(v, 9, 2, deriv=1, delta=_DT_S) for v, _ in drives])
    jerk = np.concatenate([savgol_filter(v, 9, 2, deriv=2, delta=_DT_S) for v, _ in drives])
    lateral = speed * np.concatenate([yaw_rate for _, yaw_rate in drives])
    wave = speed - np.convolve(speed, np.ones(4 * _WINDOW) / (4 * _WINDOW), mode="same")
    moving = speed > _MOVING_MPS
    trend = np.convolve(accel, np.ones(_WINDOW) / _WINDOW, mode="same")
    held_all = np.concatenate([_held(v) for v in smooth]) & (np.abs(trend) < _TREND_MPS2)
    unrest = accel - trend
    return Motion(
        source=SOURCE,
        free_speed_quantiles_mps=tuple(np.quantile(speed[held_all], [0.05, 0.25, 0.5, 0.75, 0.95]).round(2).tolist()),
        accel_mps2=_rounded(np.quantile(accel[moving & (accel > 0)], 0.95)),
        braking_mps2=_rounded(-np.quantile(accel[moving & (accel < 0)], 0.05)),
        jerk_mps3=_rounded(np.quantile(np.abs(jerk[moving]), 0.98)),
        lateral_mps2=_rounded(np.quantile(np.abs(lateral[moving]), 0.99)),
        unrest_mps2=_rounded(np.std(unrest[held_all])),
        unrest_time_s=_correlation_time(unrest, held_all),
        wave_mps=_rounded(np.std(wave[held_all])),
        standing_share=_rounded(1 - moving.mean()),
    )


def _rounded(value: float | np.floating) -> float:
    return round(float(value), 3)


def _read_drive(path: Path) -> tuple[Floats, Floats]:
    """Speed (m/s) and yaw rate (rad/s) of one drive, every 0.1 s."""
    with gzip.open(path, "rt") as lines:
        rows = list(csv.DictReader(lines))
    stamp = np.array([float(row["GPSTime"]) for row in rows]) * 1e-6
    speed = np.hypot([float(row["vel_east"]) for row in rows], [float(row["vel_north"]) for row in rows])
    yaw_rate = np.array([float(row["angvel_z"]) for row in rows])
    grid = np.arange(stamp[0], stamp[-1], _DT_S)
    return np.interp(grid, stamp, speed), np.interp(grid, stamp, yaw_rate)


def _held(speed: Floats) -> NDArray[np.bool_]:
    """Where the speed stays within 0.5 m/s of its mean over 4 s: driving that nothing hinders."""
    mean = np.convolve(speed, np.ones(_WINDOW) / _WINDOW, mode="same")
    steady = np.abs(speed - mean) < 0.5
    calm = np.convolve(steady, np.ones(_WINDOW), mode="same") > _WINDOW - 0.5
    return np.asarray(calm & (speed > _FREE_MPS))


def _correlation_time(unrest: Floats, held: NDArray[np.bool_]) -> float:
    """Time after which the unrest's autocorrelation has fallen to 1/e."""
    calm = np.where(held, unrest, 0.0)
    power = float(calm @ calm)
    for lag in range(1, 100):
        if float(calm[:-lag] @ calm[lag:]) < power / np.e:
            return round(lag * _DT_S, 2)
    return 10.0


def main(folder: Path) -> None:
    """Fit to the poses in FOLDER and write motion.json."""
    _FILE.write_text(json.dumps(asdict(fit_motion(folder)), indent=1) + "\n")
    typer.echo(_FILE.read_text())


if __name__ == "__main__":
    typer.run(main)
