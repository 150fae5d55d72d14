"""DFlash: one bidirectional pass over a block of mask tokens, whose context is the target's hidden states."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from rsd_planner.decoding.logits import Choice
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.draft.feature_draft import FeatureDraft
from rsd_planner.draft.layers import Attention, Mlp, Rotation, Shape
from rsd_planner.draft.rotary import Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.target.kv_cache import KeysValues


class DFlashLayer(nn.Module):
    """A Qwen3 layer over the block, which sees the context and the block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = shape.norm()
        self.self_attn = Attention(shape, shape.hidden, head_norms=True)
        self.post_attention_layernorm = shape.norm()
        self.mlp = Mlp(shape)

    def forward(self, hidden: Tensor, rotation: Rotation, store: KeysValues, index: int, mask: Tensor | None) -> Tensor:
        normed = self.input_layernorm(hidden)
        keys, values = store.update(*self.self_attn.keys_values(normed, rotation), index)
        hidden = hidden + self.self_attn.attend(self.self_attn.queries(normed, rotation), keys, values, mask)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class DFlashNetwork(nn.Module):
    """Parameters under their published names. Embedding and lm_head are the target's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fc = nn.Linear(shape.taps * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = shape.norm()
        self.layers: Any = nn.ModuleList(DFlashLayer(shape) for _ in range(shape.layers))
        self.norm = shape.norm()

    def read(self, features: Tensor, rotation: Rotation, store: KeysValues) -> None:
        """Put the context's keys and values into every layer's store.

        Args:
            features: (B, T, taps * hidden) of committed tokens at the target's taps.
        """
        context = self.hidden_norm(self.fc(features))
        for i, layer in enumerate(self.layers):
            keys, values = layer.self_attn.keys_values(context, rotation)
            store.update(keys, values, i)

    def forward(self, block: Tensor, rotation: Rotation, store: KeysValues, mask: Tensor | None = None) -> Tensor:
        """Hidden states of a block after the final norm.

        Args:
            block: (B, T, hidden) embeddings: the last committed token, then mask tokens. Place i predicts token i.
            mask: (..., T, context + T), True where a key may be seen; None for everywhere, as in one block.
        """
        hidden = block
        for i, layer in enumerate(self.layers):
            hidden = layer(hidden, rotation, store, i, mask)
        normed: Tensor = self.norm(hidden)
        return normed


class DFlashBlocks(FeatureDraft):
    """Proposes a whole block in one pass."""

    def __init__(self, shape: Shape, rotary: Rotary, target: TargetParts, *, block_size: int, mask_token: int) -> None:
        super().__init__(shape, rotary, target, longest=block_size - 1)
        self.block = torch.full((block_size,), mask_token, device=target.device)  # led by the last committed token

    @abstractmethod
    def take_in(self, features: Tensor) -> None:
        """Write the context rows of (T, taps * hidden) features into the cache."""

    @abstractmethod
    def logits(self, count: int) -> Tensor:
        """(count, vocab) float32 of the first tokens behind the last committed one."""

    def read(self, features: Tensor, following: Tensor) -> None:
        """See `FeatureDraft.read`."""
        self.take_in(features)
        self.block[0] = following[-1]

    def guess(self, limit: int, choice: Choice) -> Proposal:
        """See `FeatureDraft.guess`."""
        self.cache.reserve(len(self.block))
        logits = self.logits(limit)
        if choice.greedy:
            return Proposal(self.source, tuple(choice.best(logits)[1].tolist()))
        q = choice.distribution(logits)
        if not torch.isfinite(q).all():
            return Proposal(self.source)
        return Proposal(self.source, tuple(choice.draw(row) for row in q), q)


class DFlashDraft(DFlashBlocks):
    """The block pass in PyTorch."""

    def __init__(
        self,
        network: DFlashNetwork,
        shape: Shape,
        rotary: Rotary,
        target: TargetParts,
        *,
        block_size: int,
        mask_token: int,
    ) -> None:
        super().__init__(shape, rotary, target, block_size=block_size, mask_token=mask_token)
        self.network = network

    def take_in(self, features: Tensor) -> None:
        """See `DFlashBlocks.take_in`."""
        rotation = self.rotary.rows(self.cache.length, len(features))
        self.network.read(features[None], rotation, self.cache)

    def logits(self, count: int) -> Tensor:
        """See `DFlashBlocks.logits`."""
        return self.target.lm_head(self.hidden()[1 : count + 1]).float()

    def hidden(self) -> Tensor:
        """(block, hidden) after the final norm: the last committed token, then what the mask tokens have become."""
        self.cache.reserve(len(self.block))
        rotation = self.rotary.rows(self.cache.length, len(self.block))
        hidden: Tensor = self.network(self.target.embedding(self.block)[None], rotation, self.cache)
        return hidden[0]
