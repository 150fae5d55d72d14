"""Run all strategies on the same frames, in turn on each, so that whatever disturbs the machine disturbs all alike."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rsd_planner.bench.drafted import drafted, load_engine, ngram, on_engine
from rsd_planner.bench.drives import drive_stretches
from rsd_planner.bench.exactness import Agreement, kv_difference, margin
from rsd_planner.bench.reference import ReferencePipeline
from rsd_planner.bench.rows import Baselines, Measured, row
from rsd_planner.bench.setting import describe
from rsd_planner.bench.step_times import StepTimes
from rsd_planner.bench.strategies import PlannerStrategy, Strategy, Tick
from rsd_planner.bench.stretches import Stretch, bag_stretches
from rsd_planner.demo.world.splits import Split
from rsd_planner.engine.backends import BackendName
from rsd_planner.errors import ParameterError
from rsd_planner.evaluation.bag import open_bag
from rsd_planner.evaluation.evaluate import known_cameras
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.interrupt import Interrupt, on_interrupt
from rsd_planner.evaluation.topics import resolve
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import Observation
from rsd_planner.training.frames import BagOptions, open_frames, spread

WARM_UP = 2  # runs of each strategy before anything counts
MEMORY = PlannerSettings().memory_ticks
INDEPENDENT, CONSECUTIVE = "independent", "consecutive"


@dataclass(frozen=True)
class Request:
    """What to measure and where to write it."""

    model: Path
    drafts: Sequence[Path]  # none: those in the model directory, if it has any
    frames: int  # of each kind
    out: Path
    planner: PlannerSettings
    data: Path | None = None  # folder of the driving world's splits; this or a bag
    split: Split = Split.OFF_SHELF
    bag: Path | None = None
    engine: Path | None = None  # exported graphs of the model and its own draft, measured beside PyTorch
    exactness_only: bool = False  # no reference pipeline and one flow step: many frames in little time
    kinds: Sequence[str] = (INDEPENDENT, CONSECUTIVE)  # of frames
    cameras: Mapping[int, str] | None = None  # of the bag: id -> topic; None: by name
    odometry: str | None = None  # of the bag; None: by type


@dataclass
class Section:
    """Strategies measured on frames of one kind; the plain loop in PyTorch is the first."""

    frames: str  # INDEPENDENT or CONSECUTIVE
    stretches: Iterable[Stretch]
    measured: list[Measured]
    done: int = 0


@dataclass
class Bench:
    """All that was measured, whole or as far as it got."""

    request: Request
    planner: Planner
    sections: list[Section] = field(default_factory=list)
    steps: dict[str, StepTimes] = field(default_factory=lambda: defaultdict(StepTimes))  # by backend
    partial: bool = True

    def rows(self) -> list[dict[str, Any]]:
        """The rows of bench.json."""
        return [
            row(measured, section.frames, self._baselines(section, measured.strategy.backend))
            for section in self.sections
            if section.done
            for measured in sorted(section.measured, key=lambda m: not isinstance(m.strategy, ReferencePipeline))
        ]

    def _baselines(self, section: Section, backend: str) -> Baselines:
        loops = [m for m in section.measured if m.strategy.depth == 0]
        references = [m for m in loops if isinstance(m.strategy, ReferencePipeline)]
        # transformers' row stands beside the plain loop in PyTorch, which runs the same weights
        plain = next((m for m in loops if m.strategy.backend == backend and m not in references), section.measured[0])
        return Baselines(plain, references[0] if references else None, self.steps[plain.strategy.backend])

    def time_steps(self, strategy: Strategy) -> None:
        """Time verify passes behind a frame that a plain loop has just decoded."""
        if isinstance(strategy, PlannerStrategy) and strategy.depth == 0:
            self.steps[strategy.backend].measure(strategy.target)

    @property
    def machine(self) -> str:
        """A line for the chart."""
        setting = describe(self.request.model, self.request.planner)
        name, threads = setting["machine"]["gpu"] or setting["machine"]["cpu"], setting["threads"]
        return f"{name}, {threads} thread{'s' if threads > 1 else ''}, {self.request.planner.dtype}"

    def as_json(self) -> dict[str, Any]:
        """bench.json."""
        return {
            "partial": self.partial,
            "frames": {section.frames: section.done for section in self.sections},
            "rows": self.rows(),
            "step_ms": {
                backend: {str(count): ms for count, ms in steps.medians().items()}
                for backend, steps in self.steps.items()
            },
            **describe(self.request.model, self.request.planner),
            "split": self.request.split.value if self.request.data else None,
            "exactness_only": self.request.exactness_only,
            "bag": str(self.request.bag) if self.request.bag else None,
        }


def bench(request: Request, console: Console) -> Bench:
    """Measure, and write `bench.json` whatever ends it; Ctrl-C leaves a partial one that says so.

    Raises:
        PlannerError: Model, draft, data or output directory is not usable.
    """
    _check(request)
    request = replace(request, planner=replace(request.planner, backend=BackendName.PYTORCH.value))  # graphs: `engine`
    with ExitStack() as stack:
        planner = Planner.load(request.model, replace(request.planner, allow_plain_decoding=bool(request.drafts)))
        stack.callback(planner.close)
        result = Bench(request, planner)
        result.sections = list(_sections(request, planner, stack, console))
        interrupt = stack.enter_context(on_interrupt(console))
        try:
            with _progress(console) as progress:
                whole = [_measure(section, result, interrupt, progress) for section in result.sections]
            result.partial = not all(whole)
        finally:
            path = request.out / "bench.json"
            write_whole(path, json.dumps(result.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return result


def _check(request: Request) -> None:
    if (request.data is None) == (request.bag is None):
        raise ParameterError("expected either --data or --bag")
    if request.frames < 1:
        raise ParameterError(f"--frames is {request.frames}, expected 1 or more")
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(f"--out: cannot write {error.filename}: {error.strerror}") from error


def _sections(request: Request, planner: Planner, stack: ExitStack, console: Console) -> Iterator[Section]:
    settings = replace(request.planner, flow_steps=1) if request.exactness_only else request.planner
    plain, memory = replace(settings, memory_ticks=0), replace(settings, memory_ticks=MEMORY)
    loop = PlannerStrategy("plain loop", planner.target, planner.info, plain)
    reference = [] if request.exactness_only else [ReferencePipeline(planner.target, plain)]
    alone = drafted(request.model, request.drafts, planner, plain)
    remembering: list[Strategy] = [PlannerStrategy("memory", planner.target, planner.info, memory)]
    remembering += drafted(request.model, request.drafts, planner, memory)
    if request.engine is not None:
        engine = load_engine(request.model, request.engine, planner.info, stack)
        alone += on_engine(engine, request.model, plain)
        remembering += on_engine(engine, request.model, memory)
    if request.data is not None:
        samples = open_frames(request.data, request.split, BagOptions())
        stretches = ([samples.observation(number)] for number in spread(samples, request.frames))
        if INDEPENDENT in request.kinds:
            guess = ngram(request.data, planner, plain, console)
            yield _section(INDEPENDENT, stretches, [loop, *reference, *guess, *alone])
        if CONSECUTIVE in request.kinds:
            drawn = drive_stretches(request.split, request.frames, request.out / "drives")
            yield _section(CONSECUTIVE, drawn, [loop, *reference, *remembering])
    if request.bag is not None:
        bag = stack.enter_context(open_bag(request.bag))
        inputs = resolve(str(bag.path), bag.topics, request.cameras, request.odometry)
        inputs = known_cameras(inputs, planner.info, bag.path, False)
        recorded = bag_stretches(bag, inputs, request.frames)
        yield _section(CONSECUTIVE, recorded, [loop, *reference, *alone, *remembering])


def _section(frames: str, stretches: Iterable[Stretch], strategies: Sequence[Strategy]) -> Section:
    return Section(frames, stretches, [Measured(strategy) for strategy in strategies])


def _measure(section: Section, result: Bench, interrupt: Interrupt, progress: Progress) -> bool:
    """Run all strategies on all frames of a section; whether it got to its end."""
    task = progress.add_task(f"{section.frames} frames", total=result.request.frames)
    stretches = iter(section.stretches)
    first = next(stretches, None)
    if first is None:
        return True
    for _ in range(WARM_UP):
        for measured in section.measured:
            measured.strategy.run(first[0])
    for stretch in chain([first], stretches):
        for measured in section.measured:
            measured.strategy.forget()
        for observation in stretch:
            if interrupt.requested:
                return False
            _one_frame(section, observation, result)
            section.done += 1
            progress.advance(task)
            _said(progress, section.frames, section.done, result.request.frames)
    return True


def _one_frame(section: Section, observation: Observation, result: Bench) -> None:
    """The plain loop, then the others in an order that changes from frame to frame; none counts unless all came."""
    target = result.planner.target
    plain, *others = section.measured
    ticks = [(plain, plain.strategy.run(observation), Agreement(None, None))]
    expected = plain.strategy.keys_values() if result.request.planner.dtype == "float32" else None
    result.time_steps(plain.strategy)
    turn = section.done % max(len(others), 1)
    for measured in (*others[turn:], *others[:turn]):
        tick = measured.strategy.run(observation)
        found = kv_difference(expected, measured.strategy.keys_values()) if expected is not None else None
        result.time_steps(measured.strategy)
        lead = margin(target, observation, ticks[0][1].token_ids, tick.token_ids)
        ticks.append((measured, tick, Agreement(lead, found)))
    _keep(ticks)


def _keep(ticks: Sequence[tuple[Measured, Tick, Agreement]]) -> None:
    for measured, tick, agreement in ticks:
        measured.ticks.append(tick)
        measured.agreements.append(agreement)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere `_said` prints a line now and then."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield progress


def _said(progress: Progress, frames: str, done: int, total: int) -> None:
    if not progress.console.is_terminal and (done * 10 // total > (done - 1) * 10 // total):
        progress.console.print(f"{frames} frames: {done} of {total}", highlight=False)
