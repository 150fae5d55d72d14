"""`rsd_planner export` and `build-engine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rsd_planner.interruptible import interruptible

app = typer.Typer()


@app.command()
def export(
    model: Annotated[Path, typer.Option(help="Model directory.")],
    out: Annotated[Path, typer.Option(help="Directory for graphs and manifest.json; made if it is not there.")],
    precision: Annotated[str, typer.Option(help="fp32, fp16, bf16 or int8-weight.")] = "fp32",
    draft: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draft directory.", show_default="the model's own")
    ] = None,
) -> None:
    """Write a model as ONNX graphs, for backend onnxruntime and for build-engine.

    Graphs that are there already and were made of the same weights are kept.
    """
    with interruptible():
        from rich.console import Console

        from rsd_planner.engine.export import export as run

        manifest = run(model, out, precision=precision, draft=draft, console=Console(stderr=True))
    print(f"wrote {len(manifest.graphs)} graphs to {out}, peak memory {manifest.peak_memory_bytes / 1e9:.2f} GB")


@app.command()
def build_engine(
    onnx: Annotated[Path, typer.Option(metavar="DIR", help="Directory that export wrote.")],
    out: Annotated[Path, typer.Option(help="Directory for engines and manifest.json; made if it is not there.")],
    target: Annotated[
        str,
        typer.Option(
            metavar="SM,...", help="Compute capabilities, such as sm89,sm120.", show_default="this machine's GPU"
        ),
    ] = "",
    module: Annotated[
        str, typer.Option(help="tensorrt_rtx or tensorrt.", show_default="the first that is installed")
    ] = "",
) -> None:
    """Compile exported graphs for GPUs with TensorRT-RTX, on any machine, or with TensorRT on the machine itself.

    Engines that are there already and were built of the same graphs are kept.
    """
    with interruptible():
        from rich.console import Console

        from rsd_planner.engine.build import build_engines
        from rsd_planner.engine.manifest import peak_memory

        manifest = build_engines(onnx, out, targets=target, module=module, console=Console(stderr=True))
    built = f"{len(manifest.engines)} engines for {', '.join(manifest.capabilities)}"
    print(f"wrote {built} to {out}, peak memory {peak_memory() / 1e9:.2f} GB")
