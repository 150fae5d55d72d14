"""The drafts' passes as modules of static shapes: taking in the target's features, and proposing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from rsd_planner.draft.dflash import DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Network
from rsd_planner.draft.layers import Attention
from rsd_planner.engine.graph_parts import BufferCache, attend


def use_graph_attention(network: nn.Module) -> None:
    """Let a draft network attend by `graph_parts.attend`."""
    for module in network.modules():
        if isinstance(module, Attention):
            module.mix = _mix


def _mix(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    assert mask is not None
    assert not causal
    rows = mask.repeat(1, 1, queries.shape[1] // keys.shape[1], 1)
    return attend(queries, keys, values, rows, float(queries.shape[-1]) ** -0.5)


class Eagle3ContextGraph(nn.Module):
    """EAGLE-3's reduction of the taps to one feature per token."""

    def __init__(self, network: Eagle3Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> Tensor:
        """(1, T, taps * hidden) -> (1, T, hidden)."""
        fused: Tensor = self.network.fc(features)
        return fused


class Eagle3StepGraph(nn.Module):
    """EAGLE-3's layer over new rows: the context's, or its own last output."""

    def __init__(self, network: Eagle3Network, lm_head: Callable[[Tensor], Tensor]) -> None:
        """
        Args:
            lm_head: The draft's own, or the target's where it has none.
        """
        super().__init__()
        self.network, self.lm_head = network, lm_head

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor,
        write_index: Tensor,
        cache: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """
        Args:
            embeddings: (1, T, hidden) of the token after each feature.
            features: (1, T, hidden).
            cos, sin: (T, head dim) float32.
            mask, write_index, cache: As in `graphs.TextGraph`.

        Returns:
            (1, 1, hidden) output of the last row; its (draft vocabulary,) float32 logits; the cache.
        """
        store = BufferCache(cache, write_index)
        hidden = self.network(embeddings, features, (cos, sin), store, mask)[:, -1:]
        logits = self.lm_head(self.network.norm(hidden[0, 0])).float()
        return (hidden, logits, *store.buffers)


class DFlashContextGraph(nn.Module):
    """DFlash's keys and values of new context rows."""

    def __init__(self, network: DFlashNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, features: Tensor, cos: Tensor, sin: Tensor, write_index: Tensor, cache: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """
        Args:
            features: (1, T, taps * hidden).
            cos, sin, write_index, cache: As in `Eagle3StepGraph`.

        Returns:
            The cache.
        """
        store = BufferCache(cache, write_index)
        self.network.read(features, (cos, sin), store)
        return tuple(store.buffers)


class DFlashBlockGraph(nn.Module):
    """DFlash's one pass over a block, whose rows of the cache are scratch."""

    def __init__(self, network: DFlashNetwork, lm_head: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.lm_head = network, lm_head

    def forward(
        self, embeddings: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, write_index: Tensor, cache: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """
        Args:
            embeddings: (1, block, hidden): the last committed token, then mask tokens.
            cos, sin, mask, write_index, cache: As in `Eagle3StepGraph`; context and block are seen by all.

        Returns:
            (block - 1, vocab) float32 logits of what follows the committed token; the cache.
        """
        store = BufferCache(cache, write_index)
        hidden = self.network(embeddings, (cos, sin), store, mask)
        logits = self.lm_head(hidden[0, 1:]).float()
        return (logits, *store.buffers)
