"""In each process: the model as the vehicle runs it, asked question by question without speculation."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from rsd_planner.demo.evaluation.tasks import Kind, Task
from rsd_planner.demo.world.cameras import FRONT
from rsd_planner.demo.world.dataset import CAUSES, Dataset, load_split
from rsd_planner.demo.world.drive import run_drive
from rsd_planner.demo.world.facts import CauseKind, observe
from rsd_planner.demo.world.looks import make_look
from rsd_planner.demo.world.pairs import pair_by_history, pair_by_image
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.samples import FRAMES, Camerawork
from rsd_planner.demo.world.sentences import say
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import STEP_NS, EgoHistory, Frame, Observation, Pose, RgbImage

_TICKS_PER_SEED = 10_000  # more than any drive has: seed and tick make a t0 of their own


@dataclass(frozen=True)
class Answer:
    """One plan beside the truth. Plain values: a line of JSON."""

    seed: int
    tick: int
    truth: str
    cause: str  # the true one
    text: str  # what the model said
    tokens: int
    v0: float  # m/s
    path: list[list[float]]  # (64, 2) m, frame of t0


@dataclass(frozen=True)
class _Question:
    seed: int
    tick: int
    frames: tuple[Frame, ...]
    history: EgoHistory
    truth: str
    cause: CauseKind


class Asker:
    """One loaded model."""

    def __init__(self, model: Path, data: Path, max_tokens: int) -> None:
        self._data = data
        self._planner = Planner.load(model, PlannerSettings(memory_ticks=0, max_reasoning_tokens=max_tokens))
        self._split = cache(lambda split: load_split(data, split))
        self._camerawork = cache(Camerawork)

    def answers(self, task: Task) -> list[Answer]:
        """The answers to a task; none if its seed has no pair."""
        return [self._answer(question) for question in self._questions(task)]

    def _answer(self, question: _Question) -> Answer:
        stamp = t0_ns(question.seed, question.tick)
        plan = self._planner.plan(Observation(stamp, {FRONT: question.frames}, question.history))
        return Answer(
            question.seed,
            question.tick,
            question.truth,
            question.cause.value,
            plan.reasoning,
            len(plan.token_ids),
            round(plan.v0, 4),
            plan.positions[:, :2].round(3).tolist(),
        )

    def _questions(self, task: Task) -> Iterator[_Question]:
        if task.kind is Kind.SAMPLES:
            yield from _of_samples(self._split(task.split), range(task.first, task.first + task.count))
        elif task.kind is Kind.DRIVE:
            yield from _of_drive(task, self._camerawork())
        else:
            find = pair_by_image if task.kind is Kind.PAIR_BY_IMAGE else pair_by_history
            for case in find(task.split, task.seed, self._camerawork()) or ():
                frames = _frames(case.seed, case.tick, list(case.images[0]))
                yield _Question(case.seed, case.tick, frames, case.history, case.text, case.cause)


def t0_ns(seed: int, tick: int) -> int:
    """A t0 that no other tick of the world has: it seeds the flow's noise."""
    return (seed * _TICKS_PER_SEED + tick) * STEP_NS


def _of_samples(data: Dataset, numbers: range) -> Iterator[_Question]:
    columns, pose = data.columns, Pose(np.zeros(3), np.eye(3))
    for i in numbers:
        seed, tick = int(columns["seed"][i]), int(columns["tick"][i])
        history = EgoHistory(
            columns["history"][i].astype(np.float64), columns["history_rotations"][i].astype(np.float64), pose
        )
        cause = CAUSES[int(columns["cause"][i])]
        yield _Question(
            seed, tick, _frames(seed, tick, list(data.images(i)[0])), history, str(columns["text"][i]), cause
        )


def _of_drive(task: Task, camerawork: Camerawork) -> Iterator[_Question]:
    """Consecutive ticks share their frames, so that each is encoded once."""
    drive = run_drive(make_layout(task.split, task.seed))
    scene = camerawork.scene(drive, make_look(task.split, task.seed))
    try:
        window: list[Frame] = []
        for tick in range(task.first, task.first + task.count):
            images = camerawork.frames(scene, tick)[0]
            new = _frames(task.seed, tick, list(images))
            window = [*window, new[-1]][-FRAMES:] if window else list(new)
            facts = observe(drive, tick)
            history = drive.path.history(tick * STEP_NS)
            yield _Question(task.seed, tick, tuple(window), history, say(facts), facts.cause.kind)
    finally:
        scene.release()


def _frames(seed: int, tick: int, images: list[RgbImage]) -> tuple[Frame, ...]:
    first = t0_ns(seed, tick) - STEP_NS * (len(images) - 1)
    return tuple(Frame.from_image(first + STEP_NS * i, image) for i, image in enumerate(images))


_model: tuple[Path, Path, int] | None = None


def start_process(model: Path, data: Path, max_tokens: int) -> None:
    """Make this process one that answers; Ctrl-C is for the process that asked."""
    global _model
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _model = model, data, max_tokens


@cache
def _asker() -> Asker:
    assert _model is not None
    return Asker(*_model)


def answer(task: Task) -> list[Answer]:
    """The answers of this process's model, loaded at the first question."""
    return _asker().answers(task)
