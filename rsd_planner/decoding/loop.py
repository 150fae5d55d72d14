"""The decoding loop: prefill, then propose, verify, commit and roll back until the model asks for the trajectory."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from rsd_planner.decoding.acceptance import EXACT, Substitution, accept, differing
from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.protocols import Draft, Proposal, Target
from rsd_planner.decoding.reasoning import Clock, Closing, Reasoning, Transcript
from rsd_planner.decoding.verify_length import VerifyLength
from rsd_planner.plan import TokenSource

PromptT = TypeVar("PromptT")

IN_PREFILL = 32  # drafted tokens at most behind the prompt: a whole reasoning, few beside the prompt's thousands
_NOTHING = Proposal(TokenSource.DRAFT)


def decode(
    target: Target[PromptT],
    prompt: PromptT,
    closing: Closing,
    *,
    sampling: Sampling,
    max_tokens: int,
    generator: torch.Generator,
    drafts: Sequence[Draft] = (),
    verify_length: VerifyLength | None = None,
    deadline: float | None = None,
    allowed: Container[Substitution] = EXACT,
    on_commit: Callable[[Sequence[int]], None] = lambda _: None,
) -> Reasoning:
    """Reason about a prompt. Drafts change how fast the tokens come, never which, unless `allowed` lets them.

    A reasoning that does not end within `max_tokens` or by the deadline is closed by force, so that the action expert
    always finds the stop token's keys and values in the cache.

    Args:
        max_tokens: Most tokens of the target's own choice; forced ones come on top.
        drafts: In order of preference: the first that has something to propose is verified. None for one token a pass.
        deadline: `time.perf_counter()` from which on no further pass is begun.
        allowed: Substitutions that a draft network's token is accepted in; greedy only. See `Speculation.tolerated`.
        on_commit: Given the newly committed tokens after each pass.

    Raises:
        ModelOutputError: The model's logits are not finite.
    """
    clock = Clock()
    lengths = verify_length or VerifyLength()
    choice = Choice(sampling, closing.forbidden, generator)
    transcript = Transcript(closing, max_tokens)
    for draft in drafts:
        draft.open(choice)

    proposal = _propose(drafts, lambda _: IN_PREFILL, transcript, target.vocab_size)  # costs no pass
    step = target.prefill(prompt, proposal.tokens)
    accepted, own = accept(step.logits, proposal, choice)
    transcript.commit(proposal, accepted, own)
    _forget(target, len(proposal.tokens) - accepted)
    on_commit(transcript.new)
    prefill_ms = clock.lap()
    if drafts and not transcript.finished:
        length = len(step.token_ids)
        for draft in drafts:
            draft.begin(_rows(step.features, 0, length), step.token_ids, step.positions)
            draft.extend(_rows(step.features, length, length + accepted), transcript.new)

    while not transcript.finished and (deadline is None or time.perf_counter() < deadline):
        clock.overhead_ms += clock.lap()
        proposal = _propose(drafts, lengths.limit, transcript, target.vocab_size)
        clock.draft_ms += clock.lap()
        verified = target.verify([transcript.tokens[-1], *proposal.tokens])
        lenient = allowed if proposal.source is TokenSource.DRAFT else EXACT
        accepted, own = accept(verified.logits, proposal, choice, lenient)
        other = [] if lenient is EXACT else differing(verified.logits, proposal, accepted, choice)
        transcript.commit(proposal, accepted, own, other)
        clock.verify_ms += clock.lap()
        _forget(target, len(proposal.tokens) - accepted)
        transcript.passes.append(len(transcript.new))
        on_commit(transcript.new)
        if proposal.tokens:
            lengths.observe(transcript.outcomes[-1])
        if not transcript.finished:
            for draft in drafts:
                draft.extend(_rows(verified.features, 0, 1 + accepted), transcript.new)
    clock.overhead_ms += clock.lap()

    forced = transcript.close()
    if unread := transcript.tokens[transcript.read :]:
        target.verify(unread)
    if forced:
        on_commit(forced)
    return transcript.reasoning(clock, prefill_ms, decode_ms=clock.reasoning_ms + clock.lap())


def _propose(
    drafts: Sequence[Draft], limit: Callable[[Draft], int], transcript: Transcript, vocab_size: int
) -> Proposal:
    """The first proposal there is, never reaching beyond the stop token or the cap."""
    for draft in drafts:
        count = min(limit(draft), transcript.room - 1)  # the target adds a token of its own
        if count > 0:
            proposal = draft.propose(count)
            if usable := _usable(proposal.tokens[:count], transcript.closing, vocab_size):
                return Proposal(proposal.source, usable, proposal.probabilities)
    return _NOTHING


def _usable(tokens: Sequence[int], closing: Closing, vocab_size: int) -> tuple[int, ...]:
    """The tokens up to the stop token, and before any that the target could not read or would never say."""
    for i, token in enumerate(tokens):
        if not 0 <= token < vocab_size or token in closing.forbidden:
            return tuple(tokens[:i])
        if token == closing.future_start:
            return tuple(tokens[: i + 1])
    return tuple(tokens)


def _forget(target: Target[PromptT], rejected: int) -> None:
    if rejected:
        target.rollback(rejected)


def _rows(features: Tensor | None, start: int, stop: int) -> Tensor | None:
    return None if features is None else features[start:stop]
