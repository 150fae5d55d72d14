"""The draft without a network: longest suffix first, back-off, and never a word of its own in the result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.bench.ngram import NgramDraft, training_texts
from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.demo.world.dataset import DatasetError
from rsd_planner.planner import Planner, PlannerSettings


def proposed(draft: NgramDraft, *said: int, limit: int = 15) -> tuple[int, ...]:
    draft.open(Choice(Sampling(), range(0), torch.Generator()))
    draft.extend(None, said)
    return draft.propose(limit).tokens


def test_the_longest_suffix_that_was_seen_decides() -> None:
    draft = NgramDraft([(1, 2, 3), (5, 2, 4), (5, 2, 4)])
    assert proposed(draft, 1, limit=2) == (
        2,
        3,
    )  # "1 2" was followed by 3 only, though 2 alone was mostly followed by 4
    assert proposed(draft, 5, limit=1) == (2,)
    assert proposed(draft, 9, 2)[0] == 4  # never seen together: backs off to 2


def test_the_start_counts_as_a_word() -> None:
    draft = NgramDraft([(7, 1), (3, 7, 2), (3, 7, 2)])
    assert proposed(draft, 7)[0] == 1
    assert proposed(draft, 3, 7)[0] == 2


def test_nothing_is_proposed_before_the_prompt_is_read() -> None:
    draft = NgramDraft([(1, 2)])
    assert proposed(draft) == ()
    assert NgramDraft([]).propose(3).tokens == ()


def test_a_draft_that_knows_the_words_saves_passes_and_changes_nothing() -> None:
    loaded = Planner.load(R1, PlannerSettings(memory_ticks=0))
    observation = golden_case(R1, 1).observation
    plain = loaded.plan(observation)
    draft = NgramDraft([plain.token_ids])
    plan = Planner(loaded.target, loaded.info, PlannerSettings(memory_ticks=0, verify_length=15), draft).plan(
        observation
    )
    assert plan.token_ids == plain.token_ids
    assert len(plan.tokens_per_pass) == -(-(len(plan.token_ids) - 1) // 16)


def test_texts_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"train: no shard"):
        training_texts(tmp_path)
