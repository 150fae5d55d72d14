"""A draft without a network: what most often followed the same last words in the training texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from rsd_planner.decoding.logits import Choice
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.decoding.verify_length import LONGEST
from rsd_planner.demo.world.dataset import DatasetError
from rsd_planner.demo.world.splits import Split
from rsd_planner.plan import TokenSource

NAME = "n-gram"
CONTEXT = 8  # tokens at most that the next one is guessed from
_START = -1  # stands before a reasoning


class NgramDraft:
    """Goes on with the likeliest token after the longest suffix that was seen, again and again (back-off)."""

    source = TokenSource.DRAFT
    longest = LONGEST

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        """
        Args:
            texts: Token ids of whole reasonings, closing tokens included.
        """
        counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text, times in Counter(map(tuple, texts)).items():
            padded = (_START, *text)
            for i in range(1, len(padded)):
                for length in range(min(i, CONTEXT) + 1):
                    counts[padded[i - length : i]][padded[i]] += times
        self._next = {suffix: max(found, key=lambda token: (found[token], -token)) for suffix, found in counts.items()}
        self._said: tuple[int, ...] = (_START,)

    def open(self, choice: Choice) -> None:  # noqa: ARG002
        """See `decoding.protocols.Draft`."""
        self._said = (_START,)

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        """See `decoding.protocols.Draft`."""

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:  # noqa: ARG002
        """See `decoding.protocols.Draft`."""
        self._said = (*self._said, *tokens)[-CONTEXT:]

    def propose(self, limit: int) -> Proposal:
        """See `decoding.protocols.Draft`."""
        if self._said == (_START,):
            return Proposal(self.source)  # the prompt is not read yet: the first token is the target's
        said = self._said
        proposed: list[int] = []
        while len(proposed) < limit and (token := self._likeliest(said)) is not None:
            proposed.append(token)
            said = (*said, token)[-CONTEXT:]
        return Proposal(self.source, tuple(proposed))

    def _likeliest(self, said: tuple[int, ...]) -> int | None:
        suffixes = (said[start:] for start in range(len(said) + 1))
        return next((self._next[suffix] for suffix in suffixes if suffix in self._next), None)


def training_texts(folder: Path) -> list[str]:
    """Reasonings of the train split in a data set's folder.

    Raises:
        DatasetError: It has none.
    """
    paths = sorted((folder / Split.TRAIN.value).glob("shard-*.npz"))
    if not paths:
        raise DatasetError(f"{folder / Split.TRAIN.value}: no shard-*.npz there, from which the n-gram draft learns")
    texts: list[str] = []
    for path in paths:
        with np.load(path) as shard:
            texts += map(str, shard["text"])
    return texts
