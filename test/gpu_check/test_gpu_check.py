"""The command: steps of their own, results after each, a budget; on the CPU in a tiny shape."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rsd_planner.errors import CheckpointError, ParameterError
from rsd_planner.gpu_check import check, timing
from rsd_planner.gpu_check.catalogue import DRAFT_PASSES, TARGET_PASSES
from rsd_planner.gpu_check.check import Request, run, run_steps
from rsd_planner.gpu_check.exactness import agreement
from rsd_planner.gpu_check.floors import Accounts, Floors, Work
from rsd_planner.gpu_check.report import Report
from rsd_planner.gpu_check.shapes import ALPAMAYO, LONGEST_REASONING
from rsd_planner.gpu_check.steps import Step
from rsd_planner.gpu_check.traces import read_traces
from rsd_planner.gpu_check.weights import random_network

TRACES = {
    "traces": [
        {
            "name": "DFlash, flat",
            "draft": "dflash",
            "frames": [
                {"prefill_committed": 1, "tokens_per_pass": [6, 9, 2]},
                {"prefill_committed": 20, "tokens_per_pass": []},
            ],
        },
        {"name": "EAGLE-3, flat", "draft": "eagle3", "frames": [{"prefill_committed": 1, "tokens_per_pass": [8, 3]}]},
    ]
}


@pytest.fixture(autouse=True)
def _quick_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(timing, "LEAST_REPEATS", 2)
    monkeypatch.setattr(timing, "REPEATS", 2)
    monkeypatch.setattr(timing, "WARM_UP", 1)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=130)


def written(path: Path, values: object) -> Path:
    path.write_text(json.dumps(values))
    return path


def test_the_tiny_shape_takes_every_step_on_the_cpu(tmp_path: Path) -> None:
    traces = written(tmp_path / "traces.json", TRACES)
    report = run(Request(tmp_path / "out", "tiny", traces=traces), quiet())
    found = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
    assert found["complete"]
    assert not [step for step in found["steps"] if step["status"] == "failed"]
    skipped = {step["name"]: step["reason"] for step in found["steps"] if step["status"] == "skipped"}
    for name in (*TARGET_PASSES, *DRAFT_PASSES):
        assert skipped[f"{name}, CUDA graph"] == skipped[f"{name}, compiled"] == "no CUDA device"
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == [*TARGET_PASSES, *DRAFT_PASSES]
    assert all(row["floor_ms"] > 0 and row["ms"]["eager"]["median"] > 0 for row in rows.values())
    exact = {(entry["mode"], entry["tokens_per_pass"]): entry for entry in found["exactness"]}
    assert len(exact) == 11
    assert all(e["differing_tokens"] == 0 and e["largest_logit_difference"] < 1e-4 for e in exact.values())
    drafted, chained = found["ticks"]
    assert drafted["accepted_length"] == pytest.approx(17 / 3)
    assert chained["tokens_per_frame"] == 12
    assert drafted["drafted_ms"]["tick"] > 0

    shown = quiet()
    report.print(shown)
    text = (tmp_path / "out" / "gpu_check.md").read_text()
    for name in ("step of 16", "DFlash, flat", "no CUDA device"):
        assert name in text
        assert name in shown.file.getvalue()  # type: ignore[attr-defined]


def test_a_step_that_fails_or_does_not_end_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_GRACE_S", -59.5)
    done: list[str] = []

    def broken() -> None:
        raise ValueError("no kernel\nimage")

    steps = [
        Step("broken", broken),
        Step("good", lambda: done.append("good")),
        Step("too long", lambda: None, 61.0),
        Step("endless", lambda: time.sleep(50)),
    ]
    report = Report({"device": "CPU"})
    run_steps(steps, Request(tmp_path, "tiny", budget_s=60.0), report, quiet())
    found = {outcome.name: outcome for outcome in report.outcomes}
    assert {name: outcome.status for name, outcome in found.items()} == {
        "broken": "failed",
        "good": "done",
        "too long": "skipped",
        "endless": "failed",
    }
    assert found["broken"].reason == "ValueError: no kernel image"
    assert "broken()" not in found["good"].traceback
    assert "in broken" in found["broken"].traceback
    assert found["too long"].reason == "does not fit the budget of 60 s"
    assert "the budget was spent" in found["endless"].reason
    assert done == ["good"]
    assert json.loads((tmp_path / "gpu_check.json").read_text())["complete"]


def test_what_makes_no_sense_is_one_error(tmp_path: Path) -> None:
    for request, message in (
        (Request(tmp_path, "huge"), "--shape is huge, expected one of alpamayo, tiny"),
        (Request(tmp_path), "--shape alpamayo needs a CUDA device"),
        (Request(tmp_path, "tiny", 0.0), "--budget-seconds is 0.0"),
    ):
        with pytest.raises(ParameterError, match=message):
            run(request, quiet())


def test_traces_that_say_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    with pytest.raises(CheckpointError, match="no such file"):
        read_traces(path, LONGEST_REASONING)
    frame = {"prefill_committed": 1, "tokens_per_pass": [6]}
    for values, message in (
        ({}, "field traces is None"),
        ({"traces": [{"name": "a", "draft": "ngram", "frames": [frame]}]}, "draft 'ngram'"),
        ({"traces": [{"name": "a", "draft": "eagle3", "frames": [{**frame, "tokens_per_pass": [9]}]}]}, "from 1 to 8"),
        ({"traces": [{"name": "a", "draft": "dflash", "frames": [{**frame, "prefill_committed": 0}]}]}, "at least 1"),
        ({"traces": [{"name": "a", "draft": "dflash", "frames": [{"tokens_per_pass": [1]}]}]}, "prefill_committed"),
        (
            {"traces": [{"name": "a", "draft": "dflash", "frames": [{**frame, "tokens_per_pass": [16] * 7}]}]},
            "has 113 tokens, expected at most 110",
        ),
    ):
        written(path, values)
        with pytest.raises(ParameterError, match=message):
            read_traces(path, LONGEST_REASONING)


def test_floors_of_the_10b_target() -> None:
    network = random_network(ALPAMAYO, torch.bfloat16, torch.device("meta"))
    accounts = Accounts(ALPAMAYO, network)
    matrices = 36 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12288) + 155697 * 4096
    cache = 36 * 2 * 8 * 128 * 3001
    step = accounts.step(1, 3000)
    assert step.bytes == pytest.approx(2 * (matrices + cache), rel=1e-3)
    assert step.operations == pytest.approx(2 * matrices + 36 * 4 * 3000 * 4096, rel=1e-3)
    assert accounts.prefill().operations == pytest.approx(
        2 * 3006 * (matrices - 155697 * 4096) + 36 * 4 * 3006**2 / 2 * 4096, rel=1e-3
    )
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(11.08e9, rel=1e-3)
    floors = Floors(bytes_per_s=4e12, operations_per_s=8e14)
    assert floors.ms(Work(4e9, 8e10)) == (pytest.approx(1.0), "bytes")
    assert floors.ms(Work(4e9, 8e12)) == (pytest.approx(10.0), "operations")


def test_a_difference_counts_by_the_margin_it_has() -> None:
    single = torch.tensor([[0.0, 3.0, 2.9, 9.0], [1.0, 0.0, 0.5, 0.0]])
    together = torch.tensor([[0.0, 2.8, 2.9, 9.0], [1.0, 0.0, 0.5, 9.0]])
    found = agreement(single, together, range(3, 4))
    assert found["differing_tokens"] == 1
    assert found["largest_margin_where_differing"] == pytest.approx(0.1)
    assert found["within_epsilon"]
    assert found["near_ties"] == 1
    worse = agreement(single, torch.tensor([[0.0, 3.0, 2.9, 0.0], [0.0, 0.0, 0.5, 0.0]]), range(3, 4))
    assert worse["differing_tokens"] == 1
    assert not worse["within_epsilon"]
