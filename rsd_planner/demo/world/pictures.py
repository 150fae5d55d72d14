"""A split's pictures as tensors, and their exposure varied."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.dataset import Dataset
from rsd_planner.demo.world.samples import FRAMES

_GAIN, _TINT, _SHIFT = 0.3, 0.12, 0.15  # of exposure and white balance, in values of -1..1


class Pictures:
    """The front camera's frames of a split: decoded when asked for, or once for all onto a GPU."""

    def __init__(self, data: Dataset, device: torch.device) -> None:
        self._data, self._device = data, device
        self._decoded = self._decode_all() if device.type == "cuda" else None

    def __call__(self, chosen: NDArray[np.int64]) -> Tensor:
        """(B, 4, H, W, 3) uint8 on the device."""
        if self._decoded is not None:
            return self._decoded[torch.from_numpy(chosen).to(self._device)]
        return torch.from_numpy(np.stack([self._data.images(int(i))[0] for i in chosen])).to(self._device)

    def _decode_all(self) -> Tensor:
        decoded = torch.empty((len(self._data), FRAMES, HEIGHT, WIDTH, 3), dtype=torch.uint8, device=self._device)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for i, frames in enumerate(pool.map(lambda i: self._data.images(i)[0], range(len(self._data)))):
                decoded[i] = torch.from_numpy(frames)
        return decoded


def exposed(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every sample at another exposure and white balance, the same for all its frames.

    Args:
        images: (B, F, H, W, 3) uint8.
    """
    count = len(images)
    gain = rng.uniform(1 - _GAIN, 1 + _GAIN, (count, 1)) * rng.uniform(1 - _TINT, 1 + _TINT, (count, 3))
    shift = rng.uniform(-_SHIFT, _SHIFT, (count, 1)) - 1 + gain  # the gain acts on values of 0..2
    scale, offset = (torch.from_numpy(v).float().to(images.device)[:, None, None, None] for v in (gain, shift))
    values = (images.float() / 127.5 - 1.0) * scale + offset
    return ((values.clamp(-1.0, 1.0) + 1.0) * 127.5).round().to(torch.uint8)
