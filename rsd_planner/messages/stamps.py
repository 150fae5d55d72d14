"""ROS stamps as integer nanoseconds and back."""

from __future__ import annotations

from typing import Any

NS_PER_S = 1_000_000_000


def stamp_ns(stamp: Any) -> int:
    """Nanoseconds of a builtin_interfaces/Time."""
    return int(stamp.sec) * NS_PER_S + int(stamp.nanosec)


def split_ns(ns: int) -> tuple[int, int]:
    """Seconds and nanoseconds, the fields `sec` and `nanosec` of a stamp or duration."""
    return divmod(int(ns), NS_PER_S)
