"""Builds ROS messages by name, from the classes of rclpy or of a rosbags type store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from rsd_planner.messages.stamps import split_ns


class MessageBuilder:
    """The messages that others are made of, with every number as the plain Python type that rclpy insists on."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        """Args: types: "nav_msgs/msg/Path" -> its class: rclpy's, or `types` of a rosbags ROS 2 type store."""
        self._types = types

    def new(self, name: str, **fields: Any) -> Any:
        return self._types[name](**fields)

    def constant(self, name: str, constant: str) -> Any:
        return getattr(self._types[name], constant)

    def header(self, stamp_ns: int, frame_id: str) -> Any:
        sec, nanosec = split_ns(stamp_ns)
        stamp = self.new("builtin_interfaces/msg/Time", sec=sec, nanosec=nanosec)
        return self.new("std_msgs/msg/Header", stamp=stamp, frame_id=frame_id)

    def duration(self, ns: int) -> Any:
        sec, nanosec = split_ns(ns)
        return self.new("builtin_interfaces/msg/Duration", sec=sec, nanosec=nanosec)

    def point(self, position: Iterable[float]) -> Any:
        x, y, z = map(float, position)
        return self.new("geometry_msgs/msg/Point", x=x, y=y, z=z)

    def pose(self, position: Iterable[float], quaternion_xyzw: Iterable[float] = (0.0, 0.0, 0.0, 1.0)) -> Any:
        x, y, z, w = map(float, quaternion_xyzw)
        orientation = self.new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)
        return self.new("geometry_msgs/msg/Pose", position=self.point(position), orientation=orientation)

    def marker(self, kind: str, size: tuple[float, float, float], colour: Iterable[float], **fields: Any) -> Any:
        """A visualization_msgs/Marker, to be added unless `action` says otherwise.

        Args:
            kind: Name of the constant: "LINE_STRIP", "TRIANGLE_LIST", "TEXT_VIEW_FACING".
            size: Its `scale`, m.
            colour: Red, green, blue, 0 .. 1.
            fields: header, ns, pose, lifetime, and what the kind shows.
        """
        marker = self._types["visualization_msgs/msg/Marker"]
        x, y, z = size
        given = {
            "id": 0,
            "type": getattr(marker, kind),
            "action": marker.ADD,
            "scale": self.new("geometry_msgs/msg/Vector3", x=x, y=y, z=z),
            "color": self.colour(colour),
            **fields,
        }
        return marker(**(self._unused_marker_fields() | given if is_dataclass(marker) else given))

    def colour(self, rgb: Iterable[float], opacity: float = 1.0) -> Any:
        r, g, b = map(float, rgb)
        return self.new("std_msgs/msg/ColorRGBA", r=r, g=g, b=b, a=opacity)

    def _unused_marker_fields(self) -> dict[str, Any]:
        """What rclpy fills in by itself and rosbags wants to be told."""
        no_bytes = np.empty(0, np.uint8)
        texture = self.new("sensor_msgs/msg/CompressedImage", header=self.header(0, ""), format="", data=no_bytes)
        return {
            "frame_locked": False,
            "points": [],
            "colors": [],
            "text": "",
            "texture_resource": "",
            "texture": texture,
            "uv_coordinates": [],
            "mesh_resource": "",
            "mesh_file": self.new("visualization_msgs/msg/MeshFile", filename="", data=no_bytes),
            "mesh_use_embedded_materials": False,
        }
