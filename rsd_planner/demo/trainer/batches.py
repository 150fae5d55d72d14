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
    driven: Tensor  # (B,) whether these actions belong to this history

    @property
    def reasoning(self) -> Tensor:
        """(B, R) the reasoning's token ids."""
        return self.token_ids[:, -self.weights.shape[1] :]


class Tokens:
    """All texts and histories of a split as token ids, prepared once; those of other histories behind the own ones."""

    def __init__(self, target: AlpamayoTarget, data: Dataset) -> None:
        self.layout = prompt_layout(target)
        self.count = len(data)
        words, history, columns = target.vocabulary, target.config.history, data.columns
        closing = [words.cot_end, words.future_start]
        placeholder = self.layout.token_ids == words.history_placeholder
        kinds = ("", "other_") if "other_text" in columns else ("",)
        histories = [positions for kind in kinds for positions in columns[f"{kind}history"]]
        self.prompts = self.layout.token_ids.repeat(len(histories), 1)  # (N or 2 N, L)
        self.prompts[:, placeholder] = torch.from_numpy(np.stack([history.encode(one) for one in histories]))
        texts = [str(text) for kind in kinds for text in columns[f"{kind}text"]]
        self.reasonings = [words.encode(text) + closing for text in texts]
        self.deliberative = np.concatenate([columns[f"{kind}deliberative"] == 1 for kind in kinds])  # (N or 2 N, R)
        self.other = np.array([bool(text) for text in texts[self.count :]])  # (N,) or empty

    def some_other(self, chosen: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows for some samples: about this share of them with another history, where they have one."""
        if share == 0.0 or not len(self.other):
            return chosen
        return np.where(self.other[chosen] & (rng.random(len(chosen)) < share), chosen + self.count, chosen)


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


def make_batch(data: Dataset, tokens: Tokens, rows: NDArray[np.int64], device: torch.device) -> Batch:
    """The batch of some rows of `tokens`."""
    said = [tokens.reasonings[i] for i in rows]
    padded = torch.zeros(len(rows), max(map(len, said)), dtype=torch.int64)
    weights = torch.zeros(padded.shape)
    for row, (ids, sample) in enumerate(zip(said, rows, strict=True)):
        padded[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = 1.0
        weights[row, np.flatnonzero(tokens.deliberative[sample])] = DELIBERATIVE_WEIGHT
    prompts = tokens.prompts[torch.from_numpy(rows)]
    return Batch(
        token_ids=torch.cat([prompts, padded], dim=1).to(device),
        weights=weights.to(device),
        lengths=torch.tensor([prompts.shape[1] + len(ids) for ids in said]).to(device),
        actions=torch.from_numpy(data.columns["actions"][rows % tokens.count]).to(device),
        driven=torch.from_numpy(rows < tokens.count).to(device),
    )
