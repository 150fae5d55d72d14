"""The loop without a draft: one token a pass, every way to end."""

from __future__ import annotations

import pytest
from scripted import COT_END, FUTURE, run, saying

from rsd_planner.plan import FinishReason, TokenOrigin


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([1, 2, 3, COT_END, FUTURE], FinishReason.STOP),
        ([1, FUTURE], FinishReason.STOP),
        ([COT_END, FUTURE], FinishReason.EMPTY),
        ([FUTURE], FinishReason.EMPTY),
    ],
)
def test_the_model_closes_its_reasoning(script: list[int], reason: FinishReason) -> None:
    reasoning, target = run(saying(script))
    assert list(reasoning.token_ids) == script
    assert reasoning.finish_reason is reason
    assert set(reasoning.origins) == {TokenOrigin.DELIBERATIVE}
    assert reasoning.tokens_per_pass == (1,) * (len(script) - 1)
    assert target.passes == [[token] for token in script]  # one more, for the stop token's keys and values


@pytest.mark.parametrize(
    ("script", "cap", "reason", "forced"),
    [
        ([1, 2, 3, 4, 5, 6], 4, FinishReason.MAX_TOKENS, [COT_END, FUTURE]),
        ([1, COT_END, 2, 3, 4, 5], 4, FinishReason.MISSING_STOP, [FUTURE]),
        ([1, 2, 3, COT_END, FUTURE], 4, FinishReason.MISSING_STOP, [FUTURE]),
        ([1, 2], 1, FinishReason.MAX_TOKENS, [COT_END, FUTURE]),
    ],
)
def test_a_reasoning_that_does_not_end_is_closed(
    script: list[int], cap: int, reason: FinishReason, forced: list[int]
) -> None:
    reasoning, _ = run(saying(script), max_tokens=cap)
    assert list(reasoning.token_ids) == script[:cap] + forced
    assert reasoning.finish_reason is reason
    assert reasoning.origins == (TokenOrigin.DELIBERATIVE,) * cap + (TokenOrigin.FORCED,) * len(forced)


def test_a_stop_exactly_at_the_cap_is_a_stop() -> None:
    reasoning, _ = run(saying([1, 2, COT_END, FUTURE]), max_tokens=4)
    assert reasoning.finish_reason is FinishReason.STOP
    assert TokenOrigin.FORCED not in reasoning.origins
