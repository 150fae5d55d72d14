"""One training sample: what the cameras saw, where the ego was and went, what is to be said about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.world.cameras import FRONT, make_camera
from rsd_planner.demo.world.canvas import Canvas
from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.facts import CauseKind, Facts, Motion, observe
from rsd_planner.demo.world.looks import Look, make_look
from rsd_planner.demo.world.origins import deliberative
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.render import Scene
from rsd_planner.demo.world.sentences import say
from rsd_planner.demo.world.splits import split_of
from rsd_planner.scene.observation import STEP_NS, RgbImage

FRAMES = 4  # per camera: t0-0.3 .. t0
SAMPLES_PER_DRIVE = 8
_APART = 3  # ticks between two samples of a drive, at least

# how often a tick is taken, by its cause: what is seldom seen is taken more often
_WEIGHT = {
    CauseKind.CLEAR: 0.5,
    CauseKind.BYSTANDER: 0.7,
    CauseKind.LEAD: 0.9,
    CauseKind.LIGHT_RED: 1.2,
    CauseKind.LIGHT_GREEN: 1.2,
    CauseKind.LIGHT_AMBER: 4.0,
    CauseKind.PEDESTRIAN: 4.0,
    CauseKind.PARKED: 2.5,
    CauseKind.CYCLIST: 1.4,
    CauseKind.JUNCTION: 3.0,
    CauseKind.CURVE: 1.5,
    CauseKind.ONCOMING: 4.0,
}
_STANDING_WEIGHT = 0.3


@dataclass(frozen=True)
class Sample:
    """Everything about one tick."""

    seed: int
    tick: int
    images: NDArray[np.uint8]  # (cameras, 4, H, W, 3) RGB, cameras by growing id, oldest frame first
    history: NDArray[np.float64]  # (16, 3) m, frame of t0
    history_rotations: NDArray[np.float64]  # (16, 3, 3)
    future: NDArray[np.float64]  # (64, 3) m, frame of t0
    actions: NDArray[np.float64]  # (64, 2) normalised acceleration and curvature
    speed: float  # at t0, m/s
    facts: Facts
    text: str
    deliberative: tuple[bool, ...]  # one per token of `text`


class Camerawork:
    """Cameras on a drive's vehicle. Not for more than one thread."""

    def __init__(self, camera_ids: Sequence[int] = (FRONT,), scale: int = 1) -> None:
        self._cameras = [make_camera(camera_id, scale) for camera_id in sorted(camera_ids)]
        self._canvas = Canvas(self._cameras[0].width, self._cameras[0].height)

    def scene(self, drive: Drive, look: Look) -> Scene:
        """The drive on stage; release it when done."""
        return Scene(self._canvas, drive, look)

    def frames(self, scene: Scene, tick: int) -> NDArray[np.uint8]:
        """(cameras, 4, H, W, 3): the frames that belong to a tick."""
        stamps = [(tick - back) * STEP_NS for back in range(FRAMES - 1, -1, -1)]
        return np.stack([np.stack([scene.picture(stamp, camera) for stamp in stamps]) for camera in self._cameras])


def make_sample(seed: int, drive: Drive, tick: int, images: NDArray[np.uint8]) -> Sample:
    """The sample of a tick whose frames are rendered already."""
    stamp = tick * STEP_NS
    facts, history = observe(drive, tick), drive.path.history(stamp)
    return Sample(
        seed,
        tick,
        images,
        history.positions,
        history.rotations,
        drive.path.future(stamp)[0],
        drive.path.actions(stamp),
        drive.path.state(stamp).speed,
        facts,
        say(facts),
        tuple(deliberative(facts)),
    )


def drive_samples(seed: int, camerawork: Camerawork, ticks: Sequence[int] | None = None) -> Iterator[Sample]:
    """Samples of a seed's drive: at the given ticks, or at a balanced choice of them."""
    split = split_of(seed)
    drive = run_drive(make_layout(split, seed))
    chosen = choose_ticks(drive, seed) if ticks is None else list(ticks)
    scene = camerawork.scene(drive, make_look(split, seed))
    try:
        for tick in chosen:
            yield make_sample(seed, drive, tick, camerawork.frames(scene, tick))
    finally:
        scene.release()


def choose_ticks(drive: Drive, seed: int, count: int = SAMPLES_PER_DRIVE) -> list[int]:
    """Up to `count` ticks of a drive, rare causes first, never close together; the same for the same seed."""
    facts = [observe(drive, tick) for tick in drive.ticks]
    weights = np.array([_WEIGHT[entry.cause.kind] for entry in facts])
    weights *= np.where([entry.ego.motion is Motion.STANDING for entry in facts], _STANDING_WEIGHT, 1.0)
    order = np.argsort(-np.log(np.random.default_rng([seed, 15]).random(len(weights))) / weights)
    chosen: list[int] = []
    for index in order:
        tick = drive.ticks[int(index)]
        if all(abs(tick - other) >= _APART for other in chosen):
            chosen.append(tick)
        if len(chosen) == count:
            break
    return sorted(chosen)


def frame_of(sample: Sample) -> RgbImage:
    """The newest picture of the front camera."""
    return np.asarray(sample.images[0, -1])
