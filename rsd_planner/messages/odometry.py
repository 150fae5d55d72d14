"""nav_msgs/Odometry, reduced to what the scene wants to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rsd_planner.messages.stamps import stamp_ns


@dataclass(frozen=True)
class OdometrySample:
    """One odometry message. Values are as received: the scene refuses what is no pose."""

    stamp_ns: int
    frame_id: str  # the frame of the pose
    position: tuple[float, float, float]  # m
    quaternion_xyzw: tuple[float, float, float, float]  # vehicle to `frame_id`
    speed_mps: float  # forward, signed: twist.linear.x, which is in the vehicle's frame


def read_odometry(message: Any) -> OdometrySample:
    """Read a nav_msgs/Odometry, of rclpy or of rosbags."""
    position, orientation = message.pose.pose.position, message.pose.pose.orientation
    return OdometrySample(
        stamp_ns=stamp_ns(message.header.stamp),
        frame_id=message.header.frame_id,
        position=(position.x, position.y, position.z),
        quaternion_xyzw=(orientation.x, orientation.y, orientation.z, orientation.w),
        speed_mps=message.twist.twist.linear.x,
    )
