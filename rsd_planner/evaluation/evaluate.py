"""Runs recordings through the scene and the planner, message by message, as the node would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from rsd_planner.decoding.verify_length import LONGEST
from rsd_planner.errors import BagError, ImageError, ModelOutputError, ObservationError, ParameterError, PlannerError
from rsd_planner.evaluation.bag import Bag, BagMessage, open_bag
from rsd_planner.evaluation.interrupt import Interrupt, on_interrupt
from rsd_planner.evaluation.metrics import RecordedTrack
from rsd_planner.evaluation.progress import Progress, progress_of
from rsd_planner.evaluation.recording import Recording, new_recording
from rsd_planner.evaluation.report import write_page
from rsd_planner.evaluation.results import BagResult, Evaluation, PlanRecord
from rsd_planner.evaluation.summary import write_summary
from rsd_planner.evaluation.ticks import Ticks
from rsd_planner.evaluation.topics import Inputs, resolve
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.odometry import read_odometry
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan_checks import withhold_reason
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import STEP_NS, Observation
from rsd_planner.scene.scene import Scene, Skip, SkipReason

MIN_MARKER_LIFETIME_NS = 1_000_000_000


@dataclass(frozen=True)
class Request:
    """What to evaluate and where to write it."""

    bags: Sequence[Path]
    model: Path
    out: Path
    planner: PlannerSettings
    stride: int = 1  # steps of 0.1 s between ticks
    cameras: Mapping[int, str] | None = None  # camera id -> topic; None = by type and name
    odometry: str | None = None  # topic; None = by type


def evaluate(request: Request, console: Console) -> Evaluation:
    """Plans at every tick of every recording and writes plans.jsonl, summary.json, index.html and an MCAP per bag.

    The length of verify passes is fixed: as the fastest one of the moment, a second run would round differently.

    Ctrl-C ends it early: everything up to then is written, `stopped` says so.

    Raises:
        PlannerError: A recording, the model or the output directory is not usable. If planning had begun by then,
            what exists is written first.
    """
    if request.stride < 1:
        raise ParameterError(f"--stride is {request.stride}, expected 1 or more")
    if request.out.exists() and not request.out.is_dir():
        raise ParameterError(f"--out: {request.out} is a file, expected a directory or a new name")
    with ExitStack() as stack:
        bags = [stack.enter_context(open_bag(path)) for path in request.bags]
        inputs = [resolve(str(bag.path), bag.topics, request.cameras, request.odometry) for bag in bags]
        console.print(f"loading {request.model}", markup=False, highlight=False, soft_wrap=True)
        settings = replace(request.planner, verify_length=request.planner.verify_length or LONGEST)
        planner = Planner.load(request.model, settings)
        stack.callback(planner.close)
        inputs = [
            known_cameras(found, planner.info, bag.path, bool(request.cameras))
            for found, bag in zip(inputs, bags, strict=True)
        ]
        planner.warm_up()
        result = Evaluation(planner.info, settings, request.stride)
        result.bags = _new_results(bags, inputs, request)
        with _writing_to(request.out):
            request.out.mkdir(parents=True, exist_ok=True)
            damage = _run_all(bags, result, planner, request, console)
            write_summary(result, request.out / "summary.json")
            write_page(result, request.out / "index.html")
    if damage is not None:
        raise damage
    if not result.records and result.stopped is None:
        raise BagError(_no_plan(result))
    return result


def _run_all(
    bags: Sequence[Bag], result: Evaluation, planner: Planner, request: Request, console: Console
) -> PlannerError | None:
    """Evaluates every recording in turn; returns the error that stopped it, such as that of a damaged recording."""
    lifetime_ns = max(MIN_MARKER_LIFETIME_NS, 2 * STEP_NS * request.stride)
    with (
        (request.out / "plans.jsonl").open("w", encoding="utf-8", errors="backslashreplace") as lines,
        on_interrupt(console) as interrupt,
        progress_of(console) as progress,
    ):
        for bag, entry in zip(bags, result.bags, strict=True):
            with new_recording(entry.recording, lifetime_ns) as recording:
                run = BagRun(bag, entry, result, planner, recording, lines)
                try:
                    run.play(interrupt, progress)
                except PlannerError as error:
                    result.stopped = f"stopped after {result.ticks_done} of {result.ticks_expected} ticks: {error}"
                    return error
            if interrupt.requested:
                result.stopped = f"interrupted after {result.ticks_done} of {result.ticks_expected} ticks"
                return None
    return None


class BagRun:
    """One recording on its way through the scene and the planner."""

    def __init__(
        self,
        bag: Bag,
        entry: BagResult,
        result: Evaluation,
        planner: Planner,
        recording: Recording,
        lines: TextIO,
    ) -> None:
        self._bag, self._entry, self._result, self._planner = bag, entry, result, planner
        self._recording, self._lines = recording, lines
        self._camera_of = {topic: camera_id for camera_id, topic in entry.inputs.cameras.items()}
        self._reference = min(entry.inputs.cameras)
        self._scene = Scene(list(entry.inputs.cameras), decode_image)
        self._resets = 0
        self._ticks = Ticks(result.stride)
        self._track = RecordedTrack()
        self._odometry_frame = ""
        planner.reset()

    def play(self, interrupt: Interrupt, progress: Progress) -> None:
        """Feeds the messages in recorded order and plans at each tick.

        Raises:
            BagError: The recording is damaged; what came before it counts.
        """
        self._entry.tracks.append(self._track)
        progress.start(self._bag.name, self._bag.duration_s)
        try:
            for message in self._bag.messages(self._entry.inputs.topics):
                self._recording.copy(message)
                self._take(message)
                self._plan_if_due(message.log_ns)
                progress.at(
                    (message.log_ns - self._bag.start_ns) * 1e-9, self._entry.plans, self._ticks.skipped.total()
                )
                if interrupt.requested:
                    break
            else:
                self._ticks.restart()
        finally:
            self._entry.skipped, self._entry.skip_examples = self._ticks.skipped, self._ticks.examples

    def _take(self, message: BagMessage) -> None:
        camera_id = self._camera_of.get(message.topic)
        if camera_id is None:
            self._take_odometry(message.message)
            return
        stamp = stamp_ns(message.message.header.stamp)
        self._scene.add_image(camera_id, stamp, message.message)
        self._start_anew_after_reset()
        if camera_id == self._reference:
            self._ticks.reference_frame(stamp)

    def _take_odometry(self, message: Any) -> None:
        sample = read_odometry(message)
        try:
            self._scene.add_odometry(sample.stamp_ns, sample.position, sample.quaternion_xyzw)
        except ObservationError as error:
            self._entry.odometry_refused += 1
            self._entry.odometry_refused_example = self._entry.odometry_refused_example or str(error)
            return
        self._start_anew_after_reset()
        self._track.add(sample.stamp_ns, sample.position)
        self._odometry_frame = sample.frame_id

    def _start_anew_after_reset(self) -> None:
        """Time jumped back: what follows is another drive."""
        if self._scene.resets != self._resets:
            self._resets = self._scene.resets
            self._planner.reset()
            self._ticks.restart()
            self._track = RecordedTrack()
            self._entry.tracks.append(self._track)

    def _plan_if_due(self, log_ns: int) -> None:
        due_ns = self._ticks.oldest_pending_ns
        if due_ns is None:
            return
        observation = self._scene.observe()
        if isinstance(observation, Skip):
            self._ticks.explain(observation.reason.value, observation.detail)
        elif self._ticks.reached(observation.stamp_ns):
            self._plan(observation, log_ns)
        else:
            self._explain_lag(due_ns)

    def _explain_lag(self, due_ns: int) -> None:
        newest = self._track.newest_ns
        if newest is None or newest < due_ns:
            self._ticks.explain(SkipReason.ODOMETRY_BEHIND.value, f"odometry had not reached {due_ns} ns")
        else:
            detail = f"not every camera has a frame within 50 ms of {due_ns} ns"
            self._ticks.explain(SkipReason.CAMERAS_OUT_OF_SYNC.value, detail)

    def _plan(self, observation: Observation, log_ns: int) -> None:
        try:
            plan = self._planner.plan(observation)
        except ImageError as error:
            self._ticks.failed("undecodable_image", str(error))
            return
        except ModelOutputError as error:
            self._ticks.failed("model_output", str(error))
            return
        record = PlanRecord.of(self._bag.name, plan, observation, self._track, withhold_reason(plan))
        self._entry.plans += 1
        self._result.records.append(record)
        self._lines.write(json.dumps(record.as_json(), ensure_ascii=False, allow_nan=False) + "\n")
        self._lines.flush()
        if record.withheld is None:
            self._recording.add(plan, observation.history, self._odometry_frame, log_ns)
        self._result.pictures.offer(record, observation)


def known_cameras(inputs: Inputs, model: ModelInfo, bag: Path, given: bool) -> Inputs:
    """Leaves aside cameras that the model was not trained for, unless they were given by the user.

    Raises:
        ParameterError: One was, or none is left.
    """
    known = {number: topic for number, topic in inputs.cameras.items() if number in model.camera_ids}
    unknown = [f"{number}={topic}" for number, topic in inputs.cameras.items() if number not in known]
    trained = ", ".join(map(str, model.camera_ids))
    if not known or (unknown and given):
        raise ParameterError(
            f"{bag}: camera {', '.join(unknown)}: {model.name} was trained for cameras {trained}; "
            "choose with --camera ID=TOPIC"
        )
    unused = (*inputs.unused_images, *(topic for topic in inputs.cameras.values() if topic not in known.values()))
    return replace(inputs, cameras=known, unused_images=unused)


def _new_results(bags: Sequence[Bag], inputs: Sequence[Inputs], request: Request) -> list[BagResult]:
    results: list[BagResult] = []
    read = {path.resolve() for bag in bags for path in (bag.path, bag.path.parent)}
    for bag, found in zip(bags, inputs, strict=True):
        taken = [entry.recording.name for entry in results]
        name = f"{bag.name}_plans"
        number = 2
        while name in taken:
            name, number = f"{bag.name}_{number}_plans", number + 1
        if (request.out / name).resolve() in read:
            raise ParameterError(f"--out: {request.out / name} would be replaced while it is read; choose another one")
        ticks = (bag.end_ns - bag.start_ns) // (STEP_NS * request.stride) + 1
        results.append(BagResult(bag.name, bag.path, found, bag.duration_s, ticks, request.out / name))
    return results


def _no_plan(result: Evaluation) -> str:
    names = ", ".join(str(bag.path) for bag in result.bags)
    reasons = "; ".join(
        f"{count} ticks skipped: {reason} ({bag.skip_examples[reason]})"
        for bag in result.bags
        for reason, count in bag.skipped.items()
    )
    return f"{names}: no plan could be made; {reasons or 'no image of the reference camera'}"


@contextmanager
def _writing_to(out: Path) -> Iterator[None]:
    """Explains a full disk or missing permission in one line."""
    try:
        yield
    except OSError as error:
        raise ParameterError(f"--out: cannot write {error.filename or out}: {error.strerror or error}") from error
