"""The node's side of the worker: starts it, hands it the newest observation, and starts it again when it dies."""

from __future__ import annotations

import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rsd_planner.errors import WorkerError
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan import Plan
from rsd_planner.scene.observation import Frame, Observation
from rsd_planner.worker import wire
from rsd_planner.worker.channel import Channel, Message
from rsd_planner.worker.runners import Runner
from rsd_planner.worker.shared_memory import SharedMemory

FIRST_BREAK_S, LONGEST_BREAK_S = 1.0, 30.0  # before a worker that did not come up is started again, doubling


@dataclass(frozen=True)
class Job:
    """One observation to plan on."""

    observation: Observation
    sequence: int  # of everything that is published for it
    generation: int  # everything from before a reset, a deactivation or a time jump carries a lower one
    odometry_frame_id: str  # of the odometry the observation was made from
    vehicle_frame_id: str


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a plan or the error that was raised instead."""

    job: Job
    result: Plan | Exception
    seconds: float  # wall time in the worker
    round_trip_s: float  # from submitting to taking, wall time in the node


@dataclass(frozen=True)
class Partial:
    """A reasoning as far as it has come."""

    job: Job
    reasoning: str


class _FrameKeys:
    """Which frames the worker has: each travels once, and is kept there for as long as it lives here."""

    def __init__(self) -> None:
        self._keys: weakref.WeakKeyDictionary[Frame, int] = weakref.WeakKeyDictionary()
        self._sent: set[int] = set()
        self._next = 0

    def forgotten(self) -> list[int]:
        """Keys of frames that are gone since the last time."""
        gone = self._sent.difference(self._keys.values())
        self._sent -= gone
        return sorted(gone)

    def key(self, frame: Frame) -> tuple[int, bool]:
        """The key of a frame, and whether it is a new one."""
        known = self._keys.get(frame)
        if known is not None:
            return known, False
        self._next += 1
        self._keys[frame] = self._next
        self._sent.add(self._next)
        return self._next, True

    def mark_undecodable(self, keys: list[int]) -> None:
        for frame, key in self._keys.items():
            if key in keys:
                frame.undecodable = True


class _Connection:
    """One worker from its start to its end."""

    def __init__(self, runner: Runner, request: wire.LoadRequest, notify: Callable[[], None]) -> None:
        here, there = socket.socketpair()
        self.frames = _FrameKeys()
        self._notify = notify
        self._closed = False
        self._received: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._channel = Channel(here)
        self._memory = SharedMemory()
        try:
            self.running = runner.start(there, self._memory)
        except Exception:
            self._memory.close()
            self._channel.close()
            raise
        self._reading = threading.Thread(target=self._read, name="worker reader", daemon=True)
        self._reading.start()
        self.send(wire.load_message(request))

    def send(self, message: Message) -> None:
        with suppress(OSError):  # gone: the reader says so as well
            self._channel.send(message)

    def submit(self, job: Job) -> None:
        forgotten = self.frames.forgotten()
        keys: dict[int, list[int]] = {}
        described: list[dict[str, Any]] = []
        data: list[memoryview] = []
        for camera_id, frames in job.observation.cameras.items():
            keys[camera_id] = []
            for frame in frames:
                key, new = self.frames.key(frame)
                keys[camera_id].append(key)
                if new:
                    data.append(memoryview(frame.payload.data))
                    fields = wire.payload_fields(frame.payload)
                    described.append({"key": key, "camera_id": camera_id, "stamp_ns": frame.stamp_ns, "fields": fields})
        offsets = self._memory.write(data)  # the worker has taken what was there before: one job at a time
        for description, offset, part in zip(described, offsets, data, strict=True):
            description.update(offset=offset, length=part.nbytes)
        self.send(wire.job_message(job.observation, job.generation, keys, described, forgotten))

    def next(self) -> Message | None:
        """What has arrived, oldest first; None for the end.

        Raises:
            queue.Empty: Nothing has.
        """
        return self._received.get_nowait()

    def close(self, timeout_s: float) -> bool:
        """End the worker; False if it has not ended in time."""
        self._closed = True
        self._channel.hang_up()
        self._reading.join()
        self._channel.close()
        self._memory.close()
        return self.running.join(timeout_s)

    def _read(self) -> None:
        while True:
            message = self._channel.receive()
            self._received.put(message)
            if not self._closed:  # nobody is left to be told
                self._notify()
            if message is None:
                return


class PlanningWorker:
    """Loads a model and plans, one observation at a time, elsewhere.

    Latest-only by construction: there is no queue. Whoever owns the worker asks `ready`, and hands over the newest
    observation once the outcome of the last one has been taken. Used by one thread.

    Attributes:
        model: The model, once it is loaded.
        progress: What is going on while it is loading, or until it is started again.
        restarts: How often a worker that had died was started again.
        lost: Why the model cannot be used at present, "" if it can or if it is loading for the first time.
    """

    def __init__(self, runner: Runner, request: wire.LoadRequest, notify: Callable[[], None]) -> None:
        """Start loading.

        Args:
            runner: Starts the worker.
            request: What to load.
            notify: Called in a thread of the worker's when there is something to `update` about.

        Raises:
            ParameterError: The interpreter cannot be run.
        """
        self._runner = runner
        self._request = request
        self._notify = notify
        self._job: Job | None = None
        self._submitted = 0.0
        self._partial: Partial | None = None
        self._failure: Exception | None = None
        self._unsent: WorkerError | None = None  # why the job under way was never sent
        self._attempts = 0  # to start, since the last plan
        self._next_attempt = 0.0
        self._loaded = False
        self.model: ModelInfo | None = None
        self.progress = "starting"
        self.restarts = 0
        self.lost = ""
        self._connection: _Connection | None = _Connection(runner, request, notify)

    @property
    def ready(self) -> bool:
        """Whether an observation can be submitted."""
        return self._loaded and self._job is None

    @property
    def busy_s(self) -> float | None:
        """How long the job under way has been, s; None if there is none."""
        return None if self._job is None else time.monotonic() - self._submitted

    @property
    def pid(self) -> int | None:
        """Of the worker's process, if it has one."""
        return getattr(self._connection.running, "pid", None) if self._connection else None

    def raise_failure(self) -> None:
        """Raise what went wrong with loading, if anything has."""
        if self._failure is not None:
            raise self._failure

    def submit(self, job: Job) -> None:
        """Plan on an observation; the worker must be ready."""
        if not self.ready or self._connection is None:
            raise RuntimeError("one job at a time, and none before the model is loaded")
        self._job, self._submitted, self._partial = job, time.monotonic(), None
        try:
            self._connection.submit(job)
        except OSError as error:  # no memory to share the frames in: the worker lacks them now
            self._unsent = WorkerError(f"an observation could not be handed to the worker: {error}")
            self._give_up(self._unsent)
            self._notify()

    def update(self) -> Outcome | None:
        """Take in what the worker has said; the outcome of the last job, once, None while there is none."""
        outcome = None
        if self._unsent is not None and self._job is not None:
            outcome = self._finish(self._unsent, 0.0)
        self._unsent = None
        while self._connection is not None:
            try:
                message = self._connection.next()
            except queue.Empty:
                break
            outcome = (self._on_end() if message is None else self._on_message(message)) or outcome
        return outcome

    def take_partial(self) -> Partial | None:
        """The reasoning of the job under way as far as it has come, if it has come further."""
        partial, self._partial = self._partial, None
        return partial

    def revive(self) -> None:
        """Start a worker that is gone again, unless it was tried a moment ago. Call it every now and then."""
        if self._connection is not None or time.monotonic() < self._next_attempt:
            return
        self._attempts += 1
        self.restarts += 1
        self._failure, self.progress = None, "starting again"
        try:
            self._connection = _Connection(self._runner, self._request, self._notify)
        except Exception as error:
            self._give_up(error)

    def close(self, timeout_s: float) -> bool:
        """Release the model; False if it is still at work after `timeout_s`, which only a thread can be."""
        connection, self._connection = self._connection, None
        self._loaded = False
        return connection is None or connection.close(timeout_s)

    def _on_message(self, message: Message) -> Outcome | None:
        if message.kind == "progress":
            self.progress = message.content["text"]
        elif message.kind == "loaded":
            self.model, self._loaded, self.lost = wire.read_loaded(message), True, ""
        elif message.kind == "failed":
            self._give_up(wire.read_error(message))
        elif message.kind == "reasoning" and self._job is not None:
            self._partial = Partial(self._job, message.content["text"])
        elif message.kind == "plan":
            self._attempts = 0
            return self._finish(wire.read_plan(message), message.content["seconds"])
        elif message.kind == "error" and self._connection is not None:
            self._connection.frames.mark_undecodable(message.content["undecodable"])
            return self._finish(wire.read_error(message), 0.0)
        return None

    def _on_end(self) -> Outcome | None:
        assert self._connection is not None
        error = WorkerError(self._connection.running.why_ended())
        self._give_up(error)
        return self._finish(error, 0.0) if self._job is not None else None

    def _give_up(self, error: Exception) -> None:
        self._failure, self.lost = error, str(error)
        pause_s = min(FIRST_BREAK_S * 2.0 ** (self._attempts - 1), LONGEST_BREAK_S) if self._attempts else 0.0
        self._next_attempt = time.monotonic() + pause_s
        self.progress = f"it is started again in {pause_s:.0f} s" if pause_s else "it is started again"
        self.close(1.0)

    def _finish(self, result: Plan | Exception, seconds: float) -> Outcome:
        assert self._job is not None
        outcome = Outcome(self._job, result, seconds, time.monotonic() - self._submitted)
        self._job = self._partial = None
        return outcome
