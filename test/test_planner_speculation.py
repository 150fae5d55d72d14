"""The planner with a memory and with drafts: the same plans, said who guessed what, and refusals that say why."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_cases import R1, golden_case

from rsd_planner.errors import DraftError, ParameterError
from rsd_planner.plan import FinishReason, Plan, TokenOrigin, TokenSource
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import STEP_NS, Observation

sys.path.insert(0, str(Path(__file__).parent / "draft"))
from draft_files import DFLASH, EAGLE3, edit_config, random_draft

SENTENCE = "Stop to keep distance to the lead vehicle stopped ahead."


@pytest.fixture(scope="module")
def plain() -> Planner:
    """One token a pass."""
    return Planner.load(R1, PlannerSettings(memory_ticks=0))


def observation(number: int = 1, tick: int = 0) -> Observation:
    return dataclasses.replace(golden_case(R1, number).observation, stamp_ns=tick * STEP_NS)


def model_with(draft: str, rope: str, directory: Path) -> Path:
    """The golden model directory with a draft of random weights in it."""
    for part in ("checkpoint", "processor"):
        (directory / part).symlink_to(R1 / part)
    random_draft(draft, rope, directory / "draft")
    return directory


def assert_same(one: Plan, other: Plan) -> None:
    assert one.token_ids == other.token_ids
    assert one.finish_reason is other.finish_reason
    for name in ("positions", "rotations", "speeds"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=1e-5)


def test_a_memory_changes_how_a_plan_is_made_and_not_the_plan(plain: Planner) -> None:
    planner = Planner.load(R1)
    first, second = (planner.plan(observation(tick=tick)) for tick in range(2))
    assert_same(first, plain.plan(observation(tick=0)))
    assert_same(second, plain.plan(observation(tick=1)))
    assert first.speculation.prefill_committed == 1
    assert first.routine_share == 0.0
    assert second.tokens_per_pass == ()  # the prefill verified it all
    assert second.speculation.prefill_committed == len(second.token_ids)
    assert second.routine_share == 1.0
    assert set(second.speculation.sources) == {TokenSource.MEMORY}
    other = planner.plan(observation(2))
    assert_same(other, plain.plan(observation(2)))
    assert other.speculation.acceptance(TokenSource.MEMORY)[0][0] > 0


def test_the_memory_is_emptied_on_reset() -> None:
    planner = Planner.load(R1)
    planner.plan(observation())
    assert planner.plan(observation()).routine_share == 1.0
    planner.reset()
    plan = planner.plan(observation())
    assert plan.routine_share == 0.0
    assert plan.speculation.proposals == ()


def test_without_a_memory_nothing_is_remembered(plain: Planner) -> None:
    assert plain.info.draft == ""
    for _ in range(2):
        plan = plain.plan(observation())
        assert plan.tokens_per_pass == (1,) * (len(plan.token_ids) - 1)
        assert set(plan.origins) == {TokenOrigin.DELIBERATIVE}


@pytest.mark.parametrize(
    ("kind", "rope", "described"),
    [(EAGLE3, "flat", "EAGLE-3, flat"), (DFLASH, "mirrored", "DFlash, mirrored")],
)
def test_a_draft_in_the_model_directory_is_used(
    plain: Planner, kind: str, rope: str, described: str, tmp_path: Path
) -> None:
    planner = Planner.load(model_with(kind, rope, tmp_path), PlannerSettings(verify_length=4))
    assert planner.info.draft == described
    assert planner.info.draft_refused == ""
    for number in (1, 2):
        plan = planner.plan(observation(number))
        assert_same(plan, plain.plan(observation(number)))
        assert plan.speculation.acceptance(TokenSource.DRAFT)[0][0] > 0
        assert plan.speculation.draft_ms > 0


def test_a_draft_that_does_not_fit_is_refused_or_left_aside_on_request(tmp_path: Path) -> None:
    edit_config(model_with(DFLASH, "flat", tmp_path) / "draft", max_position_embeddings=2048)
    said = "max_position_embeddings is 2048"
    with pytest.raises(DraftError, match=said):
        Planner.load(tmp_path)
    planner = Planner.load(tmp_path, PlannerSettings(allow_plain_decoding=True))
    assert planner.info.draft == ""
    assert said in planner.info.draft_refused
    assert planner.plan(observation()).reasoning == SENTENCE


def test_the_length_of_a_pass_follows_what_was_measured_at_warm_up(tmp_path: Path) -> None:
    planner = Planner.load(model_with(DFLASH, "flat", tmp_path))
    planner.warm_up([1])
    costs = planner._verify_length.costs
    assert costs is not None
    assert costs.verify[0] == 1.0
    assert sorted(costs.verify) == list(costs.verify)
    assert set(costs.draft) == {TokenSource.DRAFT}
    fixed = Planner.load(tmp_path, PlannerSettings(verify_length=4))
    outcomes = fixed.plan(observation()).speculation.proposals
    assert {outcome.offered for outcome in outcomes} <= {1, 2, 3, 4}


def test_the_reasoning_is_streamed_as_it_comes() -> None:
    planner, heard = Planner.load(R1), list[str]()
    plan = planner.plan(observation(), heard.append)
    assert len(heard) == len(plan.token_ids)
    assert heard[-1] == SENTENCE
    assert all(SENTENCE.startswith(text) for text in heard)
    assert sorted(heard, key=len) == heard
    heard.clear()
    planner.plan(observation(), heard.append)
    assert heard == [SENTENCE]


def test_a_deadline_closes_the_reasoning_and_the_path_still_comes() -> None:
    plan = Planner.load(R1, PlannerSettings(reasoning_deadline_s=1e-6)).plan(observation())
    assert plan.finish_reason is FinishReason.DEADLINE
    assert plan.origins[1:] == (TokenOrigin.FORCED, TokenOrigin.FORCED)
    assert SENTENCE.startswith(plan.reasoning)
    assert np.isfinite(plan.positions).all()
    late = Planner.load(R1, PlannerSettings(reasoning_deadline_s=60.0)).plan(observation())
    assert late.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("memory_ticks", -1, "memory_ticks is -1, expected 0"),
        ("verify_length", 0, "verify_length is 0, expected 1 to 15"),
        ("verify_length", 16, "verify_length is 16, expected 1 to 15"),
        ("reasoning_deadline_s", 0.0, "reasoning_deadline_s is 0.0, expected more than 0"),
        ("reasoning_deadline_s", float("nan"), "reasoning_deadline_s is nan, expected more than 0"),
    ],
)
def test_settings_out_of_range(name: str, value: object, said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        PlannerSettings(**{name: value})
    assert said in str(caught.value)
