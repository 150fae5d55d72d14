"""The recorded golden cases as inputs, shared by tests of several rooms."""

from __future__ import annotations

from pathlib import Path

from rsd_planner.evaluation.check_target import GoldenCase
from rsd_planner.target.config import read_json

GOLDEN = Path(__file__).parent / "golden"
R1 = GOLDEN / "alpamayo_r1"
V1_5 = GOLDEN / "alpamayo_1_5"


def golden_case(directory: Path, number: int) -> GoldenCase:
    entry = read_json(directory / "cases.json")["cases"][number]
    return GoldenCase.read(directory / f"case_{number}.npz", entry["nav_text"])
