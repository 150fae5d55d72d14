"""The target's forward pass for whole batches with gradients; it computes what the planner's passes compute.

The planner reads one prompt into a KV cache and then token by token. Training reads prompt and reasoning of many
samples at once, and the action expert reads the keys and values of that same pass. A test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision

from rsd_planner.target.alpamayo import PromptLayout
from rsd_planner.target.kv_cache import for_layers
from rsd_planner.target.network import AlpamayoNetwork


class PassKV:
    """Keeps the keys and values of one pass, per layer, where the planner would fill its cache."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def update(self, key: Tensor, value: Tensor, _layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        self.keys.append(key)
        self.values.append(value)
        return key, value


class PrefixKV:
    """Gives the expert's layers the prefix in front of their own keys and values."""

    def __init__(self, prefix: PassKV, repeats: int) -> None:
        self._keys = [key.repeat_interleave(repeats, dim=0) for key in prefix.keys]
        self._values = [value.repeat_interleave(repeats, dim=0) for value in prefix.values]

    def update(self, key: Tensor, value: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self._keys[layer], key], dim=2), torch.cat([self._values[layer], value], dim=2)


@dataclass(frozen=True)
class TextPass:
    """What the text model made of prompt and reasoning."""

    logits: Tensor  # (B, R, vocab) for the R tokens after the prompt
    kv: PassKV
    rope_delta: int


def patchify(images: Tensor, patch: int, merge: int) -> Tensor:
    """Patches of images that already have the model's size, as its image processor cuts them.

    Args:
        images: (N, H, W, 3) uint8.

    Returns:
        (N * patches, 3 * 2 * patch * patch) float32, each image shown twice in time.
    """
    count, height, width, _ = images.shape
    values = (images.float() / 255 - 0.5) / 0.5
    rows, columns = height // (patch * merge), width // (patch * merge)
    cut = values.permute(0, 3, 1, 2).reshape(count, 3, rows, merge, patch, columns, merge, patch)
    cut = cut.permute(0, 2, 5, 3, 6, 1, 4, 7)[:, :, :, :, :, :, None].expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
    return cut.reshape(count * rows * columns * merge**2, -1)


def encode_images(vision: Any, images: Tensor) -> list[Tensor]:
    """Embeddings and DeepStack levels of (B, F, H, W, 3) uint8 images, each (B, F * tokens, hidden)."""
    batch, frames, height, width, _ = images.shape
    config = vision.config
    grid = torch.tensor([[1, height // config.patch_size, width // config.patch_size]], device=images.device)
    patches = patchify(images.flatten(0, 1), config.patch_size, config.spatial_merge_size)
    with _equal_images(vision):
        out = vision(patches, grid_thw=grid.expand(batch * frames, -1))
    return [level.float().reshape(batch, -1, level.shape[-1]) for level in (out.pooler_output, *out.deepstack_features)]


@contextmanager
def _equal_images(vision: Any) -> Iterator[None]:
    """All images in one attention call, since they are of one size; transformers takes them one by one."""
    for block in vision.blocks:
        block.attn.forward = partial(_attend_within_images, block.attn)
    try:
        yield
    finally:
        for block in vision.blocks:
            del block.attn.forward


def _attend_within_images(
    attention: Any, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: tuple[Tensor, Tensor], **_: Any
) -> Tensor:
    images = len(cu_seqlens) - 1
    query, key, value = attention.qkv(hidden_states).unflatten(-1, (3, attention.num_heads, -1)).unbind(1)
    query, key = apply_rotary_pos_emb_vision(query, key, *position_embeddings)
    per_image = [one.unflatten(0, (images, -1)).transpose(1, 2) for one in (query, key, value)]
    attended = functional.scaled_dot_product_attention(*per_image)  # (images, heads, patches, head dim)
    out: Tensor = attention.proj(attended.transpose(1, 2).flatten(2).flatten(0, 1))
    return out


def read_text(network: AlpamayoNetwork, layout: PromptLayout, token_ids: Tensor, vision: list[Tensor]) -> TextPass:
    """Prompt and reasoning in one causal pass.

    Args:
        token_ids: (B, L + R) fused prompt and, padded on the right, the reasoning.
        vision: As `encode_images` gives it.
    """
    embeddings, *deepstack = vision
    batch, total = token_ids.shape
    prompt_length = len(layout.token_ids)
    hidden = network.text.embed_tokens(token_ids)
    index = layout.image_index[None, :, None].expand(batch, -1, hidden.shape[-1])
    hidden = hidden.scatter(1, index, embeddings)
    after = torch.arange(prompt_length, total, device=token_ids.device).expand(3, 1, -1) + layout.rope_delta
    rotary = network.text.rotary_emb(hidden, torch.cat([layout.positions, after], dim=-1))
    kv = PassKV()
    for i, layer in enumerate(network.text.layers):
        hidden = layer(hidden, position_embeddings=rotary, attention_mask=None, **for_layers(kv))
        if i < len(deepstack):
            hidden = hidden.scatter_add(1, index, deepstack[i])
    logits = network.logits(network.text.norm(hidden[:, prompt_length - 1 : -1]))
    return TextPass(logits, kv, layout.rope_delta)


def velocity(network: AlpamayoNetwork, text: TextPass, lengths: Tensor, actions: Tensor, time: Tensor) -> Tensor:
    """The flow's velocity for several noisy actions per sample.

    Args:
        lengths: (B,) tokens of prompt and reasoning, `<|traj_future_start|>` the last; padding lies behind.
        actions: (B * draws, 64, 2).
        time: (B * draws,) in [0, 1].

    Returns:
        (B * draws, 64, 2).
    """
    draws = len(actions) // len(lengths)
    lengths = lengths.repeat_interleave(draws)
    total, waypoints = text.kv.keys[0].shape[2], actions.shape[1]
    device = actions.device
    readable = torch.arange(total, device=device)[None] < lengths[:, None]  # (B * draws, total)
    own = torch.ones(len(actions), waypoints, dtype=torch.bool, device=device)
    mask = torch.cat([readable, own], dim=1)[:, None, None].expand(-1, 1, waypoints, -1)
    positions = (torch.arange(waypoints, device=device)[None] + lengths[:, None] + text.rope_delta).expand(3, -1, -1)

    hidden = network.action_in_proj(actions, time)
    rotary = network.expert.rotary_emb(hidden, positions)
    cache = PrefixKV(text.kv, draws)
    for layer in network.expert.layers:
        hidden = layer(hidden, position_embeddings=rotary, attention_mask=mask, **for_layers(cache), is_causal=False)
    out: Tensor = network.action_out_proj(network.expert.norm(hidden))
    return out


def reasoning_loss(text: TextPass, reasoning: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of the reasoning's tokens; (B, R) ids and the weight of each, 0 where padded."""
    losses = functional.cross_entropy(text.logits.flatten(0, 1), reasoning.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def flow_loss(
    network: AlpamayoNetwork,
    text: TextPass,
    lengths: Tensor,
    actions: Tensor,
    driven: Tensor,
    draws: int,
    generator: torch.Generator,
) -> Tensor:
    """Flow matching: the velocity from noise (time 0) to the sample's actions (time 1), at random times.

    Args:
        actions: (B, 64, 2) normalised.
        driven: (B,) whether a sample counts.
        draws: Noise and time draws per sample; they share the prefix.
        generator: On the CPU, so that every device sees the same noise.
    """
    target = actions.repeat_interleave(draws, dim=0)
    noise = torch.randn(target.shape, generator=generator).to(target.device)
    time = torch.rand(len(target), generator=generator).to(target.device)
    moment = time[:, None, None]
    found = velocity(network, text, lengths, (1 - moment) * noise + moment * target, time)
    errors = (found - (target - noise)).square().mean(dim=(1, 2))
    weights = driven.repeat_interleave(draws).float()
    return (errors * weights).sum() / weights.sum().clamp(min=1.0)
