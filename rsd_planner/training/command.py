"""The commands `rsd_planner train-draft` and `rsd_planner demo train-drafts`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.evaluation.topics import cameras_from
from rsd_planner.interruptible import EXIT_INTERRUPTED, interruptible
from rsd_planner.training import options


class Draft(str, Enum):
    """Draft families by their short names."""

    EAGLE3 = "eagle3"
    DFLASH = "dflash"


class Rope(str, Enum):
    """As `draft.rotary.Rope`, which needs PyTorch."""

    FLAT = "flat"
    MIRRORED = "mirrored"


def train_draft(
    target: options.TargetDir,
    draft: Annotated[Draft, typer.Option(help="Family of the draft.")],
    data: options.Data,
    out: options.DraftOut,
    rope: Annotated[Rope, typer.Option(help="Positions of the draft.")] = Rope.FLAT,
    val: options.Val = None,
    cache: options.CacheDir = None,
    cache_gb: options.CacheGb = 4.0,
    frames: options.TrainFrames = None,
    val_frames: options.ValFrames = 64,
    steps: options.Steps = 700,
    batch: options.Batch = 16,
    rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 2e-3,
    seed: Annotated[int, typer.Option(help="Of first weights, order of frames and anchors.")] = 0,
    layers: Annotated[int, typer.Option(help="DFlash: layers.")] = 2,
    block_size: Annotated[int, typer.Option(help="DFlash: the last committed token and the mask tokens.")] = 16,
    anchors: Annotated[int, typer.Option(help="DFlash: blocks per frame and step.")] = 8,
    intermediate: Annotated[int | None, typer.Option(help="Width of the MLP.", show_default="the target's")] = None,
    draft_vocabulary: Annotated[
        int, typer.Option(help="EAGLE-3: tokens it can say, the likeliest ones; 0 for the target's whole vocabulary.")
    ] = 32_000,
    validations: options.Validations = 5,
    max_tokens: options.MaxTokens = 256,
    stride: options.Stride = 1,
    camera: options.Cameras = None,
    odometry: options.Odometry = None,
    device: options.Device = "cpu",
    dtype: options.Dtype = "float32",
) -> None:
    """Train a draft for a target, on one device or, under `accelerate launch` or torchrun, on many.

    Writes config.json and model.safetensors of the best validation, MODEL_CARD.md and curves.png. Ctrl-C saves; the
    same call goes on where it was.
    """
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.draft.config import DraftKind
        from rsd_planner.draft.rotary import Rope as DraftRope
        from rsd_planner.training.frames import BagOptions
        from rsd_planner.training.train_draft import Request
        from rsd_planner.training.train_draft import train_draft as run

        request = Request(
            target,
            DraftKind[draft.name],
            DraftRope(rope.value),
            data,
            out,
            validation=val,
            cache=cache,
            cache_gb=cache_gb,
            frames=frames,
            validation_frames=val_frames,
            steps=steps,
            batch=batch,
            rate=rate,
            seed=seed,
            layers=layers,
            block_size=block_size,
            anchors=anchors,
            intermediate=intermediate,
            draft_vocabulary=draft_vocabulary,
            validations=validations,
            max_tokens=max_tokens,
            device=device,
            dtype=dtype,
            bags=BagOptions(stride, cameras, odometry),
        )
        progress = run(request, Console(stderr=True))
    if not progress.finished:
        raise typer.Exit(EXIT_INTERRUPTED)


def train_drafts(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Model directory of the demo target.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Directory with the rendered splits.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder per draft, and summary.json.")],
    seeds: Annotated[int, typer.Option(help="Seeds per family and rope.")] = 3,
    jobs: Annotated[int, typer.Option(help="Drafts at once.")] = 2,
    measured: Annotated[int, typer.Option(help="Frames per split to measure on.")] = 100,
    cache: Annotated[Path | None, typer.Option(metavar="DIR", help="Shared by all.", show_default="in OUT")] = None,
    cache_gb: options.CacheGb = 8.0,
    frames: Annotated[int | None, typer.Option(help="Frames to train on.", show_default="all")] = None,
    steps: Annotated[int, typer.Option(help="Training steps of each.")] = 700,
    batch: Annotated[int, typer.Option(help="Frames per step.")] = 16,
    rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 2e-3,
    device: options.Device = "cpu",
) -> None:
    """Train EAGLE-3 and DFlash, flat and mirrored, and measure L on val, test and off_shelf with the real loop.

    What is trained or measured already is left as it is. Ctrl-C saves; the same command goes on.
    """
    with interruptible():
        from rich.console import Console

        from rsd_planner.draft.config import DraftKind
        from rsd_planner.draft.rotary import Rope as DraftRope
        from rsd_planner.training.demo_drafts import DraftsRequest, print_summary
        from rsd_planner.training.demo_drafts import train_drafts as run
        from rsd_planner.training.train_draft import Request

        common = Request(
            target,
            DraftKind.DFLASH,
            DraftRope.FLAT,
            data,
            out,
            cache=cache or out / "cache",
            cache_gb=cache_gb,
            frames=frames,
            steps=steps,
            batch=batch,
            rate=rate,
            device=device,
        )
        found = run(DraftsRequest(common, out, seeds, jobs, measured), Console(stderr=True))
    if found is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    print_summary(found, Console())
    print(f"wrote {out / 'summary.json'}")
