"""Attention is counted from what the served draft computes, and counting changes nothing."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.bench.attention import (
    Cluster,
    DraftAttention,
    LayerSums,
    WeighedMix,
    cluster_labels,
    watched,
)
from rsd_planner.bench.attention_picture import draw_attention
from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.draft.layers import scaled_dot_product
from rsd_planner.draft.load import load_draft
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget

sys.path.insert(0, str(Path(__file__).parents[1] / "draft"))
from draft_files import BINS, DFLASH, EAGLE3, random_draft

VISION, HISTORY, TEXT, REASONING = range(4)


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32, taps=(0, 1, 3))


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "masked"), [(5, 9, False, False), (9, 9, True, False), (3, 9, False, True)]
)
def test_the_open_kernel_mixes_as_the_served_one(queries: int, keys: int, causal: bool, masked: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(1, 4, queries, 16, generator=generator)
    k, v = (torch.randn(1, 2, keys, 16, generator=generator) for _ in range(2))
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if masked else None
    sums = LayerSums()
    found = WeighedMix(sums, torch.tensor([0, 0, 2]), 0)(q, k, v, mask, causal=causal)
    torch.testing.assert_close(found, scaled_dot_product(q, k, v, mask, causal=causal), rtol=1e-5, atol=1e-6)
    assert sums.rows == 4 * queries
    assert float(sums.mass.sum()) == pytest.approx(sums.rows, rel=1e-5)


def test_mass_and_entropy_of_known_weights() -> None:
    sums = LayerSums()
    sums.add(torch.tensor([[0.25, 0.25, 0.5, 0.0], [0.1, 0.7, 0.0, 0.2]]), torch.tensor([0, 0, 1, 3]))
    found = sums.as_json()
    assert found["vision"]["mass"] == pytest.approx((0.5 + 0.8) / 2)
    assert found["vision"]["token_share"] == 0.5
    lopsided = -(0.125 * math.log(0.125) + 0.875 * math.log(0.875))
    assert found["vision"]["entropy"] == pytest.approx((math.log(2) + lopsided) / 2)
    assert found["vision"]["uniform_entropy"] == pytest.approx(math.log(2))
    assert found["ego history"]["entropy"] == 0.0
    assert found["other text"] == {"mass": 0.0, "token_share": 0.0, "entropy": 0.0, "uniform_entropy": 0.0}
    assert found["reasoning"]["mass"] == pytest.approx(0.1)


def test_tokens_of_a_prompt_are_sorted_into_clusters(target: AlpamayoTarget) -> None:
    prompt = target.prompt(golden_case(R1, 1).observation)
    labels = cluster_labels(prompt.token_ids, target.vocabulary)
    assert torch.equal((labels == VISION).nonzero()[:, 0], prompt.layout.image_index)
    assert int((labels == HISTORY).sum()) == 48
    assert labels[-1] == TEXT  # <|cot_start|>
    assert len(list(Cluster)) == 4


@pytest.mark.parametrize("rope", ["flat", "mirrored"])
@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
def test_a_watched_draft_proposes_the_same(target: AlpamayoTarget, kind: str, rope: str, tmp_path: Path) -> None:
    draft, config = load_draft(random_draft(kind, rope, tmp_path / "draft"), target_parts(target))
    step = target.prefill(target.prompt(golden_case(R1, 1).observation))
    labels = cluster_labels(step.token_ids, target.vocabulary)
    each = DraftAttention(tmp_path, "draft", draft, config.taps, [LayerSums() for _ in range(config.shape.layers)])

    def propose() -> tuple[int, ...]:
        draft.open(Choice(Sampling(), BINS, torch.Generator()))
        draft.begin(step.features, step.token_ids, step.positions)
        draft.extend(step.features[:0], [7])
        return draft.propose(draft.longest).tokens

    served = propose()
    with watched(each, labels):
        assert propose() == served
    counted = [sums.rows for sums in each.layers]
    places = 15 if kind == DFLASH else 7
    assert counted == [config.shape.heads * places] * config.shape.layers
    assert propose() == served
    assert [sums.rows for sums in each.layers] == counted  # nothing is counted afterwards
    for sums in each.layers:
        found = sums.as_json()
        assert sum(values["mass"] for values in found.values()) == pytest.approx(1.0, abs=1e-4)
        assert sum(values["token_share"] for values in found.values()) == pytest.approx(1.0)
        assert all(0 <= values["entropy"] <= values["uniform_entropy"] + 1e-6 for values in found.values())
    assert json.dumps(each.as_json(), allow_nan=False)
    draw_attention([each], tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
