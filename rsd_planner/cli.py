"""The command line: `rsd_planner evaluate`, `view` and `check-target`."""

from __future__ import annotations

import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

import rsd_planner
from rsd_planner.bench.commands import attention, bench
from rsd_planner.demo.commands import app as demo
from rsd_planner.engine.commands import app as graphs
from rsd_planner.errors import PlannerError
from rsd_planner.evaluation.topics import cameras_from
from rsd_planner.interruptible import EXIT_INTERRUPTED, interruptible
from rsd_planner.training.aarl_command import train_aarl
from rsd_planner.training.command import train_draft
from rsd_planner.training.options import MaxTokens
from rsd_planner.training.reproduce_command import reproduce
from rsd_planner.training.worth_command import measure_draft, measure_path_changes

EXIT_ERROR = 2

app = typer.Typer(name="rsd_planner", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(demo, name="demo")
app.add_typer(graphs)
app.command()(bench)
app.command()(attention)
app.command()(train_draft)
app.command()(train_aarl)
app.command()(measure_draft)
app.command()(measure_path_changes)
app.command()(reproduce)


def main() -> None:
    """Entry point: every error of the user or of the system becomes one line on stderr."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a reasoning or a path is never the end of it
    try:
        app()
    except PlannerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except OSError as error:  # a directory that may not be entered, a name too long, a full disk behind stdout
        print(f"error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_ERROR)


def _version(wanted: bool) -> None:
    if wanted:
        print(rsd_planner.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A reasoning driving planner for ROS 2: evaluate it on recordings, train drafts, build engines, measure."""


@app.command()
def evaluate(
    bags: Annotated[
        list[Path], typer.Argument(metavar="BAG...", help="rosbag2 directories, or .mcap, .db3 or .bag files.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for the results; made if it is not there.")],
    model: Annotated[Path | None, typer.Option(help="Model directory.", show_default="the bundled demo model")] = None,
    camera: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=TOPIC", help="Topic of a camera, repeatable.", show_default="by type and name"),
    ] = None,
    odometry: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Odometry topic.", show_default="by type")
    ] = None,
    stride: Annotated[int, typer.Option(help="Plan at every N-th tick of 0.1 s.")] = 1,
    max_tokens: MaxTokens = 256,
    seed: Annotated[int, typer.Option(help="Seed of flow noise and sampling; fixes every plan.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16, with backend pytorch.")] = "float32",
    backend: Annotated[
        str, typer.Option(help="pytorch, onnxruntime or tensorrt; auto: ONNX Runtime on a CPU where there are graphs.")
    ] = "auto",
    engine: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Graphs or engines.", show_default="onnx/ or engines/ in the model directory"),
    ] = None,
) -> None:
    """Plan along recordings and compare with what the vehicle then did.

    Writes plans.jsonl, summary.json, index.html and, per recording, an MCAP with the plans beside the inputs.
    """
    cameras = cameras_from(camera or [])
    with interruptible():
        from rich.console import Console

        from rsd_planner.demo.model import demo_model_dir
        from rsd_planner.evaluation.digest import print_digest
        from rsd_planner.evaluation.evaluate import Request
        from rsd_planner.evaluation.evaluate import evaluate as run
        from rsd_planner.planner import PlannerSettings

        settings = PlannerSettings(
            device=device,
            dtype=dtype,
            seed=seed,
            max_reasoning_tokens=max_tokens,
            backend=backend,
            engine="" if engine is None else str(engine),
        )
        request = Request(bags, model or demo_model_dir(), out, settings, stride, cameras, odometry)
        result = run(request, Console(stderr=True))
    print_digest(result, Console())
    print(f"wrote {out / 'index.html'}")
    if result.stopped:
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
def view(
    bag: Annotated[Path, typer.Argument(metavar="BAG", help="rosbag2 directory, or a .mcap, .db3 or .bag file.")],
    at: Annotated[float, typer.Option(metavar="SECONDS", help="The moment to plan at, since the recording began.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Picture to write: .png, .jpg, .pdf or .svg.")],
    model: Annotated[Path | None, typer.Option(help="Model directory.", show_default="the bundled demo model")] = None,
    camera: Annotated[
        list[str] | None,
        typer.Option(metavar="ID=TOPIC", help="Topic of a camera, repeatable.", show_default="by type and name"),
    ] = None,
    odometry: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Odometry topic.", show_default="by type")
    ] = None,
    max_tokens: MaxTokens = 256,
    seed: Annotated[int, typer.Option(help="Seed of flow noise and sampling; fixes the plan.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
) -> None:
    """Draw one plan: the cameras, the scene from above with history and path, the reasoning."""
    cameras = cameras_from(camera or [])
    with interruptible():
        from rsd_planner.demo.model import demo_model_dir
        from rsd_planner.evaluation.view import ViewRequest
        from rsd_planner.evaluation.view import view as run
        from rsd_planner.planner import PlannerSettings

        settings = PlannerSettings(device=device, dtype=dtype, seed=seed, max_reasoning_tokens=max_tokens)
        shown = run(ViewRequest(bag, at, out, model or demo_model_dir(), settings, cameras, odometry))
    print(f"t0 {shown.plan.stamp_ns * 1e-9:.3f} s: {shown.plan.reasoning or '(no reasoning)'}\nwrote {out}")


@app.command()
def check_target(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder laid out like one of test/golden.")],
) -> None:
    """Compare a checkpoint, as loaded here, with recorded outputs of the public implementation."""
    with interruptible():
        from rsd_planner.evaluation.check_target import run

        good = run(directory)
    if not good:
        raise typer.Exit(1)


@app.command()
def gpu_check(
    out: Annotated[Path, typer.Option(help="Directory for gpu_check.json and gpu_check.md; made if it is not there.")],
    shape: Annotated[str, typer.Option(help="alpamayo, or tiny, which also runs on the CPU.")] = "alpamayo",
    budget_seconds: Annotated[float, typer.Option(help="What does not fit is left out.")] = 240.0,
    traces: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Recorded acceptance to run whole ticks with.")
    ] = None,
) -> None:
    """Measure what the 10B target would cost on this GPU, with random weights, beside what it could cost at best."""
    started = time.monotonic()
    with interruptible():
        from rich.console import Console

        from rsd_planner.gpu_check.check import Request, run

        report = run(Request(out, shape, budget_seconds, traces, started), Console(stderr=True))
        report.print(Console(width=None if sys.stdout.isatty() else 130))
    print(f"wrote {out / 'gpu_check.json'}")
