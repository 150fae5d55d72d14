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
_DARK = 0.35  # of the samples
_SKY_SPREAD = 0.08  # how far the sky's pixels lie from the middle of their row
_GLOWING = 0.45  # chroma from which a pixel is taken for a lamp
_EXPOSURE, _DARK_EXPOSURE = (-0.7, 0.25), (-0.25, 0.3)  # log
_MIX = 0.06  # deviation of what a colour channel takes from the others
_GREY = np.array([0.30, 0.59, 0.11])


def varied(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every sample with light, fog, colours, contrast, exposure and noise of its own, the same for all its frames.

    Args:
        images: (B, F, H, W, 3) uint8 of the front camera, at the model's size.
    """
    count, device = len(images), images.device

    def tensor(values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values).float().to(device)

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        return tensor(rng.uniform(low, high, (count, 1, 1, 1, channels)))

    values = images.float() / 255
    dark = rng.random(count) < _DARK
    night, haze = _darkened(values, rng)
    is_dark = torch.from_numpy(dark).to(device)[:, None, None, None, None]
    values = torch.where(is_dark, night, values)
    haze = torch.where(is_dark, haze, draw(0.35, 0.85) + draw(-0.06, 0.06, 3))
    fog = np.where(rng.random(count) < _FOGGY, rng.uniform(*_FOG_PER_M, count), 0.0)
    seen = tensor(np.exp(-fog[:, None] * _ground_distances_m()))[:, None, :, None, None]
    values = values * seen + haze * (1 - seen)
    values = _recoloured(values, rng)
    mean = values.mean(dim=(1, 2, 3, 4), keepdim=True)
    values = (values - mean) * draw(0.7, 1.2) + mean
    exposure = np.where(dark, rng.uniform(*_DARK_EXPOSURE, count), rng.uniform(*_EXPOSURE, count))
    values = values * tensor(np.exp(exposure))[:, None, None, None, None] * draw(0.9, 1.1, 3)
    noise = torch.Generator(device).manual_seed(int(rng.integers(1 << 31)))
    values = values + draw(0.0, 0.025) * torch.randn(values.shape, generator=noise, device=device)
    return (values.clamp(0, 1) * 255).round().to(torch.uint8)


def _darkened(values: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Little light from a dark sky, lamps as bright as by day, the own headlights on the road; and the haze's colour.

    The sky is what has the colour of the middle of its row, over all frames: the world draws it so.
    """
    count, device = len(values), values.device
    camera = make_camera(FRONT)
    horizon = int(camera.horizon * camera.height)

    def draw(low: float, high: float, channels: int = 3) -> Tensor:
        return torch.from_numpy(rng.uniform(low, high, (count, 1, 1, 1, channels))).float().to(device)

    above = values[:, :, :horizon]
    middle = above.transpose(1, 2).flatten(2, 3).median(dim=2).values[:, None, :, None]
    is_sky = (-((above - middle) / _SKY_SPREAD).square().sum(dim=-1, keepdim=True)).exp()
    chroma = values.amax(dim=-1, keepdim=True) - values.amin(dim=-1, keepdim=True)
    glows = torch.sigmoid((chroma - _GLOWING) / 0.05)
    rows = torch.linspace(0, 1, camera.height, device=device)[:, None, None]
    columns = torch.linspace(-1, 1, camera.width, device=device)[None, :, None]
    beam = draw(0.0, 0.8, 1) * (-((rows - 0.85) / 0.25).square() - (columns / 0.6).square()).exp()
    lit = values * (draw(0.45, 0.85, 1) * draw(0.9, 1.1) + beam)
    lit = lit + (values - lit) * glows
    low, high = draw(0.15, 0.5, 1) + draw(-0.08, 0.08), draw(0.04, 0.25, 1) + draw(-0.05, 0.10)
    height = (1 - torch.arange(horizon, device=device) / horizon).sqrt()[:, None, None]
    sky = (low + (high - low) * height).clamp(min=0)
    return torch.cat([lit[:, :, :horizon] * (1 - is_sky) + sky * is_sky, lit[:, :, horizon:]], dim=2), low


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
