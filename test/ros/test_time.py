"""Wall time and simulated time, and what happens when either jumps."""

import threading

import pytest
from planners import held_up
from ros_peer import CONFIGURE, STEP_NS
from rosgraph_msgs.msg import Clock

BAG_NS = 1_600_001_000 * 10**9  # when a recording was made


@pytest.fixture
def set_clock(peer):
    """Publish /clock until the node has it."""
    publisher = peer.node.create_publisher(Clock, "/clock", 10)

    def publish(time_ns):
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(time_ns, 10**9)

        def the_node_has_it():
            publisher.publish(message)
            return peer.node_clock_ns == time_ns

        peer.until(the_node_has_it)

    return publish


@pytest.mark.jazzy
def test_a_recording_is_planned_on_in_its_own_time(make_node, peer, set_clock):
    make_node(use_sim_time=True, max_input_age=1.0)
    peer.activate()
    set_clock(BAG_NS)
    t0 = peer.drive(to_ns=BAG_NS)
    peer.until(lambda: t0 in peer.stamps())
    set_clock(BAG_NS + 30 * STEP_NS)
    too_old = peer.drive(0.3, to_ns=BAG_NS + 3 * STEP_NS)
    peer.until(lambda: int(peer.value("inference", "withheld: stale") or 0) > 0)
    assert too_old not in peer.stamps()


def test_in_simulated_time_the_node_can_be_configured_before_there_is_a_clock(make_node, peer):
    make_node(use_sim_time=True)
    assert peer.transition(CONFIGURE)


@pytest.mark.parametrize("jumps", ["stamps", "clock"])
def test_a_plan_under_way_when_time_jumps_back_is_never_published(make_node, peer, set_clock, jumps):
    planning, go_on = threading.Event(), threading.Event()
    make_node(held_up(planning, go_on), use_sim_time=jumps == "clock")
    peer.activate()
    before = BAG_NS if jumps == "clock" else peer.now_ns
    again = before - 30 * 10**9
    if jumps == "clock":
        set_clock(before)
    peer.drive(to_ns=before)
    peer.until(planning.is_set)
    if jumps == "clock":
        set_clock(again)
    peer.drive(to_ns=again)
    peer.until(lambda: int(peer.value("inputs", "resets") or 0) >= 1)
    go_on.set()
    peer.until(lambda: again in peer.stamps())
    peer.until(lambda: peer.value("inference", "outdated") == "1")
    assert max(peer.stamps()) == again


def test_a_plan_whose_path_has_passed_by_the_time_it_is_made_is_withheld(make_node, peer, set_clock):
    """A simulation that jumps ahead, or a machine that stalled for longer than the path reaches."""
    planning, go_on = threading.Event(), threading.Event()
    make_node(held_up(planning, go_on), use_sim_time=True, max_input_age=1.0)
    peer.activate()
    set_clock(BAG_NS)
    peer.drive(to_ns=BAG_NS)
    peer.until(planning.is_set)
    set_clock(BAG_NS + 100 * STEP_NS)
    go_on.set()
    peer.until(lambda: int(peer.value("inference", "withheld: late") or 0) == 1)
    assert not peer.paths


def test_a_bag_that_loops_is_planned_on_in_every_round(make_node, peer):
    make_node()
    peer.activate()
    end = peer.now_ns
    rounds = []
    for _ in range(3):
        peer.paths.clear()
        peer.drive(4.0, to_ns=end)
        peer.until(lambda: end in peer.stamps())
        rounds.append(peer.stamps())
    for stamps in rounds:
        assert stamps == sorted(set(stamps))
        assert {(end - stamp) % STEP_NS for stamp in stamps} == {0}
