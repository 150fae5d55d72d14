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

DELIBERATIVE_WEIGHT = 3.0  # of a token that only the pictures tell, against one that follows from text and history


@dataclass(frozen=True)
class Batch:
    """What is to be said and driven in one training step."""

    token_ids: Tensor  # (B, L + R) prompt with its history, then the reasoning, padded with 0
    weights: Tensor  # (B, R) of each reasoning token, 0 where padded
    lengths: Tensor  # (B,) prompt and reasoning without padding
    actions: Tensor  # (B, 64, 2) normalised

    @property
    def reasoning(self) -> Tensor:
        """(B, R) the reasoning's token ids."""
        return self.token_ids[:, -self.weights.shape[1] :]


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
        self.deliberative = data.columns["deliberative"] == 1  # (N, tokens)


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


def make_batch(data: Dataset, tokens: Tokens, chosen: NDArray[np.int64], device: torch.device) -> Batch:
    """The batch of some sample numbers."""
    said = [tokens.reasonings[i] for i in chosen]
    padded = torch.zeros(len(chosen), max(map(len, said)), dtype=torch.int64)
    weights = torch.zeros(padded.shape)
    for row, (ids, sample) in enumerate(zip(said, chosen, strict=True)):
        padded[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = 1.0
        weights[row, np.flatnonzero(tokens.deliberative[sample])] = DELIBERATIVE_WEIGHT
    prompts = tokens.prompts[torch.from_numpy(chosen)]
    return Batch(
        token_ids=torch.cat([prompts, padded], dim=1).to(device),
        weights=weights.to(device),
        lengths=torch.tensor([prompts.shape[1] + len(ids) for ids in said]).to(device),
        actions=torch.from_numpy(data.columns["actions"][chosen]).to(device),
    )
