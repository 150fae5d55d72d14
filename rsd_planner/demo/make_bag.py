"""Renders the demo drive into a rosbag2: three JPEG cameras at 10 Hz, exact odometry at 50 Hz.

    python -m rsd_planner.demo.make_bag OUT    (about a minute; the bundled one is rsd_planner/demo/bag)

The same library versions on the same machine give the same messages; elsewhere pixels may differ by rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from scipy.spatial.transform import Rotation

from rsd_planner.demo.camera import Camera
from rsd_planner.demo.drive import DURATION_S, Drive
from rsd_planner.demo.render import Painter
from rsd_planner.scene.observation import RgbImage

BAG_DIR = Path(__file__).parent / "bag"  # the bundled one
START_NS = 1_760_000_000_000_000_000
ODOMETRY_TOPIC = "/odom"
CAMERA_HZ, ODOMETRY_HZ = 10, 50
CAMERA_DELAY_NS, ODOMETRY_DELAY_NS = 30_000_000, 2_000_000  # from header stamp to being recorded
SIDE_YAW = np.deg2rad(55.0)
CAMERAS = (
    Camera(0, "front_left", 320, 180, 150.0, (1.6, 0.5, 1.45), SIDE_YAW, 0.03),
    Camera(1, "front", 480, 270, 300.0, (1.6, 0.0, 1.45), 0.0, 0.03),
    Camera(2, "front_right", 320, 180, 150.0, (1.6, -0.5, 1.45), -SIDE_YAW, 0.03),
)
JPEG_QUALITY = 78

_types = get_typestore(Stores.ROS2_HUMBLE)


def make_bag(directory: Path) -> None:
    """Write the demo bag into `directory`, which must not exist yet."""
    writer = Writer(directory, version=8, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with writer:
        connections = {
            topic: writer.add_connection(topic, message_type, typestore=_types)
            for topic, message_type in _topics().items()
        }
        drive = Drive()
        messages = [*_images(drive), *_odometry(drive)]
        for recorded_ns, topic, data in sorted(messages, key=lambda message: message[:2]):
            writer.write(connections[topic], recorded_ns, data)


def image_topic(camera: Camera) -> str:
    """The topic a camera is recorded under."""
    return f"/camera/{camera.name}/image/compressed"


def _topics() -> dict[str, str]:
    images = {image_topic(camera): "sensor_msgs/msg/CompressedImage" for camera in CAMERAS}
    return {**images, ODOMETRY_TOPIC: "nav_msgs/msg/Odometry"}


def _images(drive: Drive) -> Iterator[tuple[int, str, bytes]]:
    painter = Painter(drive)
    image_type = _types.types["sensor_msgs/msg/CompressedImage"]
    for stamp_ns in _stamps(CAMERA_HZ):
        for camera in CAMERAS:
            jpeg = _encode(painter.render(camera, (stamp_ns - START_NS) / 1e9))
            message = image_type(header=_header(stamp_ns, f"camera_{camera.name}"), format="jpeg", data=jpeg)
            recorded_ns = stamp_ns + CAMERA_DELAY_NS
            yield recorded_ns, image_topic(camera), bytes(_types.serialize_cdr(message, message.__msgtype__))


def _odometry(drive: Drive) -> Iterator[tuple[int, str, bytes]]:
    types = _types.types
    point, quaternion = types["geometry_msgs/msg/Point"], types["geometry_msgs/msg/Quaternion"]
    vector, twist = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Twist"]
    for stamp_ns in _stamps(ODOMETRY_HZ):
        motion = drive.ego.at((stamp_ns - START_NS) / 1e9)
        x, y, z = motion.pose.position
        orientation = quaternion(*Rotation.from_matrix(motion.pose.rotation).as_quat())
        pose = types["geometry_msgs/msg/Pose"](position=point(x, y, z), orientation=orientation)
        velocity = twist(linear=vector(motion.speed, 0.0, 0.0), angular=vector(0.0, 0.0, motion.yaw_rate))
        message = types["nav_msgs/msg/Odometry"](
            header=_header(stamp_ns, "odom"),
            child_frame_id="base_link",
            pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=np.zeros(36)),
            twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=velocity, covariance=np.zeros(36)),
        )
        recorded_ns = stamp_ns + ODOMETRY_DELAY_NS
        yield recorded_ns, ODOMETRY_TOPIC, bytes(_types.serialize_cdr(message, message.__msgtype__))


def _stamps(rate_hz: int) -> range:
    return range(START_NS, START_NS + round(DURATION_S * 1e9), 1_000_000_000 // rate_hz)


def _header(stamp_ns: int, frame_id: str) -> object:
    time_type, header_type = _types.types["builtin_interfaces/msg/Time"], _types.types["std_msgs/msg/Header"]
    return header_type(stamp=time_type(*divmod(stamp_ns, 1_000_000_000)), frame_id=frame_id)


def _encode(image: RgbImage) -> RgbImage:
    """JPEG bytes of an RGB image, (n,) uint8."""
    _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return jpeg.reshape(-1)


def _main() -> None:
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python -m rsd_planner.demo.make_bag OUT    (a directory that does not exist yet)")
    make_bag(Path(sys.argv[1]))


if __name__ == "__main__":
    _main()
