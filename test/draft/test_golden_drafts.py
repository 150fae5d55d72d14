"""Both drafts reproduce the recorded public code: hidden states within 1e-5, proposals exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from draft_files import DFLASH, EAGLE3, golden_directory, golden_parts, recorded
from numpy.typing import NDArray
from torch import Tensor

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.draft.dflash import DFlashDraft
from rsd_planner.draft.eagle3 import Eagle3Draft
from rsd_planner.draft.load import load_draft

GREEDY = Choice(Sampling(), range(0), torch.Generator())
BOUND = 1e-5


def tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array)


@pytest.fixture
def eagle3(tmp_path: Path) -> Eagle3Draft:
    draft, _ = load_draft(golden_directory(EAGLE3, "flat", tmp_path), golden_parts(EAGLE3))
    assert isinstance(draft, Eagle3Draft)
    draft.open(GREEDY)
    return draft


@pytest.mark.parametrize("rope", ["flat", "mirrored"])
def test_dflash_over_three_steps(rope: str, tmp_path: Path) -> None:
    draft, config = load_draft(golden_directory(DFLASH, rope, tmp_path), golden_parts(DFLASH))
    assert isinstance(draft, DFlashDraft)
    assert config.taps == (1, 2, 3)
    case = recorded(DFLASH)
    features, positions = tensor(case["features"]), tensor(case["positions_3d"])
    prompt = positions.shape[1]  # two images in it
    draft.open(GREEDY)
    draft.begin(features[:prompt], torch.zeros(prompt, dtype=torch.int64), positions)
    read = prompt
    for step, (length, anchor) in enumerate(zip(case["context_lengths"], case["anchors"], strict=True)):
        draft.extend(features[read:length], [*[0] * (max(length - read, 1) - 1), int(anchor)])
        read = int(length)
        assert list(draft.propose(15).tokens) == case[f"{rope}_proposal_{step}"].tolist()
        with torch.inference_mode():
            hidden = draft.hidden()
        assert float((hidden - tensor(case[f"{rope}_hidden_{step}"])).abs().max()) < BOUND
        logits = draft.target.lm_head(hidden[1:])
        assert float((logits - tensor(case[f"{rope}_logits_{step}"])).abs().max()) < 10 * BOUND
    assert draft.cache.length == read  # no block stays


def begin(draft: Eagle3Draft, features: Tensor, token_ids: Tensor) -> None:
    """Feed all tokens but the last as a prompt."""
    draft.begin(features[: len(token_ids) - 1], token_ids[:-1], torch.zeros(3, len(token_ids) - 1))
    draft.extend(features[:0], token_ids[-1:].tolist())


def test_eagle3_first_pass_and_chain(eagle3: Eagle3Draft) -> None:
    case = recorded(EAGLE3)
    features, token_ids = tensor(case["features"]), tensor(case["token_ids"])
    eagle3.cache.reserve(60)
    with torch.inference_mode():
        hidden = eagle3.rows(eagle3.network.fc(features[None, :60]), token_ids[1:])[0]
    assert float((hidden - tensor(case["first_pass_hidden"])).abs().max()) < BOUND

    logits = spy(eagle3)
    begin(eagle3, features, token_ids)
    assert list(eagle3.propose(7).tokens) == case["chain_proposal"].tolist()
    assert float((torch.stack(logits) - tensor(case["chain_logits"])).abs().max()) < BOUND
    assert eagle3.cache.length == 60  # the chain left nothing behind
    assert eagle3.propose(3).tokens == tuple(case["chain_proposal"][:3])


def spy(draft: Eagle3Draft) -> list[Tensor]:
    """The logits of every step from now on."""
    seen: list[Tensor] = []
    original: Callable[[Tensor], Tensor] = draft.logits

    def logits(hidden: Tensor) -> Tensor:
        seen.append(original(hidden))
        return seen[-1]

    draft.logits = logits  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("cycle", ["first", "second"])
def test_eagle3_tree_of_both_cycles(eagle3: Eagle3Draft, cycle: str) -> None:
    """The layer under an ancestors-only mask: what the record says after each token is among its three likeliest.

    The second cycle goes on from the prompt's cache with four more committed tokens.
    """
    case = recorded(EAGLE3)
    features, token_ids = tensor(case["features"]), tensor(case["token_ids"])
    begin(eagle3, features, token_ids)
    chain = eagle3.propose(7).tokens
    tokens, mask = tensor(case["tree_tokens"]), tensor(case["tree_mask"]).bool()
    if cycle == "second":
        more = tensor(case["second_token_ids"])[61:]
        eagle3.extend(features[60:64], more.tolist())
        chain = eagle3.propose(7).tokens
        tokens, mask = tensor(case["second_tree_tokens"]), tensor(case["second_tree_mask"]).bool()
    assert eagle3.cache.length == (60 if cycle == "first" else 64)
    assert tokens[0] == (token_ids if cycle == "first" else tensor(case["second_token_ids"]))[-1]

    hidden = tree_hidden(eagle3, tokens, mask)
    ids = eagle3._token_ids
    assert ids is not None
    likeliest = ids[eagle3.logits(hidden).topk(3).indices]  # (nodes, 3)
    depth = mask.sum(1) - 1
    parents = [int((mask[i] & (depth == depth[i] - 1)).nonzero()) for i in range(1, len(tokens))]
    for node, parent in enumerate(parents, start=1):
        assert tokens[node] in likeliest[parent]
    assert set(tokens[1:4].tolist()) == set(likeliest[0].tolist())  # all three of the root are in the tree
    assert tokens[1] == chain[0]


def tree_hidden(draft: Eagle3Draft, tokens: Tensor, mask: Tensor) -> Tensor:
    """(nodes, hidden) outputs of a tree whose root is the last committed token: each feeds its children's features."""
    past, depth = draft.cache.length, mask.sum(1) - 1
    hidden = draft._newest[0][0].repeat(len(tokens), 1)  # the root's is known; the others are filled in level by level
    draft.cache.reserve(len(tokens))
    with torch.inference_mode():
        for level in range(1, int(depth.max()) + 1):
            nodes = torch.arange(1, len(tokens))[depth[1:] <= level]  # recomputed from the top: deeper ones see them
            parents = torch.stack([(mask[i] & (depth == depth[i] - 1)).nonzero()[0, 0] for i in nodes])
            cos, sin = draft.rotary.rows(past, level + 1)
            rotation = (cos[depth[nodes] - 1], sin[depth[nodes] - 1])
            visible = torch.cat([torch.ones(len(nodes), past, dtype=torch.bool), mask[nodes][:, nodes]], dim=1)
            embedded = draft.target.embedding(tokens[nodes])[None]
            out = draft.network(embedded, hidden[parents][None], rotation, draft.cache, visible)
            hidden[nodes] = out[0]
    return hidden


def test_eagle3_taps_follow_the_convention_unless_named(tmp_path: Path) -> None:
    _, config = load_draft(golden_directory(EAGLE3, "flat", tmp_path), golden_parts(EAGLE3))
    assert config.taps == (1, 17, 32)
