"""Exported graphs in the comparison: rows of their own, exact, beside the plain loop of their own backend."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from rsd_planner.bench.run import Request, bench
from rsd_planner.planner import PlannerSettings

BAG = Path(__file__).parents[2] / "rsd_planner" / "demo" / "bag"


def test_rows_on_graphs(r1_model: Path, tmp_path: Path) -> None:
    settings = PlannerSettings(max_reasoning_tokens=12, flow_steps=1)
    bench(Request(r1_model, [], 2, tmp_path, settings, bag=BAG, engine=r1_model / "onnx"), Console(quiet=True))
    written = json.loads((tmp_path / "bench.json").read_text())
    rows = {row["name"]: row for row in written["rows"]}
    assert set(rows) == {
        "Hugging Face generate",
        "plain loop",
        "EAGLE-3, mirrored",
        "plain loop, ONNX",
        "EAGLE-3, mirrored, ONNX",
        "memory",
        "memory + EAGLE-3, mirrored",
        "memory, ONNX",
        "memory + EAGLE-3, mirrored, ONNX",
    }
    assert all(row["token_exact"] for row in rows.values())
    assert rows["EAGLE-3, mirrored, ONNX"]["kv_difference"] is not None
    assert rows["plain loop, ONNX"]["speedup_vs_plain"] == 1.0
    assert rows["plain loop"]["speedup_vs_plain"] == 1.0
    ours, loop = rows["EAGLE-3, mirrored, ONNX"], rows["plain loop, ONNX"]
    assert ours["speedup_vs_plain"] == loop["reasoning_ms"] / ours["reasoning_ms"]
    assert set(written["step_ms"]) == {"pytorch", "onnxruntime"}
