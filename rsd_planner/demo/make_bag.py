"""Drives a piece of the driving world into a rosbag2: the front camera at 10 Hz, exact odometry at 50 Hz.

    python -m rsd_planner.demo.make_bag OUT    (some seconds; the bundled one is rsd_planner/demo/bag)

Pictures have the size and the compression of the training data: the demo model sees what it was trained on. Beside the
recording, truth.json holds the scene's own sentence for every tick. The same library versions on the same machine give
the same messages; elsewhere pixels may differ by rounding.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from scipy.spatial.transform import Rotation

from rsd_planner.demo.world.cameras import FRONT, Camera, make_camera
from rsd_planner.demo.world.canvas import Canvas
from rsd_planner.demo.world.dataset import encode_jpeg
from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.facts import observe
from rsd_planner.demo.world.looks import make_look
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.render import Scene
from rsd_planner.demo.world.sentences import say
from rsd_planner.demo.world.splits import Event, Split
from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS

BAG_DIR = Path(__file__).parent / "bag"  # the bundled one
TRUTH = "truth.json"
START_NS = 1_760_000_000_000_000_000
IMAGE_TOPIC, ODOMETRY_TOPIC = "/camera/front/image/compressed", "/odom"
ODOMETRY_HZ = 50
CAMERA_DELAY_NS, ODOMETRY_DELAY_NS = 30_000_000, 2_000_000  # from header stamp to being recorded

# A road of the test split, its events chosen so that much happens in a short time.
SEED = 1_101_033
EVENTS = (Event.CYCLIST, Event.PEDESTRIAN, Event.LIGHT, Event.LEAD)
FIRST_TICK, TICKS = 190, 280

_types = get_typestore(Stores.ROS2_HUMBLE)


def make_bag(directory: Path) -> None:
    """Write the demo bag and its truth into `directory`, which must not exist yet.

    Raises:
        RenderError: The machine has no OpenGL over EGL.
    """
    drive = demo_drive()
    messages = sorted((*_images(drive), *_odometry(drive)), key=lambda message: message[:2])
    writer = Writer(directory, version=8, storage_plugin=StoragePlugin.MCAP)
    writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with writer:
        connections = {
            topic: writer.add_connection(topic, message_type, typestore=_types)
            for topic, message_type in (
                (IMAGE_TOPIC, "sensor_msgs/msg/CompressedImage"),
                (ODOMETRY_TOPIC, "nav_msgs/msg/Odometry"),
            )
        }
        for recorded_ns, topic, data in messages:
            writer.write(connections[topic], recorded_ns, data)
    (directory / TRUTH).write_text(json.dumps(truth(drive), indent=0) + "\n", encoding="utf-8")


def demo_drive() -> Drive:
    """The drive the bag is a piece of."""
    return run_drive(make_layout(Split.TEST, SEED, EVENTS))


def truth(drive: Drive) -> dict[str, str]:
    """t0 in ns, as text, to the scene's own sentence; for every tick that has a history in the bag."""
    ticks = range(FIRST_TICK + HISTORY_STEPS - 1, FIRST_TICK + TICKS)
    return {str(_recorded(tick * STEP_NS)): say(observe(drive, tick)) for tick in ticks}


def pictures(drive: Drive, ticks: range) -> Iterator[NDArray[np.uint8]]:
    """What the front camera sees, (H, W, 3) RGB per tick."""
    camera: Camera = make_camera(FRONT)
    scene = Scene(Canvas(camera.width, camera.height), drive, make_look(Split.TEST, SEED))
    try:
        for tick in ticks:
            yield scene.picture(tick * STEP_NS, camera)
    finally:
        scene.release()


def _recorded(stamp_ns: int) -> int:
    """The bag's time for a time of the drive."""
    return START_NS + stamp_ns - FIRST_TICK * STEP_NS


def _images(drive: Drive) -> Iterator[tuple[int, str, bytes]]:
    image_type = _types.types["sensor_msgs/msg/CompressedImage"]
    ticks = range(FIRST_TICK, FIRST_TICK + TICKS)
    for tick, picture in zip(ticks, pictures(drive, ticks), strict=True):
        stamp_ns = _recorded(tick * STEP_NS)
        message = image_type(header=_header(stamp_ns, "camera_front"), format="jpeg", data=encode_jpeg(picture))
        yield stamp_ns + CAMERA_DELAY_NS, IMAGE_TOPIC, bytes(_types.serialize_cdr(message, message.__msgtype__))


def _odometry(drive: Drive) -> Iterator[tuple[int, str, bytes]]:
    types: Any = _types.types
    point, quaternion = types["geometry_msgs/msg/Point"], types["geometry_msgs/msg/Quaternion"]
    vector, twist = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Twist"]
    first_ns = FIRST_TICK * STEP_NS
    for drive_ns in range(first_ns, first_ns + TICKS * STEP_NS, 1_000_000_000 // ODOMETRY_HZ):
        place, speed = drive.path.pose(drive_ns), drive.path.state(drive_ns).speed
        curvature = float(drive.path.controls[drive_ns // STEP_NS, 1])
        orientation = quaternion(*Rotation.from_matrix(place.rotation).as_quat())
        pose = types["geometry_msgs/msg/Pose"](position=point(*place.position), orientation=orientation)
        velocity = twist(linear=vector(speed, 0.0, 0.0), angular=vector(0.0, 0.0, speed * curvature))
        stamp_ns = _recorded(drive_ns)
        message = types["nav_msgs/msg/Odometry"](
            header=_header(stamp_ns, "odom"),
            child_frame_id="base_link",
            pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=np.zeros(36)),
            twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=velocity, covariance=np.zeros(36)),
        )
        recorded_ns = stamp_ns + ODOMETRY_DELAY_NS
        yield recorded_ns, ODOMETRY_TOPIC, bytes(_types.serialize_cdr(message, message.__msgtype__))


def _header(stamp_ns: int, frame_id: str) -> object:
    time_type, header_type = _types.types["builtin_interfaces/msg/Time"], _types.types["std_msgs/msg/Header"]
    return header_type(stamp=time_type(*divmod(stamp_ns, 1_000_000_000)), frame_id=frame_id)


def _main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-") or Path(sys.argv[1]).exists():
        sys.exit("usage: python -m rsd_planner.demo.make_bag OUT    (a directory that does not exist yet)")
    try:
        make_bag(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"error: cannot write {sys.argv[1]}: {error.strerror}")


if __name__ == "__main__":
    _main()
