"""Pixels as the vision tower takes them, by transformers' own image processor (PIL resampling, no torchvision)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rsd_planner.errors import ImageError, ObservationError
from rsd_planner.scene.observation import RgbImage
from rsd_planner.target.config import AlpamayoConfig, Fields, read_json

_ASPECT = 9 / 5  # width to height of a driving camera's picture

_PATCHES = {  # name here -> name in the VLM's vision_config
    "patch_size": "patch_size",
    "temporal_patch_size": "temporal_patch_size",
    "merge_size": "spatial_merge_size",
}


@dataclass(frozen=True)
class Patches:
    """One image, cut into patches."""

    values: Tensor  # (grid_h * grid_w, 3 * 2 * 16 * 16), normalised
    grid: Tensor  # (1, 3): 1, grid_h, grid_w

    @property
    def size(self) -> tuple[int, int, int]:
        """The grid as numbers."""
        time, height, width = (int(n) for n in self.grid[0])
        return time, height, width


def typical_size(config: AlpamayoConfig, cell: int) -> tuple[int, int]:
    """Height and width in whole cells whose number lies within the pixel limits, as near to 9:5 as they allow.

    Args:
        cell: Pixels along one side of what becomes one token.
    """
    most = max(1, config.max_pixels // cell**2)
    least = min(most, -(-config.min_pixels // cell**2))
    shapes = [
        (high, min(max(round(high * _ASPECT), -(-least // high)), most // high))
        for high in range(1, most + 1)
        if -(-least // high) <= most // high
    ]
    high, wide = min(shapes, key=lambda shape: abs(math.log(shape[1] / shape[0] / _ASPECT)))
    return high * cell, wide * cell


class ImagePatcher:
    """Resizes an image within the checkpoint's pixel limits and cuts it into patches."""

    def __init__(self, config: AlpamayoConfig, processor_dir: Path) -> None:
        """Raises CheckpointError when a setting of `preprocessor_config.json` is missing or out of range."""
        path = processor_dir / "preprocessor_config.json"
        self._fields = Fields(path, read_json(path))
        self._patches = {name: self._fields.count(name) for name in _PATCHES}
        mean, std = self._fields.triple("image_mean"), self._fields.triple("image_std")
        if min(std) <= 0:
            raise self._fields.unfit("image_std", list(std), "more than 0")
        size = {"shortest_edge": config.min_pixels, "longest_edge": config.max_pixels}
        self._processor = Qwen2VLImageProcessorPil(**self._patches, image_mean=mean, image_std=std, size=size)

    def require(self, vision: Any) -> None:
        """Raises CheckpointError unless the patches are those that `vision_config` of the base VLM says."""
        for name, expected in _PATCHES.items():
            found, wanted = self._patches[name], getattr(vision, expected)
            if found != wanted:
                raise self._fields.unfit(name, found, f"{wanted} as vision_config.{expected} of config.json beside it")

    def __call__(self, image: RgbImage) -> Patches:
        """Patches of one (H, W, 3) uint8 RGB image.

        Raises:
            ObservationError: The array is no RGB image.
            ImageError: The image is so thin that it cannot be resized.
        """
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != "uint8" or min(image.shape) == 0:
            raise ObservationError(f"image is {image.dtype} {image.shape}, expected uint8 (height, width, 3)")
        try:
            batch = self._processor(images=[image], input_data_format="channels_last", return_tensors="pt")
        except ValueError as error:
            raise ImageError(f"image of {image.shape[1]}x{image.shape[0]} pixels: {error}") from None
        return Patches(batch["pixel_values"], batch["image_grid_thw"].to(torch.int64))
