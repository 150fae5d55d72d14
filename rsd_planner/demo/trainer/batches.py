"""Samples of the driving world as training batches: shuffled, fused with their history, padded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rsd_planner.demo.world.cameras import FRONT, HEIGHT, WIDTH
from rsd_planner.demo.world.dataset import Dataset
from rsd_planner.demo.world.samples import FRAMES
from rsd_planner.scene.observation import EgoHistory, Frame, Observation, Pose
from rsd_planner.target.alpamayo import AlpamayoTarget, PromptLayout

IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """Samples of one training step."""

    images: Tensor  # (B, 4, H, W, 3) uint8, front camera
    token_ids: Tensor  # (B, L + R) prompt with its history, then the reasoning, padded with 0
    reasoning: Tensor  # (B, R) the reasoning again, padded with -100
    lengths: Tensor  # (B,) prompt and reasoning without padding
    actions: Tensor  # (B, 64, 2) normalised


class Tokens:
    """All texts and histories of a split as token ids, prepared once."""

    def __init__(self, target: AlpamayoTarget, data: Dataset) -> None:
        self.layout = prompt_layout(target)
        words, history = target.vocabulary, target.config.history
        placeholder = self.layout.token_ids == words.history_placeholder
        count = len(data)
        prompts = self.layout.token_ids.repeat(count, 1)
        encoded = np.stack([history.encode(positions) for positions in data.columns["history"]])
        prompts[:, placeholder] = torch.from_numpy(encoded)
        self.prompts = prompts  # (N, L)
        closing = [words.cot_end, words.future_start]
        self.reasonings = [words.encode(str(text)) + closing for text in data.columns["text"]]


def prompt_layout(target: AlpamayoTarget) -> PromptLayout:
    """Layout of the demo's prompt: four frames of the front camera, at the model's own size."""
    blank = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    frames = tuple(Frame.from_image(i, blank) for i in range(FRAMES))
    history = EgoHistory(np.zeros((16, 3)), np.broadcast_to(np.eye(3), (16, 3, 3)), Pose(np.zeros(3), np.eye(3)))
    return target.prompt(Observation(0, {FRONT: frames}, history)).layout


def epoch_order(count: int, size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """(batches, size) shuffled sample numbers of one epoch; the last incomplete batch is left out."""
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return order[: count // size * size].reshape(-1, size)


def make_batch(data: Dataset, tokens: Tokens, chosen: NDArray[np.int64]) -> Batch:
    """The batch of some sample numbers."""
    said = [tokens.reasonings[i] for i in chosen]
    longest = max(map(len, said))
    padded = torch.zeros(len(chosen), longest, dtype=torch.int64)
    labels = torch.full_like(padded, IGNORED)
    for row, ids in enumerate(said):
        padded[row, : len(ids)] = labels[row, : len(ids)] = torch.tensor(ids)
    prompts = tokens.prompts[torch.from_numpy(chosen)]
    return Batch(
        images=torch.from_numpy(np.stack([data.images(int(i))[0] for i in chosen])),
        token_ids=torch.cat([prompts, padded], dim=1),
        reasoning=labels,
        lengths=torch.tensor([prompts.shape[1] + len(ids) for ids in said]),
        actions=torch.from_numpy(data.columns["actions"][chosen]),
    )
