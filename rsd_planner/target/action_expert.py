"""The action expert: a small copy of the text stack that reads the KV cache and turns noise into actions."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    Qwen3VLTextDecoderLayer,
    Qwen3VLTextRMSNorm,
    Qwen3VLTextRotaryEmbedding,
)

from rsd_planner.target.config import InProjectionConfig
from rsd_planner.target.kv_cache import KeysValues, for_layers

ACTION_DIMS = 2  # acceleration, curvature


class FourierFeatures(nn.Module):
    """sqrt(2) * [sin, cos](2 pi f x) on log-spaced frequencies 1 .. max_frequency."""

    def __init__(self, features: int, max_frequency: float) -> None:
        super().__init__()
        self.freqs: Tensor
        self.register_buffer("freqs", torch.logspace(0, math.log10(max_frequency), features // 2)[None])

    def forward(self, x: Tensor) -> Tensor:
        """(...,) -> (..., features)."""
        angle = x[..., None] * self.freqs[0] * (2 * math.pi)
        return torch.cat([angle.sin(), angle.cos()], dim=-1) * math.sqrt(2)


class WaypointEncoder(nn.Module):
    """Linear layers with SiLU and RMSNorm between them; the published names number them as one trunk."""

    def __init__(self, inputs: int, config: InProjectionConfig, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = inputs
        for _ in range(config.num_layers):
            layers += [nn.Linear(width, config.width), nn.SiLU(), nn.RMSNorm(config.width, eps=1e-5)]
            width = config.width
        self.trunk = nn.Sequential(*layers, nn.Linear(width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        encoded: Tensor = self.trunk(x)
        return encoded


class ActionInProjection(nn.Module):
    """Embeds each waypoint's noisy action together with the flow time."""

    def __init__(self, config: InProjectionConfig, hidden_size: int) -> None:
        super().__init__()
        features, frequency = config.fourier_features, config.max_frequency
        self.sinus = nn.ModuleList(FourierFeatures(features, frequency) for _ in range(ACTION_DIMS))
        self.timestep_fourier_encoder = FourierFeatures(features, frequency)
        self.encoder = WaypointEncoder((ACTION_DIMS + 1) * features, config, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, actions: Tensor, time: Tensor) -> Tensor:
        """(B, 64, 2) actions and (B,) flow time in [0, 1] -> (B, 64, hidden)."""
        parts = [encode(actions[..., i]) for i, encode in enumerate(self.sinus)]
        parts.append(self.timestep_fourier_encoder(time)[:, None].expand(-1, actions.shape[1], -1))
        embedded: Tensor = self.norm(self.encoder(torch.cat(parts, dim=-1).to(self.norm.weight.dtype)))
        return embedded


def expert_config(text_config: Any, overrides: dict[str, Any]) -> Any:
    """The text config with the checkpoint's `expert_cfg` applied; layers, KV heads and head_dim stay the text's."""
    config = copy.deepcopy(text_config)
    for name, value in overrides.items():
        setattr(config, name, value)
    return config


class ActionExpert(nn.Module):
    """Decoder layers that attend, without a causal mask, over the whole prefix and their own waypoints."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Qwen3VLTextDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = Qwen3VLTextRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen3VLTextRotaryEmbedding(config)

    def forward(self, embedded: Tensor, positions: Tensor, cache: KeysValues, mask: Tensor | None = None) -> Tensor:
        """One pass over the waypoints; the cache keeps its length.

        Args:
            embedded: (1, 64, hidden).
            positions: (3, 1, 64) rotary positions.
            cache: Keys and values of the prefix, up to and including `<|traj_future_start|>`.
            mask: Added to the scores where the cache shows more rows than there are; None otherwise.

        Returns:
            (1, 64, hidden).
        """
        hidden = embedded
        rotary = self.rotary_emb(hidden, positions)
        for layer in self.layers:
            hidden = layer(
                hidden, position_embeddings=rotary, attention_mask=mask, **for_layers(cache), is_causal=False
            )
        normed: Tensor = self.norm(hidden)
        return normed
