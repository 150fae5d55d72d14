"""The bundled bag is what the world says: poses, twist, pictures, and the true sentences beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from scipy.spatial.transform import Rotation

from rsd_planner.demo.make_bag import (
    BAG_DIR,
    FIRST_TICK,
    IMAGE_TOPIC,
    ODOMETRY_TOPIC,
    START_NS,
    TICKS,
    TRUTH,
    demo_drive,
    pictures,
    truth,
)
from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.drive import Drive
from rsd_planner.demo.world.facts import CauseKind
from rsd_planner.demo.world.sentences import cause_of
from rsd_planner.scene.observation import STEP_NS


@pytest.fixture(scope="module")
def drive() -> Drive:
    return demo_drive()


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
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)


def _picture(message: Any) -> np.ndarray:
    return np.asarray(cv2.cvtColor(cv2.imdecode(message.data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB))


def test_holds_what_the_demo_needs_in_4_megabytes(messages: dict[str, list[Any]]) -> None:
    assert sum(path.stat().st_size for path in BAG_DIR.iterdir()) < 4e6
    assert {topic: len(found) for topic, found in messages.items()} == {IMAGE_TOPIC: TICKS, ODOMETRY_TOPIC: 5 * TICKS}
    assert {_picture(m).shape for m in messages[IMAGE_TOPIC][::40]} == {(HEIGHT, WIDTH, 3)}  # the model's own size


def test_poses_are_those_of_the_drive_and_the_twist_is_their_derivative(
    messages: dict[str, list[Any]], drive: Drive
) -> None:
    odometry = messages[ODOMETRY_TOPIC]
    stamps = np.array([_stamp_ns(m) - START_NS for m in odometry])
    positions = np.array([[m.pose.pose.position.x, m.pose.pose.position.y] for m in odometry])
    quaternions = [m.pose.pose.orientation for m in odometry]
    yaw = np.unwrap(Rotation.from_quat([[q.x, q.y, q.z, q.w] for q in quaternions]).as_euler("zyx")[:, 0])

    expected = [drive.path.pose(FIRST_TICK * STEP_NS + int(stamp)).position[:2] for stamp in stamps]
    np.testing.assert_allclose(positions, expected, atol=1e-9)
    times = stamps * 1e-9
    velocity = np.gradient(positions, times, axis=0)[1:-1]
    forward = np.stack([np.cos(yaw), np.sin(yaw)], axis=-1)[1:-1]
    speed = np.array([m.twist.twist.linear.x for m in odometry])[1:-1]
    np.testing.assert_allclose(np.sum(velocity * forward, axis=-1), speed, atol=0.06)
    sideways = velocity[:, 0] * forward[:, 1] - velocity[:, 1] * forward[:, 0]
    np.testing.assert_allclose(sideways, 0.0, atol=0.02)
    yaw_rate = np.array([m.twist.twist.angular.z for m in odometry])[1:-1]
    assert np.abs(np.gradient(yaw, times)[1:-1] - yaw_rate).mean() < 2e-3


def test_renders_the_recorded_pictures_again(messages: dict[str, list[Any]], drive: Drive) -> None:
    for index in (7, 101, 240):
        tick = FIRST_TICK + index
        (again,) = pictures(drive, range(tick, tick + 1))
        message = messages[IMAGE_TOPIC][index]
        assert _stamp_ns(message) == START_NS + index * STEP_NS
        assert np.abs(again.astype(float) - _picture(message)).mean() < 4.0  # JPEG


def test_the_truth_beside_it_is_that_of_the_scene_and_much_happens(
    messages: dict[str, list[Any]], drive: Drive
) -> None:
    told = json.loads((BAG_DIR / TRUTH).read_text())
    assert told == truth(drive)
    assert {int(stamp) for stamp in told} == {_stamp_ns(m) for m in messages[IMAGE_TOPIC][15:]}
    causes = {cause_of(sentence) for sentence in told.values()}
    lights = {CauseKind.LIGHT_RED, CauseKind.LIGHT_AMBER, CauseKind.LIGHT_GREEN}
    assert {CauseKind.PEDESTRIAN, CauseKind.LEAD, *lights} <= causes


def test_make_bag_refuses_to_overwrite(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rsd_planner.demo.make_bag", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "does not exist yet" in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("out", "said"), [("--help", "usage: "), ("/proc/x", "error: cannot write /proc/x")])
def test_a_place_that_is_none_is_one_line(out: str, said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rsd_planner.demo.make_bag", out]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith(said)
    assert process.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
