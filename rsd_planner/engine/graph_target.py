"""The target run from graphs: everything but its passes is as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from rsd_planner.decoding.protocols import Step
from rsd_planner.engine import inputs
from rsd_planner.engine.runner import Runner
from rsd_planner.engine.specifications import CHUNK
from rsd_planner.target.alpamayo import AlpamayoTarget, Parts, VisionFeatures
from rsd_planner.target.checkpoint import load_part
from rsd_planner.target.images import Patches
from rsd_planner.target.kv_cache import KVCache
from rsd_planner.target.uploads import upload

_OWN = ("vlm.model.language_model.embed_tokens.", "action_space.")  # tensors that are in no graph


class GraphTarget(AlpamayoTarget):
    """A target whose vision tower, text model and action expert are graphs."""

    def __init__(self, parts: Parts, runner: Runner, taps: Sequence[int]) -> None:
        """
        Args:
            parts: Of the model directory the graphs were exported from.
            taps: As the graphs have them.

        Raises:
            CheckpointError: The embeddings cannot be read.
        """
        load_part(parts.network, parts.checkpoint, _OWN, dtype=runner.dtype, device=runner.device)
        self._runner = runner
        super().__init__(parts.config, parts.network, parts.vocabulary, parts.patcher, taps)
        self._levels = len(self.network.vision.deepstack_visual_indexes)
        self._table = lru_cache(maxsize=8)(self._build_table)

    def _new_cache(self) -> KVCache:
        text = self.network.text.config
        return self._runner.new_cache(text.num_hidden_layers, text.num_key_value_heads, text.head_dim)

    def close(self) -> None:
        super().close()
        del self._runner

    def _see(self, patches: Patches) -> VisionFeatures:
        index, weight, places = self._table(patches.size)
        values = upload(patches.values, self.device).to(self.dtype)
        given = {"patches": values, "table_index": index, "table_weight": weight, "places": places}
        out = self._runner.run("vision", given)
        levels = tuple(out[f"deepstack_{i}"] for i in range(self._levels))
        return VisionFeatures(out["embeddings"], levels, patches.size)

    def _build_table(self, size: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
        vision, grid = self.network.vision, torch.tensor([size])
        index, weight = get_vision_interpolation_indices_and_weights(
            grid,
            num_grid_per_side=vision.num_grid_per_side,
            mode=vision.interpolation_mode,
            align_corners=vision.interpolation_align_corners,
            spatial_merge_size=vision.spatial_merge_size,
        )
        places = get_vision_position_ids(grid, vision.spatial_merge_size)
        return index.to(self.device), weight.to(self.device, torch.float32), places.to(self.device)

    def _forward(
        self,
        embedded: Tensor,
        positions: Tensor,
        asked: int,
        deepstack: Sequence[Tensor] = (),
        image_index: Tensor | None = None,
    ) -> Step:
        count = embedded.shape[1]
        self.cache.reserve(self._runner.padded(count))
        if self.cache.length == 0:
            self.cache.wipe()
        levels = torch.zeros(self._levels, *embedded.shape[1:], dtype=self.dtype, device=self.device)
        if deepstack:
            levels[:, image_index] = torch.stack(list(deepstack))
        logits, features = [], []
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            first = max(count - asked, start) - start  # of the chunk's tokens that logits are asked of
            wanted = torch.arange(min(first, stop - start - 1), stop - start, device=self.device)
            out = self._runner.run(
                "text",
                {
                    "embeddings": embedded[:, start:stop],
                    "positions": positions[:, :, start:stop],
                    "deepstack": levels[:, start:stop],
                    "asked": wanted,
                    "mask": inputs.causal(self.cache.length, stop - start, self.cache.capacity, self.device),
                    "write_index": torch.full((1,), self.cache.length, device=self.device),
                },
                self.cache,
            )
            self.cache.commit(stop - start)
            if first < stop - start:
                logits.append(out["logits"])
            if self.taps:
                features.append(out["features"])
        return Step(torch.cat(logits), torch.cat(features) if features else None)

    @torch.inference_mode()
    def velocity(self, actions: Tensor, time: float) -> Tensor:
        """See `AlpamayoTarget.velocity`."""
        self.cache.reserve(len(actions))
        positions = self._positions_after(self.cache.length, len(actions))
        out = self._runner.run("action", inputs.flow_step(actions, time, positions, self.cache), self.cache)
        return out["velocity"][0]
