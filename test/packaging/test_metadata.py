"""What the packages say of themselves agrees, and every dependency is declared, pinned and explained."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from catkin_pkg.package import parse_package

import rsd_planner

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ("requirements.txt", "requirements-engines.txt", "requirements-ros.txt", "requirements-dev.txt")


def _pins(*files: str) -> dict[str, str]:
    """Distribution name -> version of every line."""
    lines = [line for file in files for line in (ROOT / file).read_text().splitlines()]
    return dict(re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.]+)", line).groups() for line in lines)


@pytest.mark.parametrize("manifest", ["package.xml", "msg/package.xml"])
def test_manifest_is_valid_and_carries_the_one_version(manifest: str) -> None:
    package = parse_package(ROOT / manifest)
    warnings: list[str] = []
    package.validate(warnings=warnings)
    assert warnings == []
    assert package.package_format == 3
    assert package.version == rsd_planner.__version__
    assert package.licenses == ["Apache-2.0"]


@pytest.mark.parametrize(
    ("folder", "requirements"), [("rsd_planner", REQUIREMENTS[:3]), ("test", REQUIREMENTS)], ids=["package", "tests"]
)
def test_every_import_is_a_pinned_requirement(folder: str, requirements: tuple[str, ...]) -> None:
    distributions = packages_distributions()
    sources = list((ROOT / folder).rglob("*.py"))
    ours = {"rsd_planner", "rsd_planner_msgs"} | {source.stem for source in sources}
    pinned = {name.lower() for name in _pins(*requirements)}
    missing = {}
    for source in sources:
        for module in _imported(source) - ours - sys.stdlib_module_names:
            owners = {owner.lower().replace("_", "-") for owner in distributions.get(module, [])}
            if not owners & pinned and f"ros-{module}".replace("_", "-") not in pinned:
                missing[module] = str(source.relative_to(ROOT))
    # part of the wheels' rclpy: its own exact requirements, nothing to pin beside it
    assert missing.keys() <= {"builtin_interfaces", "rcl_interfaces"}, missing


def _imported(source: Path) -> set[str]:
    tree = ast.walk(ast.parse(source.read_text()))
    modules = set()
    for node in tree:
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.split(".")[0])
    return modules


def test_every_requirement_has_its_reason_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name in _pins(*REQUIREMENTS) if f"`{name}`" not in text] == []
