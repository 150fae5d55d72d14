"""A plan and an ego history to make messages of."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from rsd_planner.plan import FinishReason, Plan, StageTimes, TokenOrigin
from rsd_planner.scene.observation import EgoHistory, Pose

T0 = 1_722_000_000_950_000_001
LIFETIME = 1_500_000_000
POSE_T0 = Pose(np.array([623_426.5, 4_848_821.25, 153.0]), Rotation.from_euler("ZYX", [2.0, 0.1, -0.05]).as_matrix())


def a_plan() -> Plan:
    """A left turn at 10 m/s, slowing down."""
    angle = np.arange(1, 65) * 0.02
    rotations = Rotation.from_rotvec(angle[:, None] * np.array([0.0, 0.0, 1.0])).as_matrix()
    return Plan(
        stamp_ns=T0,
        sequence=7,
        reasoning="Slow down for the pedestrian",
        token_ids=(1, 2),
        origins=(TokenOrigin.DELIBERATIVE,) * 2,
        finish_reason=FinishReason.STOP,
        positions=np.stack([50 * np.sin(angle), 50 * (1 - np.cos(angle)), 0 * angle], axis=-1),
        rotations=rotations,
        speeds=np.linspace(10.0, 0.0, 64),
        v0=10.0,
        stage_times=StageTimes(0.0, 0.0, 0.0, 0.0, 0.0),
        tokens_per_pass=(1,),
        frames_encoded=4,
        frames_reused=12,
    )


def a_history() -> EgoHistory:
    positions = np.stack([np.arange(-15, 1) * 1.0, np.zeros(16), np.zeros(16)], axis=-1)
    return EgoHistory(positions, np.tile(np.eye(3), (16, 1, 1)), POSE_T0)


def xyz(point: Any) -> list[float]:
    return [point.x, point.y, point.z]
