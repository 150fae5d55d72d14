"""A reasoning as text by who wrote its tokens."""

from __future__ import annotations

import pytest
from golden_cases import R1, golden_case

from rsd_planner.plan import TokenOrigin
from rsd_planner.planner import Planner
from rsd_planner.target.config import read_config
from rsd_planner.target.vocabulary import Vocabulary, load_vocabulary

ROUTINE, DELIBERATIVE, FORCED = TokenOrigin.ROUTINE, TokenOrigin.DELIBERATIVE, TokenOrigin.FORCED


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    return load_vocabulary(read_config(R1 / "checkpoint"), R1 / "processor")


def test_parts_are_cut_where_the_origin_changes(words: Vocabulary) -> None:
    runs = [("Keep the distance", ROUTINE), (" to the lead", DELIBERATIVE), (" vehicle", ROUTINE)]
    tokens, origins = [], []
    for text, origin in runs:
        ids = words.encode(text)
        tokens += ids
        origins += [origin] * len(ids)
    parts = words.parts([*tokens, words.cot_end, words.future_start], [*origins, FORCED, FORCED])
    assert list(parts) == runs


def test_half_a_character_waits_for_its_other_half(words: Vocabulary) -> None:
    tokens = words.encode("für 行")
    origins = [ROUTINE if k % 2 else DELIBERATIVE for k in range(len(tokens))]
    parts = words.parts(tokens, origins)
    assert "".join(part.text for part in parts) == "für 行"
    assert "\ufffd" not in "".join(part.text for part in parts)


def test_parts_of_a_plan_are_its_reasoning() -> None:
    planner = Planner.load(R1)
    first, second = (planner.plan(golden_case(R1, 1).observation) for _ in range(2))
    assert {part.origin for part in first.parts} == {DELIBERATIVE}
    assert {part.origin for part in second.parts} == {ROUTINE}  # remembered
    for plan in (first, second):
        assert "".join(part.text for part in plan.parts).strip() == plan.reasoning
        assert plan.reasoning
