"""The memory of earlier reasonings: what was said a moment ago is often said again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from torch import Tensor

from rsd_planner.decoding.logits import Choice
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.decoding.verify_length import LONGEST
from rsd_planner.plan import TokenSource


class ReasoningMemory:
    """Proposes how the newest reasoning went on that began with what has been said so far.

    It needs neither network nor prompt: its first proposal is verified inside the prefill.
    """

    source = TokenSource.MEMORY
    longest = LONGEST

    def __init__(self, ticks: int) -> None:
        """
        Args:
            ticks: How many reasonings are kept.
        """
        self._reasonings: deque[tuple[int, ...]] = deque(maxlen=ticks)
        self._said: tuple[int, ...] = ()

    def remember(self, tokens: Sequence[int]) -> None:
        """Keep the reasoning of a tick, its closing tokens included."""
        self._reasonings.append(tuple(tokens))

    def clear(self) -> None:
        """Forget all reasonings, as when time jumps."""
        self._reasonings.clear()

    def open(self, choice: Choice) -> None:  # noqa: ARG002
        """See `decoding.protocols.Draft`."""
        self._said = ()

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        """See `decoding.protocols.Draft`."""

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:  # noqa: ARG002
        """See `decoding.protocols.Draft`."""
        self._said = (*self._said, *tokens)

    def propose(self, limit: int) -> Proposal:
        """See `decoding.protocols.Draft`."""
        count = len(self._said)
        for reasoning in reversed(self._reasonings):
            if reasoning[:count] == self._said and len(reasoning) > count:
                return Proposal(self.source, reasoning[count : count + limit])
        return Proposal(self.source)
