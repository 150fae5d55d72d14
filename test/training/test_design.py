"""A new draft fits its target and says so in the published layout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from training_files import golden_target

from rsd_planner.decoding.reasoning import Reasoning
from rsd_planner.draft.config import DraftKind, read_draft_config
from rsd_planner.draft.load import load_draft
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import DraftError
from rsd_planner.plan import FinishReason, Speculation, TokenOrigin
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.design import (
    design,
    likeliest_tokens,
    new_objective,
    published,
    taps_of,
    vocabulary_maps,
    write_draft,
)
from rsd_planner.training.validation import acceptance

SIZES = {"layers": 3, "intermediate": 96, "block_size": 10, "draft_vocabulary": 40}


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return golden_target()


def test_taps_are_the_published_ones() -> None:
    assert taps_of(DraftKind.EAGLE3, 36) == (1, 17, 32)
    assert taps_of(DraftKind.DFLASH, 36) == (1, 9, 17, 25, 33)
    assert taps_of(DraftKind.EAGLE3, 12) == (1, 5, 8)
    assert taps_of(DraftKind.DFLASH, 12) == (1, 3, 5, 7, 9)
    for layers in range(2, 40):
        for kind in DraftKind:
            taps = taps_of(kind, layers)
            assert taps == tuple(sorted(set(taps)))
            assert 0 <= taps[0] <= taps[-1] < layers


@pytest.mark.parametrize("rope", list(Rope))
@pytest.mark.parametrize("kind", list(DraftKind))
def test_what_is_written_is_read_as_it_was_meant(
    target: AlpamayoTarget, kind: DraftKind, rope: Rope, tmp_path: Path
) -> None:
    config = design(kind, rope, target, **SIZES)
    (tmp_path / "config.json").write_text(json.dumps(published(config)))
    assert read_draft_config(tmp_path, 4) == replace(config, path=tmp_path / "config.json")


def test_the_draft_vocabulary_can_close_and_cannot_steer(target: AlpamayoTarget) -> None:
    parts = target_parts(target)
    first_bin = parts.forbidden.start
    said = [np.array([5, 5, 5, 9, 9, 7, first_bin], np.int32)]
    assert likeliest_tokens(said, 4, parts).tolist() == sorted([5, 9, *parts.closing])
    everything = likeliest_tokens(said, 32_000, parts)
    assert len(everything) == parts.vocab_size - len(parts.forbidden)
    assert not set(everything.tolist()) & set(parts.forbidden)
    assert likeliest_tokens(said, 0, parts) is None


def test_a_vocabulary_without_the_closing_tokens_is_not_loaded(target: AlpamayoTarget, tmp_path: Path) -> None:
    """What protects a draft trained by somebody else."""
    parts = target_parts(target)
    config = design(DraftKind.EAGLE3, Rope.FLAT, target, **SIZES)
    ids = torch.arange(40)
    objective = new_objective(config, parts, ids, anchors=1, seed=0)
    assert torch.equal(objective.network.lm_head.weight, target.network.vlm.lm_head.weight[:40])
    weights = {name.removeprefix("network."): tensor for name, tensor in objective.state_dict().items()}
    write_draft(tmp_path, config, {**weights, **vocabulary_maps(ids, parts.vocab_size)})
    with pytest.raises(DraftError, match="lacks the closing token"):
        load_draft(tmp_path, parts)


def reasoning(passes: tuple[int, ...], routine: int, deliberative: int) -> Reasoning:
    """A prefill's token, then passes; two closing tokens at the end."""
    count = 1 + sum(passes)
    origins = [TokenOrigin.DELIBERATIVE] * deliberative + [TokenOrigin.ROUTINE] * routine
    origins += [TokenOrigin.ROUTINE] * (count - len(origins))
    speculation = Speculation(reasoning_tokens=max(count - 2, 0))
    return Reasoning(tuple(range(count)), tuple(origins), FinishReason.STOP, passes, speculation, 0.0, 0.0)


def test_accepted_length_and_ceiling_are_as_defined() -> None:
    found = acceptance([reasoning((8, 4), 9, 2), reasoning((20,), 18, 1), reasoning((), 0, 1)], depth=15)
    assert found.accepted_length == 32 / 3
    assert found.mean_of_frames == (6 + 20) / 2
    assert found.ceiling == 32 / (1 + 2)  # 12 tokens need one pass of 16, 20 need two
    assert found.no_pass == 1
    assert found.routine_share == 27 / (11 + 19)
    assert acceptance([reasoning((8, 4), 9, 2)], depth=7).ceiling == 6.0
