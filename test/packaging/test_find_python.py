"""The interpreter for .venv: the first that is new enough and can make virtual environments, or one clear message."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "find_python"


def _interpreter(directory: Path, name: str, version: str, venv: bool = True) -> Path:
    """A stand-in that answers the script's three questions as a Python of that version would."""
    supported = venv and (3, 11) <= tuple(map(int, version.split(".")[:2])) <= (3, 12)
    program = directory / name
    answers = f"*exit*) exit {int(not supported)};; *print*) echo {version};; *) exit {int(not venv)};;"
    program.write_text(f'#!/bin/sh\ncase "$2" in {answers} esac\n')
    program.chmod(0o755)
    return program


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(SCRIPT), *arguments]
    return subprocess.run(command, env={"PATH": str(directory)}, capture_output=True, text=True, check=False)


def test_takes_the_newest_that_works(tmp_path: Path) -> None:
    _interpreter(tmp_path, "python3.12", "3.12.3", venv=False)
    expected = _interpreter(tmp_path, "python3.11", "3.11.2")
    _interpreter(tmp_path, "python3", "3.11.2")
    assert _run(tmp_path).stdout.strip() == str(expected)


def test_says_what_it_found_when_none_will_do(tmp_path: Path) -> None:
    _interpreter(tmp_path, "python3.12", "3.12.3", venv=False)
    _interpreter(tmp_path, "python3", "3.10.12")
    run = _run(tmp_path)
    assert run.returncode == 1
    assert run.stdout == ""
    assert "python3.12: 3.12.3, no venv module" in run.stderr
    assert "python3.11: not there" in run.stderr
    assert "python3: 3.10.12" in run.stderr
    assert "apt install" in run.stderr


def test_the_given_interpreter_is_the_only_candidate(tmp_path: Path) -> None:
    _interpreter(tmp_path, "python3.12", "3.12.3")
    too_old = _interpreter(tmp_path, "mine", "3.9.1")
    run = _run(tmp_path, str(too_old))
    assert run.returncode == 1
    assert f"{too_old}: 3.9.1" in run.stderr
