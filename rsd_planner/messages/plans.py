"""A plan as standard ROS messages, all stamped t0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from rsd_planner.errors import ModelOutputError
from rsd_planner.messages.builder import MessageBuilder
from rsd_planner.plan import Plan
from rsd_planner.scene.observation import STEP_NS, Pose

STEP_S = STEP_NS * 1e-9
IN_PLACE = Pose(np.zeros(3), np.eye(3))


class PlanMessages:
    """Turns plans into messages of the classes it was given."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        """Args: types: "nav_msgs/msg/Path" -> its class: rclpy's, or `types` of a rosbags ROS 2 type store."""
        self._build = MessageBuilder(types)

    def path(self, plan: Plan, pose_t0: Pose | None, frame_id: str) -> Any:
        """The planned path as nav_msgs/Path: pose k is stamped t0 + 0.1 (k + 1) s, its quaternion a unit one.

        Args:
            plan: What to publish.
            pose_t0: The vehicle at t0 in `frame_id`; None where `frame_id` is the vehicle's own frame at t0.
            frame_id: Frame of the path.

        Raises:
            ModelOutputError: The plan is empty or not finite.
        """
        check(plan)
        pose_t0 = pose_t0 or IN_PLACE
        positions = placed(plan.positions, pose_t0)
        quaternions = Rotation.from_matrix(pose_t0.rotation @ plan.rotations).as_quat()
        poses = [
            self._build.new(
                "geometry_msgs/msg/PoseStamped",
                header=self._build.header(int(stamp_ns), frame_id),
                pose=self._build.pose(position, quaternion),
            )
            for stamp_ns, position, quaternion in zip(plan.times_ns, positions, quaternions, strict=True)
        ]
        return self._build.new("nav_msgs/msg/Path", header=self._build.header(plan.stamp_ns, frame_id), poses=poses)

    def reasoning_text(self, reasoning: str) -> Any:
        """The reasoning as std_msgs/String."""
        return self._build.new("std_msgs/msg/String", data=reasoning)

    def trajectory(self, plan: Plan, pose_t0: Pose | None, frame_id: str) -> Any:
        """The plan as autoware_planning_msgs/Trajectory: the vehicle at t0, then the 64 waypoints.

        The arguments are those of `path`. Accelerations are slopes of the speeds, heading rates those of the
        rotations. There are no wheel angles in a plan: they stay 0.

        Raises:
            ModelOutputError: The plan is empty or not finite.
        """
        check(plan)
        pose_t0 = pose_t0 or IN_PLACE
        positions = placed(np.vstack([np.zeros(3), plan.positions]), pose_t0)
        rotations = np.concatenate([np.eye(3)[None], plan.rotations])
        quaternions = Rotation.from_matrix(pose_t0.rotation @ rotations).as_quat()
        speeds = np.concatenate([[plan.v0], plan.speeds])
        turns = Rotation.from_matrix(rotations[:-1].swapaxes(1, 2) @ rotations[1:]).as_rotvec()[:, 2] / STEP_S
        heading_rates = np.concatenate([turns[:1], turns])
        accelerations = np.gradient(speeds, STEP_S)
        points = [
            self._build.new(
                "autoware_planning_msgs/msg/TrajectoryPoint",
                time_from_start=self._build.duration(STEP_NS * k),
                pose=self._build.pose(positions[k], quaternions[k]),
                longitudinal_velocity_mps=float(speeds[k]),
                lateral_velocity_mps=0.0,
                acceleration_mps2=float(accelerations[k]),
                heading_rate_rps=float(heading_rates[k]),
                front_wheel_angle_rad=0.0,
                rear_wheel_angle_rad=0.0,
            )
            for k in range(len(positions))
        ]
        header = self._build.header(plan.stamp_ns, frame_id)
        return self._build.new("autoware_planning_msgs/msg/Trajectory", header=header, points=points)


def placed(ego_positions: NDArray[np.float64], pose_t0: Pose) -> NDArray[np.float64]:
    """Positions (N, 3) in the frame of t0, seen from the frame that `pose_t0` is in."""
    return pose_t0.position + ego_positions @ pose_t0.rotation.T


def check(plan: Plan) -> None:
    """RViz dies of what is not finite and of a zero quaternion: such a plan never becomes a message."""
    if len(plan.positions) == 0:
        raise ModelOutputError(f"plan at {plan.stamp_ns} ns has no positions, expected at least one")
    for name in ("positions", "rotations", "speeds", "v0"):
        if not np.isfinite(getattr(plan, name)).all():
            raise ModelOutputError(f"plan at {plan.stamp_ns} ns: {name} is not finite, expected finite numbers only")
