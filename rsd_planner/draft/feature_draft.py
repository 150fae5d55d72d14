"""What both draft networks have in common: they are fed with the target's hidden states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from rsd_planner.decoding.logits import Choice
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.draft.layers import Shape
from rsd_planner.draft.rotary import Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.plan import TokenSource
from rsd_planner.target.kv_cache import KVCache
from rsd_planner.target.uploads import upload


class FeatureDraft(ABC):
    """Keeps the context of one frame in a cache, and reads what is new of it when a proposal is asked for.

    A frame that needs no proposal, because a memory knew it all, costs nothing.
    """

    source = TokenSource.DRAFT

    def __init__(self, shape: Shape, rotary: Rotary, target: TargetParts, *, longest: int) -> None:
        self.longest, self.shape = longest, shape
        self.rotary, self.target = rotary, target
        self.cache = KVCache(shape.layers, shape.kv_heads, shape.head_dim, dtype=target.dtype, device=target.device)
        self._features: list[Tensor] = []  # not read yet
        self._following: list[Tensor] = []  # the token after each of them

    def open(self, choice: Choice) -> None:
        """See `decoding.protocols.Draft`."""
        self._choice = choice
        self.cache.clear()
        self._features.clear()
        self._following.clear()

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        """See `decoding.protocols.Draft`."""
        assert features is not None
        self.rotary.begin(positions)
        self._features.append(features)
        self._following.append(token_ids[1:])

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:
        """See `decoding.protocols.Draft`."""
        assert features is not None
        self._features.append(features)
        self._following.append(torch.tensor(tokens))

    @torch.inference_mode()
    def propose(self, limit: int) -> Proposal:
        """See `decoding.protocols.Draft`."""
        if self._features:
            features = torch.cat(self._features)
            self.cache.reserve(len(features))
            self.read(features, upload(torch.cat(self._following), self.target.device))
            self.cache.commit(len(features))
            self._features.clear()
            self._following.clear()
        if self.cache.length == 0:
            return Proposal(self.source)
        return self.guess(min(limit, self.longest), self._choice)

    @abstractmethod
    def read(self, features: Tensor, following: Tensor) -> None:
        """Write the context's new rows into the cache; they are committed afterwards.

        Args:
            features: (T, taps * hidden) behind those read before.
            following: (T,) the token after each of them; the last one is the last committed token.
        """

    @abstractmethod
    def guess(self, limit: int, choice: Choice) -> Proposal:
        """Propose at most `limit` tokens behind the context; the cache keeps its length."""
