"""The node's outputs. Everything that belongs to one plan leaves together, stamped with its t0."""

from __future__ import annotations

import textwrap
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

from rsd_planner.messages.plans import TEXT_COLUMNS, TEXT_RISE_M, PlanMessages
from rsd_planner.messages.stamps import split_ns
from rsd_planner.plan import Plan
from rsd_planner.ros.message_types import MessageTypes
from rsd_planner.ros.worker import Job
from rsd_planner.scene.observation import EgoHistory, Pose

OUTPUT_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
FALLBACK_ODOMETRY_FRAME = "odom"
FALLBACK_VEHICLE_FRAME = "base_link"
MIN_LIFETIME_NS = 1_000_000_000
MAX_LIFETIME_NS = 10_000_000_000


class PlanPublishers:
    """Lifecycle publishers: silent unless the node is active.

    Attributes:
        typed: Whether rsd_planner_msgs is installed, so that ~/output/reasoning exists.
    """

    def __init__(self, node: LifecycleNode, output_frame: str, notice: str) -> None:
        """Create the publishers.

        Args:
            node: The node to publish with.
            output_frame: "odom" or "base_link", as the parameter of that name.
            notice: Text of the model's own notice, shown with the reasoning in the markers.
        """
        self._node = node
        self._in_odometry_frame = output_frame == "odom"
        self._notice = notice
        self._types = MessageTypes()
        self._messages = PlanMessages(self._types)
        self._previous_ns: int | None = None
        self._publishers = ExitStack()
        self._path = self._create("nav_msgs/msg/Path", "~/output/path")
        self._text = self._create("std_msgs/msg/String", "~/output/reasoning_text")
        self._markers = self._create("visualization_msgs/msg/MarkerArray", "~/output/markers")
        try:
            self._reasoning = self._create("rsd_planner_msgs/msg/Reasoning", "~/output/reasoning")
        except LookupError:
            self._reasoning = None

    @property
    def typed(self) -> bool:
        return self._reasoning is not None

    def close(self) -> None:
        """Remove the publishers."""
        self._publishers.close()

    def publish(self, plan: Plan, job: Job, seconds: float, latency_s: float) -> None:
        """Publish one plan on every output.

        Args:
            plan: The plan made from `job`.
            job: Carries the ego history and the frames of the odometry.
            seconds: How long the model took, s.
            latency_s: From t0 to now by the node's clock, s.
        """
        history = job.observation.history
        pose_t0: Pose | None
        if self._in_odometry_frame:
            pose_t0, frame_id = history.pose_t0, job.odometry_frame_id or FALLBACK_ODOMETRY_FRAME
        else:
            pose_t0, frame_id = None, job.vehicle_frame_id or FALLBACK_VEHICLE_FRAME
        self._text.publish(self._messages.reasoning_text(plan))
        if self._reasoning is not None:
            self._reasoning.publish(self._reasoning_message(plan, frame_id, seconds, latency_s))
        self._markers.publish(self._marker_array(plan, history, frame_id))
        self._path.publish(self._messages.path(plan, pose_t0, frame_id))

    def _create(self, message_type: str, topic: str) -> Any:
        publisher = self._node.create_lifecycle_publisher(self._types[message_type], topic, OUTPUT_QOS)
        self._publishers.callback(self._node.destroy_lifecycle_publisher, publisher)
        return publisher

    def _marker_array(self, plan: Plan, history: EgoHistory, frame_id: str) -> Any:
        message = self._messages.markers(
            plan, history, frame_id, self._lifetime(plan), in_ego_frame=not self._in_odometry_frame
        )
        if self._notice:
            notice = deepcopy(next(marker for marker in message.markers if marker.ns == "reasoning"))
            notice.ns = "notice"
            notice.text = textwrap.fill(self._notice, TEXT_COLUMNS)
            notice.scale.z /= 2
            notice.pose.position.z -= TEXT_RISE_M / 2
            message.markers.append(notice)
        return message

    def _lifetime(self, plan: Plan) -> int:
        """Three periods, so that markers neither flicker nor stay for long when plans end, ns."""
        period_ns = plan.stamp_ns - self._previous_ns if self._previous_ns is not None else 0
        self._previous_ns = plan.stamp_ns
        return min(max(3 * period_ns, MIN_LIFETIME_NS), MAX_LIFETIME_NS)

    def _reasoning_message(self, plan: Plan, frame_id: str, seconds: float, latency_s: float) -> Any:
        sec, nanosec = split_ns(plan.stamp_ns)
        stamp = self._types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec)
        return self._types["rsd_planner_msgs/msg/Reasoning"](
            header=self._types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame_id),
            sequence=plan.sequence,
            text=plan.reasoning,
            complete=True,
            finish_reason=plan.finish_reason.value,
            num_tokens=len(plan.token_ids),
            routine_share=plan.routine_share,
            mean_accepted_length=sum(plan.tokens_per_pass) / max(len(plan.tokens_per_pass), 1),
            latency=latency_s,
            inference_time=seconds,
        )
