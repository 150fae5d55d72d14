"""Messages over a socket pair, and bytes in shared memory."""

import socket
import threading

import numpy as np
import pytest

from rsd_planner.worker.channel import Channel, Message
from rsd_planner.worker.shared_memory import SharedMemory


@pytest.fixture
def ends():
    here, there = (Channel(end) for end in socket.socketpair())
    yield here, there
    here.close()
    there.close()


def test_values_and_arrays_arrive_as_they_were_sent(ends):
    here, there = ends
    arrays = {
        "poses": np.arange(12.0).reshape(4, 3),
        "turned": np.arange(6.0).reshape(2, 3).T,  # not contiguous
        "big_endian": np.array([1, 2**40], ">i8"),
        "none": np.zeros((0, 3)),
        "nan": np.array([np.nan, -np.inf]),
    }
    here.send(Message("plan", {"text": "größer ≠", "stamp_ns": 1_700_000_000_123_456_789, "nothing": None}, arrays))
    here.send(Message("next"))
    received = there.receive()
    assert received.kind == "plan"
    assert received.content == {"text": "größer ≠", "stamp_ns": 1_700_000_000_123_456_789, "nothing": None}
    assert received.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(received.arrays[name], array)
    assert there.receive() == Message("next")


def test_a_message_larger_than_any_socket_buffer_arrives_whole(ends):
    here, there = ends
    large = np.random.default_rng(0).integers(0, 255, 5_000_000, np.uint8)
    sending = threading.Thread(target=here.send, args=(Message("large", {}, {"data": large}),))
    sending.start()
    np.testing.assert_array_equal(there.receive().arrays["data"], large)
    sending.join()


def test_the_end_of_the_other_end_is_none_also_in_the_middle_of_a_message():
    here, there = socket.socketpair()
    here.sendall(b"\x10\x00\x00\x00\x00\x00\x00\x00half")
    here.close()
    channel = Channel(there)
    assert channel.receive() is None
    channel.close()


def test_hanging_up_wakes_a_thread_that_waits(ends):
    here, _ = ends
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(here.receive()))
    waiting.start()
    here.hang_up()
    waiting.join()
    assert answers == [None]


def test_memory_grows_and_both_ends_see_the_same_bytes():
    import os

    node = SharedMemory()
    worker = SharedMemory(os.dup(node.descriptor))
    for size in (0, 10, 3_000_000, 5):
        parts = [os.urandom(size), b"", b"end"]
        offsets = node.write([memoryview(part) for part in parts])
        for part, offset in zip(parts, offsets, strict=True):
            assert worker.read(offset, len(part)) == part
    node.close()
    worker.close()
