"""The target's passes over buffers that stay where they are: encode, prefill, verify, flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rsd_planner.gpu_check.attention import Attend, causal_bias, visible_bias
from rsd_planner.gpu_check.scene import Scene
from rsd_planner.gpu_check.shapes import IMAGES, STEPS, CheckShape
from rsd_planner.gpu_check.static_layers import (
    LayerPass,
    LayerWeights,
    Rows,
    StaticCache,
    decoder_layer,
    norm,
    rotation,
)
from rsd_planner.gpu_check.vision_pass import BlockPass, VisionPass, vision_block
from rsd_planner.target.network import AlpamayoNetwork

_WAYPOINTS = 64


@dataclass(frozen=True)
class Kernels:
    """How a pass does what it does: which attention, and the layers as they are or compiled."""

    attend: Attend
    layer: LayerPass = decoder_layer
    block: BlockPass = vision_block


class TargetPasses:
    """The network with a static cache and all buffers that passes read and write.

    Nothing here waits for the host. The host writes `tokens` and `length`, runs a pass and reads `best`.
    """

    def __init__(self, shape: CheckShape, network: AlpamayoNetwork, scene: Scene) -> None:
        text = network.text.config
        weight = network.vlm.lm_head.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.shape, self.network = shape, network
        self.vision = VisionPass(shape, network.vision)
        self.cache = StaticCache(
            text.num_hidden_layers,
            text.num_key_value_heads,
            shape.capacity,
            text.head_dim,
            self.dtype,
            self.device,
        )
        self._layers = [LayerWeights.of(layer) for layer in network.text.layers]
        self._expert = [LayerWeights.of(layer) for layer in network.expert.layers]
        self._group = text.num_attention_heads // text.num_key_value_heads
        self._expert_group = network.expert.rotary_emb.config.num_attention_heads // text.num_key_value_heads
        self.positions = _positions(scene, shape.capacity, self.device)
        self._rotary = self._tables(network.text.rotary_emb)
        self._expert_rotary = self._tables(network.expert.rotary_emb)
        self.patches = scene.patches
        self._image_index = scene.layout.image_index
        self.prompt_ids = scene.token_ids.to(self.device)
        hidden, per_image = text.hidden_size, self.vision.tokens
        levels = 1 + len(network.vision.deepstack_merger_list)
        features = len(shape.dflash_taps) * hidden
        self.image_rows = self._empty(levels, IMAGES, per_image, hidden)  # image tokens, then DeepStack's levels
        self.tokens = torch.zeros(max(STEPS), dtype=torch.int64, device=self.device)
        self.length = torch.zeros(1, dtype=torch.int64, device=self.device)  # rows of the cache in use
        self.logits = torch.zeros(max(STEPS), shape.vocab_size, dtype=torch.float32, device=self.device)
        self.best = torch.zeros(max(STEPS), dtype=torch.int64, device=self.device)
        self.features = self._empty(max(STEPS), features)
        self.prompt_features = self._empty(shape.prompt_tokens, features)
        self.noise, self.actions = torch.randn(2, _WAYPOINTS, 2, dtype=torch.float32, device=self.device)

    def encode(self, images: int, kernels: Kernels) -> None:
        """The first `images` images, into the first rows of `image_rows`."""
        levels = self.vision(self.patches[:images], kernels.block)
        for level, rows in zip(self.image_rows, levels, strict=True):
            level[:images].copy_(rows)

    def prefill(self, kernels: Kernels) -> None:
        """The prompt from scratch: cache, `prompt_features`, and the token after it in `best[0]`."""
        embedded = functional.embedding(self.prompt_ids, self.network.text.embed_tokens.weight)
        images, *deepstack = (level.flatten(0, 1) for level in self.image_rows)
        embedded = embedded.index_copy(0, self._image_index, images)
        write = torch.arange(self.shape.prompt_tokens, device=self.device)
        hidden = self._text(embedded, write, None, kernels, self.prompt_features, deepstack)
        self._say(hidden[-1:])

    def step(self, count: int, kernels: Kernels) -> None:
        """`tokens[:count]` behind `length` rows: cache, `features`, `logits` and `best` of each."""
        embedded = functional.embedding(self.tokens[:count], self.network.text.embed_tokens.weight)
        write = self.length + torch.arange(count, device=self.device)
        bias = causal_bias(write, self.cache.capacity, self._group, self.dtype)
        self._say(self._text(embedded, write, bias, kernels, self.features[:count], []))

    def flow(self, steps: int, kernels: Kernels) -> None:
        """Euler steps from `noise` to `actions` behind `length` rows, which stay as they are."""
        self.actions.copy_(self.noise)
        write = self.length + torch.arange(_WAYPOINTS, device=self.device)
        seen = torch.arange(self.cache.capacity, device=self.device) < self.length + _WAYPOINTS
        bias = visible_bias(seen.expand(_WAYPOINTS, -1), self._expert_group, self.dtype)
        rows = self._rows(self._expert_rotary, write, bias)
        for i in range(steps):
            moment = torch.full((1,), i / steps, dtype=torch.float32, device=self.device)
            hidden = self.network.action_in_proj(self.actions[None], moment)[0].to(self.dtype)
            for weights, keys, values in zip(self._expert, self.cache.keys, self.cache.values, strict=True):
                hidden = kernels.layer(hidden, None, rows, keys, values, weights, kernels.attend)
            velocity = self.network.action_out_proj(norm(hidden, self.network.expert.norm.weight))
            self.actions.add_(velocity.float(), alpha=1 / steps)

    def _text(
        self,
        hidden: Tensor,
        write: Tensor,
        bias: Tensor | None,
        kernels: Kernels,
        features: Tensor,
        deepstack: list[Tensor],
    ) -> Tensor:
        rows = self._rows(self._rotary, write, bias)
        tapped = []
        for i, weights in enumerate(self._layers):
            keys, values = self.cache.keys[i], self.cache.values[i]
            hidden = kernels.layer(hidden, None, rows, keys, values, weights, kernels.attend)
            if i < len(deepstack):
                hidden = hidden.index_add(0, self._image_index, deepstack[i])
            if i in self.shape.dflash_taps:
                tapped.append(hidden)
        torch.cat(tapped, dim=-1, out=features)
        return hidden

    def _say(self, hidden: Tensor) -> None:
        """Raw logits, and the best tokens that are no trajectory bins."""
        count, bins = hidden.shape[0], self.shape.bins
        logits = self.network.vlm.lm_head(norm(hidden, self.network.text.norm.weight))
        self.logits[:count].copy_(logits)
        masked = self.logits[:count].clone()
        masked[:, bins.start : bins.stop].fill_(-torch.inf)
        self.best[:count].copy_(masked.argmax(dim=-1))

    def _rows(self, rotary: tuple[Tensor, Tensor], write: Tensor, bias: Tensor | None) -> Rows:
        cos, sin = (table.index_select(0, write) for table in rotary)
        return Rows(cos, sin, write, bias)

    def _tables(self, rotary: Any) -> tuple[Tensor, Tensor]:
        """cos and sin, (capacity, head dim), of every row of the cache."""
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        cos, sin = rotary(like, self.positions[:, None])
        return rotation(cos[0], sin[0], self.dtype)

    def _empty(self, *size: int) -> Tensor:
        return torch.zeros(size, dtype=self.dtype, device=self.device)


def _positions(scene: Scene, capacity: int, device: torch.device) -> Tensor:
    """(3, capacity) rotary positions: the prompt's three axes, then counting on."""
    prompt = scene.layout.positions[:, 0]
    after = torch.arange(prompt.shape[1], capacity, device=device) + scene.layout.rope_delta
    return torch.cat([prompt, after.expand(3, -1)], dim=-1)
