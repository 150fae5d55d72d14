"""The node's subscriptions: they fill the scene, only append, and know how each stream is doing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

from rsd_planner.errors import ObservationError, ParameterError
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.odometry import read_odometry
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.ros.message_types import MessageTypes
from rsd_planner.ros.parameters import NodeParameters
from rsd_planner.scene.scene import Scene

IMAGE_DEPTH = 10
ODOMETRY_DEPTH = 100
RATE_WINDOW_S = 2.0


class Stream:
    """What is known about one input topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.received = 0
        self.rejected = 0
        self.newest_ns: int | None = None  # header stamp of the newest message
        self.last_error = ""
        self._arrivals: deque[float] = deque(maxlen=1000)  # monotonic, s

    def arrived(self, message_stamp_ns: int) -> None:
        """Note a message."""
        self.received += 1
        self.newest_ns = message_stamp_ns
        self._arrivals.append(time.monotonic())

    def refused(self, error: Exception) -> None:
        """Note that the message just noted cannot be used."""
        self.rejected += 1
        self.last_error = str(error)

    @property
    def silent_s(self) -> float | None:
        """Time since the last message, s; None before the first."""
        return time.monotonic() - self._arrivals[-1] if self._arrivals else None

    @property
    def rate_hz(self) -> float:
        """Messages per second over the last 2 s."""
        since = time.monotonic() - RATE_WINDOW_S
        return sum(arrival >= since for arrival in self._arrivals) / RATE_WINDOW_S


class Inputs:
    """Cameras, odometry and route text of one configuration.

    Attributes:
        scene: What the messages fill.
        cameras: Camera name -> its stream, reference camera first.
        odometry: The odometry stream.
        route: The newest route text, None when there is none.
        odometry_frame_id: header.frame_id of the newest odometry.
        vehicle_frame_id: Its child_frame_id.
        speed_mps: Forward speed in its twist.
    """

    def __init__(self, node: Node, parameters: NodeParameters, on_data: Callable[[bool], None]) -> None:
        """Subscribe.

        Args:
            node: The node to subscribe with.
            parameters: Names and ids of the cameras, image transport, odometry gap.
            on_data: Called after every image and pose that was taken in; true for one of the reference camera.

        Raises:
            ParameterError: A QoS override that does not exist.
        """
        self._node = node
        self._on_data = on_data
        self._reference = parameters.reference_camera
        self._subscriptions = ExitStack()
        self.scene = Scene(
            list(parameters.cameras.values()), decode_image, max_odometry_gap_s=parameters.max_odometry_gap
        )
        self.route: str | None = None
        self.odometry_frame_id = ""
        self.vehicle_frame_id = ""
        self.speed_mps: float | None = None
        with ExitStack() as undo:
            undo.callback(self.close)
            self.cameras: Mapping[str, Stream] = self._subscribe_to_cameras(parameters)
            self.odometry = Stream(node.resolve_topic_name("~/input/odometry"))
            self._subscribe("nav_msgs/msg/Odometry", "~/input/odometry", self._on_odometry, ODOMETRY_DEPTH)
            self._subscribe("std_msgs/msg/String", "~/input/nav_text", self._on_nav_text, 1)
            undo.pop_all()

    def close(self) -> None:
        """Unsubscribe from everything."""
        self._subscriptions.close()

    def silent(self, longer_than_s: float) -> dict[str, float | None]:
        """Inputs that have not sent anything for some time: name -> seconds, None if they never sent anything."""
        ages = {name: stream.silent_s for name, stream in [*self.cameras.items(), ("odometry", self.odometry)]}
        return {name: age for name, age in ages.items() if age is None or age > longer_than_s}

    def _subscribe_to_cameras(self, parameters: NodeParameters) -> dict[str, Stream]:
        image_type = "CompressedImage" if parameters.image_transport == "compressed" else "Image"
        streams = {}
        for name, camera_id in parameters.cameras.items():
            topic = f"~/input/image_{name}"
            streams[name] = Stream(self._node.resolve_topic_name(topic))
            self._subscribe(
                f"sensor_msgs/msg/{image_type}",
                topic,
                self._image_callback(name, camera_id, streams[name]),
                IMAGE_DEPTH,
            )
        return streams

    def _subscribe(self, message_type: str, topic: str, callback: Callable[[Any], None], depth: int) -> None:
        profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)
        overridable = QoSOverridingOptions.with_default_policies()
        try:
            subscription = self._node.create_subscription(
                MessageTypes()[message_type], topic, callback, profile, qos_overriding_options=overridable
            )
        except (RuntimeError, AttributeError, TypeError) as error:  # what rclpy raises for an override it cannot use
            name = f"qos_overrides.{self._node.resolve_topic_name(topic)}.subscription"
            raise ParameterError(
                f"parameter '{name}': {error}; expected history keep_last or keep_all, depth a number, "
                "reliability reliable or best_effort"
            ) from error
        self._subscriptions.callback(self._node.destroy_subscription, subscription)

    def _image_callback(self, name: str, camera_id: int, stream: Stream) -> Callable[[Any], None]:
        def on_image(message: Any) -> None:
            image_ns = stamp_ns(message.header.stamp)
            stream.arrived(image_ns)
            self.scene.add_image(camera_id, image_ns, message)
            self._on_data(name == self._reference)

        return on_image

    def _on_odometry(self, message: Any) -> None:
        sample = read_odometry(message)
        self.odometry.arrived(sample.stamp_ns)
        if self.odometry_frame_id not in ("", sample.frame_id):
            self._node.get_logger().warning(
                f"odometry changed its frame from '{self.odometry_frame_id}' to '{sample.frame_id}': starting anew"
            )
            self.scene.clear()
        self.odometry_frame_id = sample.frame_id
        self.vehicle_frame_id = message.child_frame_id
        self.speed_mps = sample.speed_mps
        try:
            self.scene.add_odometry(sample.stamp_ns, sample.position, sample.quaternion_xyzw)
        except ObservationError as error:
            self.odometry.refused(error)
            self._node.get_logger().warning(f"odometry ignored: {error}", throttle_duration_sec=5.0)
            return
        self._on_data(False)

    def _on_nav_text(self, message: Any) -> None:
        self.route = message.data.strip() or None
