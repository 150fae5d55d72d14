"""A whole measurement on the golden target: every row, exact, and stopped half-way."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from golden_cases import R1
from rich.console import Console
from typer.testing import CliRunner

from rsd_planner.bench import drives
from rsd_planner.bench.drives import drive_stretches
from rsd_planner.bench.reference import ReferencePipeline
from rsd_planner.bench.run import Bench, Request, bench
from rsd_planner.bench.show import draw_chart, print_table
from rsd_planner.bench.strategies import Tick
from rsd_planner.cli import app
from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.canvas import Canvas, RenderError
from rsd_planner.demo.world.dataset import write_split
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import ParameterError
from rsd_planner.planner import PlannerSettings
from rsd_planner.scene.observation import STEP_NS, Observation

sys.path.insert(0, str(Path(__file__).parents[1] / "draft"))
from draft_files import DFLASH, EAGLE3, random_draft

BAG = Path(__file__).parents[2] / "rsd_planner" / "demo" / "bag"
CAP = 12
FRAMES = 3
NAMES = {
    "plain loop",
    "Hugging Face generate",
    "n-gram",
    "EAGLE-3, flat",
    "DFlash, mirrored",
    "memory",
    "memory + EAGLE-3, flat",
    "memory + DFlash, mirrored",
}
ASKED = (
    "name",
    "accepted_length",
    "ceiling",
    "passes_per_frame",
    "prefill_committed",
    "routine_share",
    "s_paper",
    "s_model",
    "reasoning_ms",
    "tick_ms",
    "speedup_vs_plain",
    "speedup_vs_reference",
    "tick_speedup_vs_reference",
    "token_exact",
)

try:
    Canvas(WIDTH, HEIGHT)
except RenderError as error:
    pytest.skip(f"pictures cannot be rendered: {error}", allow_module_level=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One drive each to learn from and to measure on."""
    folder = tmp_path_factory.mktemp("world")
    for split in (Split.TRAIN, Split.OFF_SHELF):
        list(write_split(folder, split, 1))
    return folder


@pytest.fixture
def drafts(tmp_path: Path) -> list[Path]:
    return [random_draft(EAGLE3, "flat", tmp_path / "e"), random_draft(DFLASH, "mirrored", tmp_path / "d")]


@pytest.fixture(autouse=True)
def _short_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drives, "TICKS", 2)


def measure(out: Path, drafts: list[Path], **where: Any) -> tuple[Bench, dict[str, Any]]:
    settings = PlannerSettings(max_reasoning_tokens=CAP, flow_steps=2)
    result = bench(Request(R1, drafts, FRAMES, out, settings, **where), Console(quiet=True))
    return result, json.loads((out / "bench.json").read_text())


def test_every_row_is_measured_on_the_same_frames_and_exact(world: Path, drafts: list[Path], tmp_path: Path) -> None:
    result, written = measure(tmp_path / "out", drafts, data=world)
    rows = written["rows"]
    assert not written["partial"]
    assert written["frames"] == {"independent": FRAMES, "consecutive": FRAMES}
    assert {row["name"] for row in rows} == NAMES
    assert all(set(ASKED) <= set(row) for row in rows)
    for row in rows:
        assert row["ticks"] == FRAMES
        assert row["token_exact"] is True
        assert row["reasoning_ms"] > 0
        cached = row["name"] not in ("plain loop", "Hugging Face generate")
        assert (row["kv_difference"] is not None) == cached
        if row["draft"] and row["frames"] == "independent":
            assert 1.0 <= row["accepted_length"] <= row["ceiling"]
    assert written["threads"] >= 1
    assert written["settings"]["seed"] == 0
    assert set(written["step_ms"]["pytorch"]) == {"1", "2", "4", "8", "16"}
    print_table(result.rows(), Console(quiet=True))
    draw_chart(result.rows(), result.machine, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_leaves_what_was_measured(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, runs = ReferencePipeline.run, []

    def interrupted(pipeline: ReferencePipeline, observation: Observation) -> Tick:
        runs.append(observation)
        if len(runs) == 4:  # two to warm up, then the second frame
            signal.raise_signal(signal.SIGINT)
        return run(pipeline, observation)

    monkeypatch.setattr(ReferencePipeline, "run", interrupted)
    result, written = measure(tmp_path / "out", [], data=world)
    assert result.partial
    assert written["partial"]
    assert written["frames"] == {"independent": 2, "consecutive": 0}
    assert {row["name"] for row in written["rows"]} == {"plain loop", "Hugging Face generate", "n-gram"}
    assert all(row["ticks"] == 2 for row in written["rows"])


def test_exactness_alone_needs_no_reference(world: Path, drafts: list[Path], tmp_path: Path) -> None:
    result, written = measure(tmp_path / "out", drafts, data=world, exactness_only=True)
    assert {row["name"] for row in written["rows"]} == NAMES - {"Hugging Face generate"}
    assert all(row["token_exact"] and row["inexact_frames"] == 0 for row in written["rows"])
    assert all(row["tick_speedup_vs_reference"] is None for row in written["rows"])
    print_table(result.rows(), Console(quiet=True))
    draw_chart(result.rows(), result.machine, tmp_path / "bench.png")


def test_a_recording_serves_as_well(tmp_path: Path) -> None:
    _, written = measure(tmp_path / "out", [], bag=BAG)
    assert [row["name"] for row in written["rows"]] == ["Hugging Face generate", "plain loop", "memory"]
    assert written["frames"] == {"consecutive": FRAMES}
    assert all(row["token_exact"] for row in written["rows"])


def test_consecutive_ticks_share_their_frames_and_are_drawn_once(tmp_path: Path) -> None:
    first = list(drive_stretches(Split.OFF_SHELF, 3, tmp_path))
    assert [len(stretch) for stretch in first] == [2, 1]
    one, two = first[0]
    assert two.stamp_ns - one.stamp_ns == STEP_NS
    assert two.cameras[1][:3] == one.cameras[1][1:]  # the very same objects
    assert [frame.stamp_ns for frame in one.cameras[1]] == [one.stamp_ns - back * STEP_NS for back in (3, 2, 1, 0)]
    drawn = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = list(drive_stretches(Split.OFF_SHELF, 3, tmp_path))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == drawn
    assert (again[0][0].cameras[1][3].image == one.cameras[1][3].image).all()


def test_what_is_asked_wrongly_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="expected either --data or --bag"):
        measure(tmp_path, [])
    with pytest.raises(ParameterError, match="--frames is 0"):
        bench(Request(R1, [], 0, tmp_path, PlannerSettings(), bag=BAG), Console(quiet=True))
    (tmp_path / "file").write_text("")
    with pytest.raises(ParameterError, match="--out: cannot write"):
        measure(tmp_path / "file" / "below", [], bag=BAG)


def test_on_the_command_line(world: Path, drafts: list[Path], tmp_path: Path) -> None:
    flags = ["--model", str(R1), "--data", str(world), "--frames", "1", "--out", str(tmp_path / "out")]
    named = [flag for path in drafts for flag in ("--draft", str(path))]
    result = CliRunner().invoke(app, ["attention", *flags, *named])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "attention.json").read_text())
    assert [draft["name"] for draft in found["drafts"]] == ["EAGLE-3, flat", "DFlash, mirrored"]
    assert (tmp_path / "out" / "attention.png").exists()
    for command in ("bench", "attention"):
        result = CliRunner().invoke(app, [command, *flags, *named, "--max-tokens", "0"])
        assert "max_reasoning_tokens is 0, expected at least 1" in str(result.exception)
