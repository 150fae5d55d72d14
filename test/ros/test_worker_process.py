"""The node with its model in a process of its own: killed, missing, on another interpreter, and while it loads."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ros_peer import ACTIVATE, CLEANUP, CONFIGURE, MODEL_PYTHON, STEP_NS

from rsd_planner.worker.server import load_planner


def worker_of(peer):
    """Process id of the worker, as diagnostics give it."""
    kind, _, pid = (peer.value("model", "worker") or "").partition(" ")
    return int(pid) if kind == "process" else None


@pytest.mark.jazzy
def test_a_killed_worker_is_restarted_and_the_next_frames_are_planned_on(make_node, peer):
    make_node(worker="process")
    peer.activate()
    first = peer.drive()
    peer.until(lambda: first in peer.stamps())
    peer.until(lambda: worker_of(peer))
    killed = worker_of(peer)
    os.kill(killed, signal.SIGKILL)
    peer.until(lambda: "was killed by SIGKILL; " in peer.message("model"))
    assert peer.statuses["model"].level == b"\x02"
    while_away = first + STEP_NS
    peer.publish_odometry(while_away)
    peer.publish_image(while_away)
    peer.until(lambda: peer.value("model", "worker restarts") == "1" and peer.statuses["model"].level != b"\x02")
    assert worker_of(peer) != killed
    assert not Path(f"/proc/{killed}").exists()
    newest = peer.drive(0.3, to_ns=while_away + 3 * STEP_NS)
    peer.until(lambda: newest in peer.stamps())
    stamps = peer.stamps()
    assert stamps == sorted(set(stamps))
    assert peer.state() == "active"


def test_a_worker_killed_in_the_middle_of_a_plan_costs_that_plan_and_no_other(make_node, peer):
    make_node(worker="process")
    peer.activate()
    peer.drive()
    peer.until(lambda: peer.paths and worker_of(peer))
    before = int(peer.value("inference", "passed over while busy") or 0)
    os.kill(worker_of(peer), signal.SIGSTOP)
    peer.until(
        lambda: peer.go_on(0.1) is None and int(peer.value("inference", "passed over while busy") or 0) > before + 1
    )
    os.kill(worker_of(peer), signal.SIGKILL)
    peer.until(lambda: int(peer.value("inference", "withheld: worker_lost") or 0) >= 1)
    peer.until(lambda: peer.value("model", "worker restarts") == "1" and peer.statuses["model"].level != b"\x02")
    plans = len(peer.paths)
    peer.until(lambda: peer.go_on(0.1) is None and len(peer.paths) > plans)


@pytest.mark.jazzy
def test_the_node_itself_knows_no_pytorch():
    code = "import sys, rsd_planner.ros.node; assert not {'torch', 'transformers', 'safetensors'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_services_and_diagnostics_answer_while_the_model_is_loading(make_node, peer):
    loading, go_on = threading.Event(), threading.Event()

    def load(request, progress):
        progress("reading weights")
        loading.set()
        assert go_on.wait(60)
        return load_planner(request, progress)

    make_node(load)
    peer.until(lambda: peer.message("model") == "not configured")
    configuring = peer.begin_transition(CONFIGURE)
    peer.until(loading.is_set)
    assert [peer.state() for _ in range(20)] == ["configuring"] * 20
    peer.until(lambda: peer.message("model").startswith("configuring: reading weights, "))
    assert "configured" in peer.set_parameter("temperature", 0.5).reason
    assert not peer.transition(ACTIVATE)
    assert not configuring.done()
    go_on.set()
    peer.until(configuring.done)
    assert configuring.result().success
    assert peer.state() == "inactive"


@pytest.mark.jazzy
def test_an_interpreter_without_the_model_s_packages_fails_configure_in_one_line(make_node, peer, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # without site-packages
    bare.chmod(0o755)
    make_node(worker="process", model_python=str(bare))
    assert not peer.transition(CONFIGURE)
    peer.until(lambda: "No module named" in peer.message("model"))
    assert str(bare) in peer.message("model")
    assert "\n" not in peer.message("model")
    assert peer.set_parameter("model_python", "/no/such/python").successful
    assert not peer.transition(CONFIGURE)
    peer.until(lambda: "'model_python': found '/no/such/python'" in peer.message("model"))
    assert peer.set_parameter("model_python", MODEL_PYTHON or sys.executable).successful
    assert peer.transition(CONFIGURE)
    peer.until(lambda: worker_of(peer))
    worker = worker_of(peer)
    assert peer.transition(CLEANUP)
    assert not Path(f"/proc/{worker}").exists()
