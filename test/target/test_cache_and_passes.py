"""Passes over the KV cache: many tokens at once say what one at a time says, and rolling back leaves nothing."""

from __future__ import annotations

import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt
from rsd_planner.target.kv_cache import KVCache

SAID = golden_case(R1, 1).recorded["generated_ids"].tolist()[:-1]


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def prompt(target: AlpamayoTarget) -> Prompt:
    return target.prompt(golden_case(R1, 1).observation)


def rows(target: AlpamayoTarget) -> torch.Tensor:
    length = target.cache.length
    return torch.stack([t[0, :, :length] for pair in (target.cache.keys, target.cache.values) for t in pair])


def test_verifying_many_tokens_equals_reading_them_one_by_one(target: AlpamayoTarget, prompt: Prompt) -> None:
    target.prefill(prompt)
    single = torch.cat([target.verify([token]).logits for token in SAID[:8]])
    one_by_one = rows(target)
    target.prefill(prompt)
    together = target.verify(SAID[:8]).logits
    torch.testing.assert_close(together, single, rtol=1e-4, atol=1e-4)
    assert torch.equal(together.argmax(-1), single.argmax(-1))
    torch.testing.assert_close(rows(target), one_by_one, rtol=1e-4, atol=1e-5)


def test_a_proposal_inside_the_prefill_equals_a_verify_pass_after_it(target: AlpamayoTarget, prompt: Prompt) -> None:
    first = target.prefill(prompt).logits
    after = target.verify(SAID[:5]).logits
    fused = target.prefill(prompt, SAID[:5]).logits
    assert fused.shape[0] == 6
    torch.testing.assert_close(fused, torch.cat([first, after]), rtol=1e-4, atol=1e-4)


def test_rolling_back_leaves_no_trace(target: AlpamayoTarget, prompt: Prompt) -> None:
    target.prefill(prompt)
    target.verify(SAID[:3])
    clean = target.verify(SAID[3:4]).logits
    target.rollback(1)
    target.verify([5, 6, 7])
    target.rollback(3)
    assert target.cache.length == len(prompt.token_ids) + 3
    assert torch.equal(target.verify(SAID[3:4]).logits, clean)


def test_after_decoding_the_cache_holds_prompt_and_all_tokens(target: AlpamayoTarget, prompt: Prompt) -> None:
    words = target.vocabulary
    closing = Closing(words.cot_end, words.future_start, words.bins)
    for cap in (256, 4):
        reasoning = decode(target, prompt, closing, sampling=Sampling(), max_tokens=cap, generator=torch.Generator())
        assert reasoning.token_ids[-1] == words.future_start
        assert target.cache.length == len(prompt.token_ids) + len(reasoning.token_ids)


def test_the_action_expert_keeps_nothing_in_the_cache(target: AlpamayoTarget, prompt: Prompt) -> None:
    target.prefill(prompt, SAID)
    before = rows(target).clone()
    noise = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
    first = target.sample_actions(noise)
    assert torch.equal(rows(target), before)
    assert torch.equal(target.sample_actions(noise), first)


def test_buffers_grow_without_losing_what_they_hold() -> None:
    cache = KVCache(2, 2, 4, dtype=torch.float32, device="cpu")
    written = []
    for _ in range(40):
        new = torch.randn(1, 2, 50, 4)
        cache.reserve(50)
        for layer in range(2):
            cache.update(new, -new, layer)
        cache.commit(50)
        written.append(new)
    assert cache.length == 2000
    assert torch.equal(cache.keys[1][:, :, :2000], torch.cat(written, dim=2))
    assert torch.equal(cache.values[0][:, :, :2000], -torch.cat(written, dim=2))
    with pytest.raises(ValueError, match="cannot roll back 2001 of 2000"):
        cache.rollback(2001)
