"""The bag player: recorded bytes, in order, at the recorded pace; errors in one line."""

import signal
from pathlib import Path

import pytest
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_peer import nanoseconds
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosgraph_msgs.msg import Clock
from std_msgs.msg import String

STORE = get_typestore(Stores.ROS2_HUMBLE)
START_NS = 5_000_000_000


@pytest.fixture(params=[StoragePlugin.MCAP, StoragePlugin.SQLITE3], ids=["mcap", "sqlite3"])
def bag(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """20 words, 50 ms apart, beside a topic of a type that is installed nowhere."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    store.register(get_types_from_msg("int32 value", "nowhere_msgs/msg/Strange"))
    text, strange = store.types["std_msgs/msg/String"], store.types["nowhere_msgs/msg/Strange"]
    with Writer(tmp_path / "bag", version=9, storage_plugin=request.param) as writer:
        words = writer.add_connection("/words", text.__msgtype__, typestore=store)
        strangers = writer.add_connection("/strange", strange.__msgtype__, typestore=store)
        writer.write(strangers, START_NS, store.serialize_cdr(strange(value=1), strange.__msgtype__))
        for k in range(20):
            message = store.serialize_cdr(text(data=f"word {k}"), text.__msgtype__)
            writer.write(words, START_NS + k * 50_000_000, message)
    return tmp_path / "bag"


@pytest.fixture
def listener(peer):
    """Listens to the renamed topic and to /clock: what came, in order, with the clock at that moment."""
    heard: list[tuple[str, int]] = []
    clock: list[int] = []
    reliable = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
    node: Node = peer.node
    node.create_subscription(Clock, "/clock", lambda message: clock.append(nanoseconds(message.clock)), reliable)
    node.create_subscription(
        String, "/said", lambda message: heard.append((message.data, clock[-1] if clock else 0)), reliable
    )
    return heard, clock


def test_every_message_comes_once_in_order_with_the_clock_of_the_recording(run, peer, listener, bag):
    heard, clock = listener
    player = run("play_bag", str(bag), "--clock", "--ros-args", "-r", "/words:=/said")
    peer.until(lambda: not player.running)
    peer.until(lambda: len(heard) >= 20)
    assert player.wait() == 0, player.output
    assert [word for word, _ in heard] == [f"word {k}" for k in range(20)]
    assert clock == sorted(clock)
    assert clock[0] >= START_NS
    assert clock[-1] <= START_NS + 19 * 50_000_000
    assert "/strange is left out: message type nowhere_msgs/msg/Strange is not installed" in player.output


def test_a_signal_ends_it_early_and_quietly(run, peer, listener, bag):
    heard, _ = listener
    player = run("play_bag", str(bag), "--rate", "0.01", "--ros-args", "-r", "/words:=/said")
    peer.until(lambda: heard)
    assert player.stop(signal.SIGINT) == 0
    assert "Traceback" not in player.output


def test_it_waits_for_a_listener_and_then_plays_all_the_same(run, bag):
    player = run("play_bag", str(bag), "--wait", "0.3", "--rate", "100")
    assert player.wait() == 0
    assert "nobody listens after 0.3 s" in player.output
    assert "20 messages" in player.output


def test_a_damaged_bag_is_said_in_one_line(run, bag):
    data = next(path for path in bag.iterdir() if path.suffix != ".yaml")
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    player = run("play_bag", str(bag), "--wait", "0")
    assert player.wait() == 2
    assert f"error: {bag}" in player.output
    assert "Traceback" not in player.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/no/such/bag"], "error: /no/such/bag"),
        ([__file__], f"error: {__file__}"),
        (["bag", "--rate", "0"], "found 0, expected a number above 0"),
        (["bag", "--ros-args", "-p", "nonsense"], "error: "),
    ],
)
def test_what_cannot_be_played_is_said_in_one_line_with_exit_code_2(run, arguments, said):
    player = run("play_bag", *arguments)
    assert player.wait() == 2
    assert said in player.output
    assert "Traceback" not in player.output
