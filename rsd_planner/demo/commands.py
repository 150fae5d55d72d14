"""`rsd_planner demo render | train-target | train-drafts | evaluate`: the demo model from nothing to its figures."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.splits import Split
from rsd_planner.interruptible import interruptible
from rsd_planner.training.command import train_drafts


class Stage(str, Enum):
    """Of training."""

    SEE = "see"
    DRIVE = "drive"
    WEATHER = "weather"
    POLISH = "polish"
    LENGTHEN = "lengthen"


FROM_NOTHING = (Stage.SEE, Stage.DRIVE, Stage.WEATHER, Stage.POLISH)  # in this order

app = typer.Typer(help="The demo model: render its world, train it, measure it.", no_args_is_help=True)
app.command()(train_drafts)

DRIVES = {Split.TRAIN: 5000, Split.VAL: 128, Split.TEST: 256, Split.OFF_SHELF: 256}


@app.command()
def render(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory for the splits.")],
    split: Annotated[list[Split] | None, typer.Option(help="A split, repeatable.", show_default="all of them")] = None,
    drives: Annotated[
        int | None,
        typer.Option(
            min=1, help="Drives per split, about 8 samples each.", show_default="train 5000, val 128, others 256"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Render the driving world's splits; what is there already is kept."""
    with interruptible():
        from rich.console import Console

        from rsd_planner.demo.rendering import render as run

        run(out, {name: drives or DRIVES[name] for name in split or Split}, workers, Console(stderr=True))
    print(f"wrote {out}")


@app.command()
def train_target(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Directory with the rendered train split.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Model directory to write.")],
    stage: Annotated[
        Stage | None,
        typer.Option(
            help="Only this stage.", show_default="see, drive, weather, polish; for a long reasoning lengthen"
        ),
    ] = None,
    reasoning: Annotated[
        Reasoning,
        typer.Option(help="short: one sentence. Others: the scene first, in so many tokens."),
    ] = Reasoning.SHORT,
    start: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="What a long reasoning begins with.", show_default="the bundled model"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
) -> None:
    """Train the demo model; after Ctrl-C the same command goes on where it was."""
    with interruptible():
        from rich.console import Console

        from rsd_planner.demo.training import train as run

        stages = FROM_NOTHING if reasoning is Reasoning.SHORT else (Stage.LENGTHEN,)
        stages = stages if stage is None else (stage,)
        run(data, out, stages, device, Console(stderr=True), reasoning=reasoning, start=start)
    print(f"wrote {out / 'checkpoint'}, {out / 'processor'} and {out / 'curves.png'}")


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model directory.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Directory with the rendered splits.")],
    out: Annotated[Path, typer.Option(help="Directory for answers, figures and page.")] = Path("out/demo_figures"),
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per split, pairs per kind and ticks of drives at most.", show_default="all"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    max_tokens: Annotated[int, typer.Option(min=1, help="Reasoning tokens at most.")] = 96,
) -> None:
    """Measure a trained model: figures.json, MODEL_CARD.md and scenes.html.

    Every answer is kept as it comes: after Ctrl-C the same command goes on where it was.
    """
    with interruptible():
        from rich.console import Console

        from rsd_planner.demo.evaluation.evaluate import Request
        from rsd_planner.demo.evaluation.evaluate import evaluate as run
        from rsd_planner.demo.evaluation.run import Asked

        numbers = run(Request(Asked(model, data, workers, max_tokens), out, limit), Console(stderr=True))
    for entry in numbers["required"]:
        found = entry["found"] if isinstance(entry["found"], int) else f"{entry['found']:.1%}"
        verdict = "reached" if entry["met"] else "not reached"
        print(f"{entry['split']}: {entry['what']}: {found} ({entry['required']}: {verdict})")
    print(f"wrote {out / 'figures.json'}, MODEL_CARD.md and scenes.html")
