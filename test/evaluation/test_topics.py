from __future__ import annotations

import pytest

from rsd_planner.errors import BagError
from rsd_planner.evaluation.topics import Topic, camera_id, resolve

JPEG, RAW = "sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/Image"
ODOMETRY = Topic("/odom", "nav_msgs/msg/Odometry", 10)
FRONT = Topic("/camera/front/image/compressed", JPEG, 10)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("/camera/front/image/compressed", 1),
        ("/sensing/camera/front_left/image_raw", 0),
        ("/camera_cross_left_120fov/image", 0),
        ("/camera_front_wide_120fov/image", 1),
        ("/cam/front-right/image", 2),
        ("/rear_left", 3),
        ("/CAM_REAR/image", 4),
        ("/rig/rear/right/image", 5),
        ("/camera_front_tele_30fov", 6),
        ("/camera/image_raw", None),
        ("/confronted/image", None),
    ],
)
def test_camera_id_from_topic_name(topic: str, expected: int | None) -> None:
    assert camera_id(topic) == expected


def test_finds_cameras_in_order_of_id_and_odometry_by_type() -> None:
    left = Topic("/camera/front_left/image", RAW, 10)
    depth = Topic("/depth/image", RAW, 10)
    inputs = resolve("bag", [FRONT, ODOMETRY, left, depth, Topic("/tf", "tf2_msgs/msg/TFMessage", 3)], None, None)
    assert list(inputs.cameras.items()) == [(0, left.name), (1, FRONT.name)]
    assert inputs.odometry == "/odom"
    assert inputs.unused_images == ("/depth/image",)


def test_flags_decide() -> None:
    topics = [Topic("/a", RAW, 1), Topic("/b", JPEG, 1), ODOMETRY, Topic("/odom2", ODOMETRY.type, 1)]
    inputs = resolve("bag", topics, {6: "/b", 1: "/a"}, "/odom2")
    assert list(inputs.cameras.items()) == [(1, "/a"), (6, "/b")]
    assert inputs.odometry == "/odom2"


@pytest.mark.parametrize(
    ("topics", "cameras", "odometry", "words"),
    [
        ([ODOMETRY], None, None, ["no images", "/odom"]),
        ([Topic(FRONT.name, JPEG, 0), ODOMETRY], None, None, ["no images", FRONT.name]),
        ([FRONT], None, None, ["no odometry", "--odometry", FRONT.name]),
        ([FRONT, ODOMETRY, Topic("/o2", ODOMETRY.type, 1)], None, None, ["2 odometry topics", "--odometry", "/o2"]),
        ([FRONT, Topic("/front/raw", RAW, 9), ODOMETRY], None, None, ["camera 1", "--camera 1=TOPIC", "/front/raw"]),
        ([Topic("/image_raw", RAW, 9), ODOMETRY], None, None, ["--camera 1=/image_raw"]),
        ([FRONT, ODOMETRY], {1: "/nope"}, None, ["--camera 1=/nope", "no topic /nope", FRONT.name]),
        ([FRONT, ODOMETRY], {1: "/odom"}, None, ["/odom is nav_msgs/msg/Odometry", "CompressedImage"]),
        ([FRONT, ODOMETRY], None, FRONT.name, ["--odometry", "expected nav_msgs/msg/Odometry"]),
    ],
)
def test_says_what_was_found_and_which_flag_helps(topics, cameras, odometry, words) -> None:
    with pytest.raises(BagError) as error:
        resolve("drive.mcap", topics, cameras, odometry)
    message = str(error.value)
    assert "\n" not in message
    for word in ["drive.mcap", *words]:
        assert word in message
