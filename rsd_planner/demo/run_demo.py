"""`make demo`: the bundled bag through the running node over DDS, then through the evaluator.

Node, bag player and printer are processes of their own, as on a vehicle. Exit code 0, 130 after Ctrl-C, else 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rich.console import Console

from rsd_planner.demo.make_bag import BAG_DIR, IMAGE_TOPIC, ODOMETRY_TOPIC, START_NS, TRUTH
from rsd_planner.demo.model import demo_model_dir
from rsd_planner.demo.truth_table import print_table, read_told
from rsd_planner.errors import PlannerError

NODE_PARAMETERS = Path(__file__).parent / "node.yaml"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0
LAST_PLAN_S = 2.0
EVALUATION_STRIDE = 3
LOG_LINES_SHOWN = 15


class DemoError(PlannerError):
    """A part of the demo that did not do its work."""


def main() -> None:
    """Run the demo; see the module's docstring for the exit code."""
    parser = argparse.ArgumentParser(prog="run_demo", description="Play the bundled bag through the node; evaluate it.")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="directory for the results")
    out: Path = parser.parse_args().out
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        run(out)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)
    except (PlannerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def run(out: Path) -> None:
    """Play, then evaluate, into `out`.

    Raises:
        DemoError: A part failed; the message says which one and shows the end of its log.
    """
    out.mkdir(parents=True, exist_ok=True)
    environment = _environment(out)
    print(f"Playing {BAG_DIR} through the node, model {demo_model_dir()}.")
    print(f"To look on with ros2 or RViz: ROS_DOMAIN_ID={environment['ROS_DOMAIN_ID']}\n", flush=True)
    plans = play(out, environment)
    print(f"{plans} plans came over DDS. Now the same bag through the evaluator.\n", flush=True)
    stride = ["--stride", str(EVALUATION_STRIDE)]
    with _process(["rsd_planner", "evaluate", str(BAG_DIR), "--out", str(out), *stride], environment) as evaluator:
        if evaluator.wait() != 0:
            raise DemoError(f"the evaluator ended with exit code {evaluator.returncode}")
    print()
    print_table(read_told(out / "plans.jsonl", BAG_DIR / TRUTH, START_NS), Console())
    print(f"\nThe page with pictures: {(out / 'index.html').resolve().as_uri()}")


def play(out: Path, environment: Mapping[str, str]) -> int:
    """Run node, printer and player until the bag has been played. Returns the number of plans printed.

    Raises:
        DemoError: The node or the player failed, or no plan came.
    """
    log = out / "node.log"
    topics = {"~/input/image_front": IMAGE_TOPIC, "~/input/odometry": ODOMETRY_TOPIC}
    remappings = [word for pair in topics.items() for word in ("-r", ":=".join(pair))]
    parameters = ["--params-file", str(NODE_PARAMETERS), "-p", f"model:={demo_model_dir()}"]
    playing = [str(BAG_DIR), "--clock", "--wait", str(START_TIMEOUT_S)]
    with (
        log.open("w", encoding="utf-8") as node_log,
        _process(["rsd_planner.ros.main", "--ros-args", *parameters, *remappings], environment, node_log) as node,
        _process(["rsd_planner.ros.echo_plans"], environment, subprocess.PIPE) as printer,
        _process(["rsd_planner.ros.play_bag", *playing], environment, subprocess.DEVNULL) as player,
    ):
        plans = _Forwarder(printer)
        while player.poll() is None:
            if node.poll() is not None:
                raise DemoError(f"the node ended with exit code {node.returncode} while the bag played{_end_of(log)}")
            if plans.count == 0 and "[ERROR]" in log.read_text(encoding="utf-8", errors="replace"):
                raise DemoError(f"the node reported an error{_end_of(log)}")
            time.sleep(0.1)
        time.sleep(LAST_PLAN_S)
        for process in (printer, node):
            _stop(process)
        plans.join()
    if player.returncode != 0:
        raise DemoError(f"the bag player ended with exit code {player.returncode}")
    if node.returncode != 0:
        raise DemoError(f"the node ended with exit code {node.returncode}{_end_of(log)}")
    if plans.count == 0:
        raise DemoError(f"no plan came from the node{_end_of(log)}")
    return plans.count


class _Forwarder(threading.Thread):
    """Prints what a process prints, and counts the plans in it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(name="forwarder", daemon=True)
        self._process = process
        self.count = 0
        self.start()

    def run(self) -> None:
        for line in self._process.stdout or ():
            self.count += line.startswith("t0 ")
            print(line, end="", flush=True)


def _environment(out: Path) -> dict[str, str]:
    """A ROS domain of our own, not seen beyond this machine, so that the demo meets no other robot."""
    defaults = {
        "AMENT_PREFIX_PATH": sys.prefix,  # the ROS wheels lie in the virtual environment and do not say so themselves
        "OMP_NUM_THREADS": "1",  # the demo model is too small to gain from more, and they would fight over a busy CPU
    }
    own = {
        "ROS_DOMAIN_ID": str(os.getpid() % 100 + 1),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str((out / "ros_log").resolve()),
        "COLUMNS": str(shutil.get_terminal_size().columns),
        "PYTHONUNBUFFERED": "1",
    }
    return {**defaults, **os.environ, **own}


@contextmanager
def _process(
    module: list[str], environment: Mapping[str, str], output: int | IO[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`python -m ...`, stopped at the end of the block. Ctrl-C in the terminal reaches only us: we pass it on."""
    errors = None if output in (None, subprocess.DEVNULL) else subprocess.STDOUT
    command = [sys.executable, "-m", *module]
    process = subprocess.Popen(
        command, env=environment, stdout=output, stderr=errors, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """SIGINT, and SIGKILL if that does not help."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
        raise


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return f"; the end of {log}:\n" + "\n".join(f"  {line}" for line in lines)


if __name__ == "__main__":
    main()
