"""The README's parameter table is what the node declares."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from rsd_planner.ros.parameters import SPECIFICATIONS

README = Path(__file__).resolve().parents[2] / "README.md"


def test_parameter_table_names_every_parameter_with_its_default() -> None:
    table = README.read_text().split("### Parameters")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\|", table, re.MULTILINE))
    documented = {name: yaml.safe_load(default) if default else "" for name, default in rows.items()}
    assert documented == {name: specification.default for name, specification in SPECIFICATIONS.items()}
