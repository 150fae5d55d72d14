"""A bag player that needs no rosbag2: publishes the recorded bytes of a rosbag2 at the pace they were recorded.

Topics are renamed as for any ROS process: `play_bag BAG --ros-args -r /recorded:=/played`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rsd_planner.errors import BagError
from rsd_planner.ros.process import fail, start_rclpy, stop_on_signals

if TYPE_CHECKING:
    from threading import Event

    from rclpy.node import Node
    from rosbags.interfaces import Connection
    from rosbags.rosbag2 import Reader

CLOCK_PERIOD_S = 0.01
SETTLE_S = 1.0
DEPTH = 100


def main() -> None:
    """Play one bag; exit code 0 at its end and on SIGINT or SIGTERM, 2 if it cannot be played."""
    stop = stop_on_signals()
    import rclpy

    options = _parser().parse_args(start_rclpy(sys.argv))
    node = rclpy.create_node("play_bag")
    try:
        with closing(_opened(options.bag)) as reader:
            _play(node, reader, options, stop)
    except BagError as error:
        fail(error)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="play_bag", description=__doc__.splitlines()[0])
    parser.add_argument("bag", type=Path, help="rosbag2 directory (sqlite3 or MCAP)")
    parser.add_argument("--rate", type=_positive, default=1.0, help="how many times faster than recorded")
    parser.add_argument("--clock", action="store_true", help="publish /clock, for nodes with use_sim_time")
    parser.add_argument("--wait", type=float, default=60.0, metavar="SECONDS", help="longest wait for a subscriber")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"found {text}, expected a number above 0")
    return value


def _opened(bag: Path) -> Reader:
    from rosbags.rosbag2 import Reader

    try:
        reader = Reader(bag)
        reader.open()
    except Exception as error:  # what parsing a damaged file trips over can be nearly anything
        raise BagError(f"{bag}: {error}; expected a rosbag2 directory (sqlite3 or MCAP)") from error
    return reader


def _recorded(reader: Reader, connections: list[Connection]) -> Iterator[tuple[Connection, int, bytes]]:
    try:
        yield from reader.messages(connections=connections)
    except Exception as error:
        raise BagError(f"{reader.path}: cannot be read any further: {error}") from error


def _play(node: Node, reader: Reader, options: argparse.Namespace, stop: Event) -> None:
    publishers = _publishers(node, reader)
    clock = _create(node, "rosgraph_msgs/msg/Clock", "/clock") if options.clock else None
    _wait_for_subscribers(publishers, options.wait, stop)
    count, begun = 0, time.monotonic()
    played = [connection for connection in reader.connections if connection.id in publishers]
    for connection, stamp_ns, data in _recorded(reader, played):
        due = begun + (stamp_ns - reader.start_time) / 1e9 / options.rate
        _pass_time(due, begun, reader.start_time, options.rate, clock, stop)
        if stop.is_set():
            break
        publishers[connection.id].publish(data)
        count += 1
    for publisher in publishers.values():
        _wait_until_received(publisher)
    print(f"play_bag: {count} messages in {time.monotonic() - begun:.1f} s", flush=True)


def _publishers(node: Node, reader: Reader) -> dict[int, Any]:
    """A publisher per connection of the bag, by its id."""
    publishers = {}
    for connection in reader.connections:
        try:
            publisher = publishers[connection.id] = _create(node, connection.msgtype, connection.topic)
        except LookupError as error:
            print(f"play_bag: {connection.topic} is left out: {error}", file=sys.stderr)
            continue
        print(f"play_bag: {connection.msgtype} on {publisher.topic_name}", flush=True)
    if not publishers:
        raise BagError(f"{reader.path}: found no topic of an installed message type, expected at least one")
    return publishers


def _create(node: Node, message_type: str, topic: str) -> Any:
    from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

    from rsd_planner.ros.message_types import MessageTypes

    # Reliable serves every subscription, best-effort ones too.
    profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=DEPTH, reliability=ReliabilityPolicy.RELIABLE)
    return node.create_publisher(MessageTypes()[message_type], topic, profile)


def _wait_for_subscribers(publishers: dict[int, Any], longest_s: float, stop: Event) -> None:
    """Until somebody listens and, for a moment, nobody new has come."""
    deadline = time.monotonic() + longest_s
    listened_to: list[int] = []
    since = time.monotonic()
    while not stop.wait(0.05) and time.monotonic() < deadline:
        counts = [publisher.get_subscription_count() for publisher in publishers.values()]
        if counts != listened_to:
            listened_to, since = counts, time.monotonic()
        elif any(counts) and time.monotonic() - since > SETTLE_S:
            return
    if not stop.is_set():
        print(f"play_bag: nobody listens after {longest_s:g} s: playing all the same", file=sys.stderr)


def _pass_time(due: float, begun: float, start_ns: int, rate: float, clock: Any, stop: Event) -> None:
    """Sleep until `due` (monotonic, s), with /clock ticking; if that has passed, it ticks once."""
    if clock is not None and due <= time.monotonic():
        clock.publish(_clock_message(start_ns + int((due - begun) * rate * 1e9)))
    while (left := due - time.monotonic()) > 0 and not stop.is_set():
        if clock is None:
            stop.wait(left)
        else:
            clock.publish(_clock_message(start_ns + int((due - left - begun) * rate * 1e9)))
            stop.wait(min(left, CLOCK_PERIOD_S))


def _clock_message(now_ns: int) -> Any:
    from builtin_interfaces.msg import Time
    from rosgraph_msgs.msg import Clock

    sec, nanosec = divmod(now_ns, 10**9)
    return Clock(clock=Time(sec=sec, nanosec=nanosec))


def _wait_until_received(publisher: Any) -> None:
    from rclpy.duration import Duration

    publisher.wait_for_all_acked(Duration(seconds=2))


if __name__ == "__main__":
    main()
