"""ROS stamps as integer nanoseconds and back."""

from __future__ import annotations

from typing import Any

from rsd_planner.errors import ObservationError

NS_PER_S = 1_000_000_000


def stamp_ns(stamp: Any) -> int:
    """Nanoseconds of a builtin_interfaces/Time."""
    return int(stamp.sec) * NS_PER_S + int(stamp.nanosec)


def split_ns(ns: int) -> tuple[int, int]:
    """Seconds and nanoseconds, the fields `sec` and `nanosec` of a stamp or duration.

    Raises:
        ObservationError: The seconds do not fit their 32 bits.
    """
    seconds, nanoseconds = divmod(int(ns), NS_PER_S)
    if not -(2**31) <= seconds < 2**31:
        raise ObservationError(f"time is {ns} ns, expected what the 32-bit seconds of a ROS stamp can hold")
    return seconds, nanoseconds
