"""Longer chains of thought: drafts for targets that reason at length, and what the length costs.

The paper states its limit at 15 to 20 tokens; the demo model's variants say 200 and 500.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from rsd_planner.bench.ngram import NAME as NGRAM
from rsd_planner.bench.run import INDEPENDENT, bench
from rsd_planner.bench.run import Request as BenchRequest
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import ParameterError
from rsd_planner.planner import PlannerSettings
from rsd_planner.target.checkpoint import ModelDirectory
from rsd_planner.training.train_draft import Request, train_draft

OWN = "own"  # the target that all other rows are of


@dataclass(frozen=True)
class Chain:
    """A target with the drafts that are measured on it."""

    name: str
    target: Path
    drafts: tuple[Path, ...]


@dataclass(frozen=True)
class ChainsRequest:
    """What all targets have in common."""

    data: Path  # folder of the demo world's splits
    out: Path
    frames: int  # of split train
    steps: int
    batch: int
    rate: float
    max_tokens: int  # of a reasoning
    measured: int  # frames of the off-shelf split
    cache_gb: float
    device: str

    def settings(self) -> PlannerSettings:
        """Of the planner that is measured."""
        return PlannerSettings(device=self.device, backend="pytorch", max_reasoning_tokens=self.max_tokens)


def train_chain(request: ChainsRequest, target: Path, console: Console) -> Chain | None:
    """A flat draft of each kind for a target, one seed; None if Ctrl-C came before they were trained.

    Raises:
        PlannerError: As `train_draft`.
    """
    out = request.out / target.resolve().name
    drafts = []
    for kind in DraftKind:
        drafts.append(out / "drafts" / f"{kind.name.lower()}_flat_0")
        console.print(f"{out.name}: {drafts[-1].name}", markup=False, highlight=False)
        training = Request(
            target,
            kind,
            Rope.FLAT,
            request.data,
            drafts[-1],
            cache=out / "cache",
            cache_gb=request.cache_gb,
            frames=request.frames,
            validation_frames=min(16, request.measured),
            steps=request.steps,
            batch=request.batch,
            rate=request.rate,
            validations=2,
            max_tokens=request.max_tokens,
            device=request.device,
        )
        if not train_draft(training, console).finished:
            return None
    return Chain(out.name, target, tuple(drafts))


def measure_chain(request: ChainsRequest, chain: Chain, console: Console) -> bool:
    """Time plain loop and drafts on the same frames, in turn; whether it came to the end. Not done twice.

    Raises:
        PlannerError: As `bench`.
    """
    path = request.out / chain.name / "bench.json"
    if path.is_file() and not json.loads(path.read_text(encoding="utf-8"))["partial"]:
        return True
    asked = BenchRequest(
        chain.target,
        chain.drafts,
        request.measured,
        path.parent,
        request.settings(),
        request.data,
        exactness_only=True,  # the reasoning is what is asked about
        kinds=(INDEPENDENT,),
    )
    return not bench(asked, console).partial


def check_targets(targets: Sequence[Path]) -> None:
    """Before hours of work: raises CheckpointError for a target that is none, ParameterError for two of one name."""
    names = [OWN, *(target.resolve().name for target in targets)]
    for target, name in zip(targets, names[1:], strict=True):
        ModelDirectory.find(target)
        if name == OWN:
            raise ParameterError(f"--chain {target}: {OWN} stands for the target itself, expected another folder name")
        if names.count(name) > 1:
            raise ParameterError(f"--chain {target}: another one is called {name} too, expected names that differ")


def chain_rows(out: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """What was measured of every target, the shortest reasoning first; one that is not whole yet is left out."""
    found = []
    for name in names:
        path = out / name / "bench.json"
        measured: dict[str, Any] = {"partial": True}
        if path.is_file():
            measured = json.loads(path.read_text(encoding="utf-8"))
        if not measured["partial"]:
            rows = [row for row in measured["rows"] if row["name"] != NGRAM]  # which knows short texts only
            found += [{"target": name, **row} for row in rows]
    return sorted(found, key=lambda row: (_length(found, row["target"]), row["target"], row["name"] != "plain loop"))


def _length(rows: Sequence[dict[str, Any]], target: str) -> float:
    return max(float(row["tokens_per_frame"]) for row in rows if row["target"] == target)
