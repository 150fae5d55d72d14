"""What the target is given: sixteen images, a prompt around them, and the planner's own target to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rsd_planner.gpu_check.shapes import IMAGES, CheckShape
from rsd_planner.scene.observation import Frame
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt, PromptLayout, VisionFeatures
from rsd_planner.target.config import AlpamayoConfig
from rsd_planner.target.images import ImagePatcher
from rsd_planner.target.network import AlpamayoNetwork
from rsd_planner.target.vocabulary import Vocabulary

_BEFORE_IMAGES = 40  # tokens of the prompt in front of them
_PREPROCESSOR = (
    '{"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,'
    ' "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
)


@dataclass(frozen=True)
class Scene:
    """One tick's inputs."""

    patches: Tensor  # (images, patches, 3 * 2 * 16 * 16) normalised pixels, in the network's precision
    token_ids: Tensor  # (L,) on the CPU
    layout: PromptLayout


def planner_target(shape: CheckShape, network: AlpamayoNetwork) -> AlpamayoTarget:
    """The planner's target over random weights. It knows no words: ids go in and come out."""
    config = shape.checkpoint_config()
    words = Vocabulary(None, shape.image_pad, shape.bins.start, *shape.closing, shape.bins)
    return AlpamayoTarget(config, network, words, _patcher(config), shape.dflash_taps)


def make_scene(shape: CheckShape, target: AlpamayoTarget, device: torch.device, dtype: torch.dtype) -> Scene:
    """Random Full HD images through the planner's own preprocessing, random tokens around them."""
    dice = np.random.default_rng(0)
    frame = Frame.from_image(0, dice.integers(0, 256, (1080, 1920, 3), np.uint8))
    one = target.patches(frame)
    if tuple(one.grid[0].tolist()) != shape.grid:
        raise RuntimeError(f"a Full HD image becomes {one.grid[0].tolist()} patches, expected {shape.grid}")
    patches = one.values.to(dtype).repeat(IMAGES, 1, 1).to(device)
    ids = _prompt_ids(shape, dice)
    return Scene(patches, ids, _layout(shape, target.network, ids, device))


def prompt_of(scene: Scene, features: list[VisionFeatures]) -> Prompt:
    return Prompt(scene.token_ids, scene.layout, tuple(features))


@torch.inference_mode()
def encode_one(network: AlpamayoNetwork, patches: Tensor, grid: Tensor) -> VisionFeatures:
    """One image through the vision tower, as the planner's target does it.

    Args:
        grid: (1, 3) on the CPU.
    """
    out = network.vision(patches, grid_thw=grid.to(patches.device))
    rows = tuple(int(n) for n in grid[0])
    return VisionFeatures(out.pooler_output, tuple(out.deepstack_features), rows)  # type: ignore[arg-type]


def _patcher(config: AlpamayoConfig) -> ImagePatcher:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        (path / "preprocessor_config.json").write_text(_PREPROCESSOR)
        return ImagePatcher(config, path)


def _prompt_ids(shape: CheckShape, dice: np.random.Generator) -> Tensor:
    """(L,) words, then every image between two marks, then words."""
    per_image = shape.grid[1] * shape.grid[2] // 4
    words = dice.integers(0, shape.image_pad - 10, shape.prompt_tokens)
    start = _BEFORE_IMAGES
    for _ in range(IMAGES):
        words[start + 1 : start + 1 + per_image] = shape.image_pad
        start += per_image + 2
    if start >= shape.prompt_tokens:
        raise RuntimeError(f"{IMAGES} images need {start} tokens, the prompt has {shape.prompt_tokens}")
    return torch.from_numpy(words)


def _layout(shape: CheckShape, network: AlpamayoNetwork, ids: Tensor, device: torch.device) -> PromptLayout:
    is_image = ids == shape.image_pad
    model: Any = network.vlm.model
    grids = torch.tensor([shape.grid] * IMAGES)
    positions, delta = model.get_rope_index(ids[None], is_image[None].int(), image_grid_thw=grids)
    return PromptLayout(ids, positions.to(device), int(delta), is_image.nonzero()[:, 0].to(device))
