"""Pictures as other weather, other light and another camera might have given them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rsd_planner.demo.world.cameras import FRONT, make_camera

_FOGGY = 0.4  # of the samples
_FOG_PER_M = (0.002, 0.012)
_FARTHEST_M = 100.0
_MIX = 0.04  # deviation of what a colour channel takes from the others
_GREY = np.array([0.30, 0.59, 0.11])


def varied(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every sample with fog, colours, contrast, exposure and noise of its own, the same for all its frames.

    Args:
        images: (B, F, H, W, 3) uint8 of the front camera, at the model's size.
    """
    count, device = len(images), images.device

    def tensor(values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values).float().to(device)

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        return tensor(rng.uniform(low, high, (count, 1, 1, 1, channels)))

    values = images.float() / 255
    fog = np.where(rng.random(count) < _FOGGY, rng.uniform(*_FOG_PER_M, count), 0.0)
    seen = tensor(np.exp(-fog[:, None] * _ground_distances_m()))[:, None, :, None, None]
    values = values * seen + (draw(0.35, 0.85) + draw(-0.06, 0.06, 3)) * (1 - seen)
    values = _recoloured(values, rng)
    mean = values.mean(dim=(1, 2, 3, 4), keepdim=True)
    values = (values - mean) * draw(0.7, 1.2) + mean
    values = values * draw(-0.7, 0.25).exp() * draw(0.9, 1.1, 3)
    noise = torch.Generator(device).manual_seed(int(rng.integers(1 << 31)))
    values = values + draw(0.0, 0.025) * torch.randn(values.shape, generator=noise, device=device)
    return (values.clamp(0, 1) * 255).round().to(torch.uint8)


def _recoloured(values: Tensor, rng: np.random.Generator) -> Tensor:
    """Saturation, and channels that bleed into each other: (3, 3) per sample."""
    count = len(values)
    saturation = rng.uniform(0.5, 1.4, (count, 1, 1))
    grey = np.broadcast_to(_GREY[:, None], (3, 3))
    mixed = saturation * np.eye(3) + (1 - saturation) * grey + rng.normal(0.0, _MIX, (count, 3, 3))
    return torch.einsum("bfhwc,bcd->bfhwd", values, torch.from_numpy(mixed).float().to(values.device))


def _ground_distances_m() -> NDArray[np.float64]:
    """(H,) how far the ground is in each row; above the horizon as far as it gets."""
    camera = make_camera(FRONT)
    below = np.arange(camera.height) + 0.5 - camera.horizon * camera.height
    reach = camera.focal * camera.position[2] / np.maximum(below, 0.5)
    return np.where(below > 0, np.minimum(reach, _FARTHEST_M), _FARTHEST_M)
