"""The node's outputs. Everything that belongs to one plan leaves together, stamped with its t0."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, suppress
from statistics import median
from typing import TYPE_CHECKING, Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

from rsd_planner.errors import ParameterError
from rsd_planner.messages.markers import PlanMarkers
from rsd_planner.messages.plans import PlanMessages
from rsd_planner.messages.stamps import split_ns
from rsd_planner.plan import Plan
from rsd_planner.ros.message_types import MessageTypes
from rsd_planner.ros.parameters import NodeParameters
from rsd_planner.scene.observation import Pose

if TYPE_CHECKING:
    from rsd_planner.worker.client import Job, Partial

OUTPUT_QOS = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=10, reliability=ReliabilityPolicy.RELIABLE)
OUTPUTS = {  # topic -> type
    "~/output/path": "nav_msgs/msg/Path",
    "~/output/reasoning": "rsd_planner_msgs/msg/Reasoning",
    "~/output/reasoning_text": "std_msgs/msg/String",
    "~/output/markers": "visualization_msgs/msg/MarkerArray",
    "~/output/trajectory": "autoware_planning_msgs/msg/Trajectory",
}
FALLBACK_ODOMETRY_FRAME = "odom"
FALLBACK_VEHICLE_FRAME = "base_link"
PERIODS = 5  # between plans, that the lifetime of markers is made from
MIN_LIFETIME_NS = 1_000_000_000
MAX_LIFETIME_NS = 10_000_000_000


class PlanPublishers:
    """Lifecycle publishers: silent unless the node is active.

    Attributes:
        typed: Whether rsd_planner_msgs is installed, so that ~/output/reasoning exists.
    """

    def __init__(self, node: LifecycleNode, parameters: NodeParameters, notice: str) -> None:
        """Create the publishers.

        Args:
            node: The node to publish with.
            parameters: The frame of the outputs, and whether there is a trajectory.
            notice: Text of the model's own notice, shown with the reasoning in the markers.

        Raises:
            ParameterError: A trajectory is wanted and autoware_planning_msgs is not installed.
        """
        self._node = node
        self._in_odometry_frame = parameters.output_frame == "odom"
        self._notice = notice
        self._types = MessageTypes()
        self._messages = PlanMessages(self._types)
        self._markers = PlanMarkers(self._types)
        self._previous_ns: int | None = None
        self._periods_ns: deque[int] = deque(maxlen=PERIODS)
        with ExitStack() as undo:
            self._publishers: dict[str, Any] = {}
            undo.callback(self.close)
            for topic in ("~/output/path", "~/output/reasoning_text", "~/output/markers"):
                self._create(topic)
            with suppress(LookupError):  # the text goes out alone then; diagnostics say so
                self._create("~/output/reasoning")
            if parameters.publish_trajectory:
                self._create_trajectory()
            undo.pop_all()

    @property
    def typed(self) -> bool:
        return "~/output/reasoning" in self._publishers

    def close(self) -> None:
        """Remove the publishers."""
        while self._publishers:
            _, publisher = self._publishers.popitem()
            self._node.destroy_lifecycle_publisher(publisher)

    def publish(self, plan: Plan, job: Job, seconds: float, latency_s: float) -> None:
        """Publish one plan on every output, what is driven by first.

        Args:
            plan: The plan made from `job`.
            job: Carries the ego history, the frames of the odometry and the sequence.
            seconds: How long the model took, s.
            latency_s: From t0 to now by the node's clock, s.
        """
        history, frame_id = job.observation.history, self._frame_id(job)
        pose_t0: Pose | None = history.pose_t0 if self._in_odometry_frame else None
        self._send("~/output/path", self._messages.path(plan, pose_t0, frame_id))
        if "~/output/trajectory" in self._publishers:
            self._send("~/output/trajectory", self._messages.trajectory(plan, pose_t0, frame_id))
        self._send("~/output/reasoning_text", self._messages.reasoning_text(plan.reasoning))
        if self.typed:
            passes = plan.tokens_per_pass
            self._send_reasoning(
                job,
                text=plan.reasoning,
                complete=True,
                finish_reason=plan.finish_text,
                num_tokens=len(plan.token_ids),
                routine_share=plan.routine_share,
                mean_accepted_length=sum(passes) / max(len(passes), 1),
                latency=latency_s,
                inference_time=seconds,
            )
        markers = self._markers.of(
            plan,
            history,
            frame_id,
            self._lifetime(plan.stamp_ns),
            in_ego_frame=not self._in_odometry_frame,
            notice=self._notice,
        )
        self._send("~/output/markers", markers)

    def publish_partial(self, partial: Partial) -> None:
        """Publish a reasoning that is still being decoded, as far as it has come."""
        self._send("~/output/reasoning_text", self._messages.reasoning_text(partial.reasoning))
        if self.typed:
            self._send_reasoning(partial.job, text=partial.reasoning, complete=False)

    def clear_markers(self) -> None:
        """Take the markers of the last plan away."""
        self._send("~/output/markers", self._markers.delete_all(self._previous_ns or 0))
        self._previous_ns = None
        self._periods_ns.clear()

    def _create(self, topic: str) -> None:
        self._publishers[topic] = self._node.create_lifecycle_publisher(self._types[OUTPUTS[topic]], topic, OUTPUT_QOS)

    def _create_trajectory(self) -> None:
        try:
            self._create("~/output/trajectory")
        except LookupError as error:
            raise ParameterError(
                f"parameter 'publish_trajectory': found true, but {error}; expected a sourced workspace with "
                "autoware_planning_msgs, or false"
            ) from error

    def _send(self, topic: str, message: Any) -> None:
        self._publishers[topic].publish(message)

    def _frame_id(self, job: Job) -> str:
        if self._in_odometry_frame:
            return job.odometry_frame_id or FALLBACK_ODOMETRY_FRAME
        return job.vehicle_frame_id or FALLBACK_VEHICLE_FRAME

    def _lifetime(self, stamp_ns: int) -> int:
        """Three usual periods, so that markers neither flicker nor stay for long when plans end, ns."""
        if self._previous_ns is not None and stamp_ns > self._previous_ns:
            self._periods_ns.append(stamp_ns - self._previous_ns)
        self._previous_ns = stamp_ns
        period_ns = int(median(self._periods_ns)) if self._periods_ns else 0
        return min(max(3 * period_ns, MIN_LIFETIME_NS), MAX_LIFETIME_NS)

    def _send_reasoning(self, job: Job, **fields: Any) -> None:
        sec, nanosec = split_ns(job.observation.stamp_ns)
        stamp = self._types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec)
        header = self._types["std_msgs/msg/Header"](stamp=stamp, frame_id=self._frame_id(job))
        message = self._types[OUTPUTS["~/output/reasoning"]](header=header, sequence=job.sequence, **fields)
        self._send("~/output/reasoning", message)
