"""One plan as a picture: what RViz or Foxglove would show at that moment of a recording, without either."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rsd_planner.errors import BagError, ObservationError, ParameterError
from rsd_planner.evaluation.bag import Bag, open_bag
from rsd_planner.evaluation.evaluate import known_cameras
from rsd_planner.evaluation.metrics import RecordedTrack
from rsd_planner.evaluation.topics import Inputs, resolve
from rsd_planner.evaluation.view_figure import Shown, draw
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.odometry import read_odometry
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.plan_checks import withhold_reason
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import Observation
from rsd_planner.scene.scene import Scene, Skip

SUFFIXES = (".png", ".jpg", ".pdf", ".svg")
FUTURE_S = 7.0  # of odometry after t0 that is read, to draw what the vehicle then did


@dataclass(frozen=True)
class ViewRequest:
    """What to show and where to write it."""

    bag: Path
    at_s: float  # since the first message of the recording
    out: Path
    model: Path
    planner: PlannerSettings
    cameras: Mapping[int, str] | None = None  # camera id -> topic; None = by type and name
    odometry: str | None = None  # topic; None = by type


def view(request: ViewRequest) -> Shown:
    """Plan at the newest t0 that a node would have had at that moment, and write the picture.

    Raises:
        BagError: The recording cannot be read, or nothing can be planned at that moment: the message says why.
        ParameterError: The moment or the file is out of the question, or the file cannot be written.
        CheckpointError: The model cannot be loaded.
    """
    if request.out.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"--out: {request.out} expected a name that ends in {', '.join(SUFFIXES)}")
    with ExitStack() as stack:
        bag = stack.enter_context(open_bag(request.bag))
        if not 0 <= request.at_s <= bag.duration_s:
            raise ParameterError(
                f"--at is {request.at_s:g} s, expected 0 to {bag.duration_s:.1f} s: as long as {bag.path} lasts"
            )
        inputs = resolve(str(bag.path), bag.topics, request.cameras, request.odometry)
        planner = Planner.load(request.model, request.planner)
        stack.callback(planner.close)
        inputs = known_cameras(inputs, planner.info, bag.path, bool(request.cameras))
        moment = _Moment(bag, inputs, request.at_s)
        plan = planner.plan(moment.observation)
        shown = Shown(
            title=f"{bag.name}, {request.at_s:g} s",
            observation=moment.observation,
            plan=plan,
            future=moment.track.future(plan.stamp_ns, moment.observation.history.pose_t0),
            withheld=withhold_reason(plan),
            model=planner.info,
        )
    try:
        request.out.parent.mkdir(parents=True, exist_ok=True)
        draw(shown).savefig(request.out)
    except OSError as error:
        raise ParameterError(f"--out: cannot write {request.out}: {error.strerror or error}") from error
    return shown


class _Moment:
    """A recording up to one moment, and where the vehicle went from there."""

    def __init__(self, bag: Bag, inputs: Inputs, at_s: float) -> None:
        self._camera_of = {topic: camera_id for camera_id, topic in inputs.cameras.items()}
        self._scene = Scene(list(inputs.cameras), decode_image)
        self._resets = 0
        self.track = RecordedTrack()
        moment_ns = bag.start_ns + round(at_s * 1e9)
        for message in bag.messages(inputs.topics):
            if message.log_ns <= moment_ns:
                self._take(message.topic, message.message)
            elif message.log_ns > moment_ns + FUTURE_S * 1e9:
                break
            elif message.topic == inputs.odometry:
                sample = read_odometry(message.message)
                self.track.add(sample.stamp_ns, sample.position)
        self.observation = self._observe(bag, at_s)

    def _take(self, topic: str, message: Any) -> None:
        if topic in self._camera_of:
            self._scene.add_image(self._camera_of[topic], stamp_ns(message.header.stamp), message)
        else:
            sample = read_odometry(message)
            try:
                self._scene.add_odometry(sample.stamp_ns, sample.position, sample.quaternion_xyzw)
            except ObservationError:  # as the node does: one bad pose is left out
                return
            self.track.add(sample.stamp_ns, sample.position)
        if self._scene.resets != self._resets:  # time jumped back: what was before is another drive
            self._resets = self._scene.resets
            self.track = RecordedTrack()

    def _observe(self, bag: Bag, at_s: float) -> Observation:
        observed = self._scene.observe()
        if isinstance(observed, Skip):
            raise BagError(
                f"{bag.path}: nothing can be planned at {at_s:g} s: {observed.reason.value}: {observed.detail}; "
                "a plan needs 1.5 s of odometry and 0.3 s of images before it"
            )
        return observed
