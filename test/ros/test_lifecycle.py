"""Transitions, over the lifecycle services of a real node with the golden model."""

import gc
import os
import re
import threading
from pathlib import Path

import pytest
from planners import held_up
from ros_peer import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, MODEL
from ros_process import children

from rsd_planner.worker.server import load_planner


@pytest.mark.jazzy
def test_configure_fails_with_a_reason_and_succeeds_once_the_parameter_is_fixed(make_node, peer):
    make_node(model="/no/such/model")
    assert not peer.transition(CONFIGURE)
    assert peer.state() == "unconfigured"
    peer.until(lambda: "'/no/such/model'" in peer.message("model"))
    assert peer.set_parameter("model", str(MODEL)).successful
    assert peer.transition(CONFIGURE)
    assert peer.state() == "inactive"


def test_cameras_the_model_was_not_trained_for_are_refused_by_name(make_node, peer):
    make_node(cameras=["rear"], camera_ids=[4])
    assert not peer.transition(CONFIGURE)
    peer.until(
        lambda: "'camera_ids': found [4], expected ids that Alpamayo R1 was trained for" in peer.message("model")
    )


def test_an_unexpected_error_while_loading_leaves_the_node_unconfigured_and_usable(make_node, peer):
    attempts = []

    def load(request, progress):
        attempts.append(request)
        if len(attempts) == 1:
            raise RuntimeError("out of memory")
        return load_planner(request, progress)

    make_node(load)
    assert not peer.transition(CONFIGURE)
    peer.until(lambda: "out of memory" in peer.message("model"))
    assert peer.transition(CONFIGURE)


def test_parameters_are_frozen_while_configured_and_free_again_after_cleanup(make_node, peer):
    make_node()
    assert peer.transition(CONFIGURE)
    refused = peer.set_parameter("temperature", 0.5)
    assert not refused.successful
    assert "temperature" in refused.reason
    assert "clean it up first" in refused.reason
    assert peer.transition(CLEANUP)
    assert peer.set_parameter("temperature", 0.5).successful


@pytest.mark.jazzy
def test_a_transition_that_is_not_possible_is_refused_and_survived(make_node, peer):
    make_node()
    assert not peer.transition(ACTIVATE)
    assert peer.state() == "unconfigured"


@pytest.mark.jazzy
def test_output_stops_on_deactivate_and_goes_on_after_activate(make_node, peer):
    make_node()
    peer.activate()
    newest = peer.drive()
    peer.until(lambda: newest in peer.stamps())
    assert peer.transition(DEACTIVATE)
    while_inactive = peer.drive()
    peer.spin_for(1.0)
    assert peer.stamps()[-1] == newest
    assert peer.transition(ACTIVATE)
    peer.spin_for(0.5)
    assert while_inactive not in peer.stamps()  # nothing seen before the activation is planned on
    after = peer.drive()
    peer.until(lambda: after in peer.stamps())


def test_a_plan_under_way_at_deactivate_is_never_published(make_node, peer):
    planning, go_on = threading.Event(), threading.Event()

    make_node(held_up(planning, go_on))
    peer.activate()
    under_way = peer.drive()
    peer.until(planning.is_set)
    assert peer.transition(DEACTIVATE)
    assert peer.transition(ACTIVATE)
    go_on.set()
    newest = peer.drive()
    peer.until(lambda: newest in peer.stamps())
    assert under_way not in peer.stamps()
    peer.until(lambda: peer.value("inference", "outdated") == "1")


def test_a_plan_under_way_at_reset_is_never_published_and_the_history_starts_anew(make_node, peer):
    planning, go_on = threading.Event(), threading.Event()
    make_node(held_up(planning, go_on))
    peer.activate()
    under_way = peer.drive()
    peer.until(planning.is_set)
    assert peer.reset().success
    go_on.set()
    peer.drive(0.3)
    peer.spin_for(1.0)
    assert not peer.paths  # three poses are no history
    newest = peer.drive()
    peer.until(lambda: newest in peer.stamps())
    assert under_way not in peer.stamps()


@pytest.mark.jazzy
def test_shutdown_transition_ends_in_finalized(make_node, peer):
    from lifecycle_msgs.msg import Transition

    make_node()
    peer.activate()
    assert peer.transition(Transition.TRANSITION_ACTIVE_SHUTDOWN)
    assert peer.state() == "finalized"


@pytest.mark.jazzy
def test_autostart_needs_no_manager(make_node, peer):
    make_node(autostart=True)
    peer.until(lambda: peer.state() == "active")


def test_fifty_cycles_leave_nothing_behind(make_node, peer):
    node = make_node()
    counts, threads, memory_kb = [], [], []
    for _ in range(50):
        cycle(peer)
        counts.append(what_there_is(node))
        threads.append(len(list(Path("/proc/self/task").iterdir())))
        memory_kb.append(resident_kb())
    files = [count.pop("files") for count in counts]
    assert counts == [counts[0]] * 50
    assert counts[0]["workers"] == 0
    assert max(files[-10:]) <= max(files[:10])  # what earlier tests left open may be closed on the way
    assert max(threads[-10:]) <= max(threads[:10])  # one that has just ended may still be listed
    print(f"resident after each cycle [kB]: {memory_kb}")
    assert memory_kb[-1] - memory_kb[9] < 20_000, memory_kb  # one model that stays is 15 MB; forty would be 600


def test_cycles_with_a_worker_process_leave_no_process_behind(make_node, peer):
    others = children(os.getpid())  # what earlier tests' multiprocessing keeps for the next time
    node = make_node(worker="process")
    counts = []
    for _ in range(2):
        cycle(peer)
        counts.append(what_there_is(node))
        assert children(os.getpid()) == others
    files = [count.pop("files") for count in counts]
    assert counts[1] == counts[0]
    assert files[1] <= files[0]


def cycle(peer):
    for transition in (CONFIGURE, ACTIVATE, DEACTIVATE, CLEANUP):
        assert peer.transition(transition)


def what_there_is(node):
    entities = ("publishers", "subscriptions", "services", "timers", "guards", "waitables")
    return {
        "workers": sum(thread.name.startswith(("planner", "worker")) for thread in threading.enumerate()),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        **{name: len(list(getattr(node, name))) for name in entities},
    }


def resident_kb():
    gc.collect()
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def test_what_a_transition_did_not_expect_ends_unconfigured_with_everything_released(make_node, peer, monkeypatch):
    node = make_node()
    assert peer.transition(CONFIGURE)
    monkeypatch.setattr(node._session, "activate", lambda: 1 / 0)
    assert not peer.transition(ACTIVATE)
    assert peer.state() == "unconfigured"
    assert node._session is None
    assert peer.transition(CONFIGURE)
    assert peer.transition(ACTIVATE)
