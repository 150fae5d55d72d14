"""`rsd_planner demo evaluate`: from a model directory and the rendered splits to figures, model card and page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rsd_planner.demo.evaluation import figures
from rsd_planner.demo.evaluation.card import model_card
from rsd_planner.demo.evaluation.page import write_page
from rsd_planner.demo.evaluation.run import Asked, ask_all, weights_hash
from rsd_planner.demo.evaluation.tasks import HARD_SPLITS, SPLITS, Kind, parts
from rsd_planner.demo.world import ceiling
from rsd_planner.demo.world.dataset import Dataset, load_split
from rsd_planner.demo.world.splits import Split
from rsd_planner.evaluation.files import write_whole
from rsd_planner.planner import Planner

CEILING_EPOCHS = 5


@dataclass(frozen=True)
class Request:
    """What to evaluate, how much of it, and where to write it."""

    asked: Asked
    out: Path
    limit: int | None = None


def evaluate(request: Request, console: Console) -> figures.Numbers:
    """Ask, count, write figures.json, MODEL_CARD.md and scenes.html into `out`; a second run goes on from the first.

    Raises:
        PlannerError: The model or a split cannot be used, or `out` belongs to another model.
    """
    asked, out = request.asked, request.out
    parameters = _parameters(asked.model)
    data = {split: load_split(asked.data, split, request.limit) for split in SPLITS}
    out.mkdir(parents=True, exist_ok=True)
    classifier, about = _ceiling(asked.data, out / "ceiling.safetensors", console)
    sizes = {split: len(samples) for split, samples in data.items()}
    answers = ask_all(asked, parts(sizes, request.limit), out, console)
    splits = {split: [one for task in answers[Kind.SAMPLES, split] for one in task] for split in SPLITS}
    numbers: figures.Numbers = {
        "model": {"sha256": weights_hash(asked.model), "parameters": parameters},
        "commands": _commands(request),
        "ceiling": about,
        "splits": {
            split.value: figures.split_figures(own, data[split], ceiling.evaluate(classifier, data[split])[0])
            for split, own in splits.items()
        },
        "pairs_by_image": {
            split.value: figures.pairs_by_image_figures(answers[Kind.PAIR_BY_IMAGE, split]) for split in HARD_SPLITS
        },
        "pairs_by_history": {
            split.value: figures.pairs_by_history_figures(answers[Kind.PAIR_BY_HISTORY, split]) for split in HARD_SPLITS
        },
        "drives": {Split.OFF_SHELF.value: figures.drive_figures(answers[Kind.DRIVE, Split.OFF_SHELF])},
    }
    numbers["required"] = figures.requirements(numbers)
    write_whole(out / "figures.json", json.dumps(numbers, indent=1) + "\n")
    write_whole(out / "MODEL_CARD.md", model_card(numbers))
    shown = {split.value.replace("_", "-"): (splits[split], data[split]) for split in HARD_SPLITS}
    write_page(out / "scenes.html", numbers, splits[Split.TEST], data[Split.TEST], shown)
    return numbers


def _commands(request: Request) -> list[str]:
    limit = "" if request.limit is None else f" --limit {request.limit}"
    return [
        "rsd_planner demo render world",
        "rsd_planner demo train-target world model",
        f"rsd_planner demo evaluate model world --out figures{limit}",
    ]


def _parameters(model: Path) -> int:
    """Number of parameters; says before anything else is done whether this is a model at all."""
    planner = Planner.load(model)
    planner.close()
    return planner.info.parameters


def _ceiling(data: Path, path: Path, console: Console) -> tuple[ceiling.CauseNet, dict[str, str]]:
    """The image-only classifier of causes: the saved one, or a new one."""
    if not path.exists():
        train: Dataset = load_split(data, Split.TRAIN)
        console.print(f"training the ceiling classifier on {len(train)} samples, once", highlight=False)
        part = path.with_suffix(".part")
        ceiling.save(ceiling.train(train, CEILING_EPOCHS), part, len(train), CEILING_EPOCHS)
        part.rename(path)
    return ceiling.load(path)
