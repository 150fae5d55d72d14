"""The target reproduces the recorded public implementation, quantity by quantity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import R1, V1_5, golden_case

from rsd_planner.errors import CheckpointError
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like the golden one, without its cases and with a name that rich would take for markup."""
    path = tmp_path / "[" / "red]"
    path.mkdir(parents=True)
    for entry in R1.iterdir():
        if not entry.name.startswith("case_"):
            (path / entry.name).symlink_to(entry)
    return path


def write_cases(folder: Path, cases: Sequence[object]) -> None:
    (folder / "cases.json").unlink()
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))


def test_the_command_fails_on_a_record_that_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        recorded = dict(golden_case(R1, number).recorded)
        recorded["actions"] = recorded["actions"] + np.float32(0.01)
        recorded["prefill_last_hidden"] = recorded["prefill_last_hidden"][1:]
        np.savez(folder / f"case_{number}.npz", **recorded)
    assert not run(folder)
    out = capsys.readouterr().out
    assert "out of bounds" in out
    assert "waypoints from recorded actions" in out
    assert "[/red]" in out
    assert "inf" in out


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (5, "cases[]. is int, expected an object"),
        ({"case": "0", "frames_per_camera": 4}, "cases[].case is '0', expected int"),
        ({"case": 0, "frames_per_camera": 3}, "cases[].frames_per_camera is 3, expected 4"),
        ({"case": 0, "frames_per_camera": 4, "nav_text": 5}, "cases[].nav_text is 5, expected str"),
        ({"case": 7, "frames_per_camera": 4}, "case_7.npz: no such file"),
    ],
)
def test_cases_that_cannot_be_read(folder: Path, case: object, said: str) -> None:
    write_cases(folder, [case])
    with pytest.raises(CheckpointError) as caught:
        run(folder)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("v0", None, "array v0 is missing"),
        ("v0", np.zeros(2, np.float32), "array v0 is float32 of shape (2,), expected floating of ()"),
        ("actions", np.zeros((32, 2), np.float32), "of shape (32, 2), expected floating of (64, 2)"),
        ("prompt_ids", np.zeros(0, np.int64), "of shape (0,), expected integer of (any)"),
        ("noise", np.full((64, 2), np.nan, np.float32), "array noise holds a value that is not finite"),
        ("noise", np.array(["loud"]), "array noise is <U4 of shape (1,), expected float32 of (64, 2)"),
        ("noise", np.array([None]), "not a readable .npz file"),
        ("camera_indices", np.array([1, 99]), "camera_indices are [1, 99], expected some of [0, 1, 2, 6]"),
        ("camera_indices", np.array([0, 1]), "image_cells holds 4 images, expected 8: 4 per camera"),
    ],
)
def test_arrays_that_cannot_be_compared(folder: Path, name: str, value: Any, said: str) -> None:
    write_cases(folder, [{"case": 1, "frames_per_camera": 4}])
    recorded: dict[str, Any] = {**golden_case(R1, 1).recorded, name: value}
    np.savez(folder / "case_1.npz", **{key: array for key, array in recorded.items() if array is not None})
    with pytest.raises(CheckpointError) as caught:
        run(folder)
    assert said in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_bytes_that_are_no_case(folder: Path, content: bytes) -> None:
    write_cases(folder, [{"case": 1, "frames_per_camera": 4}])
    (folder / "case_1.npz").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"case_1\.npz: not a readable \.npz file"):
        run(folder)
