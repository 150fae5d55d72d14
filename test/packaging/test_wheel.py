"""`pip install` of the package: console scripts, the executable for launch_ros, share/, and the demo's data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rsd_planner.demo.model import demo_model_dir
from rsd_planner.target.checkpoint import ModelDirectory

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prefix(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation of the package without its requirements, outside the source tree."""
    prefix = tmp_path_factory.mktemp("prefix")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile"]
    # Without --ignore-installed, pip would remove the package from the environment the tests run in.
    subprocess.run([*pip, "--ignore-installed", "--prefix", str(prefix), str(source)], check=True)
    return prefix


def test_console_scripts(prefix: Path) -> None:
    scripts = {path.name for path in (prefix / "bin").iterdir()}
    assert scripts == {"rsd_planner", "rsd_planner_node", "play_bag", "echo_plans"}


def test_launch_finds_an_executable_node(prefix: Path) -> None:
    node = prefix / "lib" / "rsd_planner" / "rsd_planner_node"
    assert os.access(node, os.X_OK)
    assert node.read_text().startswith("#!/usr/bin/env python3\n")


def test_share_holds_what_ament_and_launch_look_for(prefix: Path) -> None:
    share = prefix / "share"
    assert (share / "ament_index" / "resource_index" / "packages" / "rsd_planner").exists()
    assert (share / "rsd_planner" / "package.xml").exists()
    for folder in ("launch", "config"):
        source = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
        assert source
        assert {path.name for path in (share / "rsd_planner" / folder).iterdir()} == source


def test_installed_package_finds_its_model_and_bag(prefix: Path, tmp_path: Path) -> None:
    program = (
        "from rsd_planner.demo.model import demo_model_dir\n"
        "from rsd_planner.demo.make_bag import BAG_DIR\n"
        "from rsd_planner.target.checkpoint import ModelDirectory\n"
        "from rsd_planner.demo.world.motion_fit import load_motion\n"
        "from rsd_planner.demo.world.tokenizer import load_tokenizer\n"
        "print(demo_model_dir(), BAG_DIR, ModelDirectory.find(demo_model_dir()).notice.strip(), sep='\\n')\n"
        "print(load_tokenizer().get_vocab_size() > 500 and load_motion().accel_mps2 > 0)\n"
    )
    site = prefix / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", program]
    output = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True).splitlines()
    assert output[0] == str(prefix / "share" / "rsd_planner" / "demo_model")
    assert output[1] == str(site / "rsd_planner" / "demo" / "bag")
    assert (Path(output[1]) / "metadata.yaml").exists()
    assert output[2] == ModelDirectory.find(demo_model_dir()).notice.strip()
    assert output[3] == "True"
