"""The loop can be read, tested and reused without any model: it imports none."""

from __future__ import annotations

import ast
from pathlib import Path

import rsd_planner.decoding

ALLOWED = ("rsd_planner.decoding", "rsd_planner.errors", "rsd_planner.plan")


def test_decoding_knows_no_model() -> None:
    files = list(Path(rsd_planner.decoding.__file__).parent.glob("*.py"))
    assert files
    for file in files:
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        ours = [module for module in modules if module.startswith("rsd_planner")]
        assert all(module.startswith(ALLOWED) for module in ours), file.name
