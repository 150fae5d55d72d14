"""A plan as standard ROS messages, all stamped t0."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from rsd_planner.errors import ModelOutputError
from rsd_planner.messages.builder import MessageBuilder
from rsd_planner.plan import Plan
from rsd_planner.scene.observation import EgoHistory, Pose

FULL_GREEN_MPS = 15.0
PATH_WIDTH_M, HISTORY_WIDTH_M = 0.3, 0.15
TEXT_HEIGHT_M, TEXT_RISE_M, TEXT_COLUMNS = 0.8, 3.0, 48
WHITE, GREY = (1.0, 1.0, 1.0), (0.6, 0.6, 0.6)

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
        _check(plan)
        pose_t0 = pose_t0 or IN_PLACE
        positions = _placed(plan.positions, pose_t0)
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

    def reasoning_text(self, plan: Plan) -> Any:
        """The reasoning as std_msgs/String."""
        return self._build.new("std_msgs/msg/String", data=plan.reasoning)

    def markers(
        self, plan: Plan, history: EgoHistory, frame_id: str, lifetime_ns: int, *, in_ego_frame: bool = False
    ) -> Any:
        """Path, ego history and reasoning as visualization_msgs/MarkerArray.

        Namespaces: `path` (a line from the vehicle on, red at standstill, green from 15 m/s), `ego_history`,
        `reasoning` (text above the vehicle, turned to the viewer).

        Args:
            plan: What to show.
            history: The ego history it was made from.
            frame_id: The odometry frame; the vehicle's own at t0 if `in_ego_frame`.
            lifetime_ns: How long the markers stay: longer than the time between plans, or they flicker.
            in_ego_frame: Leave everything where it is in the vehicle's frame at t0.

        Raises:
            ModelOutputError: The plan is empty or not finite.
        """
        _check(plan)
        pose_t0 = IN_PLACE if in_ego_frame else history.pose_t0
        common = {
            "header": self._build.header(plan.stamp_ns, frame_id),
            "lifetime": self._build.duration(lifetime_ns),
        }
        path = self._build.marker(
            "LINE_STRIP",
            (PATH_WIDTH_M, 0.0, 0.0),
            WHITE,
            ns="path",
            pose=self._build.pose(np.zeros(3)),
            points=self._points(np.vstack([np.zeros(3), plan.positions]), pose_t0),
            colors=[self._build.colour(_speed_colour(speed)) for speed in (plan.v0, *plan.speeds)],
            **common,
        )
        driven = self._build.marker(
            "LINE_STRIP",
            (HISTORY_WIDTH_M, 0.0, 0.0),
            GREY,
            ns="ego_history",
            pose=self._build.pose(np.zeros(3)),
            points=self._points(history.positions, pose_t0),
            **common,
        )
        reasoning = self._build.marker(
            "TEXT_VIEW_FACING",
            (0.0, 0.0, TEXT_HEIGHT_M),
            WHITE,
            ns="reasoning",
            pose=self._build.pose(pose_t0.position + np.array([0.0, 0.0, TEXT_RISE_M])),
            text=_wrapped(plan.reasoning),
            **common,
        )
        return self._build.new("visualization_msgs/msg/MarkerArray", markers=[path, driven, reasoning])

    def _points(self, ego_positions: NDArray[np.float64], pose_t0: Pose) -> list[Any]:
        return [self._build.point(position) for position in _placed(ego_positions, pose_t0)]


def _placed(ego_positions: NDArray[np.float64], pose_t0: Pose) -> NDArray[np.float64]:
    """Positions (N, 3) in the frame of t0, seen from the frame that `pose_t0` is in."""
    return pose_t0.position + ego_positions @ pose_t0.rotation.T


def _speed_colour(speed_mps: float) -> tuple[float, float, float]:
    """Red at standstill (and backwards) over yellow to green."""
    share = min(max(speed_mps / FULL_GREEN_MPS, 0.0), 1.0)
    return (min(2 - 2 * share, 1.0), min(2 * share, 1.0), 0.0)


def _wrapped(reasoning: str) -> str:
    lines = [textwrap.fill(line, TEXT_COLUMNS) for line in reasoning.splitlines()]
    return "\n".join(lines).strip() or "(no reasoning)"  # RViz complains about an empty text


def _check(plan: Plan) -> None:
    """RViz dies of what is not finite and of a zero quaternion: such a plan never becomes a message."""
    if len(plan.positions) == 0:
        raise ModelOutputError(f"plan at {plan.stamp_ns} ns has no positions, expected at least one")
    for name in ("positions", "rotations", "speeds", "v0"):
        if not np.isfinite(getattr(plan, name)).all():
            raise ModelOutputError(f"plan at {plan.stamp_ns} ns: {name} is not finite, expected finite numbers only")
