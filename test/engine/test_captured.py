"""Passes padded to a few lengths over whole cache buffers, as they are recorded on a GPU, say what plain ones say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing
from rsd_planner.draft.memory import ReasoningMemory
from rsd_planner.engine.capture import LENGTHS, CapturedRunner, padded, padded_length
from rsd_planner.engine.captured_target import CapturedTarget
from rsd_planner.engine.graph_target import GraphTarget
from rsd_planner.engine.manifest import ExportManifest, Port
from rsd_planner.engine.onnx_runner import OnnxRuntimeRunner
from rsd_planner.target.alpamayo import AlpamayoTarget, read_parts
from rsd_planner.target.kv_cache import KVCache

CASE = golden_case(R1, 1)
SAID = CASE.recorded["generated_ids"].tolist()[:-1]
TAPS = (0, 1, 3)


@pytest.fixture(scope="module")
def plain() -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32, taps=TAPS)


def captured() -> AlpamayoTarget:
    return CapturedTarget.load(R1, device="cpu", dtype=torch.float32, taps=TAPS)


def in_graphs(model: Path) -> AlpamayoTarget:
    """Graphs run as TensorRT's are: behind the same padding."""
    manifest = ExportManifest.read(model / "onnx")
    runner = CapturedRunner(OnnxRuntimeRunner(model / "onnx", manifest))
    return GraphTarget(read_parts(model), runner, manifest.taps)


@pytest.fixture(params=["modules", "graphs"])
def target(request: pytest.FixtureRequest, r1_model: Path) -> AlpamayoTarget:
    return captured() if request.param == "modules" else in_graphs(r1_model)


def test_passes_of_every_length(plain: AlpamayoTarget, target: AlpamayoTarget) -> None:
    for one in (plain, target):
        one.prefill(one.prompt(CASE.observation), SAID[:2])
    for count in (1, 2, 3, 5, 8, 13, 16, 20):
        tokens = (SAID * 3)[:count]
        found, expected = target.verify(tokens), plain.verify(tokens)
        assert found.logits.shape == expected.logits.shape
        torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.features, expected.features, rtol=1e-4, atol=1e-4)
        assert target.cache.length == plain.cache.length
    for one in (plain, target):
        one.rollback(7)
    torch.testing.assert_close(target.verify([3]).logits, plain.verify([3]).logits, rtol=1e-4, atol=1e-4)
    noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(target.sample_actions(noise), plain.sample_actions(noise), rtol=0, atol=1e-4)


def test_a_whole_reasoning(plain: AlpamayoTarget, target: AlpamayoTarget) -> None:
    words = plain.vocabulary
    closing = Closing(words.cot_end, words.future_start, words.bins)
    for one in (plain, target):
        memory = ReasoningMemory(4)
        memory.remember([*SAID[:4], 9, *SAID[5:]])
        prompt = one.prompt(CASE.observation)
        said = decode(
            one, prompt, closing, sampling=Sampling(), max_tokens=40, generator=torch.Generator(), drafts=[memory]
        )
        assert list(said.token_ids) == SAID[: len(said.token_ids)]
        assert said.speculation.proposals


def test_outputs_outlive_the_next_pass(target: AlpamayoTarget) -> None:
    target.prefill(target.prompt(CASE.observation))
    first = target.verify(SAID[:3])
    kept = first.logits.clone(), first.features.clone()
    target.verify(SAID[3:6])
    assert torch.equal(first.logits, kept[0])
    assert torch.equal(first.features, kept[1])


def test_what_is_not_finite_is_gone_with_the_next_frame(target: AlpamayoTarget) -> None:
    prompt = target.prompt(CASE.observation)
    expected = target.prefill(prompt, SAID[:2]).logits
    with torch.inference_mode():
        for buffer in (*target.cache.keys, *target.cache.values):
            buffer.fill_(float("nan"))
    assert torch.equal(target.prefill(prompt, SAID[:2]).logits, expected)
    assert torch.isfinite(target.verify(SAID[2:5]).logits).all()


def test_padding_repeats_the_last_row() -> None:
    ports = (Port("a", "float32", (1, "tokens", 2)), Port("mask", "float32", ("tokens", "capacity")))
    tensors = {"a": torch.arange(6.0).reshape(1, 3, 2), "mask": torch.eye(3, 5), "other": torch.zeros(1)}
    out = padded(ports, tensors, {"tokens": 4})
    assert out["a"].tolist() == [[[0, 1], [2, 3], [4, 5], [4, 5]]]
    assert out["mask"].tolist() == [*torch.eye(3, 5).tolist(), [0, 0, 1, 0, 0]]
    assert out["other"] is tensors["other"]
    assert [padded_length(count) for count in (1, 3, 8, 9, 17)] == [1, 4, 8, 16, 17]
    assert LENGTHS[-1] == 16


def test_short_passes_come_in_few_lengths(r1_model: Path) -> None:
    """So that few graphs have to be recorded."""
    target = in_graphs(r1_model)
    seen: set[tuple[int, int]] = set()
    inner = target._runner._inner
    original = inner.run

    def run(graph: str, inputs: dict[str, torch.Tensor], cache: KVCache | None = None) -> object:
        if graph == "text":
            seen.add((inputs["embeddings"].shape[1], len(inputs["asked"])))
        return original(graph, inputs, cache)

    inner.run = run
    target.prefill(target.prompt(CASE.observation))
    seen.clear()
    for count in range(1, 17):
        target.verify([5] * count)
        target.rollback(count)
    assert seen == {(length, length) for length in LENGTHS}
