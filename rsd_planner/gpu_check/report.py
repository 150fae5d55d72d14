"""What was measured, as JSON after every step and as tables at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rsd_planner.gpu_check.floors import Floors, Work
from rsd_planner.gpu_check.timing import Timing

# the planner's own code; the same over static buffers in a CUDA graph; that with compiled layers
MODES = ("eager", "graph", "compiled")
_HEADINGS = ("eager", "graph", "compiled")
_MEANING = (
    "eager: the planner's own code; graph: the same over static buffers, in a CUDA graph; compiled: that with layers "
    "compiled."
)
_NONE = "-"


@dataclass
class Row:
    """One pass in all its modes."""

    name: str
    work: Work
    timings: dict[str, Timing] = field(default_factory=dict)

    @property
    def best(self) -> float | None:
        return min((timing.median for timing in self.timings.values()), default=None)


@dataclass
class Outcome:
    """What became of one step of the check."""

    name: str
    status: str  # done | failed | skipped
    seconds: float = 0.0
    reason: str = ""
    traceback: str = ""


@dataclass
class Report:
    """Everything that goes into gpu_check.json."""

    machine: dict[str, Any]
    rows: dict[str, Row] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)  # bytes_per_s, operations_per_s
    attention: list[dict[str, Any]] = field(default_factory=list)
    exactness: list[dict[str, Any]] = field(default_factory=list)
    ticks: list[dict[str, Any]] = field(default_factory=list)
    memory_gb: dict[str, float] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    complete: bool = False

    @property
    def floors(self) -> Floors | None:
        known = "bytes_per_s" in self.rates and "operations_per_s" in self.rates
        return Floors(self.rates["bytes_per_s"], self.rates["operations_per_s"]) if known else None

    def write(self, out: Path) -> None:
        """gpu_check.json and gpu_check.md; a run that is cut off leaves what it had."""
        texts = {"gpu_check.json": json.dumps(self.as_json(), indent=1) + "\n", "gpu_check.md": self.markdown()}
        for name, text in texts.items():
            part = out / f"{name}.part"
            part.write_text(text, encoding="utf-8")
            part.replace(out / name)

    def as_json(self) -> dict[str, Any]:
        return {
            "complete": self.complete,
            "machine": self.machine,
            "rates": self.rates,
            "rows": [self._row(row) for row in self.rows.values()],
            "attention": self.attention,
            "exactness": self.exactness,
            "ticks": self.ticks,
            "memory_gb": self.memory_gb,
            "steps": [asdict(outcome) for outcome in self.outcomes],
        }

    def markdown(self) -> str:
        """The tables, ready to be pasted."""
        parts = [self._caption()]
        for title, headings, lines in self._tables():
            grid = [headings, ["---"] * len(headings), *lines]
            parts.append(f"{title}\n\n" + "\n".join("| " + " | ".join(cells) + " |" for cells in grid))
        if left := self._left_out():
            parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in left))
        return "\n\n".join(parts) + "\n"

    def print(self, console: Console) -> None:
        for title, headings, lines in self._tables():
            table = Table(title=title, title_justify="left")
            for i, heading in enumerate(headings):
                table.add_column(heading, justify="right" if i else "left")
            for line in lines:
                table.add_row(*line)
            console.print(table)
        for left in self._left_out():
            console.print(f"not measured: {left}", markup=False, highlight=False, soft_wrap=True)

    def _row(self, row: Row) -> dict[str, Any]:
        floor = self.floors.ms(row.work) if self.floors else None
        return {
            "name": row.name,
            "work": asdict(row.work),
            "ms": {mode: asdict(timing) for mode, timing in row.timings.items()},
            "floor_ms": floor[0] if floor else None,
            "bound_by": floor[1] if floor else None,
            "best_to_floor": row.best / floor[0] if floor and row.best else None,
        }

    def _caption(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        rates = ""
        if self.floors:
            rates = (
                f" Floors measured in the same run: copy {self.floors.bytes_per_s / 1e9:,.0f} GB/s (read and written), "
                f"matrix product {self.floors.operations_per_s / 1e12:,.1f} TFLOP/s."
            )
        memory = "".join(f" Memory {name}: {value:.1f} GB." for name, value in self.memory_gb.items())
        return f"{facts}. Random weights; milliseconds, medians. {_MEANING}{rates}{memory}"

    def _tables(self) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
        if self.rows:
            headings = ("pass", *_HEADINGS, "floor", "bound by", "best / floor")
            yield "Passes", headings, [self._cells(row) for row in self.rows.values()]
        if self.attention:
            yield (
                "Attention of all text layers",
                ("tokens", "kind", "ms", "relative error"),
                [[str(a["tokens"]), a["kind"], _ms(a["ms"]), f"{a['error']:.1e}"] for a in self.attention],
            )
        if self.exactness:
            yield "Passes of several tokens against single steps", _EXACTNESS, [_exactness(e) for e in self.exactness]
        if self.ticks:
            yield "Whole ticks", _TICKS, [line for tick in self.ticks for line in _tick(tick)]

    def _cells(self, row: Row) -> list[str]:
        times = [_ms(row.timings[mode].median) if mode in row.timings else _NONE for mode in MODES]
        if self.floors is None:
            return [row.name, *times, _NONE, _NONE, _NONE]
        floor, bound = self.floors.ms(row.work)
        return [row.name, *times, _ms(floor), bound, f"{row.best / floor:.2f}" if row.best else _NONE]

    def _left_out(self) -> list[str]:
        """Steps that were not done, those of one reason in one line."""
        by_reason: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.status != "done":
                by_reason.setdefault(f"{outcome.status}, {outcome.reason}", []).append(outcome.name)
        return [f"{'; '.join(names)}: {reason}" for reason, names in by_reason.items()]


_EXACTNESS = (
    "code",
    "per pass",
    "tokens",
    "differing",
    "their margin, at most",
    "epsilon",
    "logits differ by, at most",
    "logit deviation",
)
_TICKS = (
    "trace",
    "L",
    "tokens",
    "encode",
    "prefill",
    "reasoning",
    "action",
    "tick",
    "p95",
    "reasoning faster",
    "tick faster",
)


def _exactness(entry: dict[str, Any]) -> list[str]:
    numbers = [
        f"{entry[name]:.3f}" for name in ("largest_margin_where_differing", "epsilon", "largest_logit_difference")
    ]
    return [
        entry["mode"],
        str(entry["tokens_per_pass"]),
        str(entry["tokens"]),
        str(entry["differing_tokens"]),
        *numbers,
        f"{entry['logit_deviation']:.2f}",
    ]


def _tick(entry: dict[str, Any]) -> Iterator[list[str]]:
    names = ("encode", "prefill", "reasoning", "action", "tick", "tick_p95")
    plain, drafted = ([_ms(entry[key][name]) for name in names] for key in ("plain_ms", "drafted_ms"))
    tokens = f"{entry['tokens_per_frame']:.1f}"
    yield ["one token per pass", _NONE, tokens, *plain, "1.00", "1.00"]
    faster = [f"{entry[name]:.2f}" for name in ("reasoning_speedup", "tick_speedup")]
    yield [f"{entry['name']} ({entry['passes']})", f"{entry['accepted_length']:.2f}", tokens, *drafted, *faster]


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.1f}"
