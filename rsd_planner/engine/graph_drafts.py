"""Drafts run from graphs: what they propose is what they propose in PyTorch."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rsd_planner.decoding.logits import Choice
from rsd_planner.draft.config import DraftConfig, DraftKind
from rsd_planner.draft.dflash import DFlashBlocks
from rsd_planner.draft.eagle3 import Eagle3Chain
from rsd_planner.draft.load import DraftFiles, read_draft
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.engine import inputs
from rsd_planner.engine.runner import Runner
from rsd_planner.engine.specifications import CHUNK


def load_graph_draft(
    directory: Path, target: TargetParts, runner: Runner
) -> tuple[GraphEagle3 | GraphDFlash, DraftConfig]:
    """A draft whose passes are graphs; of its files only config and vocabulary are kept. Raises as `load_draft`."""
    files = read_draft(directory, target)
    if files.config.kind is DraftKind.EAGLE3:
        return GraphEagle3(files, target, runner), files.config
    return GraphDFlash(files, target, runner), files.config


class GraphEagle3(Eagle3Chain):
    """EAGLE-3 in the graphs `draft_context` and `draft_step`."""

    def __init__(self, files: DraftFiles, target: TargetParts, runner: Runner) -> None:
        super().__init__(files.config.shape, files.rotary, target, token_ids=files.token_ids)
        self._runner = runner
        self.cache = runner.new_cache(self.shape.layers, self.shape.kv_heads, self.shape.head_dim)

    def open(self, choice: Choice) -> None:
        super().open(choice)
        self.cache.wipe()

    def fuse(self, features: Tensor) -> Tensor:
        """See `Eagle3Chain.fuse`."""
        parts = [
            self._runner.run("draft_context", {"features": part})["fused"]
            for part in torch.split(features, CHUNK, dim=1)
        ]
        return torch.cat(parts, dim=1)

    def step(self, features: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """See `Eagle3Chain.step`."""
        self.cache.reserve(self._runner.padded(len(following)))
        embedded = self.target.embedding(following)[None]
        out = None
        for start in range(0, len(following), CHUNK):
            part = slice(start, start + CHUNK)
            past, count = self.cache.length + start, len(following[part])
            cos, sin = self.rotary.rows(past, count)
            out = self._runner.run(
                "draft_step",
                {
                    "embeddings": embedded[:, part],
                    "features": features[:, part],
                    "cos": cos,
                    "sin": sin,
                    "mask": inputs.causal(past, count, self.cache.capacity, self.target.device),
                    "write_index": torch.full((1,), past, device=self.target.device),
                },
                self.cache,
            )
        assert out is not None
        return out["hidden"], out["logits"]


class GraphDFlash(DFlashBlocks):
    """DFlash in the graphs `draft_context` and `draft_block`."""

    def __init__(self, files: DraftFiles, target: TargetParts, runner: Runner) -> None:
        config = files.config
        sizes = {"block_size": config.block_size, "mask_token": config.mask_token}
        super().__init__(config.shape, files.rotary, target, **sizes)
        self._runner = runner
        self.cache = runner.new_cache(self.shape.layers, self.shape.kv_heads, self.shape.head_dim)

    def open(self, choice: Choice) -> None:
        super().open(choice)
        self.cache.wipe()

    def take_in(self, features: Tensor) -> None:
        """See `DFlashBlocks.take_in`."""
        self.cache.reserve(self._runner.padded(len(features)))
        for start in range(0, len(features), CHUNK):
            part = features[start : start + CHUNK]
            past = self.cache.length + start
            cos, sin = self.rotary.rows(past, len(part))
            index = torch.full((1,), past, device=self.target.device)
            given = {"features": part[None], "cos": cos, "sin": sin, "write_index": index}
            self._runner.run("draft_context", given, self.cache)

    def logits(self, count: int) -> Tensor:
        """See `DFlashBlocks.logits`."""
        past, block = self.cache.length, len(self.block)
        cos, sin = self.rotary.rows(past, block)
        out = self._runner.run(
            "draft_block",
            {
                "embeddings": self.target.embedding(self.block)[None],
                "cos": cos,
                "sin": sin,
                "mask": inputs.open_to(past + block, block, self.cache.capacity, self.target.device),
                "write_index": torch.full((1,), past, device=self.target.device),
            },
            self.cache,
        )
        return out["logits"][:count]
