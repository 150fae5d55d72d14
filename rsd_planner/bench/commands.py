"""`rsd_planner bench` and `rsd_planner attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.demo.world.splits import Split
from rsd_planner.evaluation.topics import cameras_from
from rsd_planner.interruptible import EXIT_INTERRUPTED, interruptible
from rsd_planner.training import options


def bench(
    out: Annotated[Path, typer.Option(help="Directory for bench.json and the chart; made if it is not there.")],
    model: Annotated[Path | None, typer.Option(help="Model directory.", show_default="the bundled demo model")] = None,
    draft: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Draft directory, repeatable.", show_default="those in the model directory"),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the driving world's splits; this or --bag.")
    ] = None,
    split: Annotated[Split, typer.Option(help="Of --data.")] = Split.OFF_SHELF,
    bag: Annotated[Path | None, typer.Option(help="A recording instead, as for evaluate.")] = None,
    frames: Annotated[int, typer.Option(help="Frames of each kind: single ones from all over, and drives.")] = 100,
    engine: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Exported graphs of the model and its own draft, to be measured as well."),
    ] = None,
    exactness_only: Annotated[
        bool,
        typer.Option("--exactness-only", help="No reference pipeline, one flow step: whole ticks mean little."),
    ] = False,
    max_tokens: options.MaxTokens = 256,
    camera: options.Cameras = None,
    odometry: options.Odometry = None,
    seed: Annotated[int, typer.Option(help="Seed of flow noise.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Compare ways of decoding on the same frames: time, accepted length, and whether the tokens are the same.

    Writes bench.json and bench.png. Ctrl-C leaves what was measured so far.
    """
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.bench.run import Request
        from rsd_planner.bench.run import bench as run
        from rsd_planner.bench.show import draw_chart, print_table
        from rsd_planner.demo.model import demo_model_dir
        from rsd_planner.planner import PlannerSettings

        settings = PlannerSettings(device=device, dtype=dtype, seed=seed, max_reasoning_tokens=max_tokens)
        place = model or demo_model_dir()
        request = Request(
            place,
            draft or [],
            frames,
            out,
            settings,
            data,
            split,
            bag,
            engine,
            exactness_only,
            cameras=cameras,
            odometry=odometry,
        )
        result = run(request, Console(stderr=True))
        print_table(result.rows(), Console())
        draw_chart(result.rows(), result.machine, out / "bench.png")
    print(f"wrote {out / 'bench.json'}")
    if result.partial:
        raise typer.Exit(EXIT_INTERRUPTED)


def attention(
    draft: Annotated[list[Path], typer.Option(metavar="DIR", help="Draft directory, repeatable.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the driving world's splits, or a recording.")],
    out: Annotated[Path, typer.Option(help="Directory for attention.json and the picture; made if it is not there.")],
    model: Annotated[Path | None, typer.Option(help="Model directory.", show_default="the bundled demo model")] = None,
    split: Annotated[Split, typer.Option(help="Of --data.")] = Split.OFF_SHELF,
    frames: Annotated[int, typer.Option(help="Number of frames, from all over.")] = 50,
    max_tokens: options.MaxTokens = 256,
    stride: options.Stride = 1,
    camera: options.Cameras = None,
    odometry: options.Odometry = None,
) -> None:
    """Measure where drafts look, layer by layer: at images, ego history, other text or the reasoning.

    Writes attention.json and attention.png.
    """
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.bench.attention import AttentionRequest
        from rsd_planner.bench.attention import attention as run
        from rsd_planner.bench.attention_picture import draw_attention
        from rsd_planner.demo.model import demo_model_dir
        from rsd_planner.planner import PlannerSettings
        from rsd_planner.training.frames import BagOptions

        settings = PlannerSettings(backend="pytorch", allow_plain_decoding=True, max_reasoning_tokens=max_tokens)
        bags = BagOptions(stride, cameras, odometry)
        request = AttentionRequest(model or demo_model_dir(), draft, data, split, frames, out, settings, bags)
        draw_attention(run(request, Console(stderr=True)), out / "attention.png")
    print(f"wrote {out / 'attention.json'}")
