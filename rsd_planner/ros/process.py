"""What the package's ROS processes have in common: they stop on SIGINT and SIGTERM, quietly and with exit code 0."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set. Call it first in `main()`, before anything slow is imported."""
    stop = threading.Event()

    def on_signal(_: int, __: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    return stop
