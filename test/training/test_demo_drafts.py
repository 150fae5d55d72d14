"""All drafts of a target from one cache: what is done is not done again, and the summary says what was measured."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from golden_cases import R1
from rich.console import Console

from rsd_planner.demo.world.dataset import write_split
from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import TrainingError
from rsd_planner.interruptible import EXIT_INTERRUPTED
from rsd_planner.training.demo_drafts import SPLITS, DraftsRequest, summary, train_drafts
from rsd_planner.training.train_draft import Request


def alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_every_draft_is_trained_once_and_measured(world: Path, tmp_path: Path) -> None:
    for split in (Split.TEST, Split.OFF_SHELF):
        list(write_split(world, split, drives=1))
    numbers = {"steps": 1, "batch": 2, "validations": 1, "validation_frames": 1, "max_tokens": 16, "frames": 4}
    cache = tmp_path / "cache"
    common = Request(R1, DraftKind.DFLASH, Rope.FLAT, world, tmp_path, cache=cache, **numbers)  # type: ignore[arg-type]
    request = DraftsRequest(common, tmp_path, seeds=1, jobs=1, measured=1)
    found = train_drafts(request, Console(quiet=True))
    assert found is not None
    assert sorted(found["drafts"]) == ["dflash_flat_0", "dflash_mirrored_0", "eagle3_flat_0", "eagle3_mirrored_0"]
    for name, figures in found["drafts"].items():
        assert json.loads((tmp_path / name / "config.json").read_text())["rope"] == figures["rope"]
        assert set(figures["splits"]) == {split.value for split in SPLITS}
        assert all(1 <= entry["accepted_length"] <= entry["ceiling"] for entry in figures["splits"].values())
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/model.safetensors")}
    assert train_drafts(request, Console(quiet=True)) == found == json.loads((tmp_path / "summary.json").read_text())
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/model.safetensors")}


def test_asked_to_stop_nothing_new_is_begun(world: Path, tmp_path: Path) -> None:
    flags = ["--steps", "100000", "--batch", "2", "--frames", "4", "--seeds", "1", "--jobs", "1"]
    command = [sys.executable, "-m", "rsd_planner", "demo", "train-drafts", str(R1), str(world), str(tmp_path), *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("*/run/log.jsonl")):  # it is on its way, and the next one is handed out
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)  # to this one alone, as a process manager does
    _, said = process.communicate(timeout=120)
    assert process.returncode == EXIT_INTERRUPTED
    assert "stopping after this step of each draft" in said
    assert "Traceback" not in said
    assert len(list(tmp_path.glob("*/run/state-*"))) == 1
    assert len(list(tmp_path.glob("*/run"))) == 1


def test_a_draft_that_cannot_go_on_is_told_of_at_once(world: Path, shared_cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eagle3_flat_0" / "run"
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text('{"batch": 3}')
    common = Request(
        R1, DraftKind.DFLASH, Rope.FLAT, world, tmp_path, cache=shared_cache, max_tokens=24, frames=4, batch=2
    )
    with pytest.raises(TrainingError, match=r"eagle3_flat_0"):
        train_drafts(DraftsRequest(common, tmp_path, seeds=1, jobs=1), Console(quiet=True))
    assert [path.name for path in tmp_path.iterdir()] == ["eagle3_flat_0"]


def test_wrong_data_is_told_of_before_any_process_starts(tmp_path: Path) -> None:
    common = Request(R1, DraftKind.EAGLE3, Rope.FLAT, tmp_path, tmp_path / "out", cache=tmp_path / "cache")
    (tmp_path / Split.VAL.value).mkdir()
    (tmp_path / Split.VAL.value / "about.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"no split train there; rsd_planner demo render"):
        train_drafts(DraftsRequest(common, tmp_path / "out", seeds=1, jobs=1), Console(quiet=True))
    assert not (tmp_path / "out").exists()


def test_no_process_outlives_its_parent() -> None:
    script = (
        "import signal, sys, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import active_children, get_context\n"
        "from rsd_planner.training.demo_drafts import _told_by_parent\n"
        "if __name__ == '__main__':\n"
        "    context = get_context('spawn')\n"
        "    pool = ProcessPoolExecutor(1, context, _told_by_parent, (context.Event(),))\n"
        "    pool.submit(signal.signal, signal.SIGINT, signal.SIG_DFL).result()\n"
        "    print(active_children()[0].pid, flush=True)\n"
        "    pool.submit(time.sleep, 600).result()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.terminate()
    parent.wait()
    ended = time.monotonic() + 20.0
    while alive(child):
        assert time.monotonic() < ended
        time.sleep(0.1)


def test_mean_and_spread_are_over_the_seeds() -> None:
    def draft(length: float, rope: str) -> dict[str, object]:
        entry = {"accepted_length": length, "ceiling": 9.0, "routine_share": 0.5}
        return {"draft": "dflash", "rope": rope, "splits": {split.value: entry for split in SPLITS}}

    found = summary({"a": draft(6.0, "flat"), "b": draft(7.0, "flat"), "c": draft(5.0, "mirrored")})
    rows = {(row["rope"], row["split"]): row for row in found["rows"]}
    assert len(rows) == 6
    assert rows["flat", "test"]["accepted_length"] == 6.5
    assert rows["flat", "test"]["spread"] == 0.7071
    assert rows["mirrored", "test"]["spread"] is None
