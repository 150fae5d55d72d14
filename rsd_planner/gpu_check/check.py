"""The check: steps in order of importance, each on its own, within a budget of time."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console

from rsd_planner.errors import ParameterError, one_line
from rsd_planner.gpu_check.machine import describe
from rsd_planner.gpu_check.report import Outcome, Report
from rsd_planner.gpu_check.shapes import ALPAMAYO, LONGEST_REASONING, SHAPES
from rsd_planner.gpu_check.steps import Step, all_steps
from rsd_planner.gpu_check.timing import LeftOutError
from rsd_planner.gpu_check.traces import read_traces

_GRACE_S = 10.0  # by which a step may outlast the budget before it is stopped
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Request:
    """What to measure and where to write it."""

    out: Path
    shape: str = ALPAMAYO.name
    budget_s: float = 240.0
    traces: Path | None = None
    started: float = field(default_factory=time.monotonic)  # what the budget counts from


class OutOfTimeError(Exception):
    """The budget is spent."""


def run(request: Request, console: Console) -> Report:
    """Run the check; `gpu_check.json` and `gpu_check.md` are written after every step.

    Raises:
        ParameterError: The request makes no sense, or needs a device that is not there.
    """
    if request.shape not in SHAPES:
        raise ParameterError(f"--shape is {request.shape}, expected one of {', '.join(SHAPES)}")
    if not request.budget_s > 0:
        raise ParameterError(f"--budget-seconds is {request.budget_s}, expected more than 0")
    traces = read_traces(request.traces, LONGEST_REASONING) if request.traces else []
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cpu" and request.shape == ALPAMAYO.name:
        raise ParameterError(
            f"--shape {ALPAMAYO.name} needs a CUDA device with 40 GB, found none; --shape tiny runs on the CPU"
        )
    request.out.mkdir(parents=True, exist_ok=True)
    report = Report(describe(request.shape, device))
    with torch.no_grad():
        run_steps(all_steps(SHAPES[request.shape], device, traces, report), request, report, console)
    return report


def run_steps(steps: Iterable[Step], request: Request, report: Report, console: Console) -> None:
    """Do what fits the budget; whatever one step meets, the next one is tried."""
    for step in steps:
        left = request.budget_s - (time.monotonic() - request.started)
        if step.estimate_s > left:
            reason = f"does not fit the budget of {request.budget_s:.0f} s"
            report.outcomes.append(Outcome(step.name, "skipped", reason=reason))
        else:
            report.outcomes.append(_attempt(step, left + _GRACE_S))
        report.write(request.out)
        _say(console, report.outcomes[-1])
    report.complete = True
    report.write(request.out)


def _attempt(step: Step, seconds: float) -> Outcome:
    started = time.monotonic()
    try:
        with _stopped_after(seconds):
            step.act()
    except LeftOutError as error:
        return Outcome(step.name, "skipped", reason=str(error))
    except Exception as error:  # whatever it is, it is written down and the next step is tried
        reason = f"{type(error).__name__}: {one_line(error)}"[:_LONGEST_REASON]
        return Outcome(step.name, "failed", time.monotonic() - started, reason, traceback.format_exc())
    return Outcome(step.name, "done", time.monotonic() - started)


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError in here when the time is up: a compilation has no end of its own."""

    def stop(_: int, __: FrameType | None) -> None:
        raise OutOfTimeError("stopped: the budget was spent")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say(console: Console, outcome: Outcome) -> None:
    detail = f"{outcome.seconds:.1f} s" if outcome.status == "done" else f"{outcome.status}: {outcome.reason}"
    console.print(f"{outcome.name}: {detail}", markup=False, highlight=False, soft_wrap=True)
