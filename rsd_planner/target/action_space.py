"""Alpamayo's action space: acceleration and curvature per 0.1 s, and the unicycle that turns them into a path.

Source: public Alpamayo code (UnicycleAccelCurvatureActionSpace). Float64 throughout: the checkpoint's float32 numbers
are inputs, and nothing here is worth rounding again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

DT_S = 0.1
V0_SMOOTHNESS = 1e-6  # weight of the squared third difference of speed, before division by dt^6
V0_RIDGE = 1e-4


@dataclass(frozen=True)
class ActionScaling:
    """Mean and standard deviation with which the network's outputs are denormalised."""

    accel_mean: float  # m/s^2
    accel_std: float
    curvature_mean: float  # 1/m
    curvature_std: float


@dataclass(frozen=True)
class Rollout:
    """A path in the frame `ego_t0`; point i is at t0 + 0.1 (i + 1) s."""

    positions: Array  # (64, 3) m
    rotations: Array  # (64, 3, 3)
    speeds: Array  # (64,) m/s, signed


def solve_v0(positions: ArrayLike, rotations: ArrayLike) -> float:
    """Speed at the last pose of an ego history, signed: negative when reversing.

    Regularised least squares on the unknown speeds v_0..v_15: v_t u_t + v_{t+1} u_{t+1} = 2 (p_{t+1} - p_t) / dt with
    u = (cos, sin) of the yaw, plus a smoothness term on the third difference and a ridge; solved by Cholesky.

    Args:
        positions: (16, 3) m, 0.1 s apart.
        rotations: (16, 3, 3).

    Returns:
        v0 in m/s.
    """
    p, r = np.asarray(positions, np.float64), np.asarray(rotations, np.float64)
    yaw = np.unwrap(np.arctan2(r[:, 1, 0], r[:, 0, 0]))
    heading = np.stack([np.cos(yaw), np.sin(yaw)], axis=-1)  # (16, 2)
    count = len(p)
    step = np.arange(count - 1)
    equations = np.zeros((count - 1, 2, count))
    equations[step, :, step] = heading[:-1]
    equations[step, :, step + 1] = heading[1:]
    targets = 2.0 * np.diff(p[:, :2], axis=0) / DT_S  # (15, 2)

    a, b = equations.reshape(-1, count), targets.reshape(-1)
    third = np.diff(np.eye(count), n=3, axis=0)  # (13, 16)
    normal = a.T @ a + V0_SMOOTHNESS / DT_S**6 * third.T @ third + V0_RIDGE * np.eye(count)
    speeds = scipy.linalg.cho_solve(scipy.linalg.cho_factor(normal), a.T @ b)
    return float(speeds[-1])


def roll_out(actions: ArrayLike, v0: float, scaling: ActionScaling, z: float = 0.0) -> Rollout:
    """Integrate normalised actions from the origin of `ego_t0`.

    Args:
        actions: (64, 2) normalised acceleration and curvature.
        v0: Speed at t0, m/s.
        scaling: The checkpoint's.
        z: Height of every point in `ego_t0`, m: that of the last history pose.
    """
    normalised = np.asarray(actions, np.float64)
    accel = normalised[:, 0] * scaling.accel_std + scaling.accel_mean
    curvature = normalised[:, 1] * scaling.curvature_std + scaling.curvature_mean

    speed = v0 + np.concatenate([[0.0], np.cumsum(accel * DT_S)])  # (65,)
    turn = curvature * (speed[:-1] * DT_S + accel * DT_S**2 / 2)
    yaw = np.concatenate([[0.0], np.cumsum(turn)])  # (65,)
    velocity = speed[:, None] * np.stack([np.cos(yaw), np.sin(yaw)], axis=-1)  # (65, 2)
    xy = np.cumsum((velocity[:-1] + velocity[1:]) / 2 * DT_S, axis=0)

    positions = np.column_stack([xy, np.full(len(xy), z)])
    return Rollout(positions, _yaw_rotations(yaw[1:]), speed[1:])


def _yaw_rotations(yaw: Array) -> Array:
    rotations = np.zeros((len(yaw), 3, 3))
    rotations[:, 0, 0] = rotations[:, 1, 1] = np.cos(yaw)
    rotations[:, 1, 0] = np.sin(yaw)
    rotations[:, 0, 1] = -rotations[:, 1, 0]
    rotations[:, 2, 2] = 1.0
    return rotations
