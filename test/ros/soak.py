"""The node for as long as you like, on a recording that loops, with cameras that drop frames, and with resets.

    python test/ros/soak.py [--seconds 1200] [--bag BAG] [--seed 0]

Ends with exit code 1 and says why if the node raised anything, published a stamp that is no input's or not newer than
the one before within a loop, stopped planning, or grew.
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import rclpy
from nav_msgs.msg import Path as PathMessage
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from ros_process import children
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from rosgraph_msgs.msg import Clock
from std_srvs.srv import Trigger

from rsd_planner.ros.message_types import MessageTypes

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "test" / "golden" / "alpamayo_r1"
BAG = ROOT / "rsd_planner" / "demo" / "bag"
CAMERAS = {"front": "/camera/front/image/compressed"}
REFERENCE, ODOMETRY = CAMERAS["front"], "/odom"
PLANNER = "/rsd_planner"
DROPPED = 0.03  # of all frames, singly
OUTAGE, OUTAGE_S = 0.005, 1.0  # probability that a frame begins its camera's outage, and how long that is
RESET = 0.01  # probability of a reset, per frame
BARREN_LOOPS = 5  # without a plan: that much may be lost to resets and outages on a slow machine, and not more
MAX_GROWTH_MB = 30.0  # of node and worker, from the second quarter to the last
START_TIMEOUT_S = 120.0


class Recording:
    """Messages as recorded, with the stamps of images."""

    def __init__(self, bag: Path) -> None:
        store = get_typestore(Stores.ROS2_HUMBLE)
        self.messages: list[tuple[int, str, bytes, int]] = []  # time, topic, CDR, header stamp: ns
        self.types: dict[str, str] = {}
        with Reader(bag) as reader:
            for connection, time_ns, data in reader.messages():
                if connection.topic in (*CAMERAS.values(), ODOMETRY):
                    self.types[connection.topic] = connection.msgtype
                    stamp = store.deserialize_cdr(data, connection.msgtype).header.stamp
                    self.messages.append((time_ns, connection.topic, data, stamp.sec * 10**9 + stamp.nanosec))
        self.image_stamps = {stamp for _, topic, _, stamp in self.messages if topic == REFERENCE}


class Soak:
    """Plays, disturbs, listens."""

    def __init__(self, recording: Recording, seed: int) -> None:
        self.node = Node("soak")
        self._recording = recording
        self._random = random.Random(seed)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        qos = QoSProfile(depth=100)
        types = MessageTypes()
        self._publishers = {
            topic: self.node.create_publisher(types[kind], topic, qos) for topic, kind in recording.types.items()
        }
        self._clock = self.node.create_publisher(Clock, "/clock", 10)
        self._reset = self.node.create_client(Trigger, f"{PLANNER}/reset")
        self.node.create_subscription(PathMessage, f"{PLANNER}/output/path", self._on_path, qos)
        self.loops = self.resets = self.dropped = self.plans = 0
        self.stamps: list[int] = []  # of plans, since the loop before the last one began
        self.steps_back = 0
        self.wrong: list[str] = []

    def ready(self) -> bool:
        self._executor.spin_once(timeout_sec=0.05)
        return all(publisher.get_subscription_count() for publisher in self._publishers.values())

    def play(self, until: float, watch: Callable[[], None]) -> None:
        """One loop of the recording in real time, or less when the time is up; `watch` is called ten times a second."""
        self.loops += 1
        start_ns, began, dark_until = (
            self._recording.messages[0][0],
            time.monotonic(),
            dict.fromkeys(CAMERAS.values(), 0),
        )
        for time_ns, topic, data, _ in self._recording.messages:
            self._pass_time(began + (time_ns - start_ns) / 1e9, began, start_ns)
            if time.monotonic() > until:
                return
            if topic == REFERENCE:
                watch()
                self._maybe_reset()
            if topic == ODOMETRY or not self._drops(topic, time_ns, dark_until):
                self._publishers[topic].publish(data)

    def _maybe_reset(self) -> None:
        if self._random.random() < RESET:
            self.resets += 1
            self._reset.call_async(Trigger.Request())

    def _drops(self, topic: str, time_ns: int, dark_until: dict[str, int]) -> bool:
        if self._random.random() < OUTAGE:
            dark_until[topic] = time_ns + int(OUTAGE_S * 1e9)
        dropped = time_ns < dark_until[topic] or self._random.random() < DROPPED
        self.dropped += dropped
        return dropped

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()

    def _pass_time(self, due: float, began: float, start_ns: int) -> None:
        while (left := due - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=min(left, 0.01))
            now_ns = start_ns + int((time.monotonic() - began) * 1e9)
            clock = Clock()
            clock.clock.sec, clock.clock.nanosec = divmod(now_ns, 10**9)
            self._clock.publish(clock)

    def _on_path(self, message: PathMessage) -> None:
        stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        self.plans += 1
        if stamp not in self._recording.image_stamps:
            self.wrong.append(f"t0 {stamp} is the stamp of no image")
        if self.stamps and stamp == self.stamps[-1]:
            self.wrong.append(f"t0 {stamp} was published twice")
        if self.stamps and stamp < self.stamps[-1]:
            self.steps_back += 1
            if self.steps_back >= self.loops:  # time has gone back at the beginning of every loop but the first
                self.wrong.append(f"t0 {stamp} came after {self.stamps[-1]} within a loop")
        self.stamps = [*self.stamps[-1:], stamp]


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def growth_mb(memory_mb: list[float]) -> float:
    """From the second quarter, when everything has been used once, to the last."""
    quarter = len(memory_mb) // 4
    return statistics.median(memory_mb[-quarter:]) - statistics.median(memory_mb[quarter : 2 * quarter])


def start_node(log: Path) -> subprocess.Popen[bytes]:
    given = (f"model:={MODEL}", "autostart:=true", "max_reasoning_tokens:=32")
    arguments = [argument for parameter in given for argument in ("-p", parameter)]
    topics = {"odometry": ODOMETRY, **{f"image_{name}": topic for name, topic in CAMERAS.items()}}
    remapped = [argument for name, topic in topics.items() for argument in ("-r", f"~/input/{name}:={topic}")]
    parameters = ["--params-file", str(ROOT / "config" / "replay.yaml")]
    command = [sys.executable, "-m", "rsd_planner.ros.main", "--ros-args", *parameters, *arguments, *remapped]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)


def run(seconds: float, bag: Path, seed: int, log: Path) -> list[str]:
    """Everything that went wrong."""
    recording = Recording(bag)
    rclpy.init()
    soak, process = Soak(recording, seed), start_node(log)
    memory: dict[str, list[float]] = {"node": [], "worker": []}

    def watch() -> None:
        for name, pid in pids.items():
            memory[name].append(resident_mb(pid))

    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not soak.ready():
            if time.monotonic() > deadline or process.poll() is not None:
                return [f"the node did not start:\n{log.read_text()}"]
        (worker,) = children(process.pid)
        pids = {"node": process.pid, "worker": worker}
        until, barren = time.monotonic() + seconds, 0
        while time.monotonic() < until and process.poll() is None:
            plans = soak.plans
            soak.play(until, watch)
            barren = barren + 1 if soak.plans == plans else 0
            if barren == BARREN_LOOPS:
                soak.wrong.append(f"no plan from loop {soak.loops - barren + 1} to loop {soak.loops}")
            print(
                f"loop {soak.loops}: {soak.plans} plans, {soak.dropped} frames dropped, {soak.resets} resets, "
                f"node {memory['node'][-1]:.0f} MB, worker {memory['worker'][-1]:.0f} MB",
                flush=True,
            )
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
        soak.close()
        rclpy.try_shutdown()
    return soak.wrong + complaints(log.read_text(), code) + grown(memory)


def complaints(said: str, code: int) -> list[str]:
    found = [line for line in said.splitlines() if re.search(r"Traceback|unhandled|\[ERROR\]|\[FATAL\]", line)]
    return found + ([f"the node ended with exit code {code}"] if code else [])


def grown(memory: dict[str, list[float]]) -> list[str]:
    growth = {name: growth_mb(samples) for name, samples in memory.items() if len(samples) >= 8}
    print(", ".join(f"{name} grew by {mb:.1f} MB" for name, mb in growth.items()) or "too short to see growth")
    return [f"the {name} grew by {mb:.1f} MB" for name, mb in growth.items() if mb > MAX_GROWTH_MB]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--bag", type=Path, default=BAG)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        wrong = run(arguments.seconds, arguments.bag, arguments.seed, Path(directory) / "node.log")
    for sentence in wrong:
        print(f"wrong: {sentence}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
