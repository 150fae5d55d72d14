"""How far another backend's tokens and actions are from PyTorch's, frame by frame, and what tiny noise does to PyTorch.

    python scripts/compare_backends.py MODEL GRAPHS DATA --frames 200

The flow's input features turn up to 100 times per unit of action: each step enlarges rounding errors, and on some
frames rounding decides. The line about changed noise shows on how many frames it does so within PyTorch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from torch import Tensor

from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import PlannerError
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.training.frames import BagOptions, open_frames

BOUND, NUDGE = 1e-3, 1e-7


class Spied:
    """A planner whose normalised actions, (64, 2), are kept, as are those of nudged noise."""

    def __init__(self, model: Path, settings: PlannerSettings) -> None:
        self.planner = Planner.load(model, settings)
        self._sample = self.planner.target.sample_actions
        self.planner.target.sample_actions = self._spy  # type: ignore[method-assign]

    def _spy(self, noise: Tensor, steps: int | None = None) -> Tensor:
        self.nudged = self._sample(noise * (1 + NUDGE), steps)
        self.actions = self._sample(noise, steps)
        return self.actions


def main(
    model: Path,
    graphs: Path,
    data: Path,
    split: Annotated[Split, typer.Option()] = Split.TEST,
    frames: Annotated[int, typer.Option(help="The first so many.")] = 200,
    backend: Annotated[str, typer.Option()] = "onnxruntime",
    device: Annotated[str, typer.Option()] = "cpu",
) -> None:
    """Compare a backend with PyTorch on the same frames of DATA, in fp32, greedily, without memory."""
    ours, other = (
        Spied(model, PlannerSettings(backend=name, engine=engine, device=device, memory_ticks=0))
        for name, engine in (("pytorch", ""), (backend, str(graphs)))
    )
    source = open_frames(data, split, BagOptions(), limit=frames)
    equal, apart, nudged, metres = 0, [], [], []
    for number in track(range(len(source)), "frames", console=Console(stderr=True)):
        observation = source.observation(number)
        expected, found = ours.planner.plan(observation), other.planner.plan(observation)
        equal += expected.token_ids == found.token_ids
        apart.append(float((ours.actions - other.actions).abs().max()))
        nudged.append(float((ours.actions - ours.nudged).abs().max()))
        metres.append(float(np.abs(expected.positions - found.positions).max()))
    print(f"{equal} of {len(source)} frames: the same tokens")
    for name, values in ((backend, apart), (f"PyTorch, noise changed by {NUDGE:g}", nudged)):
        above = sum(value > BOUND for value in values)
        print(
            f"{name}: actions differ by {np.median(values):.1e} in the median, by more than {BOUND:g} on {above} frames"
        )
    print(f"waypoints: {np.median(metres):.1e} m in the median, at most {max(metres):.1e} m")


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        typer.run(main)
    except PlannerError as error:
        sys.exit(f"error: {error}")
