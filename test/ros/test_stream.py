"""Drops and order of one input, from the stamps of what came."""

import numpy as np
import pytest

from rsd_planner.ros.stream import Stream

PERIOD = 33_333_333


@pytest.fixture
def stream():
    return Stream("/camera", "sensor_msgs/msg/Image")


def send(stream, stamps):
    for stamp in stamps:
        stream.arrived(int(stamp))


def test_a_steady_stream_has_no_drops(stream):
    jitter = np.random.default_rng(0).integers(-PERIOD // 6, PERIOD // 6, 1000)
    send(stream, np.arange(1000) * PERIOD + jitter)
    assert (stream.received, stream.dropped, stream.out_of_order) == (1000, 0, 0)


def test_what_is_missing_is_counted_message_by_message(stream):
    numbers = np.delete(np.arange(1000), [100, 200, 201, 202, 500, 998])
    send(stream, numbers * PERIOD)
    assert stream.dropped == 6


def test_half_of_all_messages_missing_at_random_is_seen(stream):
    kept = np.random.default_rng(1).random(2000) < 0.75
    send(stream, np.flatnonzero(kept) * PERIOD)
    assert stream.dropped == pytest.approx(np.count_nonzero(~kept), rel=0.1)


def test_duplicates_and_reversed_stamps_are_no_drops(stream):
    send(stream, [k * PERIOD for k in (0, 1, 2, 3, 4, 5, 6, 6, 5, 7, 8)])
    assert (stream.dropped, stream.out_of_order) == (0, 2)
    assert stream.newest_ns == 8 * PERIOD


def test_a_bag_that_loops_begins_anew(stream):
    stamps = np.arange(100) * PERIOD
    send(stream, stamps)
    send(stream, stamps)
    assert (stream.dropped, stream.out_of_order) == (0, 0)
    assert stream.newest_ns == stamps[-1]


def test_a_stop_and_a_jump_ahead_are_no_drops(stream):
    send(stream, np.arange(100) * PERIOD)
    send(stream, 3600 * 10**9 + np.arange(100) * PERIOD)
    assert (stream.received, stream.dropped, stream.out_of_order) == (200, 0, 0)


def test_a_change_of_rate_is_no_endless_drop(stream):
    send(stream, np.arange(100) * PERIOD)
    send(stream, 100 * PERIOD + np.arange(100) * 3 * PERIOD)
    assert stream.dropped <= 2 * 11  # until half of the intervals looked at are new ones
