"""A training run on one device or many: validated with the real loop, the best kept, stopped and resumed at will.

What is trained is a `Trainee`; this knows neither drafts nor objectives. How many processes there are and how they
share the weights (DDP, FSDP, mixed precision) is `accelerate`'s configuration. Several machines need a common file
system.

In the run's folder: the best draft so far, and in `run/` the log, the recipe and, until the end, the state.
"""

from __future__ import annotations

import json
import math
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from rich.console import Console
from torch import Tensor, nn

from rsd_planner.errors import TrainingError
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.interrupt import Interrupt, on_interrupt
from rsd_planner.training.progress import counting
from rsd_planner.training.validation import Acceptance

SAVE_EVERY_S = 120.0
ECHO_S = 5.0  # see `on_interrupt`
LOG_EVERY = 10  # steps
DRAFT_FILES = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Schedule:
    """Numbers of a run."""

    steps: int
    rate: float  # peak learning rate
    validate_every: int  # steps
    warm_up: int = 100  # steps
    floor: float = 0.02  # of the peak, at the end
    decay: float = 0.01
    clip: float = 1.0  # of the gradient's norm
    seed: int = 0

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine down to the floor."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        share = (step - self.warm_up) / max(self.steps - self.warm_up, 1)
        return self.rate * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2)


class Trainee(Protocol):
    """What a run trains."""

    @property
    def module(self) -> nn.Module:
        """Called with what `batch` gives; answers named scalars, of which `loss` is minimised."""

    def recipe(self) -> Mapping[str, Any]:
        """All that makes the result what it is, as JSON: a state of another recipe is not gone on with."""

    def batch(self, step: int, part: int, parts: int) -> tuple[Any, ...]:
        """The `part`-th of `parts` equal shares of a step's batch; the same whenever it is asked for."""

    def export(self, weights: Mapping[str, Tensor], directory: Path) -> None:
        """Write the draft with these weights of `module`."""

    def validate(self, directory: Path, part: int, parts: int) -> Acceptance:
        """What the written draft is worth on the `part`-th of `parts` shares of the validation frames."""


@dataclass
class Progress:
    """How far a run is."""

    step: int = 0
    validated: int = 0  # the step last validated
    best_step: int = 0
    best: dict[str, float] = field(default_factory=dict)  # what `Acceptance.as_json` says of the best draft
    seconds: float = 0.0  # in steps, validation not counted
    finished: bool = False


def train(trainee: Trainee, schedule: Schedule, out: Path, accelerator: Accelerator, console: Console) -> Progress:
    """Run from the last saved state to the end, or to Ctrl-C.

    Returns:
        How far it came; `finished` if to the end.

    Raises:
        TrainingError: `out` holds a run of another recipe, or the loss is not finite.
    """
    run = _Run(trainee, schedule, out, accelerator, console)
    if run.progress.finished:
        console.print(f"{out}: finished before", markup=False, highlight=False, soft_wrap=True)
        return run.progress
    with on_interrupt(console, "step", ECHO_S) as interrupt, counting(console, "step", schedule.steps) as show:
        for note in run.steps(interrupt):
            show(run.progress.step, note)
    return run.progress


class _Run:
    def __init__(
        self, trainee: Trainee, schedule: Schedule, out: Path, accelerator: Accelerator, console: Console
    ) -> None:
        self._trainee, self._schedule, self._out = trainee, schedule, out
        self._accelerator, self._console = accelerator, console
        self._folder = out / "run"
        self._part, self._parts = accelerator.process_index, accelerator.num_processes
        self.progress = Progress()
        self._claim()
        if self.progress.finished:
            return
        warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")  # autocast's norms: meant so
        module = trainee.module.train()
        optimizer = torch.optim.AdamW(
            module.parameters(), lr=schedule.rate, betas=(0.9, 0.95), weight_decay=schedule.decay
        )
        self._module, self._optimizer = accelerator.prepare(module, optimizer)
        self._restore()
        self._saved = time.monotonic()

    def steps(self, interrupt: Interrupt) -> Iterator[str]:
        """Step after step and validation after validation, each with what there is to say of it."""
        note = ""
        while not self.progress.finished:
            if self._validation_due():
                self._validate()
            else:
                note = self._step() or note
            yield note
            stopped = self._agreed(interrupt.requested)
            due = self._agreed(time.monotonic() - self._saved > SAVE_EVERY_S)
            if (stopped or due) and not self.progress.finished:
                self._save()
            if stopped:
                return

    def _validation_due(self) -> bool:
        step = self.progress.step
        at_end = step == self._schedule.steps
        return (at_end or step % self._schedule.validate_every == 0) and step != self.progress.validated

    def _step(self) -> str | None:
        started = time.monotonic()
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule.rate_at(self.progress.step)
        found = self._module(*self._trainee.batch(self.progress.step, self._part, self._parts))
        self._optimizer.zero_grad()
        self._accelerator.backward(found["loss"])
        self._accelerator.clip_grad_norm_(self._module.parameters(), self._schedule.clip)
        self._optimizer.step()
        self.progress.step += 1
        step = self.progress.step
        if step % LOG_EVERY and step != self._schedule.steps:
            self.progress.seconds += time.monotonic() - started
            return None
        means = {name: float(self._accelerator.reduce(value.detach(), "mean")) for name, value in found.items()}
        self.progress.seconds += time.monotonic() - started
        if not math.isfinite(means["loss"]):
            raise TrainingError(f"step {step}: the loss is {means['loss']}, expected a number; try a lower --rate")
        rounded = {name: round(value, 5) for name, value in means.items()}
        self._log({"step": step, **rounded, "seconds": round(self.progress.seconds, 2)})
        best = f", best L {self.progress.best['accepted_length']:.2f}" if self.progress.best else ""
        return ", ".join(f"{name} {value:.3f}" for name, value in means.items()) + best

    def _validate(self) -> None:
        """Write the draft, measure it, keep it if it is the best so far; at the end, finish."""
        weights = self._accelerator.get_state_dict(self._module)
        candidate = self._folder / "candidate"
        if self._accelerator.is_main_process:
            self._trainee.export(weights, candidate)
        self._accelerator.wait_for_everyone()
        share = self._trainee.validate(candidate, self._part, self._parts)
        found = self._sum(share)
        self._accelerator.wait_for_everyone()
        figures = found.as_json()
        self.progress.validated = self.progress.step
        self._log({"step": self.progress.step, "validation": figures})
        if figures["accepted_length"] > self.progress.best.get("accepted_length", 0.0):
            self.progress.best, self.progress.best_step = figures, self.progress.step
            if self._accelerator.is_main_process:
                for name in DRAFT_FILES:
                    (candidate / name).replace(self._out / name)
        self._console.print(
            f"step {self.progress.step}: L {figures['accepted_length']:.3f} of at most {figures['ceiling']:.3f} "
            f"on {found.frames} validation frames",
            highlight=False,
            soft_wrap=True,
        )
        if self.progress.step == self._schedule.steps:
            self._finish()

    def _sum(self, share: Acceptance) -> Acceptance:
        counts = torch.tensor(
            [float(getattr(share, f.name)) for f in fields(share)], dtype=torch.float64, device=self._accelerator.device
        )
        total = self._accelerator.reduce(counts, "sum").tolist()
        named = {f.name: value for f, value in zip(fields(share), total, strict=True)}
        means = named.pop("frame_means")
        return replace(Acceptance(**{name: int(value) for name, value in named.items()}), frame_means=means)

    def _agreed(self, wish: bool) -> bool:
        """Whether any process wishes so: all must do the same."""
        if self._parts == 1:
            return wish
        if wish:
            self._accelerator.set_trigger()
        return bool(self._accelerator.check_trigger())

    def _log(self, line: Mapping[str, Any]) -> None:
        if self._accelerator.is_main_process:
            with (self._folder / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")

    def _claim(self) -> None:
        """Make the folder ours, or find it to be."""
        recipe = {**self._trainee.recipe(), "schedule": asdict(self._schedule)}
        path = self._folder / "recipe.json"
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if differing := sorted(name for name in {*found, *recipe} if found.get(name) != recipe.get(name)):
                name = differing[0]
                raise TrainingError(
                    f"{path}: {name} is {found.get(name)}, expected {recipe.get(name)}: use another --out"
                )
        elif self._accelerator.is_main_process:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(recipe, indent=1) + "\n")
        self._accelerator.wait_for_everyone()
        result = self._folder / "result.json"
        if result.exists():
            self.progress = Progress(**json.loads(result.read_text(encoding="utf-8")))

    def _save(self) -> None:
        """The whole state, beside the last one; then that one goes."""
        part = self._folder / "state.part"
        self._accelerator.save_state(str(part))
        self._accelerator.wait_for_everyone()
        if self._accelerator.is_main_process:
            earlier = self._states()
            (part / "progress.json").write_text(json.dumps(asdict(self.progress)), encoding="utf-8")
            kept = self._folder / f"state-{self.progress.step:08d}"
            if kept not in earlier:
                part.rename(kept)
            for path in earlier:
                if path != kept:
                    shutil.rmtree(path)
            shutil.rmtree(part, ignore_errors=True)
        self._accelerator.wait_for_everyone()
        self._saved = time.monotonic()

    def _restore(self) -> None:
        states = self._states()
        log = self._folder / "log.jsonl"
        if states:
            self._accelerator.load_state(str(states[-1]))
            self.progress = Progress(**json.loads((states[-1] / "progress.json").read_text(encoding="utf-8")))
        if self._accelerator.is_main_process and log.exists():
            lines = log.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if json.loads(line)["step"] <= self.progress.step]
            write_whole(log, "".join(f"{line}\n" for line in kept))
        self._accelerator.wait_for_everyone()

    def _states(self) -> list[Path]:
        return sorted(self._folder.glob("state-*"))

    def _finish(self) -> None:
        self.progress.finished = True
        if self._accelerator.is_main_process:
            write_whole(self._folder / "result.json", json.dumps(asdict(self.progress)) + "\n")
            for path in [*self._states(), self._folder / "candidate"]:
                shutil.rmtree(path, ignore_errors=True)
        self._accelerator.wait_for_everyone()
