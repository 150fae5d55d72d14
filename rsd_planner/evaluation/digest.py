"""The few lines a terminal shows at the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from rsd_planner.evaluation.results import Evaluation, PlanRecord
from rsd_planner.evaluation.summary import error_table, latency, speculation, warnings


def print_digest(result: Evaluation, console: Console) -> None:
    """Prints counts, errors, latency and what to keep in mind."""
    for bag in result.bags:
        skipped = ", ".join(f"{count} {reason}" for reason, count in bag.skipped.most_common())
        why = f", skipped: {skipped}" if skipped else ""
        _line(console, f"{bag.name}: planned {bag.plans} of {bag.ticks_done} ticks{why}")
    table = Table("horizon", "plans", "ADE", "ADE const. vel.", "FDE", "FDE const. vel.")
    for row in error_table(result.records):
        values = [row[who][what] for what in ("ade_m", "fde_m") for who in ("plan", "constant_velocity")]
        cells = ("-" if value is None else f"{value:.2f} m" for value in values)
        table.add_row(f"{row['horizon_s']:g} s", str(row["plans"]), *cells)
    console.print(table)
    if total := latency(result.records).get("total"):
        _line(console, f"latency: p50 {total.p50:.0f} ms, p95 {total.p95:.0f} ms, p99 {total.p99:.0f} ms")
    for bag, records in result.by_bag():
        if records:
            _line(console, f"{bag.name}: {_guessed(records)}")
    for text in warnings(result):
        _line(console, f"note: {text}")


def _guessed(records: Sequence[PlanRecord]) -> str:
    numbers = speculation(records)
    length = numbers["accepted_length"]
    accepted = "no verify pass needed" if length is None else f"{length:.2f} tokens per verify pass"
    return f"{numbers['routine_share'] or 0:.0%} of the reasoning guessed, {accepted}"


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
