"""The reasoning goes out while it is still being decoded, on real DDS."""

import threading
import time

import pytest
from ros_peer import DEACTIVATE, PLANNER, nanoseconds

from rsd_planner.worker.server import PARTIAL_PERIOD_S, load_planner


@pytest.fixture
def slow_model():
    """Loads a planner that says two words, then waits for `go_on`, then makes its real plan."""
    go_on = threading.Event()

    def load(request, progress):
        planner = load_planner(request, progress)
        plan = planner.plan

        def slowly(observation, on_reasoning):
            for text in ("Slow", "Slow down"):
                time.sleep(1.2 * PARTIAL_PERIOD_S)
                on_reasoning(text)
            go_on.wait(60)
            return plan(observation)

        planner.plan = slowly
        return planner

    load.go_on = go_on
    yield load
    go_on.set()


def words(peer):
    return [text.data for text in peer.texts]


def test_words_come_before_the_path_and_the_whole_with_it(make_node, peer, slow_model):
    make_node(slow_model)
    peer.activate()
    peer.drive()
    peer.until(lambda: "Slow down" in words(peer))
    assert words(peer) in (["Slow", "Slow down"], ["Slow down"])  # latest only
    assert not peer.paths
    assert not peer.markers
    slow_model.go_on.set()
    peer.until(lambda: peer.paths and peer.markers)
    reasoning = next(marker for marker in peer.markers[0].markers if marker.ns == "reasoning")
    peer.until(lambda: reasoning.text.split() in [text.split() for text in words(peer)])


def test_nothing_more_is_said_after_deactivate(make_node, peer, slow_model):
    make_node(slow_model)
    peer.activate()
    peer.drive()
    peer.until(lambda: "Slow down" in words(peer))
    assert peer.transition(DEACTIVATE)
    said = len(peer.texts)
    slow_model.go_on.set()
    peer.spin_for(1.0)
    assert len(peer.texts) == said
    assert not peer.paths


def test_typed_parts_are_not_complete_and_carry_the_stamp_and_sequence_of_the_plan(make_node, peer, slow_model):
    messages = pytest.importorskip("rsd_planner_msgs.msg", reason="rsd_planner_msgs is not built in this environment")
    received = []
    peer.node.create_subscription(messages.Reasoning, f"{PLANNER}/output/reasoning", received.append, 10)
    make_node(slow_model)
    peer.activate()
    peer.drive()
    peer.until(lambda: any(reasoning.text == "Slow down" for reasoning in received))
    assert not any(reasoning.complete for reasoning in received)
    slow_model.go_on.set()
    peer.until(lambda: any(reasoning.complete for reasoning in received) and peer.paths)
    whole = next(reasoning for reasoning in received if reasoning.complete)
    assert {part.sequence for part in received[: received.index(whole)]} == {whole.sequence}
    assert {nanoseconds(part.header.stamp) for part in received[: received.index(whole)]} == {
        nanoseconds(whole.header.stamp)
    }
    assert nanoseconds(whole.header.stamp) == peer.stamps()[0]
