"""The package's ROS programs as processes of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STOP_TIMEOUT_S = 30.0


def children(pid: int) -> list[int]:
    """Processes that a process has started, by whichever of its threads."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


class Program:
    """A running program and what it has printed so far."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"rsd_planner.ros.{module}", *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> bool:
        return text in self.output

    def until_it_says(self, text: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.says(text):
            assert self.running, f"ended without saying {text!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"did not say {text!r} in time:\n{self.output}"
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and wait for the end; the exit code comes back."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        return self._process.wait(timeout_s)

    def end(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait()
