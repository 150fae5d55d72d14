"""What is known about one input topic: how messages come, and why they do not."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

RATE_WINDOW_S = 2.0
INTERVALS = 21  # between stamps, that the period is the median of
MIN_INTERVALS = 5
GAP_PERIODS = 1.5  # an interval longer than this many periods is a gap
RESTART_NS = 1_000_000_000  # stamps that go back further begin anew
STOP_NS = 10_000_000_000  # a longer interval is no gap: the stream had stopped


class Trouble(NamedTuple):
    """Why an input does not arrive."""

    kind: str  # no publisher | wrong type | incompatible QoS | no data
    sentence: str  # what was found, and what to do


class Stream:
    """One input topic: messages noted as they come.

    Attributes:
        topic: Its name as resolved, after remapping.
        message_type: What is subscribed to, "sensor_msgs/msg/Image".
        received: All messages.
        rejected: Those of them that cannot be used.
        dropped: Messages that are missing by the stamps of those that came, see `arrived`.
        out_of_order: Messages with the stamp of the one before or an earlier one.
        newest_ns: Header stamp of the newest message, None before the first.
        last_error: Why the last rejected one was rejected.
    """

    def __init__(self, topic: str, message_type: str) -> None:
        self.topic = topic
        self.message_type = message_type
        self.received = 0
        self.rejected = 0
        self.dropped = 0
        self.out_of_order = 0
        self.newest_ns: int | None = None
        self.last_error = ""
        self._arrivals: deque[float] = deque(maxlen=1000)  # monotonic, s
        self._intervals: deque[int] = deque(maxlen=INTERVALS)  # ns

    def arrived(self, message_stamp_ns: int) -> None:
        """Note a message.

        Drops are counted from stamps: the period is the median of the last 21 intervals (known from the fifth on), and
        an interval of n periods, rounded, has n - 1 messages missing. Intervals of more than 10 s count as a stop.
        """
        self.received += 1
        self._arrivals.append(time.monotonic())
        interval_ns = 0 if self.newest_ns is None else message_stamp_ns - self.newest_ns
        if self.newest_ns is None or not -RESTART_NS <= interval_ns <= STOP_NS:
            self._intervals.clear()
        elif interval_ns <= 0:
            self.out_of_order += 1
            return
        else:
            self._count_missing(interval_ns)
            self._intervals.append(interval_ns)
        self.newest_ns = message_stamp_ns

    def _count_missing(self, interval_ns: int) -> None:
        if len(self._intervals) >= MIN_INTERVALS:
            periods = interval_ns / median(self._intervals)
            if periods > GAP_PERIODS:
                self.dropped += round(periods) - 1

    def refused(self, error: Exception) -> None:
        """Note that the message just noted cannot be used."""
        self.rejected += 1
        self.last_error = str(error)

    @property
    def silent_s(self) -> float | None:
        """Time since the last message, s; None before the first."""
        return time.monotonic() - self._arrivals[-1] if self._arrivals else None

    @property
    def rate_hz(self) -> float:
        """Messages per second over the last 2 s."""
        since = time.monotonic() - RATE_WINDOW_S
        return sum(arrival >= since for arrival in self._arrivals) / RATE_WINDOW_S


def find_trouble(node: Node, stream: Stream, private_name: str, requested: QoSProfile) -> Trouble:
    """Why nothing arrives on a topic, as far as the ROS graph tells.

    Args:
        node: The node that subscribes.
        stream: What it subscribes to and has received.
        private_name: The topic's name before remapping, "~/input/odometry".
        requested: The subscription's QoS, overrides included.
    """
    offers = node.get_publishers_info_by_topic(stream.topic)
    if not offers:
        return Trouble(
            "no publisher",
            f"nobody publishes {stream.topic}: start the driver or remap {private_name} to the topic it publishes",
        )
    fitting = [offer for offer in offers if offer.topic_type == stream.message_type]
    if not fitting:
        return _wrong_type(stream, private_name, offers[0])
    refused = [(offer, qos_check_compatible(offer.qos_profile, requested)) for offer in fitting]
    if all(compatibility == QoSCompatibility.ERROR for _, (compatibility, _) in refused):
        offer, (_, reason) = refused[0]
        return Trouble(
            "incompatible QoS",
            f"{_name(offer)} publishes {stream.topic} with a QoS that the subscription does not accept "
            f"({reason.strip('; ')}): set qos_overrides.{stream.topic}.subscription.reliability to best_effort",
        )
    last = "never sent" if stream.silent_s is None else f"for {stream.silent_s:.1f} s has not sent"
    return Trouble("no data", f"{_name(fitting[0])} {last} a message on {stream.topic}: look after that node")


def describe_troubles(troubles: Mapping[str, Trouble]) -> str:
    """All of them as one text for people."""
    return "; ".join(f"{name}: {trouble.kind}: {trouble.sentence}" for name, trouble in troubles.items())


def _wrong_type(stream: Stream, private_name: str, offer: Any) -> Trouble:
    transports = {"sensor_msgs/msg/Image": "raw", "sensor_msgs/msg/CompressedImage": "compressed"}
    advice = f"remap {private_name} to a topic of that type"
    if offer.topic_type in transports and stream.message_type in transports:
        advice = f"set image_transport to {transports[offer.topic_type]} or {advice}"
    return Trouble(
        "wrong type",
        f"{_name(offer)} publishes {offer.topic_type} on {stream.topic}, expected {stream.message_type}: {advice}",
    )


def _name(offer: Any) -> str:
    return f"{offer.node_namespace.rstrip('/')}/{offer.node_name}"
