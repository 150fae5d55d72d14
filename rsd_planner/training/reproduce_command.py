"""The command `rsd_planner reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.interruptible import EXIT_INTERRUPTED, interruptible
from rsd_planner.training import options


def reproduce(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the demo world's splits.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Everything goes there; the same call goes on.")],
    target: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Model directory.", show_default="the bundled demo model")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON with the numbers that differ; a wrong name lists all."),
    ] = None,
    drafts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Distilled drafts of `demo train-drafts`, used as they are.")
    ] = None,
    chain: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Model that reasons at greater length, repeatable: drafts are trained for it."
        ),
    ] = None,
    cache: options.CacheDir = None,
    cache_gb: options.CacheGb = 8.0,
    device: options.Device = "cpu",
) -> None:
    """Put the paper's claims to the test: train and measure every row, in turn, and say which claims hold here.

    Writes results.json and results.md, anew after every draft. Ctrl-C saves; the same command goes on.
    """
    with interruptible():
        from rich.console import Console

        from rsd_planner.demo.model import demo_model_dir
        from rsd_planner.training.reproduce import Recipe, ReproduceRequest
        from rsd_planner.training.reproduce import reproduce as run

        recipe = Recipe.read(config)
        place, chains = target or demo_model_dir(), tuple(chain or ())
        request = ReproduceRequest(place, data, out, recipe, drafts, cache, cache_gb, device, chains)
        whole = run(request, Console(stderr=True))
    if not whole:
        raise typer.Exit(EXIT_INTERRUPTED)
    print(f"wrote {out / 'results.md'}")
