"""`make demo`'s program as a user runs it: real processes, real DDS, the bundled model and bag."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rsd_planner.demo import run_demo
from rsd_planner.demo.make_bag import BAG_DIR, START_NS, TICKS, TRUTH
from rsd_planner.demo.model import demo_model_dir
from rsd_planner.demo.truth_table import read_told
from rsd_planner.target.checkpoint import ModelDirectory


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "rsd_planner.demo.run_demo", "--out", str(tmp_path / "demo")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path(__file__).parents[2]
    )
    yield process
    process.kill()
    process.wait()


def _read_until_first_plan(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    assert any(line.startswith("t0 ") for line in demo.stdout)


def _parts(demo: subprocess.Popen[str]) -> list[int]:
    """Node, printer and player, in the order they were started."""
    return [int(pid) for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()]


def test_a_node_that_cannot_be_configured_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "model"
    (broken / "checkpoint").mkdir(parents=True)
    monkeypatch.setattr(run_demo, "demo_model_dir", lambda: broken)
    with pytest.raises(run_demo.DemoError, match="the node reported an error") as error:
        run_demo.run(tmp_path / "demo")
    assert f"{broken}: no model here" in str(error.value)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_plays_prints_evaluates_and_says_where_the_page_is(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    output, _ = demo.communicate(timeout=600)
    assert demo.returncode == 0, output
    assert " ".join(ModelDirectory.find(demo_model_dir()).notice.split()) in " ".join(output.split())
    live = re.findall(r"^t0 (\d+)\.(\d{3}) s +(.+)$", output, re.MULTILINE)
    assert live
    for seconds, milliseconds, reasoning in live:
        since_start_ms = (int(seconds) * 1000 + int(milliseconds)) - START_NS // 10**6
        assert since_start_ms % 100 == 0  # the stamp of an image
        assert 1500 <= since_start_ms < 100 * TICKS
        assert reasoning
    assert f"{len(live)} plans came over DDS" in output

    page = tmp_path / "demo" / "index.html"
    assert page.as_uri() in output
    assert page.stat().st_size > 10_000
    records = [json.loads(line) for line in (tmp_path / "demo" / "plans.jsonl").read_text().splitlines()]
    assert len(records) > 80
    told = read_told(tmp_path / "demo" / "plans.jsonl", BAG_DIR / TRUTH, START_NS)
    assert len(told) == len(records)  # each has a true sentence
    named = sum(one.verdict != "wrong" for one in told)
    assert f"Of {len(told)} plans {named} name the true cause" in output


def test_stops_all_its_processes_on_ctrl_c(demo: subprocess.Popen[str]) -> None:
    _read_until_first_plan(demo)
    parts = _parts(demo)
    assert len(parts) == 3
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Traceback" not in output
    assert not any(map(_alive, parts))


def test_a_dead_node_is_reported_and_nothing_is_left_behind(demo: subprocess.Popen[str]) -> None:
    _read_until_first_plan(demo)
    parts = _parts(demo)
    os.kill(parts[0], signal.SIGKILL)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "error: the node ended with exit code -9 while the bag played; the end of" in output
    assert "Alpamayo R1" in output  # from the node's log
    assert not any(map(_alive, parts))
