"""What the decoding loop asks of a target and of a draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from rsd_planner.decoding.logits import Choice
from rsd_planner.plan import TokenSource

PromptT_contra = TypeVar("PromptT_contra", contravariant=True)


@dataclass(frozen=True)
class Step:
    """What one target forward says about the tokens it read."""

    logits: Tensor  # (k, vocab) float32, raw: row i speaks of the token after the i-th one asked about
    features: Tensor | None  # (tokens read, taps * hidden): hidden states at the target's taps; None without taps


@dataclass(frozen=True)
class Prefill(Step):
    """A step over a prompt and a proposal behind it, and what a draft must know of the prompt."""

    token_ids: Tensor  # (L,) int64, on the CPU
    positions: Tensor  # (3, L) the target's rotary positions: time, height, width; never to be changed


class Target(Protocol[PromptT_contra]):
    """A deliberative reasoner with a KV cache of what was read and not rolled back."""

    @property
    def vocab_size(self) -> int:
        """Tokens it has logits for; ids beyond must not be given to it."""

    def prefill(self, prompt: PromptT_contra, proposal: Sequence[int] = ()) -> Prefill:
        """Read a prompt from scratch, and a proposal after it; logits after the prompt and each proposed token."""

    def verify(self, tokens: Sequence[int]) -> Step:
        """Read tokens behind what was read before; logits after each of them."""

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens."""


@dataclass(frozen=True)
class Proposal:
    """Tokens a draft expects next. With none of them, the target says its own token."""

    source: TokenSource
    tokens: tuple[int, ...] = ()
    # (k, vocab) float32: what each token was drawn from, given those before it; None when nothing was drawn
    probabilities: Tensor | None = None


class Draft(Protocol):
    """A routine reasoner. Per frame: `open`, `begin`, then `propose` and `extend` in turn.

    A wrong proposal costs time and never changes what is said.
    """

    @property
    def source(self) -> TokenSource: ...

    @property
    def longest(self) -> int:
        """The most tokens it proposes at once."""

    def open(self, choice: Choice) -> None:
        """A new frame: forget the last one. `propose` is asked once before `begin`, when only a memory can answer."""

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        """The prompt was read.

        Args:
            features: (L, taps * hidden) at the target's taps.
            token_ids: (L,) int64.
            positions: (3, L), as in `Prefill`.
        """

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:
        """More tokens were committed.

        Args:
            features: Of the tokens read since the last call and kept: all committed ones but the last.
            tokens: The newly committed ones, in order.
        """

    def propose(self, limit: int) -> Proposal:
        """At most `limit` tokens to follow the committed ones; fewer or none are fine."""
