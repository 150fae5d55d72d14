"""Why an input does not arrive, told apart on real DDS and said with what to do."""

import time

import pytest
import rclpy
from nav_msgs.msg import Odometry
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_peer import CONFIGURE, PLANNER, STEP_NS
from sensor_msgs.msg import CompressedImage, Image

CAMERA = f"{PLANNER}/input/image_front"
ODOMETRY = f"{PLANNER}/input/odometry"


@pytest.fixture
def neighbour():
    """A node in a DDS participant of its own, as another process has."""
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("driver", namespace="/camera", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def alone(peer):
    """Take the peer's own publishers away."""
    peer.node.destroy_publisher(peer.images)
    peer.node.destroy_publisher(peer.odometry)


def until_state(peer, name, state):
    peer.until(lambda: peer.value("inputs", f"{name}: state") == state)


def test_no_publisher(make_node, peer):
    alone(peer)
    make_node()
    assert peer.transition(CONFIGURE)
    until_state(peer, "camera front", "no publisher")
    until_state(peer, "odometry", "no publisher")
    assert peer.statuses["inputs"].level == b"\x01"
    assert f"front: no publisher: nobody publishes {CAMERA}: start the driver or remap" in peer.message("inputs")
    assert f"odometry: no publisher: nobody publishes {ODOMETRY}" in peer.message("inputs")


def test_no_data(make_node, peer):
    make_node()
    assert peer.transition(CONFIGURE)
    until_state(peer, "camera front", "no data")
    assert f"front: no data: /peer never sent a message on {CAMERA}" in peer.message("inputs")


def test_a_stream_that_ends_is_no_data_either(make_node, peer):
    make_node(max_input_age=0.5)
    assert peer.transition(CONFIGURE)
    peer.until(lambda: peer.drive(0.3) and peer.spin_for(0.1) is None and peer.message("inputs") == "all inputs arrive")
    until_state(peer, "odometry", "no data")
    assert "has not sent a message on" in peer.message("inputs")


def test_wrong_type(make_node, peer, neighbour):
    alone(peer)
    neighbour.create_publisher(Image, CAMERA, 10)
    neighbour.create_publisher(Image, ODOMETRY, 10)
    make_node()
    assert peer.transition(CONFIGURE)
    until_state(peer, "camera front", "wrong type")
    until_state(peer, "odometry", "wrong type")
    message = peer.message("inputs")
    assert f"/camera/driver publishes sensor_msgs/msg/Image on {CAMERA}, expected sensor_msgs/msg/Comp" in message
    assert "set image_transport to raw or remap ~/input/image_front to a topic of that type" in message
    assert f"on {ODOMETRY}, expected nav_msgs/msg/Odometry: remap ~/input/odometry" in message


def test_incompatible_qos(make_node, peer, neighbour):
    alone(peer)
    best_effort = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    neighbour.create_publisher(CompressedImage, CAMERA, best_effort)
    neighbour.create_publisher(Odometry, ODOMETRY, best_effort)
    make_node(**{f"qos_overrides.{CAMERA}.subscription.reliability": "reliable"})
    assert peer.transition(CONFIGURE)
    until_state(peer, "camera front", "incompatible QoS")
    until_state(peer, "odometry", "no data")  # not overridden: best effort accepts all
    assert "/camera/driver publishes" in peer.message("inputs")
    assert f"set qos_overrides.{CAMERA}.subscription.reliability to best_effort" in peer.message("inputs")


def test_a_publisher_that_fits_counts_beside_one_that_does_not(make_node, peer, neighbour):
    neighbour.create_publisher(Image, CAMERA, 10)
    make_node()
    assert peer.transition(CONFIGURE)
    peer.until(lambda: peer.drive(0.3) and peer.spin_for(0.1) is None and peer.message("inputs") == "all inputs arrive")


def test_rate_age_and_drops_of_each_camera(make_node, peer):
    make_node()
    assert peer.transition(CONFIGURE)
    peer.until(lambda: peer.images.get_subscription_count() == 1)
    now_ns = time.time_ns()
    for step in [*range(10), *range(12, 20)]:  # two are missing
        peer.publish_image(now_ns + step * STEP_NS)
        time.sleep(0.003)
    peer.until(lambda: peer.value("inputs", "camera front: received") == "18")
    assert peer.value("inputs", "camera front: dropped") == "2"
    assert peer.value("inputs", "camera front: out of order") == "0"
    assert abs(float(peer.value("inputs", "camera front: age of the newest stamp [s]"))) < 60
    peer.until(
        lambda: peer.drive(0.3) and peer.spin_for(0.1) is None and peer.value("inputs", "camera front: rate [Hz]") > "1"
    )
