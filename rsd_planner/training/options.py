"""Options that several commands about drafts share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TargetDir = Annotated[Path, typer.Option(metavar="DIR", help="Model directory of the target.")]
Data = Annotated[Path, typer.Option(metavar="DATA", help="Folder of the demo world's splits, or a recording.")]
DraftOut = Annotated[Path, typer.Option(metavar="DIR", help="Where the draft goes; the same call goes on there.")]
Val = Annotated[
    Path | None, typer.Option(metavar="DATA", help="Frames to validate on.", show_default="split val of --data")
]
CacheDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="What the target says; can be shared.", show_default="in --out")
]
CacheGb = Annotated[float, typer.Option(help="Hidden states kept there, GB; the others are recomputed.")]
TrainFrames = Annotated[int | None, typer.Option(help="Frames of --data to train on.", show_default="all")]
ValFrames = Annotated[int, typer.Option(help="Frames to validate on.")]
Steps = Annotated[int, typer.Option(help="Training steps.")]
Batch = Annotated[int, typer.Option(help="Frames per step, all processes together.")]
Validations = Annotated[int, typer.Option(help="How often it is validated, at equal distances.")]
MaxTokens = Annotated[int, typer.Option(help="Longest reasoning.")]
Stride = Annotated[int, typer.Option(help="Recordings: every N-th tick of 0.1 s.")]
Cameras = Annotated[
    list[str] | None,
    typer.Option(metavar="ID=TOPIC", help="Recordings: topic of a camera, repeatable.", show_default="by name"),
]
Odometry = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Recordings: odometry topic.", show_default="by type")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
Dtype = Annotated[str, typer.Option(help="Of the target: float32 or bfloat16.")]
