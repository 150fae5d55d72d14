"""The network's passes as modules of static shapes: what is exported, and what a CUDA graph is captured of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rsd_planner.engine.graph_parts import BufferCache
from rsd_planner.target.kv_cache import for_layers
from rsd_planner.target.network import AlpamayoNetwork


class VisionGraph(nn.Module):
    """One image through the vision tower."""

    def __init__(self, network: AlpamayoNetwork) -> None:
        super().__init__()
        self.vision = network.vision

    def forward(self, patches: Tensor, table_index: Tensor, table_weight: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        """
        Args:
            patches: (N, 3 * 2 * 16 * 16) pixels.
            table_index, table_weight: (N, 4) which learned positions a patch lies between, and how near to each.
            places: (N, 2) row and column of a patch.

        Returns:
            (N / 4, text hidden) image tokens, then as much per DeepStack level.
        """
        vision = self.vision
        hidden = vision.patch_embed(patches)
        learned = (vision.pos_embed(table_index) * table_weight[:, :, None]).sum(1)
        hidden = hidden + learned.to(hidden.dtype)
        rotary = vision.rotary_pos_emb(hidden, places)
        deepstack = []
        for i, block in enumerate(vision.blocks):
            hidden = block(hidden, cu_seqlens=_OneImage(hidden.shape[0]), position_embeddings=rotary)
            if i in vision.deepstack_visual_indexes:
                level = vision.deepstack_visual_indexes.index(i)
                deepstack.append(vision.deepstack_merger_list[level](hidden))
        return (vision.merger(hidden), *deepstack)


class _OneImage:
    """Bounds of attention for one image, in place of transformers' tensor, whose values no graph can depend on."""

    def __init__(self, patches: int) -> None:
        self._patches = patches

    def __getitem__(self, _: slice) -> _OneImage:
        return self

    def __sub__(self, _: _OneImage) -> _OneImage:
        return self

    def tolist(self) -> list[int]:
        return [self._patches]


class TextGraph(nn.Module):
    """New tokens through the text model: a chunk of a prompt or a verify pass."""

    def __init__(self, network: AlpamayoNetwork, taps: Sequence[int], *, in_place: bool = False) -> None:
        """
        Args:
            in_place: See `BufferCache`.
        """
        super().__init__()
        self.text, self.lm_head = network.text, network.vlm.lm_head
        self._taps, self._in_place = tuple(taps), in_place
        config = network.text.config
        self._group = config.num_attention_heads // config.num_key_value_heads

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        deepstack: Tensor,
        asked: Tensor,
        mask: Tensor,
        write_index: Tensor,
        cache: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """
        Args:
            embeddings: (1, T, hidden).
            positions: (3, 1, T) int64 rotary positions: time, height, width.
            deepstack: (levels, T, hidden), zero but for image tokens.
            asked: (A,) int64, which of the T tokens logits are computed for.
            mask: (1, 1, T, capacity) float32, 0 where a token may look and -inf elsewhere.
            write_index: (1,) int64 rows of the cache in use.
            cache: Keys, then values, one (1, KV heads, capacity, head dim) per layer.

        Returns:
            (A, vocab) float32 logits; with taps, (T, taps * hidden) features; the cache.
        """
        store = BufferCache(cache, write_index, in_place=self._in_place)
        hidden, tapped = embeddings, []
        rotary = self.text.rotary_emb(hidden, positions)
        rows = mask.repeat(1, 1, self._group, 1)
        for i, layer in enumerate(self.text.layers):
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=rows, **for_layers(store))
            if i < deepstack.shape[0]:
                hidden = hidden + deepstack[i]
            if i in self._taps:
                tapped.append(hidden[0])
        logits = self.lm_head(self.text.norm(hidden[0, asked])).float()
        features = (torch.cat(tapped, dim=-1),) if tapped else ()
        return (logits, *features, *store.buffers)


class ActionGraph(nn.Module):
    """One flow step: the velocity of noisy actions behind a prefix in the text model's cache."""

    def __init__(self, network: AlpamayoNetwork, *, in_place: bool = False) -> None:
        """
        Args:
            in_place: See `BufferCache`.
        """
        super().__init__()
        self._in_place = in_place
        self.in_proj, self.out_proj = network.action_in_proj, network.action_out_proj
        self.expert = network.expert
        config = network.expert.rotary_emb.config
        self._group = config.num_attention_heads // config.num_key_value_heads

    def forward(
        self,
        actions: Tensor,
        time: Tensor,
        positions: Tensor,
        mask: Tensor,
        write_index: Tensor,
        cache: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """
        Args:
            actions: (1, 64, 2) float32.
            time: (1,) float32 flow time.
            positions: (3, 1, 64) int64.
            mask: (1, 1, 64, capacity) float32: the prefix and the 64 rows behind it are seen.
            write_index, cache: As in `TextGraph`; the waypoints' rows are scratch.

        Returns:
            (1, 64, 2) float32 velocity; the cache.
        """
        store = BufferCache(cache, write_index, in_place=self._in_place)
        embedded = self.in_proj(actions, time).to(cache[0].dtype)
        rows = mask.repeat(1, 1, self._group, 1)
        velocity = self.out_proj(self.expert(embedded, positions, store, rows))
        return (velocity.float(), *store.buffers)
