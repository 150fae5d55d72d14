"""The worker: one thread that owns the model from loading to release."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rsd_planner.errors import ParameterError
from rsd_planner.plan import Plan
from rsd_planner.scene.observation import Observation

if TYPE_CHECKING:
    from rsd_planner.planner import ModelInfo, Planner
    from rsd_planner.ros.parameters import NodeParameters


@dataclass(frozen=True)
class Job:
    """One observation to plan on."""

    observation: Observation
    generation: int  # everything from before a reset, a deactivation or a time jump carries a lower one
    odometry_frame_id: str  # of the odometry the observation was made from
    vehicle_frame_id: str


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a plan or the error that was raised instead."""

    job: Job
    result: Plan | Exception
    seconds: float  # wall time in the worker


class PlanningWorker:
    """Loads a Planner and runs it, one job at a time, always in the same thread.

    Latest-only by construction: there is no queue. Whoever owns the worker asks `busy`, and hands over the newest
    observation once the outcome of the last one has been taken.
    """

    def __init__(self, load: Callable[[], Planner], notify: Callable[[], None]) -> None:
        """Start loading.

        Args:
            load: Makes the planner, ready to plan; called in the worker's thread.
            notify: Called in the worker's thread when an outcome is ready to be taken.
        """
        self._load = load
        self._notify = notify
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._planner: Planner | None = None  # the worker's thread only
        self._generation = 0  # the worker's thread only
        self._loaded = self._thread.submit(self._load_planner)
        self._planning: Future[Outcome] | None = None
        self._closed = False

    def wait_until_loaded(self, give_up: Callable[[], bool]) -> ModelInfo | None:
        """Wait for the model; None if `give_up` came true first.

        Raises:
            Exception: Whatever loading raised.
        """
        while not self._loaded.done():
            if give_up():
                return None
            wait([self._loaded], timeout=0.05)
        return self._loaded.result()

    @property
    def busy(self) -> bool:
        """Whether a job is under way or its outcome not yet taken."""
        return self._planning is not None

    def submit(self, job: Job) -> None:
        """Plan on an observation; the worker must not be busy."""
        if self.busy:
            raise RuntimeError("one job at a time")
        self._planning = self._thread.submit(self._plan, job)
        self._planning.add_done_callback(self._on_done)

    def take(self) -> Outcome | None:
        """The outcome of the last job, once; None while there is none."""
        if self._planning is None or not self._planning.done():
            return None
        outcome = self._planning.result()
        self._planning = None
        return outcome

    def close(self, timeout_s: float) -> bool:
        """Release the model after the job under way; False if that did not happen in time."""
        self._closed = True
        released = self._thread.submit(self._release)
        self._thread.shutdown(wait=False)
        return bool(wait([released], timeout=timeout_s).done)

    def _on_done(self, _: Future[Outcome]) -> None:
        if not self._closed:  # nobody is left to be told
            self._notify()

    def _load_planner(self) -> ModelInfo:
        self._planner = self._load()
        return self._planner.info

    def _plan(self, job: Job) -> Outcome:
        assert self._planner is not None
        started = time.perf_counter()
        result: Plan | Exception
        try:
            if job.generation != self._generation:
                self._planner.reset()
                self._generation = job.generation
            result = self._planner.plan(job.observation)
        except Exception as error:  # reported by the node; the next job gets its chance
            result = error
        return Outcome(job, result, time.perf_counter() - started)

    def _release(self) -> None:
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()


def load_planner(parameters: NodeParameters) -> Planner:
    """Load and warm up the model that the parameters name. Imports PyTorch: call it in the worker's thread.

    Raises:
        PlannerError: The model cannot be loaded, or was not trained for one of the cameras.
    """
    from rsd_planner.planner import Planner, PlannerSettings

    settings = PlannerSettings(
        device=parameters.device,
        dtype=parameters.dtype,
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        max_reasoning_tokens=parameters.max_reasoning_tokens,
        reasoning_deadline_s=parameters.reasoning_deadline or None,
        memory_ticks=parameters.memory_ticks,
        verify_length=parameters.verify_length or None,
        allow_plain_decoding=parameters.allow_plain_decoding,
        seed=parameters.seed,
    )
    planner = Planner.load(parameters.model, settings)
    camera_ids = list(parameters.cameras.values())
    trained = planner.info.camera_ids
    if untrained := [camera_id for camera_id in camera_ids if camera_id not in trained]:
        raise ParameterError(
            f"parameter 'camera_ids': found {untrained}, expected ids that {planner.info.name} was trained for: "
            f"{list(trained)}"
        )
    planner.warm_up(camera_ids)
    return planner
