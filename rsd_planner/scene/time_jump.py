"""When a stamp means that time itself went back (a bag that loops, a simulator that restarts)."""

from __future__ import annotations

MAX_LATENESS_NS = 1_000_000_000  # a message up to this much older than the newest one is merely late


def jumps_back(stamp_ns: int, newest_ns: int | None) -> bool:
    """Whether a stamp is too old to be a late message, given the newest stamp seen on the same stream."""
    return newest_ns is not None and newest_ns - stamp_ns > MAX_LATENESS_NS
