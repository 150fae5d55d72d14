"""Entry point of the node's process."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from rsd_planner.ros.process import spin_once, start_rclpy, stop_on_signals

if TYPE_CHECKING:
    from rclpy.executors import Executor

    from rsd_planner.ros.node import PlannerNode

FINISH_TIMEOUT_S = 5.0


def main() -> None:
    """Run the node until SIGINT or SIGTERM; exit code 0 then, in whatever state it is."""
    stop = stop_on_signals()
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from rsd_planner.ros.node import PlannerNode

    start_rclpy(sys.argv)
    node = PlannerNode()
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    finished = threading.Event()
    spinning = threading.Thread(target=spin, args=(executor, node, finished), name="executor")
    spinning.start()
    stop.wait()
    node.leave()
    executor.create_task(finish, node, finished)
    spinning.join(FINISH_TIMEOUT_S)
    if spinning.is_alive() or node.abandoned:
        # A thread is deep inside the model: it cannot be interrupted, and must not hold up the exit.
        sys.stderr.flush()
        os._exit(0)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()


def spin(executor: Executor, node: PlannerNode, finished: threading.Event) -> None:
    while not finished.is_set():
        spin_once(executor, node)


def finish(node: PlannerNode, finished: threading.Event) -> None:
    try:
        node.finish()
    finally:
        finished.set()


if __name__ == "__main__":
    main()
