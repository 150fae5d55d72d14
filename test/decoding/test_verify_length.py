"""The length of a verify pass: the most committed tokens per second, against the optimum worked out directly."""

from __future__ import annotations

import itertools
import random

import pytest
from scripted import ScriptedDraft, ScriptedTarget, saying

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.verify_length import LONGEST, StepCosts, VerifyLength, measure_costs
from rsd_planner.plan import ProposalOutcome, TokenSource

SOURCE = TokenSource.DRAFT
FLAT = [1.0] * (LONGEST + 1)  # a pass costs the same however long
STEEP = [1.0 + 0.25 * k for k in range(LONGEST + 1)]
DRAFT = ScriptedDraft(lambda said: ())


def watch(acceptance: float, verify: list[float], draft: list[float] | None = None) -> tuple[VerifyLength, list[int]]:
    """A rule that has watched 400 proposals of the length it asked for, and those lengths."""
    rule, chance, asked = VerifyLength(), random.Random(1), []
    rule.costs = StepCosts(verify, {} if draft is None else {SOURCE: draft})
    for _ in range(400):
        offered = rule.limit(DRAFT)
        asked.append(offered)
        if offered:
            hits = itertools.takewhile(lambda _: chance.random() < acceptance, range(offered))
            rule.observe(ProposalOutcome(SOURCE, offered, sum(1 for _ in hits)))
    return rule, asked


def learned(acceptance: float, verify: list[float], draft: list[float] | None = None) -> int:
    return watch(acceptance, verify, draft)[0].limit(DRAFT)


@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.8, 0.95])
def test_the_length_is_the_optimum_for_cost_and_acceptance(acceptance: float) -> None:
    chosen = learned(acceptance, STEEP)
    speed = [sum(acceptance**i for i in range(k + 1)) / STEEP[k] for k in range(LONGEST + 1)]
    assert speed[chosen] >= 0.97 * max(speed)


def test_free_tokens_are_all_taken() -> None:
    assert learned(0.5, FLAT) == LONGEST


def test_long_drafts_at_low_acceptance_lose_time() -> None:
    assert learned(0.2, STEEP) <= 1
    assert learned(0.97, STEEP) >= 6


def test_the_time_of_the_draft_counts() -> None:
    chain = [0.3 * k for k in range(LONGEST + 1)]
    assert learned(0.8, STEEP, chain) < learned(0.8, STEEP)


def test_a_useless_draft_is_left_alone_but_tried_again() -> None:
    _, asked = watch(0.0, STEEP, [0.0] + [0.5] * LONGEST)
    assert asked[0] > 0
    assert 0 < sum(length > 0 for length in asked[100:]) < 30


def test_positions_after_a_rejection_were_not_looked_at() -> None:
    rule = VerifyLength()
    for _ in range(300):
        rule.observe(ProposalOutcome(SOURCE, 5, 2))
    chances = rule.acceptance(SOURCE)
    assert chances[1] > 0.95
    assert chances[2] < 0.1
    assert chances[14] < 0.1  # nothing is known of it: as good as the one before


def test_sources_are_kept_apart() -> None:
    rule = VerifyLength()
    for _ in range(100):
        rule.observe(ProposalOutcome(TokenSource.MEMORY, 4, 4))
        rule.observe(ProposalOutcome(TokenSource.DRAFT, 4, 0))
    assert rule.acceptance(TokenSource.MEMORY)[0] > 0.9 > 0.1 > rule.acceptance(TokenSource.DRAFT)[0]
    rule.forget()
    assert (rule.acceptance(TokenSource.MEMORY) == rule.acceptance(TokenSource.DRAFT)).all()


def test_without_costs_and_with_a_fixed_length() -> None:
    short = ScriptedDraft(lambda said: ())
    short.longest = 7
    assert VerifyLength().limit(DRAFT) == LONGEST
    assert VerifyLength().limit(short) == 7
    fixed = VerifyLength(fixed=9)
    fixed.costs = StepCosts(STEEP, {})
    assert fixed.limit(DRAFT) == 9
    assert fixed.limit(short) == 7


def test_measuring_leaves_target_and_draft_as_they_are() -> None:
    target, draft = ScriptedTarget(saying((1, 2, 3))), ScriptedDraft(lambda said: (1, 2, 3), early=True)
    target.prefill("prompt", (1, 2))
    draft.open(Choice(Sampling(), range(0), None))
    costs = measure_costs(target, [draft])
    assert target.read == [1, 2]
    assert draft.said == ()
    assert len(costs.verify) == len(costs.draft[SOURCE]) == LONGEST + 1
    assert costs.draft[SOURCE][0] == 0
    assert all(cost > 0 for cost in costs.verify)
