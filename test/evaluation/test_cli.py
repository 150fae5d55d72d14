"""The command as users call it: exit codes, one line per error, Ctrl-C, a full disk."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bag_writing import FRONT, Drive, storage_file, write
from golden_cases import R1
from rosbags.highlevel import AnyReader

import rsd_planner
from rsd_planner import cli

COMMAND = [sys.executable, "-c", "from rsd_planner.cli import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


def call(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["rsd_planner", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one error line of a call that exits with 2."""
    assert call(arguments, monkeypatch) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("loading")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    return write(tmp_path / "drive", Drive(seconds=2.1))


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"], monkeypatch) == 0
    assert capsys.readouterr().out == f"{rsd_planner.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, rsd_planner.cli as c; sys.argv[1:] = ['evaluate', '--help']\n"
        "try: c.main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'transformers', 'matplotlib', 'cv2', 'numpy') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "--stride" in output.stdout
    assert output.stdout.splitlines()[-1] == "[]"


def test_evaluate_says_what_it_did_and_what_the_model_is(
    bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--out", str(tmp_path / "out"), "--stride", "20", "--max-tokens", "3"]
    assert call(["evaluate", str(bag), *flags], monkeypatch) == 0
    (plan,) = [line for line in map(json.loads, (tmp_path / "out" / "plans.jsonl").open()) if "reasoning" in line]
    assert (plan["finish_reason"], plan["reasoning"]) == ("max_tokens", "Adapt speed")
    out = capsys.readouterr().out
    assert re.search(r"drive: planned 1 of 2 ticks, skipped: 1 \w+\n", out)
    assert "note: This is the demo model of rsd_planner" in " ".join(out.split())  # its NOTICE.txt
    assert f"wrote {tmp_path / 'out' / 'index.html'}" in out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--stride", "0"], "--stride is 0"),
        (["--max-tokens", "0"], "max_reasoning_tokens is 0, expected at least 1"),
        (["--camera", "front"], "expected ID=TOPIC"),
        (["--camera", "1=/a", "--camera", "1=/b"], "camera 1 is given twice"),
        (["--camera", "0=/a", "--camera", "1=/a"], "/a is given twice"),
        (["--camera", "\u0661=/a"], "expected ID=TOPIC"),
        (["--camera", "1=/nope"], "no topic /nope"),
        (["--odometry", FRONT], f"--odometry: {FRONT} is sensor_msgs/msg/CompressedImage"),
        (["--camera", f"9={FRONT}"], "trained for cameras 1;"),
        (["--dtype", "float8"], "float8"),
        (["--device", "toaster"], "toaster"),
        (["--model", "/nowhere"], "/nowhere"),
    ],
)
def test_flags_out_of_range(
    flags: list[str],
    words: str,
    bag: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert words in refused(["evaluate", str(bag), "--out", str(tmp_path / "out"), *flags], monkeypatch, capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["truncated", "empty", "foreign", "image-less", "no odometry", "missing"])
def test_recordings_that_cannot_be_evaluated(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "drive"
    if what == "truncated":
        file = storage_file(write(path, Drive(seconds=1.0)))
        file.write_bytes(file.read_bytes()[:20_000])
    elif what == "foreign":
        path.write_text("no bag")
    elif what != "missing":
        drive = {
            "empty": Drive(seconds=-1.0),
            "image-less": Drive(seconds=1.0, cameras={}),
            "no odometry": Drive(seconds=1.0, odometry=()),
        }[what]
        write(path, drive)
    words = {"image-less": "no images", "foreign": "not a recording", "missing": "does not exist"}.get(what, what)
    line = refused(["evaluate", str(path), "--out", str(tmp_path / "out")], monkeypatch, capsys)
    assert str(path) in line
    assert words in line


def test_out_that_is_a_file(
    bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.write_text("")
    assert "is a file" in refused(["evaluate", str(bag), "--out", str(out)], monkeypatch, capsys)


@pytest.mark.parametrize("argument", ["bag", "--out", "--model"])
def test_a_name_that_the_system_refuses(
    argument: str, bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"bag": str(bag), "--out": str(tmp_path / "out"), "--model": str(R1)}
    arguments[argument] = str(tmp_path / ("a" * 300))
    command = ["evaluate", arguments.pop("bag"), *(word for pair in arguments.items() for word in pair)]
    assert "aaa: " in (line := refused(command, monkeypatch, capsys))
    assert "File name too long" in line


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"b\xe9")
    folder.mkdir()
    write(folder / "drive", Drive(seconds=2.1)).rename(folder / os.fsdecode(b"dr\xefve"))
    command = [*COMMAND, "evaluate", str(folder / os.fsdecode(b"dr\xefve")), "--out", str(folder / "out")]
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "utf-8:strict"}
    process = subprocess.run([*command, "--stride", "20"], env=environment, capture_output=True, check=False)
    assert process.returncode == 0, process.stderr
    assert json.loads(lines_of(folder / "out")[0])["bag"] == os.fsdecode(b"dr\xefve")
    assert json.loads((folder / "out" / "summary.json").read_text())["bags"][0]["name"] == os.fsdecode(b"dr\xefve")


def test_a_stdout_that_takes_nothing(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [*COMMAND, "--help"], env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert process.returncode == 2
    assert process.stderr == "error: output: No space left on device\n"


def test_check_target_without_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert str(tmp_path) in refused(["check-target", str(tmp_path)], monkeypatch, capsys)


def test_check_target_on_a_good_one_exits_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["rsd_planner", "check-target", str(R1)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code in (0, None)


def test_ctrl_c_leaves_valid_partial_results(tmp_path: Path) -> None:
    bag, out = write(tmp_path / "long", Drive(seconds=120.0)), tmp_path / "out"
    command = [*COMMAND, "evaluate", str(bag), "--out", str(out)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while process.poll() is None and not (out.is_dir() and lines_of(out)):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    plans = [json.loads(line) for line in lines_of(out)]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["plans"] == len(plans) > 0
    assert summary["stopped"] == f"interrupted after {summary['ticks']['done']} of 1201 ticks"
    assert summary["stopped"] in (out / "index.html").read_text()
    assert summary["stopped"] in stdout
    with AnyReader([out / "long_plans"]) as reader:
        counts = {connection.topic: connection.msgcount for connection in reader.connections}
    assert counts["/rsd_planner/output/path"] == sum(plan["withheld"] is None for plan in plans)


@pytest.mark.parametrize("arguments", [["check-target", str(R1)], ["view", "/nowhere", "--at", "1", "--out", "a.png"]])
def test_ctrl_c_has_its_own_exit_code(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rsd_planner.evaluation.check_target.run", interrupted)
    monkeypatch.setattr("rsd_planner.evaluation.view.view", interrupted)
    assert call(arguments, monkeypatch) == 130
    assert capsys.readouterr().err == "interrupted\n"


def lines_of(out: Path) -> list[str]:
    path = out / "plans.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def test_a_full_disk_is_one_message(bag: Path, tmp_path: Path) -> None:
    """Files may grow to 100 KB and no further."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [*COMMAND, "evaluate", str(bag), "--out", str(tmp_path / "out"), "--stride", "10"]
    process = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert process.returncode == 2
    assert "Traceback" not in process.stderr
    assert process.stderr.splitlines()[-1].startswith("error: --out: cannot write")


def test_view_draws_one_plan_and_says_what_it_is(
    bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "view.png"
    assert call(["view", str(bag), "--at", "2", "--out", str(out)], monkeypatch) == 0
    assert re.fullmatch(rf"t0 1700000002\.000 s: .+\nwrote {out}\n", capsys.readouterr().out)
    assert out.read_bytes().startswith(b"\x89PNG")


def test_view_at_a_moment_without_history_is_one_line(
    bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["view", str(bag), "--at", "0.5", "--out", str(tmp_path / "view.png")]
    assert "history_not_covered" in refused(arguments, monkeypatch, capsys)
