"""What the package's ROS programs have in common: how they start, and that they stop quietly with exit code 0."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rclpy.executors import Executor
    from rclpy.node import Node


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set. Call it first in `main()`, before anything slow is imported."""
    stop = threading.Event()

    def on_signal(_: int, __: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    return stop


def start_rclpy(arguments: list[str]) -> list[str]:
    """Initialise rclpy without its signal handlers: they invalidate the context before anything can be shut down.

    Ends the program if the ROS arguments or a parameter file cannot be read. Returns the other arguments.
    """
    import rclpy
    from rclpy.signals import SignalHandlerOptions
    from rclpy.utilities import remove_ros_args

    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # rcl raises several kinds, all of which explain themselves
        fail(error)
    others: list[str] = remove_ros_args(arguments)[1:]
    return others


def spin_once(executor: Executor, node: Node, timeout_s: float | None = None) -> None:
    """Run one callback; what it raises is logged, and the node lives on."""
    try:
        executor.spin_once(timeout_s)
    except Exception:
        node.get_logger().error(f"unhandled exception in a callback:\n{traceback.format_exc()}")


def fail(error: object) -> NoReturn:
    """Say in one line what is wrong, and end with exit code 2."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)
