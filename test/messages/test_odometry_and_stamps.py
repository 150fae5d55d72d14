"""Odometry and stamps, read from messages of either kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from message_kinds import KINDS, message_kind

from rsd_planner.errors import ObservationError
from rsd_planner.messages.odometry import OdometrySample, read_odometry
from rsd_planner.messages.stamps import split_ns, stamp_ns


def an_odometry(types: Any) -> Any:
    def vector(x: float, y: float, z: float) -> Any:
        return types["geometry_msgs/msg/Vector3"](x=x, y=y, z=z)

    time = types["builtin_interfaces/msg/Time"](sec=1_722_000_000, nanosec=123_456_789)
    position = types["geometry_msgs/msg/Point"](x=623_426.155, y=-2.0, z=3.0)
    orientation = types["geometry_msgs/msg/Quaternion"](x=0.1, y=0.2, z=0.3, w=0.9)
    twist = types["geometry_msgs/msg/Twist"](linear=vector(-1.5, 0.25, 0.0), angular=vector(0.0, 0.0, 0.1))
    pose = types["geometry_msgs/msg/Pose"](position=position, orientation=orientation)
    covariance = np.zeros(36)
    return types["nav_msgs/msg/Odometry"](
        header=types["std_msgs/msg/Header"](stamp=time, frame_id="map"),
        child_frame_id="base_link",
        pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=covariance),
        twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=covariance),
    )


@pytest.mark.parametrize("name", KINDS)
def test_odometry(name: str) -> None:
    types, received = message_kind(name)
    sample = read_odometry(received(an_odometry(types)))
    assert sample == OdometrySample(
        stamp_ns=1_722_000_000_123_456_789,
        frame_id="map",
        position=(623_426.155, -2.0, 3.0),
        quaternion_xyzw=(0.1, 0.2, 0.3, 0.9),
        speed_mps=-1.5,
    )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ns", [0, 1, 999_999_999, 1_000_000_000, 1_722_000_000_123_456_789])
def test_stamps_are_exact_there_and_back(name: str, ns: int) -> None:
    types, received = message_kind(name)
    sec, nanosec = split_ns(ns)
    assert 0 <= nanosec < 1_000_000_000
    assert stamp_ns(received(types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec))) == ns


@pytest.mark.parametrize("ns", [2**31 * 10**9, -(2**31) * 10**9 - 1])
def test_a_time_that_no_stamp_can_hold(ns: int) -> None:
    with pytest.raises(ObservationError, match=f"time is {ns} ns, expected what the 32-bit seconds"):
        split_ns(ns)


def test_numpy_stamps_become_plain_integers() -> None:
    assert split_ns(np.int64(1_500_000_001)) == (1, 500_000_001)
    assert all(type(part) is int for part in split_ns(np.int64(1_500_000_001)))
