"""The bundled bag is what the drive's geometry says: poses, twist, and where things are in the pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from scipy.spatial.transform import Rotation

from rsd_planner.demo.camera import Camera
from rsd_planner.demo.drive import LANE_WIDTH_M, Drive
from rsd_planner.demo.make_bag import BAG_DIR, CAMERAS, ODOMETRY_TOPIC, START_NS, image_topic
from rsd_planner.demo.render import Painter

FRONT = CAMERAS[1]


@pytest.fixture(scope="module")
def drive() -> Drive:
    return Drive()


@pytest.fixture(scope="module")
def messages() -> dict[str, list[Any]]:
    """Topic -> messages of the bundled bag, in recorded order."""
    by_topic: dict[str, list[Any]] = {}
    with AnyReader([BAG_DIR]) as reader:
        for connection, recorded_ns, data in reader.messages():
            message = reader.deserialize(data, connection.msgtype)
            assert recorded_ns > _stamp_ns(message)
            by_topic.setdefault(connection.topic, []).append(message)
    return by_topic


def _stamp_ns(message: Any) -> int:
    return message.header.stamp.sec * 10**9 + message.header.stamp.nanosec


def _picture(message: Any) -> np.ndarray:
    return cv2.cvtColor(cv2.imdecode(message.data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def _project(points: np.ndarray, camera: Camera, odometry: Any) -> np.ndarray:
    """World points (N, 3) to pixels by OpenCV, from the recorded pose: independent of the renderer's projection."""
    position, q = odometry.pose.pose.position, odometry.pose.pose.orientation
    vehicle = Rotation.from_quat([q.x, q.y, q.z, q.w])
    in_vehicle = vehicle.inv().apply(points - [position.x, position.y, position.z]) - camera.position
    in_mount = Rotation.from_euler("ZY", [camera.yaw, camera.pitch]).inv().apply(in_vehicle)
    optical = in_mount @ np.array([[0, 0, 1], [-1, 0, 0], [0, -1, 0]], dtype=float)
    centre = ((camera.width - 1) / 2, (camera.height - 1) / 2)
    intrinsics = np.array([[camera.focal, 0, centre[0]], [0, camera.focal, centre[1]], [0, 0, 1]])
    return cv2.projectPoints(optical, np.zeros(3), np.zeros(3), intrinsics, None)[0].reshape(-1, 2)


def test_holds_what_the_demo_needs_in_4_megabytes(messages: dict[str, list[Any]]) -> None:
    assert sum(path.stat().st_size for path in BAG_DIR.iterdir()) < 4e6
    assert {topic: len(found) for topic, found in messages.items()} == {
        "/camera/front_left/image/compressed": 120,
        "/camera/front/image/compressed": 120,
        "/camera/front_right/image/compressed": 120,
        "/odom": 600,
    }


def test_poses_are_those_of_the_drive_and_the_twist_is_their_derivative(messages: dict[str, list[Any]], drive: Drive):
    odometry = messages[ODOMETRY_TOPIC]
    times = np.array([_stamp_ns(m) - START_NS for m in odometry]) / 1e9
    positions = np.array([[m.pose.pose.position.x, m.pose.pose.position.y] for m in odometry])
    quaternions = [m.pose.pose.orientation for m in odometry]
    yaw = np.unwrap(Rotation.from_quat([[q.x, q.y, q.z, q.w] for q in quaternions]).as_euler("zyx")[:, 0])

    np.testing.assert_allclose(positions, [drive.ego.at(t).pose.position[:2] for t in times], atol=1e-9)
    velocity = np.gradient(positions, times, axis=0)[1:-1]
    forward = np.stack([np.cos(yaw), np.sin(yaw)], axis=-1)[1:-1]
    speed = np.array([m.twist.twist.linear.x for m in odometry])[1:-1]
    np.testing.assert_allclose(np.sum(velocity * forward, axis=-1), speed, atol=5e-3)
    sideways = velocity[:, 0] * forward[:, 1] - velocity[:, 1] * forward[:, 0]
    np.testing.assert_allclose(sideways, 0.0, atol=5e-3)
    yaw_rate = [m.twist.twist.angular.z for m in odometry][1:-1]
    np.testing.assert_allclose(np.gradient(yaw, times)[1:-1], yaw_rate, atol=2e-3)


@pytest.mark.parametrize("time_s", [1.0, 4.5, 8.0, 11.0])
def test_edge_marking_is_bright_where_the_recorded_pose_puts_it(
    messages: dict[str, list[Any]], drive: Drive, time_s: float
) -> None:
    image = next(m for m in messages[image_topic(FRONT)] if _stamp_ns(m) == START_NS + round(time_s * 1e9))
    odometry = next(m for m in messages[ODOMETRY_TOPIC] if _stamp_ns(m) == _stamp_ns(image))
    along = np.argmin(
        [np.linalg.norm(drive.road.points(s, -LANE_WIDTH_M / 2)[0] - _position(odometry)) for s in range(200)]
    )
    ahead = along + np.arange(9.0, 16.0)
    brightness = _picture(image).mean(axis=-1)

    def sample(d: float) -> np.ndarray:
        pixels = np.round(_project(drive.road.points(ahead, d), FRONT, odometry)).astype(int)
        inside = (pixels >= 0).all(axis=-1) & (pixels < [FRONT.width, FRONT.height]).all(axis=-1)
        assert inside.sum() >= 4
        return brightness[pixels[inside, 1], pixels[inside, 0]]

    assert np.median(sample(-LANE_WIDTH_M)) > 170
    assert np.median(sample(-LANE_WIDTH_M + 0.5)) < 120


def _position(odometry: Any) -> np.ndarray:
    p = odometry.pose.pose.position
    return np.array([p.x, p.y, p.z])


def test_renders_the_recorded_pictures_again(messages: dict[str, list[Any]], drive: Drive) -> None:
    painter = Painter(drive)
    for camera, index in zip(CAMERAS, (7, 63, 110), strict=True):
        again = painter.render(camera, index / 10).astype(float)
        np.testing.assert_array_equal(again, Painter(Drive()).render(camera, index / 10))
        recorded = _picture(messages[image_topic(camera)][index])
        assert np.abs(again - recorded).mean() < 4.0  # JPEG


def test_make_bag_refuses_to_overwrite(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rsd_planner.demo.make_bag", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "does not exist yet" in run.stderr
    assert list(tmp_path.iterdir()) == []
