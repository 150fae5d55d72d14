"""What the decoding loop asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

PromptT_contra = TypeVar("PromptT_contra", contravariant=True)


@dataclass(frozen=True)
class Step:
    """What one target forward says about the tokens it read."""

    logits: Tensor  # (k, vocab) float32, raw: row i speaks of the token after the i-th one asked about
    features: Tensor | None  # (tokens read, taps * hidden): hidden states at the target's taps; None without taps


class Target(Protocol[PromptT_contra]):
    """A deliberative reasoner with a KV cache of what was read and not rolled back."""

    def prefill(self, prompt: PromptT_contra, proposal: Sequence[int] = ()) -> Step:
        """Read a prompt from scratch, and a proposal after it; logits after the prompt and each proposed token."""

    def verify(self, tokens: Sequence[int]) -> Step:
        """Read tokens behind what was read before; logits after each of them."""

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens."""
