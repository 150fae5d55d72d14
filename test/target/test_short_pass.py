"""A short pass computes what transformers' layers compute, at any place and of any length."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import R1, V1_5, golden_case
from torch import Tensor

from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.kv_cache import for_layers
from rsd_planner.target.layout import store_by_columns


def by_transformers(target: AlpamayoTarget, embedded: Tensor, positions: Tensor) -> list[Tensor]:
    """The output of each layer, (T, hidden)."""
    text, count, read = target.network.text, embedded.shape[1], target.cache.length
    mask = torch.ones(count, read + count, dtype=torch.bool).tril(diagonal=read)[None, None]
    rotary = text.rotary_emb(embedded, positions)
    outputs, hidden = [], embedded
    for layer in text.layers:
        hidden = layer(hidden, position_embeddings=rotary, attention_mask=mask, **for_layers(target.cache))
        outputs.append(hidden[0])
    return outputs


@pytest.mark.parametrize("model", [R1, V1_5])
@torch.inference_mode()
def test_every_layer_and_every_row_of_the_cache(model: Path) -> None:
    target = AlpamayoTarget.load(model, device="cpu", dtype=torch.float32)
    target.taps = range(len(target.network.text.layers))
    prompt = target.prompt(golden_case(model, 1).observation)
    for count in (1, 2, 7, 16):
        tokens = list(range(100, 100 + count))
        read = len(prompt.token_ids)
        target.prefill(prompt)
        embedded = target.network.text.embed_tokens(torch.tensor(tokens))[None]
        positions = (torch.arange(read, read + count) + prompt.layout.rope_delta).expand(3, 1, -1)
        expected = torch.cat(by_transformers(target, embedded, positions), dim=-1)
        rows = [t[:, :, read : read + count].clone() for t in (*target.cache.keys, *target.cache.values)]
        step = target.verify(tokens)
        torch.testing.assert_close(step.features, expected, rtol=1e-5, atol=1e-5)
        for found, wanted in zip((*target.cache.keys, *target.cache.values), rows, strict=True):
            torch.testing.assert_close(found[:, :, read : read + count], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", [R1, V1_5])
@torch.inference_mode()
def test_the_velocity_is_that_of_transformers_layers(model: Path) -> None:
    target = AlpamayoTarget.load(model, device="cpu", dtype=torch.float32)
    prompt = target.prompt(golden_case(model, 1).observation)
    target.prefill(prompt)
    network, length = target.network, target.cache.length
    actions = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    found = target.velocity(actions, 0.3)
    embedded = network.action_in_proj(actions[None], torch.full((1,), 0.3))
    positions = (torch.arange(length, length + 64) + prompt.layout.rope_delta).expand(3, 1, -1)
    expected = network.action_out_proj(network.expert(embedded, positions, target.cache))[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert target.cache.length == length


def test_the_layout_of_weights_changes_no_value_and_no_later_loading() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.SiLU()).requires_grad_(False)
    before, x = layer[0].weight.clone(), torch.randn(2, 3)
    expected = layer(x)
    store_by_columns(layer)
    assert layer[0].weight.stride() == (1, 5)
    assert torch.equal(layer[0].weight, before)
    torch.testing.assert_close(layer(x), expected)
    layer.load_state_dict({"0.weight": 2 * before, "0.bias": layer[0].bias.clone()})
    assert torch.equal(layer[0].weight, 2 * before)
    half = torch.nn.Linear(3, 5, dtype=torch.bfloat16)
    store_by_columns(half)
    assert half.weight.is_contiguous()
