"""The planner on ONNX Runtime: golden cases, and token for token what PyTorch says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from golden_cases import R1, V1_5, golden_case

from rsd_planner.engine.specifications import cache_names
from rsd_planner.evaluation.check_target import BOUNDS, compare
from rsd_planner.plan import Plan, TokenOrigin
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import EgoHistory, Observation
from rsd_planner.target.kv_cache import KVCache

ONNX, PYTORCH = (PlannerSettings(backend=name) for name in ("onnxruntime", "pytorch"))


@pytest.fixture(scope="module")
def pairs(r1_model: Path, v1_5_model: Path) -> dict[Path, tuple[Planner, Planner]]:
    """Golden folder -> planner on ONNX Runtime, and the same in PyTorch."""
    models = {R1: r1_model, V1_5: v1_5_model}
    return {golden: (Planner.load(model, ONNX), Planner.load(model, PYTORCH)) for golden, model in models.items()}


Pairs = dict[Path, tuple[Planner, Planner]]


def observations(golden: Path, count: int) -> list[Observation]:
    """Golden scenes with histories that never were, so that other things are said and drafted."""
    chance = np.random.default_rng(0)
    scenes = [golden_case(golden, number).observation for number in ((1, 2) if golden == R1 else (0, 1))]
    made = []
    for i in range(count):
        scene = scenes[i % 2]
        positions = scene.history.positions * chance.uniform(-1, 2) + chance.normal(0, 0.1, (16, 3))
        history = EgoHistory(positions, scene.history.rotations, scene.history.pose_t0)
        made.append(dataclasses.replace(scene, history=history, stamp_ns=i))
    return made


@pytest.mark.parametrize(("golden", "number"), [(R1, 0), (R1, 1), (R1, 2), (V1_5, 0), (V1_5, 1)])
def test_golden(pairs: Pairs, golden: Path, number: int) -> None:
    differences = compare(pairs[golden][0].target, golden_case(golden, number))
    differences.pop("prefill hidden states (relative)")  # its taps are the draft's
    assert {name: value for name, value in differences.items() if not value <= BOUNDS[name]} == {}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (PlannerSettings(), "ONNX Runtime"),
        (PlannerSettings(dtype="bfloat16"), "PyTorch"),  # the graphs are in fp32
        (PYTORCH, "PyTorch"),
    ],
)
def test_graphs_in_the_model_directory_are_used_on_a_cpu(r1_model: Path, settings: PlannerSettings, name: str) -> None:
    planner = Planner.load(r1_model, settings)
    assert planner.info.backend.startswith(name)
    planner.close()


def test_without_graphs_pytorch_runs_the_model() -> None:
    planner = Planner.load(R1)
    assert planner.info.backend.startswith("PyTorch")
    planner.close()


@pytest.mark.parametrize("golden", [R1, V1_5])
def test_every_plan_is_pytorchs(pairs: Pairs, golden: Path) -> None:
    drafted = set()
    for observation in observations(golden, 8):
        found, expected = (planner.plan(observation) for planner in pairs[golden])
        assert found.token_ids == expected.token_ids
        assert found.origins == expected.origins
        np.testing.assert_allclose(found.positions, expected.positions, rtol=0, atol=1e-3)
        drafted |= set(found.origins)
    assert TokenOrigin.DELIBERATIVE in drafted


@pytest.mark.parametrize("golden", [R1, V1_5])
def test_a_draft_proposes_what_it_does_in_pytorch(pairs: Pairs, golden: Path) -> None:
    """Behind the prompt, and again behind what was committed then."""
    proposals = []
    for planner in pairs[golden]:
        target, draft = planner.target, planner._draft
        assert draft is not None
        prompt = target.prompt(observations(golden, 1)[0])
        step = target.prefill(prompt, [3, 4, 5])
        length = len(step.token_ids)
        draft.open(choice())
        draft.begin(step.features[:length], step.token_ids, step.positions)
        draft.extend(step.features[length : length + 2], [3, 4, 7])
        first = draft.propose(7).tokens
        target.rollback(1)
        more = target.verify([7, 8, 9])
        draft.extend(more.features, [8, 9, 10])
        proposals.append((first, draft.propose(5).tokens, draft.propose(2).tokens, step.logits, more.logits))
    found, expected = proposals
    assert found[:3] == expected[:3]
    for mine, theirs in zip(found[3:], expected[3:], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def choice():
    from rsd_planner.decoding.logits import Choice, Sampling

    return Choice(Sampling(), range(1782, 5782), torch.Generator())


def test_features_and_velocity(pairs: Pairs) -> None:
    onnx, plain = (planner.target for planner in pairs[R1])
    observation = observations(R1, 2)[1]
    found, expected = (target.prefill(target.prompt(observation)) for target in (onnx, plain))
    torch.testing.assert_close(found.features, expected.features, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-4)
    noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(onnx.sample_actions(noise), plain.sample_actions(noise), rtol=0, atol=1e-4)
    assert onnx.cache.length == plain.cache.length


def test_a_pass_writes_where_the_cache_lies(
    pairs: Pairs, r1_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a copy: of that ONNX Runtime warns, unless told not to."""
    target = pairs[R1][0].target
    target.prefill(target.prompt(observations(R1, 1)[0]))
    session = onnxruntime.InferenceSession(r1_model / "onnx" / "text.onnx")
    runner, cache = target._runner, target.cache
    monkeypatch.setitem(runner._sessions, "text", session)
    monkeypatch.setitem(runner._bindings, "text", session.io_binding())
    row = cache.length
    said = []
    for writes_elsewhere in (False, True):
        runner._bound.pop("text", None)
        if writes_elsewhere:
            monkeypatch.setattr(runner, "_bind_cache", lambda _, binding, cache: bind_apart(binding, cache))
        capfd.readouterr()
        target.verify([1, 2, 3])
        said.append("in-place optimization not activated" in capfd.readouterr().err)
        target.rollback(3)
        assert cache.keys[0][0, :, row : row + 3].abs().sum() > 0
    assert said == [False, True]
    runner._bound.pop("text", None)


def bind_apart(binding: onnxruntime.IOBinding, cache: KVCache) -> None:
    for name, buffer in zip(cache_names(8), (*cache.keys, *cache.values), strict=True):
        binding.bind_input(name, "cpu", 0, np.float32, tuple(buffer.shape), buffer.data_ptr())
        binding.bind_output(f"{name}_out", "cpu")


@torch.inference_mode()
def test_what_is_not_finite_is_gone_with_the_next_frame(pairs: Pairs) -> None:
    planner = pairs[R1][0]
    observation = observations(R1, 1)[0]
    expected = planner.plan(observation).token_ids
    for buffer in planner.target.cache.keys:
        buffer.fill_(float("nan"))
    assert planner.plan(observation).token_ids == expected


def test_what_is_said_of_it(pairs: Pairs) -> None:
    info = pairs[R1][0].info
    assert info.backend.startswith("ONNX Runtime 1.")
    assert (info.dtype, info.device, info.draft) == ("fp32", "cpu", "EAGLE-3, mirrored")
    assert info.parameters == pairs[R1][1].info.parameters
    assert pairs[R1][1].info.backend.startswith("PyTorch 2.")


def test_warm_up_and_reset(pairs: Pairs) -> None:
    planner = pairs[V1_5][0]
    observation = observations(V1_5, 1)[0]
    before: Plan = planner.plan(observation)
    planner.warm_up([1])
    planner.reset()
    assert planner.plan(observation).token_ids == before.token_ids
