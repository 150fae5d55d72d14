"""Run all strategies on the same frames, in turn on each, so that whatever disturbs the machine disturbs all alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rsd_planner.bench.drives import drive_stretches
from rsd_planner.bench.exactness import Agreement, kv_difference, margin
from rsd_planner.bench.ngram import NgramDraft, training_texts
from rsd_planner.bench.reference import ReferencePipeline
from rsd_planner.bench.rows import Baselines, Measured, row
from rsd_planner.bench.setting import describe
from rsd_planner.bench.step_times import StepTimes
from rsd_planner.bench.strategies import PlannerStrategy, Strategy, Tick
from rsd_planner.bench.stretches import Stretch, bag_stretches
from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.load import load_draft
from rsd_planner.errors import ParameterError, PlannerError
from rsd_planner.evaluation.bag import open_bag
from rsd_planner.evaluation.evaluate import known_cameras
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.interrupt import Interrupt, on_interrupt
from rsd_planner.evaluation.topics import resolve
from rsd_planner.planner import Planner, PlannerSettings, target_parts
from rsd_planner.scene.observation import Observation
from rsd_planner.target.checkpoint import ModelDirectory
from rsd_planner.training.frames import BagOptions, open_frames

WARM_UP = 2  # runs of each strategy before anything counts
MEMORY = PlannerSettings().memory_ticks
INDEPENDENT, CONSECUTIVE = "independent", "consecutive"


@dataclass(frozen=True)
class Request:
    """What to measure and where to write it."""

    model: Path
    drafts: Sequence[Path]  # none: the model directory's own, if it has one
    frames: int  # of each kind
    out: Path
    planner: PlannerSettings
    data: Path | None = None  # folder of the driving world's splits; this or a bag
    split: Split = Split.OFF_SHELF
    bag: Path | None = None
    exactness_only: bool = False  # no reference pipeline and one flow step: many frames in little time


@dataclass
class Section:
    """Strategies measured on frames of one kind; the plain loop is the first."""

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
    steps: StepTimes = field(default_factory=StepTimes)
    partial: bool = True

    def rows(self) -> list[dict[str, Any]]:
        """The rows of bench.json."""
        rows = []
        for section in self.sections:
            if section.done:
                references = [m for m in section.measured if isinstance(m.strategy, ReferencePipeline)]
                base = Baselines(section.measured[0], references[0] if references else None, self.steps)
                others = [measured for measured in section.measured if measured not in references]
                rows += [row(measured, section.frames, base) for measured in (*references, *others)]
        return rows

    @property
    def machine(self) -> str:
        """A line for the chart."""
        cpu = describe(self.request.model, self.request.planner)
        threads, dtype = cpu["threads"], self.request.planner.dtype
        return f"{cpu['machine']['gpu'] or cpu['machine']['cpu']}, {threads} threads, {dtype}"

    def as_json(self) -> dict[str, Any]:
        """bench.json."""
        return {
            "partial": self.partial,
            "frames": {section.frames: section.done for section in self.sections},
            "rows": self.rows(),
            "step_ms": {str(count): ms for count, ms in self.steps.medians().items()},
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
    reference = [] if request.exactness_only else [ReferencePipeline(planner.target, plain)]
    loop = PlannerStrategy("plain loop", planner, plain)
    alone = _drafted(request, planner, plain)
    remembering: list[Strategy] = [PlannerStrategy("memory", planner, memory)]
    remembering += _drafted(request, planner, memory)
    if request.data is not None:
        samples = open_frames(request.data, request.split, BagOptions(), limit=request.frames)
        stretches = ([samples.observation(number)] for number in range(len(samples)))
        guess = _ngram(request.data, planner, plain, console)
        yield _section(INDEPENDENT, stretches, [loop, *reference, *guess, *alone])
        drawn = drive_stretches(request.split, request.frames, request.out / "drives")
        yield _section(CONSECUTIVE, drawn, [loop, *reference, *remembering])
    if request.bag is not None:
        bag = stack.enter_context(open_bag(request.bag))
        inputs = resolve(str(bag.path), bag.topics, None, None)
        inputs = known_cameras(inputs, planner.info, bag.path, False)
        yield _section(
            CONSECUTIVE, bag_stretches(bag, inputs, request.frames), [loop, *reference, *alone, *remembering]
        )


def _section(frames: str, stretches: Iterable[Stretch], strategies: Sequence[Strategy]) -> Section:
    return Section(frames, stretches, [Measured(strategy) for strategy in strategies])


def _drafted(request: Request, planner: Planner, settings: PlannerSettings) -> list[Strategy]:
    """A strategy per draft, named by what it is."""
    own = ModelDirectory.find(request.model).draft
    found: list[Strategy] = []
    directories = request.drafts or ([own] if own else [])
    loaded = [(path, *load_draft(path, target_parts(planner.target))) for path in directories]
    kinds = [f"{config.kind.value}, {config.rope.value}" for _, _, config in loaded]
    for (path, draft, config), kind in zip(loaded, kinds, strict=True):
        name = kind if kinds.count(kind) == 1 else f"{kind} ({path.name})"
        name = f"memory + {name}" if settings.memory_ticks else name
        found.append(PlannerStrategy(name, planner, settings, draft=draft, taps=config.taps, origin=str(path)))
    return found


def _ngram(data: Path, planner: Planner, settings: PlannerSettings, console: Console) -> list[Strategy]:
    words = planner.target.vocabulary
    try:
        texts = training_texts(data)
    except PlannerError as error:
        console.print(f"no n-gram row: {error}", markup=False, highlight=False, soft_wrap=True)
        return []
    closing = [words.cot_end, words.future_start]
    ids = {text: [*words.encode(text), *closing] for text in set(texts)}
    draft = NgramDraft(ids[text] for text in texts)
    return [PlannerStrategy("n-gram", planner, settings, draft=draft, origin=f"{len(texts)} training texts")]


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
    result.steps.measure(target)
    turn = section.done % max(len(others), 1)
    for measured in (*others[turn:], *others[:turn]):
        tick = measured.strategy.run(observation)
        found = kv_difference(expected, measured.strategy.keys_values()) if expected is not None else None
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
