"""Verify passes and flow steps recorded as CUDA graphs: what they say, and that nothing waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.engine.capture import LENGTHS, own_stream
from rsd_planner.engine.captured_target import CapturedTarget
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.target.alpamayo import AlpamayoTarget

CASE = golden_case(R1, 1)
SAID = CASE.recorded["generated_ids"].tolist()[:-1]


@pytest.fixture
def stream() -> Iterator[None]:
    """Whatever stream a test sets for itself is its own."""
    before = torch.cuda.current_stream()
    yield
    torch.cuda.set_stream(before)


@pytest.fixture
def target(stream: None) -> AlpamayoTarget:
    own_stream(torch.device("cuda"))
    return CapturedTarget.load(R1, device="cuda", dtype=torch.float32, taps=(0, 1, 3))


def test_every_length_says_what_the_cpu_says(target: AlpamayoTarget) -> None:
    plain = AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32, taps=(0, 1, 3))
    for one in (plain, target):
        one.prefill(one.prompt(CASE.observation), SAID[:2])
    for _ in range(2):  # recorded, then replayed
        for count in (1, 2, 3, 5, 8, 13, 16):
            found, expected = target.verify(SAID[:count]), plain.verify(SAID[:count])
            torch.testing.assert_close(found.logits.cpu(), expected.logits, rtol=1e-3, atol=1e-3)
            torch.testing.assert_close(found.features.cpu(), expected.features, rtol=1e-3, atol=1e-3)
            assert torch.equal(found.logits.argmax(-1).cpu(), expected.logits.argmax(-1))
            for one in (plain, target):
                one.rollback(count)
    recorded = {key[0] for key in target._runner._recorded}
    assert recorded == {"text"}
    assert len(target._runner._recorded) == len(LENGTHS)
    noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(target.sample_actions(noise), plain.sample_actions(noise), rtol=0, atol=1e-3)


def test_a_buffer_that_grew_is_recorded_anew(target: AlpamayoTarget) -> None:
    prompt = target.prompt(CASE.observation)
    first = target.prefill(prompt).logits
    said = target.verify(SAID[:3]).logits
    capacity = target.cache.capacity
    target.cache.reserve(capacity)
    assert target.cache.capacity > capacity
    target.prefill(prompt)
    again = target.verify(SAID[:3]).logits
    torch.testing.assert_close(again, said, rtol=1e-4, atol=1e-4)
    assert len(target._runner._recorded) == 1
    torch.testing.assert_close(target.prefill(prompt).logits, first, rtol=1e-4, atol=1e-4)


def test_a_pass_never_waits_for_the_gpu(target: AlpamayoTarget) -> None:
    """All but the accepted tokens, which the loop asks for, and the finished actions."""
    target.prefill(target.prompt(CASE.observation))
    actions = torch.zeros(64, 2, device="cuda")
    target.verify(SAID[:3])
    target.rollback(3)
    target.velocity(actions, 0.0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        target.verify(SAID[:3])
        target.velocity(actions, 0.5)
        with pytest.raises(RuntimeError, match="synchroniz"):
            actions.sum().item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_thread_has_a_stream_of_its_own(target: AlpamayoTarget) -> None:
    assert torch.cuda.current_stream() != torch.cuda.default_stream()


def test_a_planner_says_what_it_says_on_the_cpu(stream: None) -> None:
    plans = [Planner.load(R1, PlannerSettings(device=device)).plan(CASE.observation) for device in ("cpu", "cuda")]
    assert plans[0].token_ids == plans[1].token_ids
    assert abs(plans[0].positions - plans[1].positions).max() < 1e-2
