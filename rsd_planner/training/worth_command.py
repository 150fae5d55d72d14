"""The commands `rsd_planner measure-draft` and `rsd_planner measure-path-changes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.demo.world.splits import Split
from rsd_planner.evaluation.topics import cameras_from
from rsd_planner.interruptible import EXIT_INTERRUPTED, interruptible
from rsd_planner.training import options

DraftDir = Annotated[Path, typer.Option(metavar="DIR", help="Draft directory.")]
Frames = Annotated[int, typer.Option(help="Frames, spread over the split.")]
Draws = Annotated[int, typer.Option(help="Of the flow noise, the same for both paths that are compared.")]


def measure_draft(
    target: options.TargetDir,
    draft: DraftDir,
    data: options.Data,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Where SPLIT.json, or RECORDING.json, goes; the same call goes on there."),
    ],
    split: Annotated[Split, typer.Option(help="Of --data.")] = Split.VAL,
    frames: Frames = 32,
    draws: Draws = 2,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="M", help="Also measure the lossy mode with this bound.", show_default="exact only"),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What each token moves; can be shared.", show_default="in --out")
    ] = None,
    max_tokens: options.MaxTokens = 256,
    stride: options.Stride = 1,
    camera: options.Cameras = None,
    odometry: options.Odometry = None,
    device: options.Device = "cpu",
    dtype: options.Dtype = "float32",
) -> None:
    """Measure a draft: L, passes, action-weighted acceptance, and what its rejected guesses would do to the path."""
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.training import worth
        from rsd_planner.training.frames import BagOptions
        from rsd_planner.training.survey import SurveyRequest

        request = SurveyRequest(
            target,
            draft,
            data,
            out,
            split,
            frames=frames,
            draws=draws,
            weights=weights,
            tolerance_m=tolerance,
            max_tokens=max_tokens,
            device=device,
            dtype=dtype,
            bags=BagOptions(stride, cameras, odometry),
        )
        figures = worth.measure_draft(request, Console(stderr=True))
    if figures is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    worth.print_figures(figures, Console())
    print(f"wrote {out / figures['split']}.json")


def measure_path_changes(
    target: options.TargetDir,
    draft: DraftDir,
    data: options.Data,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where it is noted frame by frame; the same call goes on.")],
    split: Annotated[Split, typer.Option(help="Of --data: frames that nothing is reported on later.")] = Split.TRAIN,
    frames: Frames = 200,
    draws: Draws = 2,
    max_tokens: options.MaxTokens = 256,
    stride: options.Stride = 1,
    camera: options.Cameras = None,
    odometry: options.Odometry = None,
    device: options.Device = "cpu",
    dtype: options.Dtype = "float32",
) -> None:
    """Measure how far the path moves per kind of wrong guess: what `accept: action_tolerant` needs.

    Writes path_changes.json into the draft's directory.
    """
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.training import worth
        from rsd_planner.training.frames import BagOptions
        from rsd_planner.training.survey import SurveyRequest

        request = SurveyRequest(
            target,
            draft,
            data,
            out,
            split,
            frames=frames,
            draws=draws,
            weighted=False,
            max_tokens=max_tokens,
            device=device,
            dtype=dtype,
            bags=BagOptions(stride, cameras, odometry),
        )
        changes = worth.measure_path_changes(request, Console(stderr=True))
    if changes is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    print(f"wrote {len(changes.kinds)} kinds of tokens to {draft / 'path_changes.json'}")
