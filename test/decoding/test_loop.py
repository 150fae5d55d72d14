"""The loop against a target that says what a script tells it to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import Closing, Reasoning, decode
from rsd_planner.decoding.protocols import Step
from rsd_planner.plan import FinishReason, TokenOrigin

COT_END, FUTURE, VOCAB = 8, 9, 12
CLOSING = Closing(COT_END, FUTURE, forbidden=range(10, 12))


class ScriptedTarget:
    """Continues with the script's next token whatever it reads, and remembers what it read."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(script)
        self.read: list[int] = []

    def _step(self, tokens: Sequence[int]) -> Step:
        self.read += tokens
        logits = torch.zeros(max(len(tokens), 1), VOCAB)
        logits[:, 11] = 9.0  # a trajectory bin is always what it would like to say most
        if len(self.read) < len(self.script):
            logits[-1, self.script[len(self.read)]] = 5.0
        return Step(logits, None)

    def prefill(self, prompt: str, proposal: Sequence[int] = ()) -> Step:
        assert prompt == "prompt"
        return self._step(list(proposal))

    def verify(self, tokens: Sequence[int]) -> Step:
        return self._step(tokens)

    def rollback(self, count: int) -> None:
        raise AssertionError("the plain loop never rolls back")


def run(script: Sequence[int], max_tokens: int = 20) -> tuple[Reasoning, list[int]]:
    target = ScriptedTarget(script)
    reasoning = decode(
        target, "prompt", CLOSING, sampling=Sampling(), max_tokens=max_tokens, generator=torch.Generator()
    )
    return reasoning, target.read


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
    reasoning, read = run(script)
    assert list(reasoning.token_ids) == script
    assert reasoning.finish_reason is reason
    assert set(reasoning.origins) == {TokenOrigin.DELIBERATIVE}
    assert read == script  # the stop token was read too: the action expert needs its keys and values
    assert reasoning.tokens_per_pass == (1,) * (len(script) - 1)


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
    reasoning, read = run(script, max_tokens=cap)
    assert list(reasoning.token_ids) == script[:cap] + forced
    assert reasoning.finish_reason is reason
    assert reasoning.origins == (TokenOrigin.DELIBERATIVE,) * cap + (TokenOrigin.FORCED,) * len(forced)
    assert read == list(reasoning.token_ids)


def test_a_stop_exactly_at_the_cap_is_a_stop() -> None:
    reasoning, _ = run([1, 2, COT_END, FUTURE], max_tokens=4)
    assert reasoning.finish_reason is FinishReason.STOP
    assert TokenOrigin.FORCED not in reasoning.origins
