"""What a draft guesses in the real decoding loop, and which of its guesses the target rejects."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rsd_planner.decoding.acceptance import EXACT, Substitution
from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.protocols import Draft, Proposal
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.decoding.verify_length import LONGEST, VerifyLength
from rsd_planner.draft.load import load_draft
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt


@dataclass(frozen=True)
class Rejection:
    """The first token of a proposal that the target would not have said."""

    place: int  # number of the reasoning token
    own: int  # the target's
    drafted: int


class _Listening:
    """A draft whose proposals are written down with the number of tokens committed before them."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.source, self.longest = draft.source, draft.longest
        self.proposals: list[tuple[int, tuple[int, ...]]] = []
        self._said = 0

    def open(self, choice: Choice) -> None:
        self._said = 0
        self.proposals.clear()
        self._draft.open(choice)

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        self._draft.begin(features, token_ids, positions)

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:
        self._said += len(tokens)
        self._draft.extend(features, tokens)

    def propose(self, limit: int) -> Proposal:
        proposal = self._draft.propose(limit)
        self.proposals.append((self._said, proposal.tokens[:limit]))
        return proposal


class Guesser:
    """A target with a draft, decoding greedily, without memory, the draft's whole length verified in each pass."""

    def __init__(self, target: AlpamayoTarget, directory: Path, max_tokens: int) -> None:
        """Raises DraftError: The draft in `directory` does not fit the target."""
        draft, config = load_draft(directory, target_parts(target))
        target.taps = config.taps
        self.depth = min(draft.longest, LONGEST)
        self._target, self._draft, self._max_tokens = target, _Listening(draft), max_tokens
        words = target.vocabulary
        self._closing = Closing(words.cot_end, words.future_start, words.bins)

    def decode(self, prompt: Prompt, allowed: Container[Substitution] = EXACT) -> Reasoning:
        """What is said of a prompt; the target's cache then holds it."""
        return decode(
            self._target,
            prompt,
            self._closing,
            sampling=Sampling(),
            max_tokens=self._max_tokens,
            generator=torch.Generator(),
            drafts=[self._draft],
            verify_length=VerifyLength(self.depth),
            allowed=allowed,
        )

    def rejections(self, said: Reasoning) -> list[Rejection]:
        """Of the frame decoded last, exactly: the guesses that ended each proposal. Closing tokens are no guesses."""
        closing = (self._closing.cot_end, self._closing.future_start)
        found = []
        for begin, tokens in self._draft.proposals:
            pairs = list(zip(tokens, said.token_ids[begin:], strict=False))
            wrong = next((i for i, (drafted, own) in enumerate(pairs) if drafted != own), None)
            if wrong is None:
                continue
            drafted, own = pairs[wrong]
            sayable = 0 <= drafted < self._target.vocab_size and drafted not in self._closing.forbidden
            if sayable and drafted not in closing and own not in closing:
                found.append(Rejection(begin + wrong, own, drafted))
        return found
