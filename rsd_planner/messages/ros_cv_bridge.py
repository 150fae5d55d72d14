"""ROS 2's cv_bridge, where a ROS installation brings it. Not the package of that name on PyPI, which is ROS 1's."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rsd_planner.errors import ImageError
from rsd_planner.scene.observation import RgbImage

MARKER = Path("share", "ament_index", "resource_index", "packages", "cv_bridge")  # every ROS 2 package has one


@cache
def ros_cv_bridge() -> Callable[[Any], RgbImage] | None:
    """Turns a sensor_msgs/Image into RGB, or raises ImageError. None where no ROS installation has a working one."""
    prefixes = [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]
    prefix = next((prefix for prefix in prefixes if (prefix / MARKER).is_file()), None)
    if prefix is None:
        return None
    try:
        module = import_module("cv_bridge")
        if not Path(str(module.__file__)).resolve().is_relative_to(prefix.resolve()):
            return None
        bridge = module.CvBridge()
    except Exception:  # built for another Python or NumPy: it says so in many ways
        return None

    def convert(message: Any) -> RgbImage:
        try:
            image: RgbImage = bridge.imgmsg_to_cv2(message, desired_encoding="rgb8")
        except Exception as error:
            raise ImageError(f"cv_bridge cannot turn encoding {message.encoding!r} into rgb8: {error}") from error
        return image.copy()  # it may be a view of the message

    return convert
