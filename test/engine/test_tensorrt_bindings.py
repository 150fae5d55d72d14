"""What the TensorRT backend would bind, against the sidecar of really built engines; the rest needs a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tensorrt_rtx
import torch
from golden_cases import R1, golden_case

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.engine.capture import CapturedRunner
from rsd_planner.engine.engine_manifest import Engine, EngineManifest
from rsd_planner.engine.graph_drafts import load_graph_draft
from rsd_planner.engine.graph_target import GraphTarget
from rsd_planner.engine.manifest import ExportManifest
from rsd_planner.engine.onnx_runner import OnnxRuntimeRunner
from rsd_planner.engine.tensorrt_runner import FixedCache, bindings, prepare, require_ports
from rsd_planner.errors import EngineError, ObservationError
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import read_parts
from rsd_planner.target.kv_cache import KVCache

CPU = torch.device("cpu")


class Watching(OnnxRuntimeRunner):
    """Runs the graphs on the CPU, and binds each pass as the engines would have it."""

    def __init__(self, directory: Path, exported: ExportManifest, engines: EngineManifest) -> None:
        super().__init__(directory, exported)
        self.engines = engines
        self.passes: list[tuple[str, Engine, dict[str, torch.Tensor]]] = []

    def new_cache(self, layers: int, kv_heads: int, head_dim: int) -> KVCache:
        return FixedCache(self.engines.capacity, layers, kv_heads, head_dim, dtype=self.dtype, device=CPU)

    def run(self, graph, inputs, cache=None):
        engine = self.engines.engines[graph]
        given, out = prepare(engine, inputs, CPU)
        self.passes.append((graph, engine, bindings(engine, given, out, cache)))
        return super().run(graph, inputs, cache)


@pytest.mark.parametrize("name", ["r1", "v1_5"])
def test_all_a_frame_binds(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(f"{name}_model")
    engines = EngineManifest.read(request.getfixturevalue(f"{name}_engines"))
    exported = ExportManifest.read(model / "onnx")
    runner = Watching(model / "onnx", exported, engines)
    target = GraphTarget(read_parts(model), CapturedRunner(runner), exported.taps)
    draft, _ = load_graph_draft(model / "draft", target_parts(target), CapturedRunner(runner))
    draft.open(Choice(Sampling(), range(0), torch.Generator()))
    prompt = target.prompt(golden_case(R1, 1).observation)
    step = target.prefill(prompt)
    draft.begin(step.features, step.token_ids, step.positions)
    draft.extend(None if step.features is None else step.features[:0], [5])
    draft.propose(5)
    target.verify([5, 6, 7])
    target.sample_actions(torch.zeros(64, 2), steps=2)

    assert {graph for graph, _, _ in runner.passes} == set(engines.engines)
    for graph, engine, bound in runner.passes:
        assert list(bound) == [port.name for port in (*engine.inputs, *engine.outputs)]
        for port in engine.outputs:
            if port.shares:
                assert bound[port.name].data_ptr() == bound[port.shares].data_ptr()
                assert bound[port.name].shape == port.shape
        own = [bound[port.name].data_ptr() for port in engine.outputs if not port.shares]
        assert len({*own, *(bound[port.name].data_ptr() for port in engine.inputs)}) == len(own) + len(engine.inputs)
        if graph in ("text", "action"):
            cache = target.cache
            assert bound["value_1_out"].data_ptr() == cache.values[1].data_ptr()
            assert cache.capacity == engines.capacity
    lengths = [bound["embeddings"].shape[1] for graph, _, bound in runner.passes if graph == "text"]
    assert lengths[-1] == 4  # three tokens, as they are recorded


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mask": None}, "text.engine: nothing is bound to mask"),
        ({"mask": torch.zeros(1, 1, 2, 99)}, r"mask is given torch.float32 \(1, 1, 2, 99\), built for float32"),
        ({"positions": torch.zeros(3, 1, 2)}, r"positions is given torch.float32 .* built for int64"),
        ({"embeddings": torch.zeros(1, 1025, 64)}, r"embeddings is given .* \(1, 1025, 64\), built for .*most=1024"),
    ],
)
def test_what_was_not_built_is_refused(change: dict, said: str, r1_engines: Path) -> None:
    manifest = EngineManifest.read(r1_engines)
    engine = manifest.engines["text"]
    cache = FixedCache(manifest.capacity, 4, 2, 16, dtype=torch.float32, device=CPU)
    given = {
        "embeddings": torch.zeros(1, 2, 64),
        "positions": torch.zeros(3, 1, 2, dtype=torch.int64),
        "deepstack": torch.zeros(3, 2, 64),
        "asked": torch.tensor([1]),
        "mask": torch.zeros(1, 1, 2, manifest.capacity),
        "write_index": torch.tensor([0]),
    }
    out = {"logits": torch.zeros(1, 5810), "features": torch.zeros(2, 192)}
    assert bindings(engine, given, out, cache)["key_3_out"] is cache.keys[3]
    changed = {name: tensor for name, tensor in (given | change).items() if tensor is not None}
    with pytest.raises(EngineError, match=said):
        bindings(engine, changed, out, cache)


def test_a_prompt_longer_than_was_built_for() -> None:
    cache = FixedCache(100, 1, 1, 4, dtype=torch.float32, device=CPU)
    assert cache.capacity == 100
    cache.reserve(100)
    cache.commit(60)
    with pytest.raises(ObservationError, match="need 101 rows of the KV cache, the engines were built for 100"):
        cache.reserve(41)


def test_an_engine_that_is_not_what_its_sidecar_says(r1_engines: Path) -> None:
    engine = EngineManifest.read(r1_engines).engines["draft_step"]
    found = {port.name: (port.dtype, port.shares) for port in (*engine.inputs, *engine.outputs)}
    require_ports(r1_engines, "draft_step", engine, found)
    with pytest.raises(EngineError, match=r"engine draft_step has other inputs and outputs .*key_0_out"):
        require_ports(r1_engines, "draft_step", engine, found | {"key_0_out": ("float32", "")})
    with pytest.raises(EngineError, match="hidden"):
        require_ports(r1_engines, "draft_step", dataclasses.replace(engine, outputs=engine.outputs[1:]), found)


def test_tensorrt_has_the_names_that_are_called() -> None:
    """Nothing here can call them without a GPU."""
    trt = tensorrt_rtx
    wanted = {
        trt.Runtime: ["deserialize_cuda_engine"],
        trt.ICudaEngine: [
            "create_runtime_config",
            "create_execution_context",
            "device_memory_size_v2",
            "num_io_tensors",
            "get_tensor_name",
            "get_tensor_dtype",
            "get_aliased_input_tensor",
        ],
        trt.IRuntimeConfig: [
            "set_execution_context_allocation_strategy",
            "dynamic_shapes_kernel_specialization_strategy",
        ],
        trt.IExecutionContext: ["set_device_memory", "set_input_shape", "set_tensor_address", "execute_async_v3"],
        trt.ExecutionContextAllocationStrategy: ["USER_MANAGED"],
        trt.DynamicShapesKernelSpecializationStrategy: ["EAGER"],
        trt.DataType: ["FLOAT", "HALF", "BF16", "INT64"],
    }
    assert {(owner, name) for owner, names in wanted.items() for name in names if not hasattr(owner, name)} == set()
