"""The command `rsd_planner train-aarl`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.evaluation.topics import cameras_from
from rsd_planner.interruptible import EXIT_INTERRUPTED, interruptible
from rsd_planner.training import options


class Objective(str, Enum):
    """As `training.aarl.Objective`, which needs PyTorch; so do those below."""

    AARL = "aarl"
    TOKEN = "token"
    DISTILL = "distill"


class Anchor(str, Enum):
    """As `training.aarl_reward.Anchor`."""

    STATIC = "static"
    POLICY = "policy"
    NONE = "none"


class Reward(str, Enum):
    """As `training.aarl_reward.Metric`."""

    MSE = "mse"
    METRES = "metres"


class Advantage(str, Enum):
    """As `training.aarl_reward.Advantage`."""

    CENTRED = "centred"
    NORMALISED = "normalised"


def train_aarl(
    target: options.TargetDir,
    draft: Annotated[Path, typer.Option(metavar="DIR", help="The distilled draft to begin with.")],
    data: options.Data,
    out: options.DraftOut,
    objective: Annotated[
        Objective,
        typer.Option(help="RL from actions and text; from text alone; or the distillation gone on with."),
    ] = Objective.AARL,
    anchor: Annotated[
        Anchor,
        typer.Option(
            help="Held to the initial draft: where that agreed with the target; where this one does; nowhere."
        ),
    ] = Anchor.STATIC,
    reward: Annotated[
        Reward, typer.Option(help="MSE of the actions, or displacement of the path over 1 s and 6.4 s, m.")
    ] = Reward.MSE,
    advantage: Annotated[
        Advantage, typer.Option(help="Rewards minus their mean; or also divided by their deviation.")
    ] = Advantage.CENTRED,
    candidates: Annotated[int, typer.Option(help="Sampled per block start.")] = 8,
    draws: Annotated[int, typer.Option(help="Of the flow noise, the same for all candidates of a frame.")] = 2,
    blocks: Annotated[
        int, typer.Option(help="Per frame and step: block starts where the draft differs, and as many anywhere.")
    ] = 2,
    action_weight: Annotated[float, typer.Option(help="Of the action's error in the reward.")] = 1.0,
    text_weight: Annotated[float, typer.Option(help="Of the share of changed tokens that match.")] = 0.5,
    kl_weight: Annotated[float, typer.Option(help="Of the KL to the initial draft at the anchors.")] = 0.02,
    val: options.Val = None,
    cache: options.CacheDir = None,
    cache_gb: options.CacheGb = 4.0,
    frames: options.TrainFrames = None,
    val_frames: options.ValFrames = 64,
    steps: options.Steps = 500,
    batch: options.Batch = 4,
    rate: Annotated[
        float | None, typer.Option(help="Peak learning rate.", show_default="1e-6 for DFlash, 1e-5 for EAGLE-3")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order of frames, block starts, candidates and noise.")] = 0,
    validations: options.Validations = 10,
    max_tokens: options.MaxTokens = 256,
    stride: options.Stride = 1,
    camera: options.Cameras = None,
    odometry: options.Odometry = None,
    device: options.Device = "cpu",
    dtype: options.Dtype = "float32",
) -> None:
    """Train a distilled draft further, by what its wrong guesses would do to the path; or as a baseline for that.

    Writes config.json and model.safetensors of the best validation, MODEL_CARD.md and curves.png. Ctrl-C saves; the
    same call goes on where it was. One device, or many under `accelerate launch` or torchrun.
    """
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.training import aarl, aarl_reward
        from rsd_planner.training.aarl_objective import Options
        from rsd_planner.training.frames import BagOptions

        objectives = Options(
            anchor=aarl_reward.Anchor(anchor.value),
            advantage=aarl_reward.Advantage(advantage.value),
            metric=aarl_reward.Metric(reward.value),
            action_weight=action_weight,
            text_weight=text_weight,
            kl_weight=kl_weight,
            candidates=candidates,
            draws=draws,
            blocks=blocks,
        )
        request = aarl.AarlRequest(
            target,
            draft,
            data,
            out,
            aarl.Objective(objective.value),
            objectives,
            validation=val,
            cache=cache,
            cache_gb=cache_gb,
            frames=frames,
            validation_frames=val_frames,
            steps=steps,
            batch=batch,
            rate=rate,
            seed=seed,
            validations=validations,
            max_tokens=max_tokens,
            device=device,
            dtype=dtype,
            bags=BagOptions(stride, cameras, odometry),
        )
        progress = aarl.train_aarl(request, Console(stderr=True))
    if not progress.finished:
        raise typer.Exit(EXIT_INTERRUPTED)
