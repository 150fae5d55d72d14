"""Writes real recordings of a synthetic drive with rosbags: rosbag2 (sqlite3, MCAP) and rosbag1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

IMAGE = "sensor_msgs/msg/CompressedImage"
ODOMETRY = "nav_msgs/msg/Odometry"
KINDS = ("sqlite3", "mcap", "rosbag1")
START_NS = 1_700_000_000_000_000_000
FRONT = "/camera/front/image/compressed"


def circle(seconds: float) -> tuple[float, float, float]:
    """x, y, yaw at 10 m/s on a left-hand circle of 100 m radius: nothing that constant velocity predicts."""
    angle = seconds * 10.0 / 100.0
    return 100.0 * np.sin(angle), 100.0 * (1 - np.cos(angle)), angle


@dataclass
class Drive:
    """A drive to be recorded: 10 Hz images, 50 Hz odometry."""

    seconds: float = 3.0
    cameras: Mapping[int, str] = field(default_factory=lambda: {1: FRONT})
    odometry: tuple[str, ...] = ("/odom",)
    pose: Callable[[float], tuple[float, float, float]] = circle
    broken_images: tuple[int, ...] = ()  # indices of images whose JPEG is cut
    no_odometry_between: tuple[float, float] | None = None  # s
    laps: int = 1  # how often it is recorded, with the same stamps again


def write(path: Path, drive: Drive, kind: str = "mcap") -> Path:
    """Writes a recording; the path gets `.bag` added for rosbag1. Returns what to open."""
    if kind == "rosbag1":
        path = path.with_suffix(".bag")
        store = get_typestore(Stores.ROS1_NOETIC)
        writer: Any = Writer1(path)
        serialize = store.serialize_ros1
    else:
        store = get_typestore(Stores.ROS2_HUMBLE)
        writer = Writer(path, version=8, storage_plugin=StoragePlugin[kind.upper()])
        serialize = store.serialize_cdr
    with writer:
        connections: dict[str, Any] = {}
        for topic, log_ns, message in _messages(drive, store.types):
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, message.__msgtype__, typestore=store)
            writer.write(connections[topic], log_ns, bytes(serialize(message, message.__msgtype__)))
    return path


def storage_file(bag: Path) -> Path:
    """The file with the messages."""
    return bag if bag.is_file() else next(file for file in bag.iterdir() if file.suffix in (".db3", ".mcap"))


def _messages(drive: Drive, types: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    """Topic, time of recording and message."""
    for lap in range(drive.laps):
        for topic, stamp_ns, message in _lap(drive, types):
            yield topic, stamp_ns + lap * round((drive.seconds + 1) * 1e9), message


def _lap(drive: Drive, types: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    for step in range(round(drive.seconds * 50) + 1):
        seconds = step / 50
        stamp_ns = START_NS + step * 20_000_000
        gap = drive.no_odometry_between
        if gap is None or not gap[0] < seconds < gap[1]:
            for topic in drive.odometry:
                yield topic, stamp_ns, _odometry(types, stamp_ns, *drive.pose(seconds))
        if step % 5 == 0:
            jpeg = _jpeg(step)
            data = jpeg[: len(jpeg) // 3] if step // 5 in drive.broken_images else jpeg
            for topic in drive.cameras.values():
                header = _header(types, stamp_ns, "camera")
                yield topic, stamp_ns, types[IMAGE](header=header, format="jpeg", data=np.frombuffer(data, np.uint8))


def _jpeg(step: int) -> bytes:
    image = np.full((180, 320, 3), 90, np.uint8)
    cv2.circle(image, (step % 320, 90), 30, (40, 160, 250), -1)
    return bytes(cv2.imencode(".jpg", image)[1])


def _header(types: Mapping[str, Any], stamp_ns: int, frame_id: str) -> Any:
    header = types["std_msgs/msg/Header"]
    sec, nanosec = divmod(stamp_ns, 10**9)
    extra = {"seq": 0} if "seq" in header.__dataclass_fields__ else {}
    stamp = types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec)
    return header(stamp=stamp, frame_id=frame_id, **extra)


def _odometry(types: Mapping[str, Any], stamp_ns: int, x: float, y: float, yaw: float) -> Any:
    def vector(name: str, *values: float) -> Any:
        return types[f"geometry_msgs/msg/{name}"](**dict(zip("xyzw", values, strict=False)))

    pose = types["geometry_msgs/msg/Pose"](
        position=vector("Point", x, y, 0.0),
        orientation=vector("Quaternion", 0.0, 0.0, float(np.sin(yaw / 2)), float(np.cos(yaw / 2))),
    )
    twist = types["geometry_msgs/msg/Twist"](
        linear=vector("Vector3", 10.0, 0.0, 0.0), angular=vector("Vector3", 0, 0, 0.1)
    )
    return types[ODOMETRY](
        header=_header(types, stamp_ns, "odom"),
        child_frame_id="base_link",
        pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=np.zeros(36)),
        twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=np.zeros(36)),
    )
