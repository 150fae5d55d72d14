"""The node under the load of a vehicle: how much of it is lost, and how late it is.

    python test/ros/load.py [--seconds 30] [--model DIR]

The node runs here as in its own process, its model in a worker process, the cameras in a third process.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter

from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.ros.main import finish, spin
from rsd_planner.ros.node import PlannerNode

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "golden" / "alpamayo_r1"
PROFILE = HERE.parents[1] / "config" / "fastdds_large_images.xml"
PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")  # since and before Kilted


def measure(seconds: float, model: Path) -> dict[str, object]:
    """Run publisher, node and worker; what was sent, received, planned, and the times of it in ms."""
    rclpy.init()
    given = {"model": str(model), "autostart": True, "max_reasoning_tokens": 32, "max_input_age": 10.0}
    node = PlannerNode(parameter_overrides=[Parameter(name, value=value) for name, value in given.items()])
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    finished = threading.Event()
    spinning = threading.Thread(target=spin, args=(executor, node, finished))
    spinning.start()
    while node._session is None or not node._session.active:
        time.sleep(0.1)
    session = node._session
    late_ms: list[float] = []
    ready = threading.Event()
    executor.create_task(_time_odometry, node, late_ms, ready)
    ready.wait()
    environment = {**os.environ, **dict.fromkeys(PROFILE_VARIABLES, str(PROFILE))}
    command = [sys.executable, str(HERE / "load_publisher.py"), str(seconds)]
    sent = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    streams, statistics = session.inputs.cameras, session.statistics
    found = {
        "sent": sent,
        "odometry received": session.inputs.odometry.received,
        "images received": sum(stream.received for stream in streams.values()),
        "plans": statistics.plans,
        "passed over while busy": statistics.busy,
        "withheld": dict(statistics.withheld),
        "odometry callback": percentiles(np.array(late_ms)),
        "overhead, input to publishing": percentiles(np.array(statistics.overhead_s) * 1e3),
        "model": percentiles(np.array(statistics.inference_s) * 1e3),
    }
    executor.create_task(finish, node, finished)
    spinning.join()
    executor.shutdown()
    node.destroy_node()
    rclpy.shutdown()
    return found


def _time_odometry(node: PlannerNode, late_ms: list[float], ready: threading.Event) -> None:
    """Note how long after its stamp, which is the time of sending, each odometry message reaches its callback."""
    (subscription,) = (each for each in node.subscriptions if each.topic_name.endswith("/input/odometry"))
    callback = subscription.callback

    def timed(message: object) -> None:
        now_ns = time.time_ns()
        late_ms.append((now_ns - stamp_ns(message.header.stamp)) / 1e6)
        callback(message)

    subscription.callback = timed
    ready.set()


def percentiles(values_ms: np.ndarray) -> dict[str, float]:
    """p50, p95, p99 in ms."""
    names = ("p50", "p95", "p99")
    return dict(zip(names, (round(float(p), 2) for p in np.percentile(values_ms, (50, 95, 99))), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--model", type=Path, default=MODEL)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.seconds, arguments.model), indent=2))


if __name__ == "__main__":
    main()
