"""The training forward computes what the served draft computes, at every place it is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from training_files import golden_samples, golden_target

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.dflash import DFlashDraft
from rsd_planner.draft.eagle3 import DEPTH, Eagle3Draft
from rsd_planner.draft.load import load_draft
from rsd_planner.draft.rotary import Rope
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.design import design, likeliest_tokens, new_objective, vocabulary_maps, write_draft
from rsd_planner.training.dflash_objective import DFlashObjective
from rsd_planner.training.eagle3_objective import Eagle3Objective
from rsd_planner.training.samples import Batch, Samples

ROPES = list(Rope)


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return golden_target()


@pytest.fixture(scope="module")
def samples(target: AlpamayoTarget, tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Of a target with as many layers as DFlash taps here: 0, 1, 2, 3; EAGLE-3 reads three of them."""
    return golden_samples(tmp_path_factory.mktemp("cache"), target, (0, 1, 2, 3))


def round_to_bfloat16(module: torch.nn.Module) -> None:
    """As the written file has it."""
    for parameter in module.parameters():
        parameter.data = parameter.data.bfloat16().float()


def pair(
    target: AlpamayoTarget, samples: Samples, kind: DraftKind, rope: Rope, directory: Path, vocabulary: int = 900
) -> tuple[Any, Any, tuple[int, ...], torch.Tensor | None]:
    """An objective and the served draft with the same weights, taps and draft vocabulary."""
    parts = target_parts(target)
    ids = likeliest_tokens(samples.reasonings, vocabulary, parts) if kind is DraftKind.EAGLE3 else None
    sizes = {"layers": 2, "intermediate": 96, "block_size": 16}
    count = parts.vocab_size if ids is None else len(ids)
    config = design(kind, rope, target, **sizes, draft_vocabulary=count)
    objective = new_objective(config, parts, ids, anchors=8, seed=1)
    round_to_bfloat16(objective)
    weights = {name.removeprefix("network."): tensor for name, tensor in objective.state_dict().items()}
    write_draft(directory, config, {**weights, **vocabulary_maps(ids, parts.vocab_size)})
    served, found = load_draft(directory, parts)
    assert found.taps == config.taps
    return objective, served, config.taps, ids


def tapped(batch: Batch, taps: tuple[int, ...], hidden: int) -> Batch:
    """The batch with some of its taps."""
    columns = torch.cat([torch.arange(tap * hidden, (tap + 1) * hidden) for tap in taps])
    return Batch(**{**vars(batch), "features": batch.features[..., columns]})


def serve(served: Any, batch: Batch, row: int, known: int) -> None:
    """Bring the served draft where the loop has it when `known` reasoning tokens are committed."""
    length = batch.prompt_length
    tokens = batch.tokens[row].tolist()
    served.open(Choice(Sampling(), served.target.forbidden, torch.Generator()))
    served.begin(batch.features[row, :length], batch.tokens[row, :length], batch.positions)
    served.extend(batch.features[row, length : length + known - 1], tokens[length : length + known])


@pytest.mark.parametrize("rope", ROPES)
@torch.inference_mode()
def test_dflash_at_every_anchor(target: AlpamayoTarget, samples: Samples, rope: Rope, tmp_path: Path) -> None:
    objective, served, taps, _ = pair(target, samples, DraftKind.DFLASH, rope, tmp_path)
    assert isinstance(objective, DFlashObjective)
    assert isinstance(served, DFlashDraft)
    compared = 0
    for chosen in samples.epoch(2, 0, 0)[:2]:
        batch = tapped(samples.batch(chosen), taps, 64)
        every = torch.arange(int(batch.reasoning_lengths.max()) - 1).expand(len(chosen), -1)
        trained = objective.hidden(batch, every)
        for row in range(len(chosen)):
            for anchor in range(int(batch.reasoning_lengths[row]) - 1):
                serve(served, batch, row, anchor + 1)
                proposed = served.propose(15).tokens
                torch.testing.assert_close(trained[row, anchor], served.hidden(), rtol=1e-4, atol=1e-4)
                logits = objective.logits(trained[row, anchor, 1:])
                assert tuple(logits.argmax(dim=-1).tolist()) == proposed
                compared += 1
    assert compared > 40


@pytest.mark.parametrize("vocabulary", [900, 0])
@pytest.mark.parametrize("rope", ROPES)
@torch.inference_mode()
def test_eagle3_at_every_anchor(
    target: AlpamayoTarget, samples: Samples, rope: Rope, vocabulary: int, tmp_path: Path
) -> None:
    """The chain is fed with the target's tokens in both: what it says itself need not be right."""
    objective, served, taps, ids = pair(target, samples, DraftKind.EAGLE3, rope, tmp_path, vocabulary)
    assert isinstance(objective, Eagle3Objective)
    assert isinstance(served, Eagle3Draft)
    compared = 0
    for chosen in samples.epoch(2, 0, 0)[:2]:
        batch = tapped(samples.batch(chosen), taps, 64)
        steps = objective.chains(batch)
        assert len(steps) == DEPTH
        for row in range(len(chosen)):
            length, said = batch.prompt_length, int(batch.reasoning_lengths[row])
            for anchor in range(said - 1):
                serve(served, batch, row, anchor + 1)
                (first,) = served.propose(1).tokens
                logits = objective.logits(steps[0][row, anchor])
                allowed = logits.clone()
                if ids is None:
                    allowed[target.vocabulary.bins.start : target.vocabulary.bins.stop] = -torch.inf
                best = int(allowed.argmax())
                assert first == (best if ids is None else int(ids[best]))
                hidden = steps[0][None, row, anchor : anchor + 1]
                for i in range(1, min(DEPTH, said - 1 - anchor)):
                    hidden = served.rows(hidden, batch.tokens[row, length + anchor + i][None])
                    served.cache.commit(1)
                    torch.testing.assert_close(steps[i][row, anchor], hidden[0, 0], rtol=1e-4, atol=1e-4)
                    torch.testing.assert_close(objective.logits(steps[i][row, anchor]), served.logits(hidden[0, 0]))
                    compared += 1
    assert compared > 100


def test_dflash_weights_and_partial_blocks(target: AlpamayoTarget, samples: Samples, tmp_path: Path) -> None:
    """The loss, computed one place after the other; blocks that reach beyond the end count as far as they go."""
    objective, _, taps, _ = pair(target, samples, DraftKind.DFLASH, Rope.FLAT, tmp_path)
    batch = tapped(samples.batch(samples.epoch(2, 0, 0)[0]), taps, 64)
    anchors, usable = objective._draw(batch, seed=5)
    hidden = objective.hidden(batch, anchors)
    total = weight = 0.0
    partial = 0
    for row in range(2):
        said = int(batch.reasoning_lengths[row])
        chosen = anchors[row][usable[row]].tolist()
        assert len(set(chosen)) == len(chosen) == min(8, said - 1)
        for place, anchor in enumerate(anchors[row].tolist()):
            for k in range(1, 16):
                if usable[row, place] and anchor + k < said:
                    label = int(batch.tokens[row, batch.prompt_length + anchor + k])
                    chance = objective.logits(hidden[row, place, k]).log_softmax(dim=-1)[label]
                    total -= chance.item() * 2.718281828 ** (-(k - 1) / 7)
                    weight += 2.718281828 ** (-(k - 1) / 7)
            partial += bool(usable[row, place]) and anchor + 15 >= said
    assert partial > 0
    found = objective(batch, 5)
    torch.testing.assert_close(found["loss"].item(), total / weight, rtol=1e-4, atol=0)
    assert objective._draw(batch, seed=6)[0].tolist() != anchors.tolist()


@pytest.mark.parametrize("kind", list(DraftKind))
def test_what_comes_after_the_end_changes_nothing(
    target: AlpamayoTarget, samples: Samples, kind: DraftKind, tmp_path: Path
) -> None:
    objective, _, taps, _ = pair(target, samples, kind, Rope.FLAT, tmp_path)
    batches = (samples.batch(chosen) for chosen in samples.epoch(4, 0, 0))
    batch = tapped(next(one for one in batches if len(set(one.reasoning_lengths.tolist())) > 1), taps, 64)
    lengths = batch.reasoning_lengths
    tokens, features, final = batch.tokens.clone(), batch.features.clone(), batch.final.clone()
    for row, said in enumerate(lengths.tolist()):
        end = batch.prompt_length + said
        tokens[row, end:], features[row, end - 1 :], final[row, said:] = 3, 9.0, 9.0
    changed = Batch(**{**vars(batch), "tokens": tokens, "features": features, "final": final})
    torch.testing.assert_close(objective(changed, 0), objective(batch, 0))


@pytest.mark.parametrize("kind", list(DraftKind))
def test_some_steps_learn_the_batch(target: AlpamayoTarget, samples: Samples, kind: DraftKind, tmp_path: Path) -> None:
    objective, _, taps, _ = pair(target, samples, kind, Rope.FLAT, tmp_path)
    batch = tapped(samples.batch(samples.epoch(3, 0, 0)[0]), taps, 64)
    frozen = target.network.vlm.lm_head.weight.clone()
    optimizer = torch.optim.AdamW(objective.parameters(), lr=3e-3)
    before = objective(batch, 0)
    for _ in range(25):
        optimizer.zero_grad()
        objective(batch, 0)["loss"].backward()
        optimizer.step()
    after = objective(batch, 0)
    assert after["accepted"].item() > before["accepted"].item()
    assert after["loss"].item() < 0.9 * before["loss"].item()
    assert torch.equal(target.network.vlm.lm_head.weight, frozen)
    assert all(parameter.grad is None for parameter in target.network.parameters())
