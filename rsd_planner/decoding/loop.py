"""The plain decoding loop: one token per pass, until the model asks for the trajectory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TypeVar

import torch

from rsd_planner.decoding.logits import Sampling, choose
from rsd_planner.decoding.protocols import Target
from rsd_planner.plan import FinishReason, TokenOrigin

PromptT = TypeVar("PromptT")


@dataclass(frozen=True)
class Closing:
    """The tokens that end a reasoning, and those that are never said."""

    cot_end: int
    future_start: int  # the stop token
    forbidden: range


@dataclass(frozen=True)
class Reasoning:
    """All tokens committed after the prompt. Their keys and values are in the target's cache, the stop token's too."""

    token_ids: tuple[int, ...]
    origins: tuple[TokenOrigin, ...]
    finish_reason: FinishReason
    tokens_per_pass: tuple[int, ...]  # committed by each pass after the prefill
    prefill_ms: float
    decode_ms: float


def decode(
    target: Target[PromptT],
    prompt: PromptT,
    closing: Closing,
    *,
    sampling: Sampling,
    max_tokens: int,
    generator: torch.Generator,
) -> Reasoning:
    """Prefill, then one token at a time.

    A reasoning that does not end within `max_tokens` is closed by force, so that the action expert always finds the
    stop token's keys and values in the cache.

    Raises:
        ModelOutputError: The model's logits are not finite.
    """
    started = time.perf_counter()
    step = target.prefill(prompt)
    tokens = [choose(step.logits[-1], closing.forbidden, sampling, generator)]
    prefilled = time.perf_counter()
    while tokens[-1] != closing.future_start and len(tokens) < max_tokens:
        step = target.verify(tokens[-1:])
        tokens.append(choose(step.logits[-1], closing.forbidden, sampling, generator))
    passes = len(tokens) - 1

    forced = _closing_tokens(tokens, closing)
    target.verify([tokens[-1], *forced])
    ended = time.perf_counter()
    return Reasoning(
        token_ids=(*tokens, *forced),
        origins=(TokenOrigin.DELIBERATIVE,) * len(tokens) + (TokenOrigin.FORCED,) * len(forced),
        finish_reason=_finish_reason(tokens, closing),
        tokens_per_pass=(1,) * passes,
        prefill_ms=(prefilled - started) * 1e3,
        decode_ms=(ended - prefilled) * 1e3,
    )


def _closing_tokens(tokens: list[int], closing: Closing) -> list[int]:
    if tokens[-1] == closing.future_start:
        return []
    return [closing.future_start] if closing.cot_end in tokens else [closing.cot_end, closing.future_start]


def _finish_reason(tokens: list[int], closing: Closing) -> FinishReason:
    if tokens[-1] != closing.future_start:
        return FinishReason.MISSING_STOP if closing.cot_end in tokens else FinishReason.MAX_TOKENS
    return FinishReason.EMPTY if tokens[0] in (closing.cot_end, closing.future_start) else FinishReason.STOP
