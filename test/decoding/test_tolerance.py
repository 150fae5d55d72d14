"""The lossy mode lets a draft network replace the tokens it is allowed to, says where, and nothing else."""

from __future__ import annotations

import torch
from scripted import COT_END, FUTURE, VOCAB, ScriptedDraft, run
from torch import Tensor

from rsd_planner.plan import TokenOrigin, TokenSource

SCRIPT = (1, 2, 3, 4, 5, 6, COT_END, FUTURE)
GUESS = (1, 2, 7, 4, 5, 6, COT_END, FUTURE)  # 7 in the place of 3


def by_place(said: tuple[int, ...]) -> Tensor:
    """What comes next depends on how much was said, not on what."""
    row = torch.zeros(VOCAB)
    row[SCRIPT[len(said)] if len(said) < len(SCRIPT) else 0] = 5.0
    return row


def guess(said: tuple[int, ...]) -> tuple[int, ...]:
    return GUESS[len(said) :]


def test_an_allowed_substitution_stands_and_is_marked() -> None:
    exact, _ = run(by_place, ScriptedDraft(guess))
    assert exact.token_ids == SCRIPT
    assert exact.tokens_per_pass == (2, 5)
    assert exact.speculation.tolerated == ()
    lossy, target = run(by_place, ScriptedDraft(guess), allowed={(3, 7)})
    assert lossy.token_ids == GUESS
    assert lossy.tokens_per_pass == (7,)
    assert lossy.speculation.tolerated == (2,)
    assert lossy.origins[2] is TokenOrigin.ROUTINE
    assert target.read == list(GUESS)  # what the action expert reads is what was said


def test_it_is_allowed_one_way_and_from_a_draft_network_only() -> None:
    assert run(by_place, ScriptedDraft(guess), allowed={(7, 3), (3, 6)})[0].token_ids == SCRIPT
    memory = ScriptedDraft(guess, source=TokenSource.MEMORY, early=True)
    found, _ = run(by_place, memory, allowed={(3, 7)})
    assert found.token_ids == SCRIPT
    assert found.speculation.tolerated == ()


def test_places_count_from_the_start_over_several_passes() -> None:
    other = (1, 7, 3, 4, 7, 6, COT_END, FUTURE)
    draft = ScriptedDraft(lambda said: other[len(said) :][:2])
    found, _ = run(by_place, draft, allowed={(2, 7), (5, 7)})
    assert found.token_ids == other
    assert found.speculation.tolerated == (1, 4)
