"""The node's subscriptions: they fill the scene, only append, and know how each stream is doing."""

from __future__ import annotations

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
from rsd_planner.ros.stream import Stream, Trouble, find_trouble
from rsd_planner.scene.scene import Scene

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # ROS 2 Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

IMAGE_DEPTH = 10
ODOMETRY_DEPTH = 100


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
        self._find_trouble: dict[str, Callable[[], Trouble]] = {}  # by resolved topic
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
            self.odometry = self._stream("nav_msgs/msg/Odometry", "~/input/odometry")
            self._subscribe(self.odometry, "~/input/odometry", self._on_odometry, ODOMETRY_DEPTH)
            route = self._stream("std_msgs/msg/String", "~/input/nav_text")
            self._subscribe(route, "~/input/nav_text", self._on_nav_text, 1)
            undo.pop_all()

    def close(self) -> None:
        """Unsubscribe from everything."""
        self._subscriptions.close()

    def troubles(self, longer_than_s: float) -> dict[str, Trouble]:
        """Inputs that never sent anything, or nothing for some time: name -> why."""
        silent = {}
        for name, stream in [*self.cameras.items(), ("odometry", self.odometry)]:
            silent_s = stream.silent_s
            if silent_s is None or silent_s > longer_than_s:
                silent[name] = self._find_trouble[stream.topic]()
        return silent

    def _subscribe_to_cameras(self, parameters: NodeParameters) -> dict[str, Stream]:
        image_type = "CompressedImage" if parameters.image_transport == "compressed" else "Image"
        streams = {}
        for name, camera_id in parameters.cameras.items():
            topic = f"~/input/image_{name}"
            stream = streams[name] = self._stream(f"sensor_msgs/msg/{image_type}", topic)
            self._subscribe(stream, topic, self._image_callback(name, camera_id, stream), IMAGE_DEPTH)
        return streams

    def _stream(self, message_type: str, topic: str) -> Stream:
        return Stream(self._node.resolve_topic_name(topic), message_type)

    def _subscribe(self, stream: Stream, topic: str, callback: Callable[[Any], None], depth: int) -> None:
        profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT)

        def trouble() -> Trouble:
            return find_trouble(self._node, stream, topic, subscription.qos_profile)

        def on_incompatible_qos(_: Any) -> None:
            kind, sentence = trouble()
            if kind != "incompatible QoS":  # there is another publisher, one that fits
                sentence = f"nothing is received from a publisher of {stream.topic} whose QoS is incompatible"
            self._node.get_logger().warning(sentence)

        try:
            subscription = self._node.create_subscription(
                MessageTypes()[stream.message_type],
                topic,
                callback,
                profile,
                event_callbacks=SubscriptionEventCallbacks(incompatible_qos=on_incompatible_qos),
                qos_overriding_options=QoSOverridingOptions.with_default_policies(),
            )
        except (RuntimeError, AttributeError, TypeError) as error:  # what rclpy raises for an override it cannot use
            raise ParameterError(
                f"parameter 'qos_overrides.{stream.topic}.subscription': {error}; expected history keep_last or "
                "keep_all, depth a number, reliability reliable or best_effort"
            ) from error
        self._find_trouble[stream.topic] = trouble
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
        self._on_data(False)

    def _on_nav_text(self, message: Any) -> None:
        self.route = message.data.strip() or None
