"""`colcon build --base-paths . msg`: both packages, with nothing but the wheels in place of a ROS installation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("c++") is None, reason="no cmake or C++ compiler on this machine"
)


@pytest.fixture(scope="module")
def ros_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environment as a ROS prefix whose CMake files name this machine's include directories.

    The wheels' own name those of the machine that built them.
    """
    prefix = tmp_path_factory.mktemp("ros")
    shutil.copytree(Path(sys.prefix) / "share", prefix / "share")
    for folder in ("bin", "include", "lib"):
        (prefix / folder).symlink_to(Path(sys.prefix) / folder)
    for file in (prefix / "share").rglob("*.cmake"):
        text = file.read_text()
        text = re.sub(r"/opt/python/[^;\"]*/numpy/_core/include", np.get_include(), text)
        text = re.sub(r"/opt/python/[^;\"]*/include/python3\.\d+", sysconfig.get_path("include"), text)
        file.write_text(text)
    return prefix


@pytest.fixture(scope="module")
def install(source: Path, ros_prefix: Path) -> Path:
    workspace = source.parents[1]
    environment = {**os.environ, "AMENT_PREFIX_PATH": str(ros_prefix), "CMAKE_PREFIX_PATH": str(ros_prefix)}
    interpreter = ["-DPython3_EXECUTABLE=" + sys.executable, "-DPython3_FIND_VIRTUALENV=ONLY"]
    command = [sys.executable, "-m", "colcon", "build", "--base-paths", "src/rsd_planner", "src/rsd_planner/msg"]
    run = subprocess.run(
        [*command, "--cmake-args", *interpreter],
        cwd=workspace,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 packages finished" in run.stdout
    return workspace / "install"


def _run(install: Path, command: str) -> str:
    """Output of a shell command with the workspace sourced."""
    script = f". {install}/setup.sh && {command}"
    run = subprocess.run(["sh", "-c", script], cwd=install, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_message_package_builds_a_working_message(install: Path) -> None:
    program = (
        "from rsd_planner_msgs.msg import Reasoning\n"
        "from rclpy.serialization import deserialize_message, serialize_message\n"
        "message = Reasoning(text='Keep lane.', sequence=7)\n"
        "copy = deserialize_message(serialize_message(message), Reasoning)\n"
        "print(copy.text, copy.sequence)\n"
    )
    assert _run(install, f'{sys.executable} -c "{program}"') == "Keep lane. 7\n"


def test_the_node_publishes_it_where_the_workspace_is_sourced(install: Path) -> None:
    test = ROOT / "test" / "ros" / "test_planning.py"
    pytest_command = f"{sys.executable} -m pytest -q -p no:cacheprovider --rootdir {ROOT} {test}"
    assert "1 passed" in _run(install, f"{pytest_command} -k the_typed_reasoning_belongs_to_the_path")


def test_executables_lie_where_launch_ros_looks(install: Path) -> None:
    folder = install / "rsd_planner" / "lib" / "rsd_planner"
    names = {path.name for path in folder.iterdir() if os.access(path, os.X_OK)}
    assert names == {"rsd_planner", "rsd_planner_node", "play_bag", "echo_plans"}
    assert all(path.read_text().startswith("#!/usr/bin/env python3\n") for path in folder.iterdir())


def test_installed_package_has_the_demo_model_and_bag(install: Path) -> None:
    program = (
        "from rsd_planner.demo.model import demo_model_dir\n"
        "from rsd_planner.demo.make_bag import BAG_DIR\n"
        f"print(demo_model_dir(), BAG_DIR.is_relative_to('{install}'), (BAG_DIR / 'metadata.yaml').exists())\n"
    )
    output = _run(install, f'{sys.executable} -c "{program}"').split()
    assert output == [str(install / "rsd_planner" / "share" / "rsd_planner" / "demo_model"), "True", "True"]
