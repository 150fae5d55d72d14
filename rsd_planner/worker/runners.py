"""Where the worker runs: in a process of its own, or in a thread of the node for tests and debugging."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Protocol

from rsd_planner.errors import ParameterError
from rsd_planner.worker.channel import Channel
from rsd_planner.worker.server import Load, Server
from rsd_planner.worker.shared_memory import SharedMemory

_MAIN = Path(__file__).with_name("main.py")
_OWN = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")  # of the node's environment
_ENDING_S = 1.0  # after hanging up
_TAIL = 20  # lines of the worker's output that are kept


class Running(Protocol):
    """A worker that has been started."""

    def why_ended(self) -> str:
        """How it ended, in words; asked only after it hung up."""

    def join(self, timeout_s: float) -> bool:
        """Wait for its end after hanging up; False if it is still there after `timeout_s`."""


class Runner(Protocol):
    """Starts workers."""

    def start(self, stream: socket.socket, memory: SharedMemory) -> Running:
        """Start a worker on its end of a socket pair, which is closed here, and the node's shared memory.

        Raises:
            ParameterError: The interpreter cannot be run.
        """


class ProcessRunner:
    """Starts workers as processes of a given Python interpreter."""

    def __init__(self, python: str) -> None:
        """Args: python: The interpreter, by path or by name; "" = the one this runs in."""
        self.python = python and (shutil.which(Path(python).expanduser()) or "")
        if python and not self.python:
            raise ParameterError(
                f"parameter 'model_python': found {python!r}, expected an executable Python interpreter"
            )

    def start(self, stream: socket.socket, memory: SharedMemory) -> Running:
        python = self.python or sys.executable
        environment = dict(os.environ)
        if self.python:
            for name in _OWN:
                environment.pop(name, None)
        with stream:
            descriptors = (stream.fileno(), memory.descriptor)
            try:
                process = subprocess.Popen(
                    [python, str(_MAIN), *map(str, descriptors)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=descriptors,
                    env=environment,
                )
            except OSError as error:
                raise ParameterError(
                    f"parameter 'model_python': found {python!r}, expected a Python interpreter: {error.strerror}"
                ) from error
        return _Process(process, python)


class _Process:
    def __init__(self, process: subprocess.Popen[bytes], python: str) -> None:
        self._process = process
        self._python = python
        self._said: deque[str] = deque(maxlen=_TAIL)
        self._listening = threading.Thread(target=self._listen, name="worker output", daemon=True)
        self._listening.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def why_ended(self) -> str:
        killed_here = not self._join(_ENDING_S)
        code = self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if killed_here:
            how = f"hung up and was killed as it did not end within {_ENDING_S:g} s"
        said = f": {self._said[-1]}" if self._said and (killed_here or code > 0) else ""
        return f"the worker process ({self._python}) {how}{said}"

    def join(self, timeout_s: float) -> bool:
        self._join(timeout_s)
        return True

    def _join(self, timeout_s: float) -> bool:
        """Whether it ended by itself; it has ended in any case."""
        by_itself = True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            by_itself = False
            self._process.kill()
            self._process.wait()
        self._listening.join(timeout_s)  # a process that the worker may have started holds the pipe open
        return by_itself

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                text = line.decode(errors="replace").rstrip()
                if text:
                    self._said.append(text)
                    print(f"[worker] {text}", file=sys.stderr, flush=True)


class ThreadRunner:
    """Starts workers as threads of this process."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def start(self, stream: socket.socket, memory: SharedMemory) -> Running:
        view = SharedMemory(os.dup(memory.descriptor))
        return _Thread(Server(Channel(stream), view, self._load))


class _Thread:
    def __init__(self, server: Server) -> None:
        self._thread = threading.Thread(target=server.serve, name="planner", daemon=True)
        self._thread.start()

    def why_ended(self) -> str:
        return "the worker's thread has ended"

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()
