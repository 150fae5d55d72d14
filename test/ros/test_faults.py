"""Whatever a driver, an odometry or a model may do: nothing stale goes out as fresh, and the node lives on.

Inputs that stop, truncated images, non-finite odometry, models that raise: test_planning.py; killed workers:
test_worker_process.py.
"""

import threading
import time

import cv2
import numpy as np
import pytest
from planners import held_up
from ros_peer import PLANNER, STEP_NS, jpeg
from sensor_msgs.msg import CompressedImage, Image

from rsd_planner.worker.server import load_planner


def after(peer, steps=1):
    """The instant of the next frames, with the odometry that belongs to it."""
    peer.now_ns += STEP_NS
    for step in range(steps):
        peer.publish_odometry(peer.now_ns + step * STEP_NS)
    return peer.now_ns


def large_jpeg():
    return cv2.imencode(".jpg", np.full((400, 640, 3), 90, np.uint8))[1].tobytes()


@pytest.mark.parametrize("data", [jpeg(0), large_jpeg()], ids=["black", "another size"])
def test_odd_pictures_are_pictures(make_node, peer, data):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    for _ in range(4):
        odd = after(peer)
        peer.publish_image(odd, data)
        peer.until(lambda odd=odd: odd in peer.stamps())


def stamped(message, stamp_ns):
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
    return message


def raw(height=270, width=480, size=270 * 480 * 3):
    return Image(height=height, width=width, encoding="bgr8", step=3 * width, data=bytes(size))


BROKEN = {
    "empty": (CompressedImage(format="jpeg"), "no data"),
    "no picture": (CompressedImage(format="jpeg", data=b"<html>"), "expected a JPEG or PNG"),
    "raw, too short": (raw(size=1000), "has 1000 bytes of data, expected 388800"),
    "raw, no pixels": (raw(0, 0, 0), "0x0 pixels"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_is_named_withheld_and_done_without(make_node, peer, kind):
    broken, said = BROKEN[kind]
    make_node(image_transport="raw" if isinstance(broken, Image) else "compressed")
    if isinstance(broken, Image):
        peer.node.destroy_publisher(peer.images)  # one topic, one type
        peer.images = peer.node.create_publisher(Image, f"{PLANNER}/input/image_front", 100)
        peer.publish_image = lambda stamp_ns: peer.images.publish(stamped(raw(), stamp_ns))
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    bad = after(peer)
    peer.images.publish(stamped(broken, bad))
    peer.until(lambda: peer.value("inference", "withheld: undecodable_image") == "1")
    assert f"camera 1, frame at {bad} ns" in peer.value("inference", "last withheld")
    assert said in peer.value("inference", "last withheld")
    good = peer.drive(0.4, to_ns=bad + 4 * STEP_NS)
    peer.until(lambda: good in peer.stamps())
    assert bad not in peer.stamps()


def test_a_quaternion_of_another_length_is_the_same_rotation_and_one_of_none_is_refused(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    t0 = peer.now_ns = t0 + STEP_NS
    peer.publish_odometry(t0, w=0.0)
    peer.until(lambda: peer.value("inputs", "odometry: rejected") == "1")
    assert "expected a unit quaternion" in peer.value("inputs", "odometry: last error")
    peer.publish_odometry(t0, w=3.0)
    peer.publish_image(t0)
    peer.until(lambda: t0 in peer.stamps())
    orientation = peer.paths[-1].poses[0].pose.orientation
    assert np.linalg.norm([orientation.x, orientation.y, orientation.z, orientation.w]) == pytest.approx(1.0)


def test_a_plan_from_before_the_odometry_changed_its_frame_is_never_published(make_node, peer):
    """Even if the first pose in the new frame is refused."""
    planning, go_on = threading.Event(), threading.Event()
    make_node(held_up(planning, go_on))
    peer.activate()
    t0 = peer.drive()
    peer.until(planning.is_set)
    peer.publish_odometry(t0 + STEP_NS, frame_id="map", w=0.0)
    peer.until(lambda: peer.value("inputs", "odometry: rejected") == "1")
    go_on.set()
    peer.until(lambda: peer.value("inference", "outdated") == "1")
    assert not peer.paths


def test_duplicate_and_reversed_stamps_lead_to_no_plan_of_their_own(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    for pair in range(10):
        older, newer = t0 + (2 * pair + 1) * STEP_NS, t0 + (2 * pair + 2) * STEP_NS
        for stamp_ns in (newer, older, newer, older):
            peer.publish_odometry(stamp_ns)
            peer.publish_image(stamp_ns)
        peer.until(lambda newer=newer: newer in peer.stamps())
    stamps = peer.stamps()
    assert stamps == sorted(set(stamps))
    peer.until(lambda: peer.value("inputs", "resets") == "0")


def test_a_model_that_stalls_is_held_to_its_deadline_and_the_path_still_comes(make_node, peer):
    stalls = []

    def load(request, progress):
        planner = load_planner(request, progress)
        verify = planner._target.verify

        def stalls_once(*arguments):
            if not stalls:
                stalls.append(arguments)
                time.sleep(2.0)
            return verify(*arguments)

        planner._target.verify = stalls_once
        return planner

    make_node(load, reasoning_deadline=1.5, memory_ticks=0, max_reasoning_tokens=64)
    peer.activate()
    peer.drive()
    peer.until(lambda: peer.paths)
    peer.until(lambda: int(peer.value("inference", "closed by the deadline") or 0) >= 1)
    assert len(peer.paths[0].poses) == 64
    newest = peer.drive(0.3, to_ns=peer.now_ns + 3 * STEP_NS)
    peer.until(lambda: newest in peer.stamps())
