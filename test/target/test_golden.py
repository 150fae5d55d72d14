"""The target reproduces the recorded public implementation, quantity by quantity."""

from __future__ import annotations

import numpy as np
import pytest
from golden_cases import R1, V1_5, golden_case

from rsd_planner.evaluation.check_target import BOUNDS, Differences, check, passes, run


@pytest.fixture(scope="module")
def differences() -> dict[str, dict[int, Differences]]:
    return {directory.name: check(directory) for directory in (R1, V1_5)}


@pytest.mark.parametrize("quantity", BOUNDS)
@pytest.mark.parametrize(
    ("model", "case"),
    [("alpamayo_r1", 0), ("alpamayo_r1", 1), ("alpamayo_r1", 2), ("alpamayo_1_5", 0), ("alpamayo_1_5", 1)],
)
def test_quantity_is_within_its_bound(
    differences: dict[str, dict[int, Differences]], model: str, case: int, quantity: str
) -> None:
    assert differences[model][case][quantity] <= BOUNDS[quantity]


def test_a_difference_that_is_not_a_number_fails() -> None:
    assert passes(dict.fromkeys(BOUNDS, 0.0))
    assert not passes(dict.fromkeys(BOUNDS, 0.0) | {"actions": float("nan")})


def test_the_command_fails_on_a_record_that_differs(tmp_path, capsys) -> None:
    for entry in R1.iterdir():
        if not entry.name.startswith("case_"):
            (tmp_path / entry.name).symlink_to(entry)
    for number in range(3):
        recorded = dict(golden_case(R1, number).recorded)
        recorded["actions"] = recorded["actions"] + np.float32(0.01)
        np.savez(tmp_path / f"case_{number}.npz", **recorded)
    assert not run(tmp_path)
    out = capsys.readouterr().out
    assert "out of bounds" in out
    assert "waypoints from recorded actions" in out
