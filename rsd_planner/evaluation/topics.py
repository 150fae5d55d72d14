"""Which topics of a recording are the cameras and the odometry: by message type and name, or as told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rsd_planner.errors import BagError, ParameterError

IMAGE_TYPES = ("sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/Image")
ODOMETRY_TYPE = "nav_msgs/msg/Odometry"
LISTED = 20  # topics named in an error message

# Words of a topic name, in order of decision: a pair such as front_left before the single word in it.
CAMERA_NAMES: tuple[tuple[tuple[str, ...], int], ...] = (
    (("front", "left"), 0),
    (("cross", "left"), 0),
    (("front", "right"), 2),
    (("cross", "right"), 2),
    (("rear", "left"), 3),
    (("rear", "right"), 5),
    (("front", "tele"), 6),
    (("front", "wide"), 1),
    (("front",), 1),
    (("rear",), 4),
)


@dataclass(frozen=True)
class Topic:
    """A topic as the recording lists it."""

    name: str
    type: str
    messages: int


@dataclass(frozen=True)
class Inputs:
    """The topics an evaluation reads."""

    cameras: Mapping[int, str]  # camera id -> topic, ascending ids
    odometry: str
    unused_images: tuple[str, ...]  # image topics left aside because their names say no camera

    @property
    def topics(self) -> tuple[str, ...]:
        return (*self.cameras.values(), self.odometry)


def camera_id(topic: str) -> int | None:
    """The standard camera id that a topic name spells out, such as 0 for `/camera/front_left/image_raw`."""
    words = re.split(r"[^a-z0-9]+", topic.lower())
    for name, number in CAMERA_NAMES:
        if any(tuple(words[i : i + len(name)]) == name for i in range(len(words))):
            return number
    return None


def cameras_from(flags: Sequence[str]) -> dict[int, str]:
    """Camera id -> topic, of the `--camera` flags a user gave.

    Raises:
        ParameterError: One is not `ID=TOPIC`, or names a camera or a topic again.
    """
    cameras: dict[int, str] = {}
    for flag in flags:
        number, separator, topic = flag.partition("=")
        if not separator or not (number.isascii() and number.isdecimal()) or not topic:
            raise ParameterError(f"--camera {flag}: expected ID=TOPIC, such as 1=/camera/front/image/compressed")
        if int(number) in cameras:
            raise ParameterError(f"--camera {flag}: camera {number} is given twice")
        if topic in cameras.values():
            raise ParameterError(f"--camera {flag}: {topic} is given twice; each camera has a topic of its own")
        cameras[int(number)] = topic
    return cameras


def resolve(bag: str, topics: Sequence[Topic], cameras: Mapping[int, str] | None, odometry: str | None) -> Inputs:
    """The camera and odometry topics of one recording.

    Args:
        bag: Name of the recording, for messages.
        topics: All its topics.
        cameras: Camera id -> topic as given by the user; None or empty = find them.
        odometry: Odometry topic as given by the user; None = find it.

    Raises:
        BagError: A topic that was asked for is missing or of another type, or none or several fit.
    """
    images, unused = _given_cameras(bag, topics, cameras) if cameras else _found_cameras(bag, topics)
    if odometry is not None:
        _require(bag, topics, odometry, (ODOMETRY_TYPE,), "--odometry")
        return Inputs(images, odometry, unused)
    found = [topic.name for topic in topics if topic.type == ODOMETRY_TYPE and topic.messages]
    if len(found) != 1:
        what = f"{len(found)} odometry topics" if found else f"no odometry ({ODOMETRY_TYPE}, with messages)"
        raise BagError(f"{bag}: {what}; choose with --odometry TOPIC. {listing(topics)}")
    return Inputs(images, found[0], unused)


def _given_cameras(bag: str, topics: Sequence[Topic], cameras: Mapping[int, str]) -> tuple[dict[int, str], tuple[()]]:
    for number, name in cameras.items():
        _require(bag, topics, name, IMAGE_TYPES, f"--camera {number}={name}")
    return dict(sorted(cameras.items())), ()


def _found_cameras(bag: str, topics: Sequence[Topic]) -> tuple[dict[int, str], tuple[str, ...]]:
    images = [topic.name for topic in topics if topic.type in IMAGE_TYPES and topic.messages]
    if not images:
        raise BagError(f"{bag}: no images ({' or '.join(IMAGE_TYPES)}, with messages). {listing(topics)}")
    found: dict[int, str] = {}
    for name in images:
        number = camera_id(name)
        if number is None:
            continue
        if number in found:
            raise BagError(
                f"{bag}: both {found[number]} and {name} look like camera {number}; "
                f"choose with --camera {number}=TOPIC. {listing(topics)}"
            )
        found[number] = name
    if not found:
        raise BagError(
            f"{bag}: no image topic names a camera (front, front_left, cross_right, rear, front_tele, ...); "
            f"say which is which with --camera ID=TOPIC, such as --camera 1={images[0]}. {listing(topics)}"
        )
    return dict(sorted(found.items())), tuple(name for name in images if name not in found.values())


def _require(bag: str, topics: Sequence[Topic], name: str, types: Sequence[str], flag: str) -> None:
    topic = next((topic for topic in topics if topic.name == name), None)
    if topic is None:
        raise BagError(f"{bag}: {flag}: no topic {name}. {listing(topics)}")
    if topic.type not in types:
        raise BagError(f"{bag}: {flag}: {name} is {topic.type}, expected {' or '.join(types)}")


def listing(topics: Sequence[Topic]) -> str:
    """All topics with type and number of messages, as a sentence for an error message."""
    if not topics:
        return "The bag has no topics."
    shown = ", ".join(f"{topic.name} ({topic.type}, {topic.messages})" for topic in topics[:LISTED])
    rest = f", and {len(topics) - LISTED} more" if len(topics) > LISTED else ""
    return f"Topics found: {shown}{rest}."
