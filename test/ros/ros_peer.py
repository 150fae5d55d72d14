"""The world around a node under test: it drives straight on at constant speed, and listens."""

import os
import time
from collections.abc import Callable
from pathlib import Path as FilePath

import cv2
import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry, Path
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter, parameter_value_to_python
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import String
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

MODEL = FilePath(__file__).parents[1] / "golden" / "alpamayo_r1"
# Where the tests' own interpreter has no PyTorch (ROS 2 Humble's does not): one that has.
MODEL_PYTHON = os.environ.get("MODEL_PYTHON", "")
SPEED_MPS = 10.0
BEGUN_NS = time.time_ns()
STEP_NS = 100_000_000
PLANNER = "/rsd_planner"
TIMEOUT_S = 60.0  # an end of a process that was killed is noticed after a lease of 20 s

CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
DEACTIVATE, CLEANUP = Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP


def jpeg(brightness: int = 90) -> bytes:
    image = np.full((270, 480, 3), brightness, np.uint8)
    return cv2.imencode(".jpg", image)[1].tobytes()


class Peer:
    """Publishes inputs, calls services, collects outputs. Spun only by the test itself, in `until`."""

    def __init__(self) -> None:
        self.node = Node("peer")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self.images = self.node.create_publisher(CompressedImage, f"{PLANNER}/input/image_front", 100)
        self.odometry = self.node.create_publisher(Odometry, f"{PLANNER}/input/odometry", 100)
        self.paths: list[Path] = []
        self.texts: list[String] = []
        self.markers: list[MarkerArray] = []
        self.statuses: dict[str, DiagnosticStatus] = {}
        self._listen(Path, f"{PLANNER}/output/path", self.paths.append)
        self._listen(String, f"{PLANNER}/output/reasoning_text", self.texts.append)
        self._listen(MarkerArray, f"{PLANNER}/output/markers", self.markers.append)
        self._listen(DiagnosticArray, "/diagnostics", self._on_diagnostics)
        self._transitions = self.node.create_client(ChangeState, f"{PLANNER}/change_state")
        self._states = self.node.create_client(GetState, f"{PLANNER}/get_state")
        self._parameters = self.node.create_client(SetParameters, f"{PLANNER}/set_parameters")
        self._resets = self.node.create_client(Trigger, f"{PLANNER}/reset")
        self.now_ns = time.time_ns()
        self.node_clock_ns = 0  # as of the newest diagnostics

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()

    def until(self, condition: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        """Spin until something holds; fail when it does not come to hold."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "nothing of the kind happened in time"
            self._executor.spin_once(timeout_sec=0.02)

    def spin_for(self, seconds: float) -> None:
        """Spin for a while, to see that nothing happens."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._executor.spin_once(timeout_sec=0.02)

    def call(self, client: object, request: object) -> object:
        self.until(client.service_is_ready)
        future = client.call_async(request)
        self.until(future.done)
        return future.result()

    def transition(self, transition_id: int) -> bool:
        request = ChangeState.Request()
        request.transition.id = transition_id
        return self.call(self._transitions, request).success

    def begin_transition(self, transition_id: int) -> Future:
        """Ask for a transition and do not wait for it."""
        request = ChangeState.Request()
        request.transition.id = transition_id
        self.until(self._transitions.service_is_ready)
        return self._transitions.call_async(request)

    def state(self) -> str:
        return self.call(self._states, GetState.Request()).current_state.label

    def set_parameter(self, name: str, value: object) -> object:
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        return self.call(self._parameters, request).results[0]

    def parameter_of(self, node: str, name: str) -> object:
        """A parameter of any running node."""
        client = self.node.create_client(GetParameters, f"{node}/get_parameters")
        return parameter_value_to_python(self.call(client, GetParameters.Request(names=[name])).values[0])

    def reset(self) -> Trigger.Response:
        return self.call(self._resets, Trigger.Request())

    def activate(self) -> None:
        """Configure and activate, and wait until inputs and outputs are connected."""
        assert self.transition(CONFIGURE)
        assert self.transition(ACTIVATE)
        self.until(self.connected)

    def drive(
        self, seconds: float = 2.0, *, to_ns: int | None = None, odometry: bool = True, images: bool = True
    ) -> int:
        """Publish what the last `seconds` up to `to_ns` (now) brought, all at once; the newest stamp comes back."""
        self.now_ns = time.time_ns() if to_ns is None else to_ns
        for step in reversed(range(round(seconds * 10))):
            stamp_ns = self.now_ns - step * STEP_NS
            if odometry:
                self.publish_odometry(stamp_ns)
            if images:
                self.publish_image(stamp_ns)
            time.sleep(0.003)  # queues are short: let them be emptied
        return self.now_ns

    def go_on(self, seconds: float, **what: bool) -> None:
        """Drive on in real time, a tenth of a second at a time; after a pause, from now on."""
        for _ in range(round(seconds * 10)):
            late_ns = time.time_ns() - self.now_ns
            due_ns = self.now_ns + (STEP_NS if late_ns < 10 * STEP_NS else late_ns - late_ns % STEP_NS)
            self.until(lambda due_ns=due_ns: time.time_ns() >= due_ns)
            self.drive(0.1, to_ns=due_ns, **what)

    def image(self, stamp_ns: int, data: bytes | None = None) -> CompressedImage:
        message = CompressedImage(format="jpeg", data=jpeg() if data is None else data)
        self._stamp(message.header, stamp_ns, "camera")
        return message

    def publish_image(self, stamp_ns: int, data: bytes | None = None) -> None:
        self.images.publish(self.image(stamp_ns, data))

    def publish_odometry(self, stamp_ns: int, x: float | None = None, frame_id: str = "odom", w: float = 1.0) -> None:
        message = Odometry(child_frame_id="vehicle")
        self._stamp(message.header, stamp_ns, frame_id)
        message.pose.pose.position.x = position_at(stamp_ns) if x is None else x
        message.pose.pose.orientation.w = w
        message.twist.twist.linear.x = SPEED_MPS
        self.odometry.publish(message)

    def value(self, part: str, key: str) -> str | None:
        """A value of the newest diagnostics."""
        status = self.statuses.get(part)
        return next((value.value for value in status.values if value.key == key), None) if status else None

    def message(self, part: str) -> str:
        """The summary of a part in the newest diagnostics."""
        return self.statuses[part].message if part in self.statuses else ""

    def stamps(self) -> list[int]:
        """t0 of the paths received, ns."""
        return [nanoseconds(path.header.stamp) for path in self.paths]

    def connected(self) -> bool:
        outputs = ("path", "reasoning_text", "markers")
        return (
            self.images.get_subscription_count() > 0
            and self.odometry.get_subscription_count() > 0
            and all(self.node.count_publishers(f"{PLANNER}/output/{output}") for output in outputs)
        )

    def _listen(self, message_type: type, topic: str, callback: Callable) -> None:
        self.node.create_subscription(message_type, topic, callback, 100)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        self.node_clock_ns = nanoseconds(message.header.stamp)
        for status in message.status:
            self.statuses[status.name.partition(": ")[2]] = status

    @staticmethod
    def _stamp(header: object, stamp_ns: int, frame_id: str) -> None:
        header.stamp.sec, header.stamp.nanosec = divmod(stamp_ns, 10**9)
        header.frame_id = frame_id


def nanoseconds(stamp: object) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


def position_at(stamp_ns: int) -> float:
    """Where the vehicle is, m: x in the odometry frame; 0 when the tests began."""
    return (stamp_ns - BEGUN_NS) / 1e9 * SPEED_MPS
