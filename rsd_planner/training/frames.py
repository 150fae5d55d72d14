"""Where training gets its observations from: splits of the demo world, or recordings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from rsd_planner.demo.world.cameras import FRONT
from rsd_planner.demo.world.dataset import Dataset, load_split
from rsd_planner.demo.world.samples import FRAMES
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import ObservationError, TrainingError
from rsd_planner.evaluation.bag import Bag, open_bag
from rsd_planner.evaluation.ticks import Ticks
from rsd_planner.evaluation.topics import Inputs, resolve
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.odometry import read_odometry
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.scene.observation import STEP_NS, EgoHistory, Frame, Observation, Pose
from rsd_planner.scene.scene import Scene, Skip
from rsd_planner.target.config import TRAINED_CAMERAS

_ABOUT = "about.json"


class FrameSource(Protocol):
    """Observations by number: the same number is the same observation in every run."""

    @property
    def name(self) -> str:
        """Short, fit for a folder."""

    @property
    def fingerprint(self) -> str:
        """The same as long as every number means the same observation; more of them may come later."""

    def __len__(self) -> int: ...

    def id(self, number: int) -> str:
        """What the data itself calls this frame."""

    def observation(self, number: int) -> Observation:
        """A new Observation: nothing decoded is kept from one call to the next."""


@dataclass(frozen=True)
class BagOptions:
    """How recordings are read, as `rsd_planner evaluate` does."""

    stride: int = 1  # steps of 0.1 s between ticks
    cameras: Mapping[int, str] | None = None  # camera id -> topic; None = by type and name
    odometry: str | None = None


def spread(source: FrameSource, count: int) -> list[int]:
    """Numbers of `count` frames, evenly from the first to the last; all of a source that has fewer."""
    numbers: list[int] = np.unique(np.linspace(0, len(source) - 1, count).astype(int)).tolist()
    return numbers


def open_frames(path: Path, split: Split, bags: BagOptions, limit: int | None = None) -> FrameSource:
    """A folder of the demo world (with `train/`, `val/`, ...), one split of it, or a recording.

    Args:
        split: Taken from a folder that holds several.
        limit: First so many frames only.

    Raises:
        TrainingError, BagError: Nothing usable is there.
    """
    if (path / split.value / _ABOUT).is_file():
        return WorldFrames(path / split.value, limit)
    if (path / _ABOUT).is_file():
        return WorldFrames(path, limit)
    if any((path / other.value / _ABOUT).is_file() for other in Split):
        raise TrainingError(f"{path}: no split {split.value} there; rsd_planner demo render {path} draws it")
    return BagFrames(path, bags, limit)


class WorldFrames:
    """A rendered split of the demo world, front camera only. Pictures are read when the first one is asked for."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        """Raises TrainingError: The folder holds no split of the world, or none with a front camera."""
        self._folder, self._limit = folder.resolve(), limit
        try:
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            self._split, cameras = Split(about["split"]), list(about["cameras"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{folder / _ABOUT}: found {error}, expected a split of the demo world") from None
        if folder.resolve().name != self._split.value:
            raise TrainingError(f"{folder}: holds the split {self._split.value}, expected a folder of that name")
        if FRONT not in cameras:
            raise TrainingError(f"{folder}: holds cameras {cameras}, expected the front camera {FRONT} among them")
        self._camera = cameras.index(FRONT)
        self.name = self._split.value
        self.fingerprint = _digest([about, limit])  # a seed of one version of the world always gives the same samples

    @cached_property
    def _data(self) -> Dataset:
        return load_split(self._folder.parent, self._split, self._limit)

    @cached_property
    def _count(self) -> int:
        counts = []
        for path in sorted(self._folder.glob("shard-*.npz")):
            with np.load(path) as shard:
                counts.append(len(shard["seed"]))
        return sum(counts) if self._limit is None else min(self._limit, sum(counts))

    def __len__(self) -> int:
        return self._count

    def id(self, number: int) -> str:
        """`split/seed/tick`."""
        columns = self._data.columns
        return f"{self._split.value}/{columns['seed'][number]}/{columns['tick'][number]}"

    def observation(self, number: int) -> Observation:
        """Stamps count from the start of the drive; where the ego is in its odometry frame is not recorded."""
        columns = self._data.columns
        images, tick = self._data.images(number)[self._camera], int(columns["tick"][number])
        stamps = [(tick - back) * STEP_NS for back in range(FRAMES - 1, -1, -1)]
        frames = tuple(Frame.from_image(stamp, image) for stamp, image in zip(stamps, images, strict=True))
        history = EgoHistory(
            columns["history"][number].astype(np.float64),
            columns["history_rotations"][number].astype(np.float64),
            Pose(np.zeros(3), np.eye(3)),
        )
        return Observation(tick * STEP_NS, {FRONT: frames}, history)


class BagFrames:
    """The ticks of one recording. Images stay compressed as recorded, in memory; each is there once."""

    def __init__(self, path: Path, options: BagOptions, limit: int | None = None) -> None:
        """Raises BagError: The recording cannot be read or lacks images or odometry."""
        self._path, self._options, self._limit = path, options, limit
        with open_bag(path) as bag:
            self._name, self.duration_s = bag.name, bag.duration_s
            topics = [(topic.name, topic.type, topic.messages) for topic in bag.topics]
            about = [bag.start_ns, bag.end_ns, topics]
        cameras = sorted((options.cameras or {}).items())
        self.fingerprint = _digest([about, options.stride, cameras, options.odometry, limit])

    @property
    def name(self) -> str:
        return self._name

    @cached_property
    def _ticks(self) -> list[Observation]:
        with open_bag(self._path) as bag:
            inputs = resolve(str(bag.path), bag.topics, self._options.cameras, self._options.odometry)
            found = list(islice(_observations(bag, inputs, self._options.stride), self._limit))
        if not found:
            raise TrainingError(f"{self._path}: no tick has images and an ego history; expected at least one")
        return found

    def __len__(self) -> int:
        return len(self._ticks)

    def id(self, number: int) -> str:
        """`recording/t0 in ns`."""
        return f"{self.name}/{self._ticks[number].stamp_ns}"

    def observation(self, number: int) -> Observation:
        """See `FrameSource`."""
        kept = self._ticks[number]
        cameras = {
            camera: tuple(Frame(frame.stamp_ns, frame.payload, decode_image) for frame in frames)
            for camera, frames in kept.cameras.items()
            if camera in TRAINED_CAMERAS
        }
        return Observation(kept.stamp_ns, cameras, kept.history, kept.route)


def _observations(bag: Bag, inputs: Inputs, stride: int) -> Iterator[Observation]:
    """What the evaluator would plan from, tick by tick."""
    camera_of = {topic: camera for camera, topic in inputs.cameras.items()}
    reference, scene, ticks, resets = min(inputs.cameras), Scene(list(inputs.cameras), decode_image), Ticks(stride), 0
    for message in bag.messages(inputs.topics):
        camera = camera_of.get(message.topic)
        if camera is None:
            sample = read_odometry(message.message)
            try:
                scene.add_odometry(sample.stamp_ns, sample.position, sample.quaternion_xyzw)
            except ObservationError:
                continue  # a pose that is not finite: as in an evaluation, the history does without it
        else:
            scene.add_image(camera, stamp_ns(message.message.header.stamp), message.message)
        if scene.resets != resets:
            resets = scene.resets
            ticks.restart()
        if camera == reference:
            ticks.reference_frame(stamp_ns(message.message.header.stamp))
        if ticks.oldest_pending_ns is not None:
            observation = scene.observe()
            if not isinstance(observation, Skip) and ticks.reached(observation.stamp_ns):
                yield observation


def _digest(values: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
