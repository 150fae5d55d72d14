"""The loop with drafts of every kind, good and hostile: what is said never changes, and nothing is miscounted."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

import pytest
from scripted import COT_END, FUTURE, PROMPT, VOCAB, ScriptedDraft, run, saying

from rsd_planner.decoding.verify_length import VerifyLength
from rsd_planner.plan import FinishReason, ProposalOutcome, TokenOrigin, TokenSource

SCRIPT = (1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 2, 1, COT_END, FUTURE)
MASK = 0  # the token a DFlash block is filled with
Guess = Callable[[tuple[int, ...]], Sequence[int]]


def right(said: tuple[int, ...], count: int = 15) -> tuple[int, ...]:
    return SCRIPT[len(said) : len(said) + count]


def insert(token: int, place: int) -> Guess:
    """Right but for one slot."""
    return lambda said: (*right(said)[:place], token, *right(said)[place:])


def erratic(said: tuple[int, ...]) -> tuple[int, ...]:
    """Right or wrong by chance, in every mixture."""
    chance = random.Random(len(said))
    return tuple(t if chance.random() < 0.7 else chance.randrange(VOCAB) for t in right(said, chance.randrange(6)))


HOSTILE: dict[str, Guess] = {
    "always right": right,
    "always wrong": lambda said: [(t + 1) % 8 for t in right(said)],
    "erratic": erratic,
    "empty": lambda said: (),
    "shorter than asked": lambda said: right(said, 1),
    "longer than asked": lambda said: (*right(said), *range(8)) * 4,
    "only the stop token": lambda said: (FUTURE,) * 5,
    "only the closing tokens": lambda said: (COT_END, FUTURE),
    "only mask tokens": lambda said: (MASK,) * 15,
    "a mask token in slot 2": insert(MASK, 2),
    "a trajectory bin in slot 1": insert(11, 1),
    "only trajectory bins": lambda said: (10, 11),
    "just out of vocabulary": insert(VOCAB, 1),
    "far out of vocabulary": lambda said: (2**40,),
    "negative": lambda said: (-1,),
    "goes on behind the stop token": lambda said: (*right(said), 1, 2, 3),
} | {f"the stop token in slot {i}": insert(FUTURE, i) for i in range(15)}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_draft_changes_what_is_said(name: str, early: bool) -> None:
    draft = ScriptedDraft(HOSTILE[name], early=early)
    reasoning, target = run(saying(SCRIPT), draft)
    assert reasoning.token_ids == SCRIPT
    assert reasoning.finish_reason is FinishReason.STOP
    assert TokenOrigin.FORCED not in reasoning.origins
    assert reasoning.speculation.prefill_committed + sum(reasoning.tokens_per_pass) == len(SCRIPT)
    assert all(count >= 1 for count in reasoning.tokens_per_pass)
    assert all(len(tokens) <= 16 for tokens in target.passes)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("cap", range(1, len(SCRIPT) + 2))
def test_the_cap_is_counted_in_tokens_and_exact(name: str, cap: int) -> None:
    plain, _ = run(saying(SCRIPT), max_tokens=cap)
    for early in (False, True):
        drafted, _ = run(saying(SCRIPT), ScriptedDraft(HOSTILE[name], early=early), max_tokens=cap)
        assert drafted.token_ids == plain.token_ids
        assert drafted.finish_reason is plain.finish_reason
        assert sum(origin is not TokenOrigin.FORCED for origin in drafted.origins) == min(cap, len(SCRIPT))


@pytest.mark.parametrize("script", [(FUTURE,), (COT_END, FUTURE), (1, FUTURE), (COT_END, 1, 2, FUTURE), (1,) * 30])
@pytest.mark.parametrize("early", [False, True])
def test_unusual_endings(script: tuple[int, ...], early: bool) -> None:
    plain, _ = run(saying(script))
    for guess in (lambda said: script[len(said) :], lambda said: (COT_END, FUTURE), lambda said: (FUTURE,)):
        drafted, _ = run(saying(script), ScriptedDraft(guess, early=early))
        assert drafted.token_ids == plain.token_ids
        assert drafted.finish_reason is plain.finish_reason


def test_accepted_length_is_clipped_at_the_stop_token() -> None:
    reasoning, target = run(saying(SCRIPT), ScriptedDraft(lambda said: (*right(said), 1, 2, 3)))
    assert reasoning.speculation.prefill_committed == 1
    assert reasoning.tokens_per_pass == (13,)  # one pass, no bonus token behind the stop token
    assert reasoning.speculation.proposals == (ProposalOutcome(TokenSource.DRAFT, 13, 13),)
    assert target.passes == [list(SCRIPT)]  # the stop token was verified: no further step for its keys and values


def test_a_stop_token_of_the_targets_own_costs_one_more_step() -> None:
    reasoning, target = run(saying(SCRIPT), ScriptedDraft(lambda said: right(said)[:-1]))
    assert reasoning.tokens_per_pass == (13,)
    assert target.passes[1:] == [[FUTURE]]


def test_a_memory_that_knows_it_all_needs_no_pass() -> None:
    reasoning, target = run(saying(SCRIPT), ScriptedDraft(right, source=TokenSource.MEMORY, early=True))
    assert target.passes == []
    assert reasoning.tokens_per_pass == ()
    assert reasoning.speculation.prefill_committed == len(SCRIPT)
    assert reasoning.speculation.sources == (TokenSource.MEMORY,) * len(SCRIPT)


def test_who_wrote_which_token() -> None:
    memory = ScriptedDraft(lambda said: (1, 2, 7) if not said else (), source=TokenSource.MEMORY, early=True)
    network = ScriptedDraft(lambda said: right(said, 4))
    reasoning, _ = run(saying(SCRIPT), memory, network)
    d, m, own = TokenSource.DRAFT, TokenSource.MEMORY, None
    assert reasoning.speculation.sources == (m, m, own, d, d, d, d, own, d, d, d, d, own, d)
    routine, deliberative = TokenOrigin.ROUTINE, TokenOrigin.DELIBERATIVE
    expected = [routine if source else deliberative for source in reasoning.speculation.sources]
    assert list(reasoning.origins) == expected
    assert reasoning.speculation.reasoning_tokens == 12
    assert reasoning.tokens_per_pass == (5, 5, 1)
    assert reasoning.speculation.acceptance(m) == ((1, 1), (1, 1), (1, 0))
    assert reasoning.speculation.acceptance(d) == ((3, 3), (2, 2), (2, 2), (2, 2))


def test_the_memory_is_asked_first_and_the_network_when_it_is_silent() -> None:
    memory = ScriptedDraft(lambda said: right(said, 2) if len(said) < 5 else (), source=TokenSource.MEMORY)
    network = ScriptedDraft(lambda said: right(said, 2))
    reasoning, _ = run(saying(SCRIPT), memory, network)
    sources = [outcome.source for outcome in reasoning.speculation.proposals]
    assert sources == [TokenSource.MEMORY] * 2 + [TokenSource.DRAFT] * 3
    assert network.said == memory.said  # both heard everything, whoever proposed it


def test_a_draft_hears_of_the_prompt_and_of_every_token_with_its_own_feature() -> None:
    draft = ScriptedDraft(erratic)  # its extend() checks features and the target's cache after each pass
    run(saying(SCRIPT), draft)
    assert len(draft.features) == len(PROMPT) + len(draft.said) - 1


def test_a_frame_begins_without_a_trace_of_the_last() -> None:
    draft = ScriptedDraft(right, early=True)
    first, _ = run(saying(SCRIPT), draft)
    second, _ = run(saying(SCRIPT[3:]), draft)
    assert second.token_ids == SCRIPT[3:]
    assert first.token_ids == SCRIPT


def test_committed_tokens_are_streamed_and_nothing_else() -> None:
    heard: list[list[int]] = []
    reasoning, _ = run(saying(SCRIPT), ScriptedDraft(erratic), on_commit=lambda new: heard.append(list(new)))
    assert [token for new in heard for token in new] == list(SCRIPT)
    assert [len(new) for new in heard] == [1, *reasoning.tokens_per_pass]
    heard.clear()
    capped, _ = run(saying(SCRIPT), ScriptedDraft(right), on_commit=lambda new: heard.append(list(new)), max_tokens=5)
    assert [token for new in heard for token in new] == list(capped.token_ids)


def test_a_deadline_closes_the_reasoning_and_says_so() -> None:
    reasoning, _ = run(saying(SCRIPT), ScriptedDraft(right), deadline=time.perf_counter())
    assert reasoning.token_ids == (1, COT_END, FUTURE)
    assert reasoning.finish_reason is FinishReason.DEADLINE
    assert reasoning.origins == (TokenOrigin.DELIBERATIVE, TokenOrigin.FORCED, TokenOrigin.FORCED)


def test_a_deadline_after_the_reasoning_closes_only_what_is_open() -> None:
    reasoning, _ = run(saying((COT_END, 5, 6, FUTURE)), deadline=time.perf_counter())
    assert reasoning.token_ids == (COT_END, FUTURE)
    assert reasoning.finish_reason is FinishReason.DEADLINE


def test_a_deadline_that_comes_too_late_changes_nothing() -> None:
    reasoning, _ = run(saying(SCRIPT), ScriptedDraft(right), deadline=time.perf_counter() + 60)
    assert reasoning.token_ids == SCRIPT
    assert reasoning.finish_reason is FinishReason.STOP


def test_a_fixed_length_is_what_is_asked_for() -> None:
    draft = ScriptedDraft(right)
    reasoning, target = run(saying(SCRIPT), draft, verify_length=VerifyLength(fixed=3))
    assert draft.limits == [19, 3, 3, 3, 3]  # the prefill has room for more
    assert [len(tokens) for tokens in target.passes] == [4, 4, 4, 2]
    assert reasoning.tokens_per_pass == (4, 4, 4, 1)


def test_a_draft_is_not_asked_for_more_than_the_cap_leaves_room_for() -> None:
    draft = ScriptedDraft(right)
    run(saying(SCRIPT), draft, max_tokens=6)
    assert draft.limits == [5, 4]


def test_times_add_up() -> None:
    reasoning, _ = run(saying(SCRIPT), ScriptedDraft(erratic))
    times = reasoning.speculation
    parts = (times.draft_ms, times.verify_ms, times.overhead_ms)
    assert all(part > 0 for part in parts)
    assert sum(parts) <= reasoning.decode_ms
    assert math.isfinite(reasoning.prefill_ms)


def test_the_closing_tokens_are_no_part_of_the_reasoning() -> None:
    for script in ((1, 2, COT_END, FUTURE), (1, 2, FUTURE), (1, 2, COT_END, 3, FUTURE)):
        assert run(saying(script))[0].speculation.reasoning_tokens == 2
    assert run(saying((COT_END, FUTURE)))[0].speculation.reasoning_tokens == 0
