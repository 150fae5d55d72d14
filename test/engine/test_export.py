"""Exported graphs: what is written, that it is a valid model of the network, and that a second run keeps it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from golden_cases import R1
from rich.console import Console

from rsd_planner.engine import export as exporter
from rsd_planner.engine.export import export
from rsd_planner.engine.manifest import ExportManifest, target_fingerprint
from rsd_planner.errors import ParameterError
from rsd_planner.target.alpamayo import AlpamayoTarget

QUIET = Console(quiet=True)


def test_the_sidecar_says_what_the_graphs_are(r1_model: Path) -> None:
    directory = r1_model / "onnx"
    manifest = ExportManifest.read(directory)
    assert list(manifest.graphs) == ["vision", "text", "action", "draft_context", "draft_step"]
    assert manifest.fingerprint == target_fingerprint(r1_model)
    assert (manifest.precision, manifest.taps, manifest.draft) == ("fp32", (0, 1, 3), "EAGLE-3")
    assert manifest.capacity % 512 == 0
    assert manifest.tools["torch"] == torch.__version__.partition("+")[0] or "+" in manifest.tools["torch"]
    assert manifest.peak_memory_bytes > 1e8
    for graph in manifest.graphs.values():
        model = onnx.load(directory / graph.onnx_file)
        onnx.checker.check_model(model)
        assert b"rsd_planner/" not in model.SerializeToString()  # no path of the machine it was made on
        assert [port.name for port in graph.inputs] == [value.name for value in model.graph.input]
        assert [port.name for port in graph.outputs] == [value.name for value in model.graph.output]
        for port, value in zip((*graph.inputs, *graph.outputs), (*model.graph.input, *model.graph.output), strict=True):
            dims = value.type.tensor_type.shape.dim
            assert port.shape == tuple(dim.dim_param or dim.dim_value for dim in dims)
        shared = {port.name: port.shares for port in graph.outputs if port.shares}
        assert all(name == f"{cache}_out" for name, cache in shared.items())
        named = {dim for port in graph.inputs for dim in port.shape if isinstance(dim, str)}
        assert named == set(graph.dimensions)


def test_dflash_takes_in_context_and_a_block(v1_5_model: Path) -> None:
    manifest = ExportManifest.read(v1_5_model / "onnx")
    assert list(manifest.graphs)[3:] == ["draft_context", "draft_block"]
    assert manifest.graphs["draft_block"].outputs[0].name == "logits"
    assert all(port.shares for port in manifest.graphs["draft_context"].outputs)


def test_a_second_run_keeps_what_is_whole(r1_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(r1_model / "onnx", tmp_path / "onnx")
    (tmp_path / "onnx" / "draft_context.onnx").write_bytes(b"half")
    done = []
    original = exporter.export_graph
    monkeypatch.setattr(exporter, "export_graph", lambda name, *rest: done.append(name) or original(name, *rest))
    manifest = export(r1_model, tmp_path / "onnx", precision="fp32", draft=None, console=QUIET)
    assert done == ["draft_context"]
    assert manifest.graphs == ExportManifest.read(r1_model / "onnx").graphs


def test_weights_beside_the_graph_when_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, r1_model: Path
) -> None:
    """And as int8: within what rounding to 255 levels per channel allows."""
    specifications = exporter.target_graphs
    monkeypatch.setattr(exporter, "target_graphs", lambda *given: {"action": specifications(*given)["action"]})
    manifest = export(R1, tmp_path, precision="int8-weight", draft=None, console=QUIET, largest_file=1000)
    action = manifest.graphs["action"]
    assert list(action.files) == ["action.onnx", "action.onnx.data"]
    assert action.files["action.onnx"] < 200_000
    whole = onnx.load(tmp_path / "action.onnx")
    assert sum(node.op_type == "DequantizeLinear" for node in whole.graph.node) > 10

    feed = example(action)
    found = run(tmp_path / "action.onnx", feed)
    exact = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in feed.items()}
    expected = run(r1_model / "onnx" / "action.onnx", exact)
    assert 0 < np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def example(graph) -> dict[str, np.ndarray]:
    chance, feed = np.random.default_rng(0), {}
    for port in graph.inputs:
        shape = [dim if isinstance(dim, int) else 128 for dim in port.shape]
        feed[port.name] = chance.normal(size=shape).astype(port.dtype)
    feed["positions"] = np.broadcast_to(np.arange(64), (3, 1, 64)).copy()
    feed["time"], feed["write_index"] = np.array([0.3], np.float32), np.array([10])
    feed["mask"] = np.where(np.arange(128) < 74, 0, -np.inf).astype(np.float32) + np.zeros((1, 1, 64, 1), np.float32)
    return feed


def run(path: Path, feed: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options).run(["velocity"], feed)[0]


@pytest.mark.parametrize(
    ("precision", "out", "said"),
    [
        ("fp8", "new", "--precision is 'fp8', expected one of fp32, fp16, bf16, int8-weight"),
        ("fp32", "file", "--out: cannot write .*file: File exists"),
    ],
)
def test_refusals(precision: str, out: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ParameterError, match=said):
        export(R1, tmp_path / out, precision=precision, draft=None, console=QUIET)


def test_a_manifest_reads_back_as_it_was(r1_model: Path, tmp_path: Path) -> None:
    manifest = ExportManifest.read(r1_model / "onnx")
    manifest.write(tmp_path)
    assert ExportManifest.read(tmp_path) == manifest
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == 1
    assert dataclasses.replace(manifest, precision="fp16") != manifest


def test_the_fingerprint_is_of_contents(tmp_path: Path) -> None:
    shutil.copytree(R1, tmp_path / "copy")
    before = target_fingerprint(R1)
    assert target_fingerprint(tmp_path / "copy") == before
    path = tmp_path / "copy" / "checkpoint" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert target_fingerprint(tmp_path / "copy") != before
    assert AlpamayoTarget.load(tmp_path / "copy", device="cpu", dtype=torch.float32)
