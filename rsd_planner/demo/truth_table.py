"""What the model said of the bundled bag beside what was true: the world that drew the pictures knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from rich.console import Console
from rich.table import Table

from rsd_planner.demo.world.sentences import cause_of

_ROWS = 14
_SHOWN = 120  # characters


@dataclass(frozen=True)
class Told:
    """One plan."""

    seconds: float  # since the first image
    said: str
    truth: str

    @property
    def verdict(self) -> str:
        if self.said == self.truth:
            return "right"
        return "right cause" if cause_of(self.said) is cause_of(self.truth) else "wrong"


def read_told(plans: Path, truth: Path, start_ns: int) -> list[Told]:
    """The plans of an evaluation (plans.jsonl) that have a true sentence (truth.json), in order."""
    sentences = json.loads(truth.read_text(encoding="utf-8"))
    return [
        Told((plan["stamp_ns"] - start_ns) * 1e-9, plan["reasoning"], sentences[str(plan["stamp_ns"])])
        for plan in map(json.loads, plans.read_text(encoding="utf-8").splitlines())
        if str(plan["stamp_ns"]) in sentences
    ]


def print_table(told: list[Told], console: Console) -> None:
    """Some plans, evenly spaced, and how many of all are right."""
    table = Table("t0 (s)", "what the model said", "the scene's own sentence", "", title="Right or wrong")
    for one in _some(told):
        same = one.said == one.truth
        said = shorten(one.said, _SHOWN, placeholder=" ...") or "(nothing)"
        table.add_row(f"{one.seconds:.1f}", said, "the same" if same else one.truth, one.verdict)
    console.print(table)
    whole = sum(one.verdict == "right" for one in told)
    cause = sum(one.verdict != "wrong" for one in told)
    console.print(
        f"Of {len(told)} plans {cause} name the true cause, {whole} say the whole sentence as it is.", highlight=False
    )


def _some(told: list[Told]) -> Iterator[Told]:
    yield from told[:: max(1, -(-len(told) // _ROWS))]
