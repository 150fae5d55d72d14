"""The reference pipeline says and does what the planner's own passes do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.bench.reference import ReferencePipeline
from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.planner import PlannerSettings
from rsd_planner.scene.observation import Observation
from rsd_planner.target.alpamayo import AlpamayoTarget


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32)


def plain(target: AlpamayoTarget, observation: Observation, cap: int) -> Reasoning:
    words = target.vocabulary
    return decode(
        target,
        target.prompt(observation),
        Closing(words.cot_end, words.future_start, words.bins),
        sampling=Sampling(),
        max_tokens=cap,
        generator=torch.Generator(),
    )


@pytest.mark.parametrize("number", [0, 1, 2])
def test_tokens_and_actions_are_those_of_the_record_and_of_our_loop(target: AlpamayoTarget, number: int) -> None:
    case = golden_case(R1, number)
    pipeline = ReferencePipeline(target, PlannerSettings())
    said, cache, watch = pipeline.generate(case.observation)
    noise = torch.from_numpy(case.recorded["noise"])
    theirs = pipeline.sample_actions(noise, cache)
    ours = plain(target, case.observation, 256)
    assert said == ours.token_ids
    assert list(said) == case.recorded["generated_ids"].tolist()[: len(said)]
    assert cache.get_seq_length() == target.cache.length  # the stop token's row is there, the waypoints' are not
    for layer, (keys, values) in enumerate(zip(target.cache.keys, target.cache.values, strict=True)):
        torch.testing.assert_close(cache.layers[layer].keys, keys[:, :, : target.cache.length], rtol=0, atol=1e-4)
        torch.testing.assert_close(cache.layers[layer].values, values[:, :, : target.cache.length], rtol=0, atol=1e-4)
    torch.testing.assert_close(theirs, target.sample_actions(noise), rtol=0, atol=1e-4)
    np.testing.assert_allclose(theirs.numpy(), case.recorded["actions"], atol=1e-3)
    assert watch.reasoning_ms > 0


def test_a_reasoning_that_does_not_end_is_closed_as_ours_is(target: AlpamayoTarget) -> None:
    observation = golden_case(R1, 1).observation
    pipeline = ReferencePipeline(target, PlannerSettings(max_reasoning_tokens=5))
    said, cache, _ = pipeline.generate(observation)
    ours = plain(target, observation, 5)
    assert said == ours.token_ids[:5]
    assert len(said) == 5
    assert cache.get_seq_length() == target.cache.length


def test_trajectory_bins_are_never_said(target: AlpamayoTarget) -> None:
    bins = target.vocabulary.bins
    head = target.network.vlm.lm_head.weight
    kept = head.detach().clone()
    with torch.no_grad():
        head[bins.start : bins.stop] *= 50.0
    try:
        pipeline = ReferencePipeline(target, PlannerSettings(max_reasoning_tokens=8))
        observation = golden_case(R1, 1).observation
        said, _, _ = pipeline.generate(observation)
        assert not any(token in bins for token in said)
        assert said == plain(target, observation, 8).token_ids[: len(said)]
    finally:
        with torch.no_grad():
            head.copy_(kept)


def test_a_tick_is_counted_as_one_token_a_pass(target: AlpamayoTarget) -> None:
    observation = dataclasses.replace(golden_case(R1, 1).observation, stamp_ns=5)
    tick = ReferencePipeline(target, PlannerSettings()).run(observation)
    assert tick.tokens_per_pass == (1,) * (len(tick.token_ids) - 1)
    assert tick.reasoning_tokens == tick.token_ids.index(target.vocabulary.cot_end)
    assert 0 < tick.reasoning_ms < tick.tick_ms
