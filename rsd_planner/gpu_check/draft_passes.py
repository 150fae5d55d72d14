"""The drafts' passes over static buffers: they read what a verify pass has left, and fill in its tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rsd_planner.draft.layers import Shape
from rsd_planner.draft.rotary import Rotary
from rsd_planner.gpu_check.attention import causal_bias, visible_bias
from rsd_planner.gpu_check.shapes import DFLASH_BLOCK, DRAFT_ROWS, EAGLE3_CHAIN, CheckShape
from rsd_planner.gpu_check.static_layers import LayerWeights, Rows, StaticCache, norm, rotation, write_keys_values
from rsd_planner.gpu_check.target_passes import Kernels, TargetPasses
from rsd_planner.gpu_check.weights import Drafts


class _DraftPasses:
    """Cache, tables and counters of one draft.

    A pass always reads `DRAFT_ROWS` rows of features. Those behind the `accepted` ones are not of committed tokens:
    what they leave in the cache is overwritten by the proposal's own rows, or by the next pass, before it is seen.
    """

    def __init__(self, shape: CheckShape, draft: Shape, rotary: Rotary, target: TargetPasses) -> None:
        self._shape, self._target = shape, target
        device = target.device
        self.cache = StaticCache(
            draft.layers, draft.kv_heads, target.cache.capacity, draft.head_dim, target.dtype, device
        )
        self._tables = rotation(*rotary.rows(0, target.cache.capacity), target.dtype)
        self._group = draft.heads // draft.kv_heads
        self.read = torch.zeros(1, dtype=torch.int64, device=device)  # rows of context before this pass
        self.accepted = torch.ones(1, dtype=torch.int64, device=device)  # rows of features that count
        self.last = torch.zeros(1, dtype=torch.int64, device=device)  # the last committed token
        self.following = torch.zeros(DRAFT_ROWS, dtype=torch.int64, device=device)  # the token after each row

    def begin(self) -> None:
        """The prompt was read: the first pass reads its last row once more."""
        target, tokens = self._target, self._shape.prompt_tokens
        self.read.fill_(tokens - 1)
        self.accepted.fill_(1)
        self.last.copy_(target.best[:1])
        self.following[:1].copy_(self.last)
        target.features[:1].copy_(target.prompt_features[-1:])

    def extend(self, count: int) -> None:
        """`count` tokens were committed by a verify pass, whose features lie in the target's buffer."""
        self.read.add_(self.accepted)
        self.accepted.fill_(count)
        self.last.copy_(self._target.best[count - 1 : count])
        self.following.copy_(self._target.best[:DRAFT_ROWS])

    def _rows(self, write: Tensor, bias: Tensor | None) -> Rows:
        cos, sin = (table.index_select(0, write) for table in self._tables)
        return Rows(cos, sin, write, bias)

    def _arange(self, count: int) -> Tensor:
        return torch.arange(count, device=self._target.device)


class DFlashPasses(_DraftPasses):
    """The block draft: one pass proposes fifteen tokens."""

    def __init__(self, shape: CheckShape, drafts: Drafts, target: TargetPasses) -> None:
        super().__init__(shape, shape.dflash, drafts.dflash.rotary, target)
        self._network = drafts.dflash.network
        self._layers = [LayerWeights.of(layer) for layer in self._network.layers]

    def prompt(self, _: Kernels) -> None:
        """Read the prompt's features."""
        self._read(self._target.prompt_features, self._arange(self._shape.prompt_tokens))

    def propose(self, kernels: Kernels) -> Tensor:
        """Read `DRAFT_ROWS` rows of features, then fill the target's tokens: the last committed one and the block's.

        Returns:
            (block - 1, vocab) float32 logits, trajectory bins masked.
        """
        target = self._target
        self._read(target.features[:DRAFT_ROWS], self.read + self._arange(DRAFT_ROWS))
        start = self.read + self.accepted
        masks = torch.full((DFLASH_BLOCK - 1,), self._shape.mask_token, dtype=torch.int64, device=target.device)
        hidden = functional.embedding(torch.cat([self.last, masks]), target.network.text.embed_tokens.weight)
        seen = self._arange(self.cache.capacity) < start + DFLASH_BLOCK
        bias = visible_bias(seen.expand(DFLASH_BLOCK, -1), self._group, target.dtype)
        rows = self._rows(start + self._arange(DFLASH_BLOCK), bias)
        for weights, keys, values in zip(self._layers, self.cache.keys, self.cache.values, strict=True):
            hidden = kernels.layer(hidden, None, rows, keys, values, weights, kernels.attend)
        said: Tensor = target.network.vlm.lm_head(norm(hidden[1:], self._network.norm.weight)).float()
        said[:, self._shape.bins.start : self._shape.bins.stop].fill_(-torch.inf)
        target.tokens[:1].copy_(self.last)
        target.tokens[1:DFLASH_BLOCK].copy_(said.argmax(dim=-1))
        return said

    def _read(self, features: Tensor, write: Tensor) -> None:
        context = norm(self._network.fc(features), self._network.hidden_norm.weight)
        rows = self._rows(write, None)
        for weights, keys, values in zip(self._layers, self.cache.keys, self.cache.values, strict=True):
            write_keys_values(context, rows, keys, values, weights)


class Eagle3Passes(_DraftPasses):
    """The chain draft: seven tokens, one after the other, without the host in between."""

    def __init__(self, shape: CheckShape, drafts: Drafts, target: TargetPasses) -> None:
        super().__init__(shape, shape.eagle3, drafts.eagle3.rotary, target)
        network = drafts.eagle3.network
        assert network.lm_head is not None
        self._network, self._head = network, network.lm_head
        self._token_ids = torch.arange(shape.eagle3_vocabulary, device=target.device)
        self._layer = LayerWeights.of(network.midlayer)
        self._width = shape.eagle3.taps * shape.eagle3.hidden  # the first of the target's taps stand for its own

    def prompt(self, kernels: Kernels) -> None:
        """Read the prompt's features."""
        target = self._target
        features = self._network.fc(target.prompt_features[:, : self._width])
        following = torch.cat([target.prompt_ids[1:], target.best[:1]])
        self._pass(features, following, self._rows(self._arange(len(following)), None), kernels)

    def propose(self, kernels: Kernels) -> None:
        """Read `DRAFT_ROWS` rows of features, then fill the target's tokens: the last committed one and the chain."""
        target = self._target
        features = self._network.fc(target.features[:DRAFT_ROWS, : self._width])
        rows = self._causal_rows(self.read + self._arange(DRAFT_ROWS))
        hidden = self._pass(features, self.following, rows, kernels)
        hidden = hidden.index_select(0, self.accepted - 1)
        target.tokens[:1].copy_(self.last)
        for i in range(EAGLE3_CHAIN):
            said = self._head(norm(hidden, self._network.norm.weight)).float()
            token = self._token_ids.index_select(0, said.argmax(dim=-1))
            target.tokens[i + 1 : i + 2].copy_(token)
            if i + 1 < EAGLE3_CHAIN:
                hidden = self._pass(hidden, token, self._causal_rows(self.read + self.accepted + i), kernels)

    def _pass(self, features: Tensor, following: Tensor, rows: Rows, kernels: Kernels) -> Tensor:
        embedded = functional.embedding(following, self._target.network.text.embed_tokens.weight)
        layer = self._network.midlayer
        parts = [norm(embedded, layer.input_layernorm.weight), norm(features, layer.hidden_norm.weight)]
        keys, values = self.cache.keys[0], self.cache.values[0]
        return kernels.layer(features, torch.cat(parts, dim=-1), rows, keys, values, self._layer, kernels.attend)

    def _causal_rows(self, write: Tensor) -> Rows:
        return self._rows(write, causal_bias(write, self.cache.capacity, self._group, self._target.dtype))
