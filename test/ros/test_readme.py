"""The README's parameter table is a part of what the node declares, with the right defaults."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from rsd_planner.ros.parameters import SPECIFICATIONS

README = Path(__file__).resolve().parents[2] / "README.md"


def test_parameters_in_the_table_exist_and_have_these_defaults() -> None:
    table = README.read_text().split("### Parameters")[1].split("\n## ")[0].split("\n### ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\|", table, re.MULTILINE))
    assert len(rows) >= 8
    for name, default in rows.items():
        assert (yaml.safe_load(default) if default else "") == SPECIFICATIONS[name].default


def test_files_it_links_to_exist() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (README.parent / target).exists(), target
