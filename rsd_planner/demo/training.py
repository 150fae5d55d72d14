"""`rsd_planner demo train-target`: from rendered splits to a model directory, stage after stage, resumable."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import load_file

from rsd_planner.demo.commands import Stage
from rsd_planner.demo.long_texts import with_long_texts
from rsd_planner.demo.model import demo_model_dir
from rsd_planner.demo.other_histories import with_other_histories
from rsd_planner.demo.progress import Progress
from rsd_planner.demo.trainer.blank import new_network, save_weights, write_model_directory
from rsd_planner.demo.trainer.stages import (
    DRIVE,
    LENGTHEN,
    POLISH,
    SEE,
    WEATHER,
    Recipe,
    train_drive,
    train_lengthen,
    train_polish,
    train_see,
    train_weather,
)
from rsd_planner.demo.world.dataset import load_split
from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import CheckpointError, ParameterError
from rsd_planner.evaluation import theme
from rsd_planner.planner import PlannerSettings
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.checkpoint import ModelDirectory, accessible
from rsd_planner.target.images import ImagePatcher
from rsd_planner.target.vocabulary import load_vocabulary

LOG, CURVES = "log.jsonl", "curves.png"
_LOADED = {  # before a stage: `drive` holds the whole network, `see` and `weather` the vision tower
    Stage.SEE: (),
    Stage.DRIVE: (Stage.SEE,),
    Stage.WEATHER: (Stage.DRIVE,),
    Stage.POLISH: (Stage.DRIVE, Stage.WEATHER),
    Stage.LENGTHEN: (),  # begins with a whole model
}
_NOT_LOSSES = ("stage", "step", "norm", "seconds")
_SMOOTHED = 50  # steps
_LOOK_EVERY_S = 1.0
_WORKERS = 2

RECIPES = {
    Stage.SEE: SEE,
    Stage.DRIVE: DRIVE,
    Stage.WEATHER: WEATHER,
    Stage.POLISH: POLISH,
    Stage.LENGTHEN: LENGTHEN,
}
_TRAIN = {
    Stage.SEE: train_see,
    Stage.DRIVE: train_drive,
    Stage.WEATHER: train_weather,
    Stage.POLISH: train_polish,
    Stage.LENGTHEN: train_lengthen,
}


def train(
    data: Path,
    out: Path,
    stages: Sequence[Stage],
    device: str,
    console: Console,
    recipes: dict[Stage, Recipe] = RECIPES,
    reasoning: Reasoning = Reasoning.SHORT,
    start: Path | None = None,
) -> None:
    """Train the stages into the model directory `out`; each goes on from its last saved state.

    A long reasoning is learned in the stage `lengthen`, which begins with the weights of a trained model. Writes
    checkpoint and processor, log.jsonl, curves.png, and each stage's state, which may be deleted afterwards.

    Args:
        start: Directory of the model that `lengthen` begins with; None for the bundled one.

    Raises:
        ParameterError: A stage is to begin without the one before it or for a reasoning it does not teach, or there is
            no such device.
        CheckpointError: There is no demo model in `start`.
        DatasetError: `data` has no train split.
        TrainingStateError: `out` holds a state of another recipe.
    """
    PlannerSettings(device=device)  # knows what a device is
    _check_beginning(out, stages, reasoning)
    if start is not None and reasoning is Reasoning.SHORT:
        raise ParameterError("--start: only a long reasoning begins with a trained model; choose --reasoning")
    long = reasoning is not Reasoning.SHORT
    weights = ModelDirectory.find(start or demo_model_dir()).checkpoint / "model.safetensors" if long else None
    samples = load_split(data, Split.TRAIN, recipes[Stage.LENGTHEN].samples if long else None)
    out.mkdir(parents=True, exist_ok=True)
    target = new_target(out, recipes[Stage.SEE].seed, device)
    _load_stages_before(target, out, stages[0])
    if weights is not None:
        _load_weights(target, weights)
    if long:
        samples = with_long_texts(samples, reasoning, out, _WORKERS, console)
    elif Stage.POLISH in stages:
        samples = with_other_histories(samples, out, _WORKERS, console)
    for stage in stages:
        with Progress(console) as progress, _followed(out / LOG, stage, recipes[stage].steps, progress):
            _TRAIN[stage](target, samples, out, replace(recipes[stage], reasoning=reasoning.value))
        save_weights(target.network, out)
        draw_curves(out / LOG, out / CURVES)


def new_target(out: Path, seed: int, device: str) -> AlpamayoTarget:
    """An untrained target, its directory written but for the weights."""
    write_model_directory(out)
    config, network = new_network(out, seed)
    processor = out / "processor"
    network.to(torch.device(device))
    return AlpamayoTarget(config, network, load_vocabulary(config, processor), ImagePatcher(config, processor))


@contextmanager
def _followed(log: Path, stage: Stage, steps: int, progress: Progress) -> Iterator[None]:
    """Shows what training writes into its log."""
    progress.start(stage.value, steps)
    done = threading.Event()

    def follow() -> None:
        with log.open(encoding="utf-8") as lines:
            while True:
                ended = done.wait(_LOOK_EVERY_S)
                for entry in _entries(lines.read()):
                    if entry.pop("stage") == stage.value:
                        losses = [f"{name} {value:.3f}" for name, value in entry.items() if name not in _NOT_LOSSES]
                        progress.at(entry["step"], ", ".join(losses))
                if ended:
                    return

    log.touch()
    follower = threading.Thread(target=follow, name="follower", daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()


def _entries(text: str) -> Iterator[dict[str, Any]]:
    """Lines of a log; one that a killed process left unfinished is no entry."""
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def draw_curves(log: Path, path: Path) -> None:
    """Every loss of every stage against its steps, smoothed."""
    import numpy as np
    from matplotlib.figure import Figure

    lines = list(_entries(log.read_text(encoding="utf-8")))
    stages = list(dict.fromkeys(line["stage"] for line in lines))
    with theme.style():
        figure = Figure(figsize=(6 * len(stages), 4), layout="constrained")
        for number, stage in enumerate(stages, start=1):
            axes = figure.add_subplot(1, len(stages), number)
            own = [line for line in lines if line["stage"] == stage]
            steps = np.array([line["step"] for line in own])
            for name in (name for name in own[-1] if name not in _NOT_LOSSES):
                width = min(_SMOOTHED, len(own))
                values = np.convolve([line[name] for line in own], np.full(width, 1 / width), mode="valid")
                axes.plot(steps[width - 1 :], values, lw=1.4, label=name)
            axes.set_yscale("log")
            axes.set_title(f"{stage}: losses, mean of {_SMOOTHED} steps")
            axes.set_xlabel("step")
            axes.legend()
        figure.savefig(path, dpi=120)


def _check_beginning(out: Path, stages: Sequence[Stage], reasoning: Reasoning) -> None:
    """Before anything is prepared: whether these stages can begin, and whether what `out` holds is theirs."""
    for stage in stages:
        if (reasoning is not Reasoning.SHORT) is not (stage is Stage.LENGTHEN):
            raise ParameterError(
                f"--stage {stage.value} with --reasoning {reasoning.value}: a long reasoning, and no other, is learned "
                f"in the stage {Stage.LENGTHEN.value}"
            )
    first = stages[0]
    for before in _LOADED[first]:
        path = _state(out, before)
        if not path.exists():
            raise ParameterError(f"--stage {first.value}: {path} is not there; train the stage {before.value} first")
    weights = out / "checkpoint" / "model.safetensors"
    if weights.exists() and not any(_state(out, stage).exists() for stage in (*_LOADED[first], first)):
        raise ParameterError(f"{weights}: found a model that was not begun here, and would be lost; use another OUT")


def _state(out: Path, stage: Stage) -> Path:
    return out / f"{stage.value}.pt"


def _load_weights(target: AlpamayoTarget, path: Path) -> None:
    with accessible(path):
        tensors = load_file(path)
    try:
        target.network.load_state_dict(tensors)
    except RuntimeError:
        raise CheckpointError(f"{path}: not the weights of a demo model, expected those train-target writes") from None


def _load_stages_before(target: AlpamayoTarget, out: Path, stage: Stage) -> None:
    """What the stages before this one have taught, if there are any."""
    for before in _LOADED[stage]:
        whole = before is Stage.DRIVE
        name, part = ("network.", target.network) if whole else ("vision.", target.network.vision)
        state = torch.load(_state(out, before), map_location="cpu", weights_only=True)["model"]
        part.load_state_dict({key.removeprefix(name): tensor for key, tensor in state.items() if key.startswith(name)})
