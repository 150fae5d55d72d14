"""The vision tower over images of one size, all at once and without a word to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from rsd_planner.draft.rotary import rotate
from rsd_planner.gpu_check.shapes import CheckShape

_NORM_EPS = 1e-6


class BlockWeights(NamedTuple):
    """Weight and bias of a block's parts. Tensors and no modules, so that one compilation serves all blocks."""

    norm1: tuple[Tensor, Tensor]
    qkv: tuple[Tensor, Tensor]
    proj: tuple[Tensor, Tensor]
    norm2: tuple[Tensor, Tensor]
    fc1: tuple[Tensor, Tensor]
    fc2: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, block: Any) -> BlockWeights:
        attention, mlp = block.attn, block.mlp
        parts = (block.norm1, attention.qkv, attention.proj, block.norm2, mlp.linear_fc1, mlp.linear_fc2)
        return cls(*((part.weight, part.bias) for part in parts))


BlockPass = Callable[[Tensor, Tensor, Tensor, BlockWeights], Tensor]


class VisionPass:
    """The network's own vision tower; what depends on the images' size alone is computed beforehand."""

    def __init__(self, shape: CheckShape, vision: Any) -> None:
        self._vision = vision
        self._blocks = [BlockWeights.of(block) for block in vision.blocks]
        weight = vision.patch_embed.proj.weight
        self._embed = (weight.flatten(1), vision.patch_embed.proj.bias)  # kernel and stride are one patch
        grid = torch.tensor([shape.grid])
        index, share = get_vision_interpolation_indices_and_weights(
            grid,
            num_grid_per_side=vision.num_grid_per_side,
            mode=vision.interpolation_mode,
            align_corners=vision.interpolation_align_corners,
            spatial_merge_size=vision.spatial_merge_size,
        )
        learned = vision.pos_embed(index.to(weight.device)) * share.to(weight.device)[:, :, None]
        self._learned = learned.sum(1).to(weight.dtype)
        places = get_vision_position_ids(grid, vision.spatial_merge_size).to(weight.device)
        self._cos, self._sin = vision.rotary_pos_emb(self._learned, places)  # (patches, head dim) float32
        self.tokens = shape.grid[1] * shape.grid[2] // vision.spatial_merge_size**2  # of one image

    def __call__(self, patches: Tensor, block: BlockPass) -> list[Tensor]:
        """Image tokens, then each DeepStack level's, (images, tokens, text hidden) each.

        Args:
            patches: (images, patches, pixels).
            block: `vision_block`, as it is or compiled.
        """
        images = patches.shape[0]
        hidden = functional.linear(patches, *self._embed) + self._learned
        levels = []
        for i, weights in enumerate(self._blocks):
            hidden = block(hidden, self._cos, self._sin, weights)
            if i in self._vision.deepstack_visual_indexes:
                merger = self._vision.deepstack_merger_list[self._vision.deepstack_visual_indexes.index(i)]
                levels.append(merger(hidden.flatten(0, 1)))
        return [rows.unflatten(0, (images, -1)) for rows in (self._vision.merger(hidden.flatten(0, 1)), *levels)]


def vision_block(hidden: Tensor, cos: Tensor, sin: Tensor, weights: BlockWeights) -> Tensor:
    """One block, (images, patches, hidden) -> the same; each image attends to itself.

    Args:
        cos, sin: (patches, head dim) float32.
    """
    images, patches, width = hidden.shape
    qkv = functional.linear(_norm(hidden, weights.norm1), *weights.qkv)
    query, key, value = qkv.view(images, patches, 3, -1, cos.shape[1]).permute(2, 0, 3, 1, 4)
    query, key = (rotate(x.float(), (cos, sin)).to(hidden.dtype) for x in (query, key))
    mixed = functional.scaled_dot_product_attention(query, key, value)
    hidden = hidden + functional.linear(mixed.transpose(1, 2).reshape(images, patches, width), *weights.proj)
    inner = functional.gelu(functional.linear(_norm(hidden, weights.norm2), *weights.fc1), approximate="tanh")
    return hidden + functional.linear(inner, *weights.fc2)


def _norm(x: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), *weights, _NORM_EPS)
