"""TensorRT-RTX builds the graphs on a machine without a GPU, and the sidecar says what it built."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import onnx
import pytest
import torch
from golden_cases import R1
from rich.console import Console

from rsd_planner.engine import build as builder
from rsd_planner.engine.build import build_engines
from rsd_planner.engine.engine_manifest import EngineManifest
from rsd_planner.engine.export import export_graph
from rsd_planner.engine.manifest import ExportManifest, Graph
from rsd_planner.engine.specifications import target_graphs
from rsd_planner.errors import EngineError, ParameterError
from rsd_planner.target.alpamayo import AlpamayoTarget, read_parts

QUIET = Console(quiet=True)


def test_every_graph_is_built_for_two_capabilities(r1_engines: Path, v1_5_engines: Path) -> None:
    for directory, last in ((r1_engines, "draft_step"), (v1_5_engines, "draft_block")):
        manifest = EngineManifest.read(directory)
        exported = ExportManifest.read(Path(manifest.onnx))
        assert list(manifest.engines) == ["vision", "text", "action", "draft_context", last]
        assert manifest.capabilities == ("sm89", "sm120")
        assert (manifest.module, manifest.version[:2]) == ("tensorrt_rtx", "1.")
        assert (manifest.fingerprint, manifest.taps) == (exported.fingerprint, exported.taps)
        for name, engine in manifest.engines.items():
            assert (directory / engine.file).stat().st_size == engine.bytes > 10_000
            assert engine.onnx_sha256 == exported.graphs[name].sha256


def test_what_tensorrt_read_is_what_was_exported(r1_engines: Path) -> None:
    manifest = EngineManifest.read(r1_engines)
    exported = ExportManifest.read(Path(manifest.onnx))
    for name, engine in manifest.engines.items():
        graph = exported.graphs[name]
        for built, port in zip((*engine.inputs, *engine.outputs), (*graph.inputs, *graph.outputs), strict=True):
            shape = tuple(manifest.capacity if dim == "capacity" else dim for dim in port.shape)
            assert built == dataclasses.replace(port, shape=shape)
    text = {port.name: port for port in manifest.engines["text"].outputs}
    assert text["key_2_out"].shares == "key_2"  # as the layers of the network that TensorRT built have it
    assert text["value_0_out"].shape == (1, 2, manifest.capacity, 16)


def test_a_second_run_builds_what_is_missing_or_damaged(
    r1_model: Path, r1_engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "engines"
    shutil.copytree(r1_engines, out)
    (out / "draft_context.engine").write_bytes(b"half")
    built = []
    original = builder._Builder.build
    monkeypatch.setattr(
        builder._Builder, "build", lambda self, name, *rest: built.append(name) or original(self, name, *rest)
    )
    build_engines(r1_model / "onnx", out, targets="sm89,sm120", module="", console=QUIET)
    assert built == ["draft_context"]
    assert EngineManifest.read(out).engines == EngineManifest.read(r1_engines).engines


def test_ctrl_c_leaves_what_was_built(r1_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builder._Builder.build

    def interrupted(self, name: str, *rest: object) -> object:
        self.interrupt.requested = name == "text"
        return original(self, name, *rest)

    monkeypatch.setattr(builder._Builder, "build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_engines(r1_model / "onnx", tmp_path, targets="sm89", module="", console=QUIET)
    assert list(EngineManifest.read(tmp_path).engines) == ["vision"]


def test_a_layer_stack_of_real_width(tmp_path: Path) -> None:
    """Alpamayo's text layers, 4096 wide with 32 heads over 8, in bfloat16 with random weights."""
    target = wide_target(tmp_path / "model")
    specification = target_graphs(target, capacity=3584)["text"]
    graph = export_graph("text", specification, target, tmp_path, int8=False, largest_file=10**8)
    assert sum(graph.files.values()) > 3.8e8
    manifest = write_manifest(tmp_path, graph)
    built = build_engines(tmp_path, tmp_path / "engines", targets="sm89,sm120", module="", console=QUIET)
    text = built.engines["text"]
    assert text.bytes > 3.8e8  # one copy of the weights for both capabilities
    assert text.bytes < 4.5e8
    ports = {port.name: port for port in text.outputs}
    assert ports["key_0_out"] == dataclasses.replace(ports["key_0_out"], dtype="bfloat16", shares="key_0")
    assert ports["key_0_out"].shape == (1, 8, manifest.capacity, 128)


def wide_target(model: Path) -> AlpamayoTarget:
    """One layer of Alpamayo's width, a small vocabulary and a small vision tower."""
    shutil.copytree(R1, model)
    path = model / "processor" / "config.json"
    values = json.loads(path.read_text())
    values["text_config"] |= {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
    values["text_config"]["rope_scaling"]["mrope_section"] = [24, 20, 20]
    values["vision_config"]["out_hidden_size"] = 4096
    path.write_text(json.dumps(values))
    path = model / "checkpoint" / "config.json"
    values = json.loads(path.read_text())
    values["expert_cfg"] |= {
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 1,
    }
    path.write_text(json.dumps(values))
    parts = read_parts(model)
    scaling = {name: buffer.clone() for name, buffer in parts.network.action_space.named_buffers()}
    network = parts.network.to(torch.bfloat16).to_empty(device="cpu").eval().requires_grad_(False)
    for name, buffer in scaling.items():
        network.action_space.get_buffer(name).data = buffer
    network.rebuild_rotary(torch.device("cpu"))
    for parameter in network.parameters():
        parameter.uniform_(-0.02, 0.02)
    return AlpamayoTarget(parts.config, network, parts.vocabulary, parts.patcher)


def write_manifest(directory: Path, graph: Graph) -> ExportManifest:
    manifest = ExportManifest("wide", "", "", "", "bf16", (), 3584, {}, 0, {"text": graph})
    manifest.write(directory)
    return manifest


@pytest.mark.parametrize(
    ("targets", "module", "error", "said"),
    [
        ("sm90", "", ParameterError, "--target is 'sm90', tensorrt_rtx 1.* compiles for sm75, sm80, .* sm121"),
        ("", "", EngineError, "no CUDA driver on this machine|no usable NVIDIA GPU"),
        ("sm89", "tensorrt", EngineError, "TensorRT is not installed .*No module named 'tensorrt'"),
    ],
)
def test_refusals(targets: str, module: str, error: type, said: str, r1_model: Path, tmp_path: Path) -> None:
    if not targets and torch.cuda.is_available():
        pytest.skip("this machine has a GPU to build for")
    with pytest.raises(error, match=said):
        build_engines(r1_model / "onnx", tmp_path, targets=targets, module=module, console=QUIET)


def test_a_graph_tensorrt_cannot_read(r1_model: Path, tmp_path: Path) -> None:
    source = ExportManifest.read(r1_model / "onnx")
    graph = source.graphs["draft_context"]
    model = onnx.load(r1_model / "onnx" / graph.onnx_file)
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, tmp_path / graph.onnx_file)
    size = (tmp_path / graph.onnx_file).stat().st_size
    changed = dataclasses.replace(graph, files={graph.onnx_file: size})
    dataclasses.replace(source, graphs={"draft_context": changed}).write(tmp_path)
    with pytest.raises(EngineError, match=r"draft_context.onnx: tensorrt_rtx 1.* cannot read it: .*NoSuchOperator"):
        build_engines(tmp_path, tmp_path / "engines", targets="sm89", module="", console=QUIET)
