"""Which measurements there are, the most telling ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch

from rsd_planner.gpu_check.catalogue import (
    DRAFT_PASSES,
    TARGET_PASSES,
    encode_name,
    flow_name,
    proposal_name,
    step_name,
)
from rsd_planner.gpu_check.report import Report
from rsd_planner.gpu_check.session import Session
from rsd_planner.gpu_check.shapes import FLOW_STEPS, NEW_IMAGES, STEPS, CheckShape
from rsd_planner.gpu_check.timing import LeftOutError
from rsd_planner.gpu_check.traces import Trace

_FIRST_COMPILATION_S, _COMPILATION_S = 45.0, 15.0
_FIRST = (
    *(step_name(count) for count in (1, 16)),
    flow_name(FLOW_STEPS[0]),
    proposal_name("dflash"),
    step_name(8),
    "prefill",
    encode_name(NEW_IMAGES),
)
_TENSORRT = ("tensorrt", "tensorrt_rtx")


@dataclass(frozen=True)
class Step:
    """One thing to do."""

    name: str
    act: Callable[[], None]
    estimate_s: float = 3.0  # how long it may take on one H200; it is left out where less is left


def all_steps(shape: CheckShape, device: torch.device, traces: Sequence[Trace], report: Report) -> Iterator[Step]:
    """In order of importance."""
    session = Session(shape, device, report)
    names = (*TARGET_PASSES, *DRAFT_PASSES)
    telling = (*_FIRST, *(name for name in names if name not in _FIRST))
    yield Step("target", session.make_target, 30.0)
    yield Step("floors", session.measure_rates)
    yield Step("drafts", session.make_drafts)
    for name in names:
        yield Step(f"{name}, eager", partial(session.eager, name))
    yield Step("memory, eager", partial(session.note_memory, "at its peak, eager"))
    yield Step("prompt in the static cache", session.fill)
    for count in STEPS:
        yield Step(f"attention of {count}", partial(session.choose_attention, count))
    for name in telling:
        yield Step(f"{name}, CUDA graph", partial(session.graph, name))
    yield Step("exactness, eager", session.compare_eager, 15.0)
    yield Step("exactness, static", session.compare_static, 5.0)
    yield from _ticks(session, traces, "ticks")
    for i, name in enumerate(telling):
        estimate = _COMPILATION_S if i else _FIRST_COMPILATION_S
        yield Step(f"{name}, compiled", partial(session.compiled, name), estimate)
        if name == _FIRST[-1] and device.type == "cuda":
            yield from _ticks(session, traces, "ticks, compiled")
    yield Step("memory", partial(session.note_memory, "at its peak"), 0.0)
    yield Step("TensorRT", partial(_tensorrt, report), 0.0)


def _ticks(session: Session, traces: Sequence[Trace], name: str) -> Iterator[Step]:
    if not traces:
        yield Step(name, _no_traces)
    for trace in traces:
        yield Step(f"{name}: {trace.name}", partial(session.run_ticks, trace), 10.0)


def _no_traces() -> None:
    raise LeftOutError("no --traces given")


def _tensorrt(report: Report) -> None:
    """Engines are built by build-engine; here only whether they could be."""
    found = [name for name in _TENSORRT if find_spec(name)]
    if not found:
        raise LeftOutError("neither tensorrt nor tensorrt_rtx can be imported")
    for name in found:
        report.machine[name] = str(getattr(import_module(name), "__version__", "of unknown version"))
