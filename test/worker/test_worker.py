"""The golden model behind the protocol: what comes back is what the planner itself would have said."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from rsd_planner.errors import CheckpointError, ImageError, ParameterError, WorkerError
from rsd_planner.messages.images import decode_image
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS, EgoHistory, Frame, Observation, Pose
from rsd_planner.worker.client import Job, PlanningWorker
from rsd_planner.worker.runners import ProcessRunner, ThreadRunner
from rsd_planner.worker.server import load_planner
from rsd_planner.worker.wire import LoadRequest, UnexpectedError

MODEL = Path(__file__).parents[1] / "golden" / "alpamayo_r1"
SETTINGS = {"max_reasoning_tokens": 12, "verify_length": 4, "seed": 3}
TIMEOUT_S = 120.0
HANGS_UP = 'import os, sys, time; print("CUDA: lost"); os.close(int(sys.argv[2])); sys.stdout.flush(); time.sleep(60)'


class Client:
    """Owns a worker as the node does, and waits for it."""

    def __init__(self, runner, model=MODEL):
        self._news = threading.Event()
        self.partials = []
        self.worker = PlanningWorker(runner, LoadRequest(model, SETTINGS, (1,)), self._news.set)

    def loaded(self):
        self._wait(lambda: self.worker.model or self.worker.raise_failure())
        return self

    def plan(self, observation, generation=0):
        self.worker.submit(Job(observation, 1, generation, "odom", "base_link"))
        return self.outcome()

    def outcome(self):
        self.partials.clear()
        return self._wait(self.worker.update)

    def _wait(self, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := condition()):
            assert time.monotonic() < deadline
            self._news.wait(0.1)
            self._news.clear()
            if condition != self.worker.update:
                self.worker.update()
            if (partial := self.worker.take_partial()) is not None:
                self.partials.append(partial)
        return found


@pytest.fixture
def connect():
    clients = []

    def start(runner, **options):
        clients.append(Client(runner, **options))
        return clients[-1]

    yield start
    for client in clients:
        assert client.worker.close(30.0)


@pytest.fixture(scope="module")
def by_process():
    client = Client(ProcessRunner("")).loaded()
    yield client
    assert client.worker.close(30.0)


@pytest.fixture(params=["thread", "process"])
def client(request):
    """Fresh in a thread; one for all tests as a process, which takes seconds to start: new to what it is shown."""
    if request.param == "process":
        yield request.getfixturevalue("by_process")
        return
    client = Client(ThreadRunner(load_planner)).loaded()
    yield client
    assert client.worker.close(30.0)


def jpeg(brightness=90):
    return cv2.imencode(".jpg", np.full((270, 480, 3), brightness, np.uint8))[1].tobytes()


def frame(stamp_ns, data):
    return Frame(stamp_ns, SimpleNamespace(format="jpeg", data=array("B", data)), decode_image)


def observation(frames):
    history = EgoHistory(
        np.linspace([-1.5, 0, 0], [0, 0, 0], HISTORY_STEPS),
        np.broadcast_to(np.eye(3), (HISTORY_STEPS, 3, 3)),
        Pose(np.array([10.0, 2.0, 0.0]), np.eye(3)),
    )
    return Observation(frames[-1].stamp_ns, {1: tuple(frames)}, history)


def drive(count=4, start=10**18):
    return [frame(start + k * STEP_NS, jpeg(60 + 10 * k)) for k in range(count)]


def assert_same(found, expected):
    apart = ("stage_times", "speculation", "sequence")  # wall times, and how many there were before
    for field in fields(expected):
        if field.name not in apart:
            np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), field.name)
    for name in ("reasoning_tokens", "prefill_committed", "sources", "proposals"):
        assert getattr(found.speculation, name) == getattr(expected.speculation, name)
    assert type(found.origins[0]) is type(expected.origins[0])
    assert type(found.finish_reason) is type(expected.finish_reason)


def test_plans_are_those_of_the_planner_and_frames_travel_once(client):
    frames, own = drive(6), drive(6)
    planner = Planner.load(MODEL, PlannerSettings(**SETTINGS))
    for last in (4, 5, 6):
        outcome = client.plan(observation(frames[last - 4 : last]), generation=7)
        assert_same(outcome.result, planner.plan(observation(own[last - 4 : last])))
        assert outcome.result.frames_encoded == (4 if last == 4 else 1)
        assert 0 < outcome.seconds <= outcome.round_trip_s
    assert client.worker.model == planner.info
    assert frames[0].payload is not None  # decoded where the model is
    planner.close()


def test_a_frame_that_cannot_be_decoded_is_named_and_marked(client):
    frames = drive(6)
    broken = frame(frames[4].stamp_ns, jpeg()[:300])
    error = client.plan(observation([*frames[1:4], broken])).result
    assert isinstance(error, ImageError)
    assert f"camera 1, frame at {broken.stamp_ns} ns" in str(error)
    assert broken.undecodable
    assert not any(each.undecodable for each in frames)
    assert client.plan(observation(frames[1:5])).result.stamp_ns == broken.stamp_ns


def test_frames_the_node_has_dropped_are_dropped_by_the_worker_as_well(connect):
    kept = []

    def load(request, progress):
        planner = load_planner(request, progress)
        kept.append(planner._target._features)
        return planner

    client = connect(ThreadRunner(load)).loaded()
    frames = drive(8)
    for last in range(4, 9):
        client.plan(observation(frames[:4] if last == 4 else frames[last - 4 : last]))
    assert len(kept[0]) == 8
    del frames[:4]
    client.partials.clear()
    gc.collect()
    client.plan(observation(frames))
    assert len(kept[0]) == 4


def test_a_new_generation_makes_the_planner_forget(client):
    frames = drive()
    for generation, encoded in ((0, 4), (0, 0), (1, 4), (1, 0), (0, 4)):
        assert client.plan(observation(frames), generation).result.frames_encoded == encoded


def test_the_reasoning_is_told_while_it_grows(connect, monkeypatch):
    monkeypatch.setattr("rsd_planner.worker.server.PARTIAL_PERIOD_S", 0.0)
    client = connect(ThreadRunner(load_planner)).loaded()
    outcome = client.plan(observation(drive()))
    assert client.partials
    assert all(outcome.result.reasoning.startswith(partial.reasoning.strip()[:5]) for partial in client.partials)
    assert all(partial.job is outcome.job for partial in client.partials)


def test_an_unforeseen_error_keeps_its_traceback_and_the_next_plan_works(connect):
    def load(request, progress):
        planner = load_planner(request, progress)
        plan = planner.plan

        def fails_once(*args, **kwargs):
            planner.plan = plan
            raise RuntimeError("device lost")

        planner.plan = fails_once
        return planner

    client = connect(ThreadRunner(load)).loaded()
    error = client.plan(observation(drive())).result
    assert isinstance(error, UnexpectedError)
    assert str(error) == "RuntimeError: device lost"
    assert "fails_once" in error.trace
    assert client.plan(observation(drive())).result.reasoning is not None


@pytest.mark.parametrize(("said", "times"), [("out of luck", 3), ("CUDA error: an illegal memory access", 1)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_again_and_again_is_replaced(connect, said, times):
    loads = []

    def load(request, progress):
        loads.append(planner := load_planner(request, progress))
        if len(loads) == 1:

            def fails(*args, **kwargs):
                raise RuntimeError(said)

            planner.plan = fails
        return planner

    client = connect(ThreadRunner(load)).loaded()
    for _ in range(times):
        assert not client.worker.lost
        assert isinstance(client.plan(observation(drive())).result, UnexpectedError)
    client._wait(lambda: client.worker.lost)
    assert client.worker.lost == "the worker's thread has ended"
    client.worker.revive()
    client._wait(lambda: client.worker.ready)
    assert client.plan(observation(drive())).result.reasoning is not None
    assert client.worker.restarts == 1


def test_an_observation_that_cannot_be_handed_over_costs_itself_alone(connect, monkeypatch):
    client = connect(ThreadRunner(load_planner)).loaded()

    def full(data):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(client.worker._connection._memory, "write", full)
    error = client.plan(observation(drive())).result
    assert isinstance(error, WorkerError)
    assert "could not be handed to the worker: [Errno 12] Cannot allocate memory" in str(error)
    assert client.worker.busy_s is None
    client.worker.revive()
    client._wait(lambda: client.worker.ready)
    assert client.plan(observation(drive())).result.reasoning is not None


def test_a_worker_that_dies_is_started_again_and_plans_again(by_process):
    client, frames = by_process, drive()
    before = client.worker.restarts
    client.worker.submit(Job(observation(frames), 1, 0, "odom", "base_link"))
    os.kill(client.worker.pid, signal.SIGKILL)
    error = client.outcome().result
    assert isinstance(error, WorkerError)
    assert "was killed by SIGKILL" in str(error)
    assert client.worker.lost == str(error)
    assert not client.worker.ready
    client.worker.revive()
    client._wait(lambda: client.worker.ready)
    assert client.worker.lost == ""
    assert client.worker.restarts == before + 1
    assert client.plan(observation(frames)).result.frames_encoded == 4


def test_a_worker_that_does_not_come_up_is_not_tried_again_at_once(connect, monkeypatch):
    monkeypatch.setattr("rsd_planner.worker.client.FIRST_BREAK_S", 3600.0)
    monkeypatch.setattr("rsd_planner.worker.client.LONGEST_BREAK_S", 3600.0)
    client = connect(ProcessRunner("/bin/false"))
    client._wait(lambda: client.worker.lost)
    client.worker.revive()
    assert client.worker.restarts == 1
    assert client.worker.progress == "starting again"
    client._wait(lambda: client.worker.lost and client.worker._connection is None)
    client.worker.revive()
    assert client.worker.restarts == 1
    assert client.worker.progress == "it is started again in 3600 s"


def test_closing_ends_a_process_in_the_middle_of_loading(connect):
    client = connect(ProcessRunner(""))
    pid = client.worker.pid
    assert client.worker.close(30.0)
    assert not Path(f"/proc/{pid}").exists()


def test_the_worker_ends_with_the_node_however_that_ends():
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from rsd_planner.worker.client import *\n"
        "from rsd_planner.worker.runners import ProcessRunner\n"
        f"request = wire.LoadRequest(Path({str(MODEL)!r}), {{}}, (1,))\n"
        "worker = PlanningWorker(ProcessRunner(''), request, lambda: None)\n"
        "while worker.progress == 'starting': worker.update()\n"
        "print(worker.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    node = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    deadline = time.monotonic() + TIMEOUT_S
    while _state(int(node.stdout)) not in ("Z", "gone"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def test_an_interpreter_that_is_none_is_named(tmp_path):
    with pytest.raises(ParameterError, match=r"'model_python': found '/no/such/python'"):
        ProcessRunner("/no/such/python")
    noise = tmp_path / "python"
    noise.write_text("no program")
    noise.chmod(0o755)
    with pytest.raises(ParameterError, match="expected a Python interpreter"):
        Client(ProcessRunner(str(noise)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'Segmentation fault' >&2; exit 3", "ended with exit code 3: Segmentation fault"),
        ("kill -KILL $$", "was killed by SIGKILL"),
        (f"exec {sys.executable} -c '{HANGS_UP}' \"$@\"", "as it did not end within 1 s: CUDA: lost"),
        (f'exec {sys.executable} -S -E "$@"', "No module named"),  # without site-packages
    ],
)
def test_an_interpreter_that_cannot_run_the_worker_is_explained(connect, tmp_path, body, said):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    client = connect(ProcessRunner(str(python)))
    with pytest.raises(WorkerError) as raised:
        client.loaded()
    assert str(python) in str(raised.value)
    assert said in str(raised.value)


def test_what_the_model_refuses_is_raised_as_it_is(connect, tmp_path):
    with pytest.raises(CheckpointError):
        connect(ThreadRunner(load_planner), model=tmp_path).loaded()
