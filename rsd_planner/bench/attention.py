"""Where a draft looks: its attention mass and entropy per cluster of tokens and layer, while it drafts for real."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from rsd_planner.bench.setting import describe
from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing
from rsd_planner.decoding.verify_length import LONGEST, VerifyLength
from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.dflash import DFlashDraft
from rsd_planner.draft.eagle3 import Eagle3Draft
from rsd_planner.draft.layers import Attention
from rsd_planner.draft.load import load_draft
from rsd_planner.errors import ParameterError
from rsd_planner.evaluation.files import write_whole
from rsd_planner.planner import Planner, PlannerSettings, target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.vocabulary import Vocabulary
from rsd_planner.training.frames import BagOptions, open_frames, spread


class Cluster(str, Enum):
    """What a key that a draft attends to stands for."""

    VISION = "vision"  # image tokens
    HISTORY = "ego history"
    TEXT = "other text"  # of the prompt
    REASONING = "reasoning"  # committed so far, and the draft's own block


@dataclass
class LayerSums:
    """Sums over heads, block positions and proposals of one layer."""

    rows: int = 0
    mass: Tensor = field(default_factory=lambda: torch.zeros(len(Cluster), dtype=torch.float64))
    share: Tensor = field(default_factory=lambda: torch.zeros(len(Cluster), dtype=torch.float64))
    entropy: Tensor = field(default_factory=lambda: torch.zeros(len(Cluster), dtype=torch.float64))
    uniform: Tensor = field(default_factory=lambda: torch.zeros(len(Cluster), dtype=torch.float64))

    def add(self, weights: Tensor, labels: Tensor) -> None:
        """Add attention rows, (rows, keys), each summing to 1, over keys of the clusters `labels` (keys,)."""
        rows = len(weights)
        self.rows += rows
        for place in range(len(Cluster)):
            own = weights[:, labels == place].double()
            count = own.shape[1]
            mass = own.sum(dim=-1)
            within = own / mass.clamp(min=1e-30)[:, None]
            self.mass[place] += mass.sum()
            self.share[place] += rows * count / len(labels)
            self.entropy[place] -= torch.xlogy(within, within).sum()
            self.uniform[place] += rows * math.log(max(count, 1))

    def as_json(self) -> dict[str, Any]:
        """Means per cluster. Entropy is that of the weights within it, in nats; `uniform_entropy` is its maximum."""
        means = {
            "mass": self.mass,
            "token_share": self.share,
            "entropy": self.entropy,
            "uniform_entropy": self.uniform,
        }
        rows = max(self.rows, 1)
        return {
            cluster.value: {name: float(sums[place]) / rows for name, sums in means.items()}
            for place, cluster in enumerate(Cluster)
        }


class WeighedMix:
    """An attention kernel that computes its weights openly and counts them; it mixes as the served one does."""

    def __init__(self, sums: LayerSums, labels: Tensor, first_row: int) -> None:
        """
        Args:
            labels: (prompt tokens,) number of the cluster of each; keys behind them are reasoning.
            first_row: Of the queries, those from here on predict a token; negative counts from the end.
        """
        self._sums, self._labels, self._first_row = sums, labels, first_row

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
        groups = queries.shape[1] // keys.shape[1]
        keys, values = (rows.repeat_interleave(groups, dim=1) for rows in (keys, values))
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-1)  # (1, heads, T, keys)
        predicting = weights[0, :, self._first_row :].flatten(0, 1)
        behind = torch.full((keys.shape[2],), list(Cluster).index(Cluster.REASONING))
        behind[: len(self._labels)] = self._labels[: keys.shape[2]]
        self._sums.add(predicting.cpu(), behind)
        return weights @ values


@dataclass
class DraftAttention:
    """One draft and what was counted of it, layer by layer."""

    path: Path
    name: str
    draft: Eagle3Draft | DFlashDraft
    taps: tuple[int, ...]
    layers: list[LayerSums]

    def as_json(self) -> dict[str, Any]:
        layers = [layer.as_json() for layer in self.layers]
        return {"name": self.name, "path": str(self.path), "layers": layers}


@dataclass(frozen=True)
class AttentionRequest:
    """What to look at and where to write it."""

    model: Path
    drafts: Sequence[Path]
    data: Path  # folder of the driving world's splits, or a recording
    split: Split
    frames: int
    out: Path
    planner: PlannerSettings
    bags: BagOptions = field(default_factory=BagOptions)


def attention(request: AttentionRequest, console: Console) -> list[DraftAttention]:
    """Let each draft work on the same frames; write attention.json.

    Raises:
        PlannerError: Model, draft, data or output directory is not usable.
    """
    if request.frames < 1:
        raise ParameterError(f"--frames is {request.frames}, expected 1 or more")
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(f"--out: cannot write {error.filename}: {error.strerror}") from error
    target = Planner.load(request.model, request.planner).target
    drafts = [_load(path, target) for path in request.drafts]
    frames = open_frames(request.data, request.split, request.bags)
    numbers = spread(frames, request.frames)
    for number in track(numbers, "frames", console=console, disable=not console.is_terminal):
        observation = frames.observation(number)
        for each in drafts:
            prompt = target.prompt(observation)
            with watched(each, cluster_labels(prompt.token_ids, target.vocabulary)):
                _reason(target, prompt, each, request.planner)
    found = {"frames": len(numbers), "split": request.split.value, "drafts": [each.as_json() for each in drafts]}
    found |= describe(request.model, request.planner)
    write_whole(request.out / "attention.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return drafts


def cluster_labels(token_ids: Tensor, vocabulary: Vocabulary) -> Tensor:
    """(L,) numbers of the clusters of a prompt's tokens, in the order of Cluster."""
    clusters, bins = list(Cluster), vocabulary.bins
    labels = torch.full_like(token_ids, clusters.index(Cluster.TEXT))
    labels[token_ids == vocabulary.image_pad] = clusters.index(Cluster.VISION)
    labels[(token_ids >= bins.start) & (token_ids < bins.stop)] = clusters.index(Cluster.HISTORY)
    return labels


@contextmanager
def watched(each: DraftAttention, labels: Tensor) -> Iterator[None]:
    """Within it the draft's attention is counted.

    DFlash predicts from all places of a block but the first; EAGLE-3 from the newest row of each step. A row of EAGLE-3
    holds a token's feature and the next token's embedding: it counts to the cluster of the feature.
    """
    first_row = 1 if isinstance(each.draft, DFlashDraft) else -1
    modules = attention_modules(each.draft)
    served = [module.mix for module in modules]
    for module, sums in zip(modules, each.layers, strict=True):
        module.mix = WeighedMix(sums, labels, first_row)
    try:
        yield
    finally:
        for module, mix in zip(modules, served, strict=True):
            module.mix = mix


def attention_modules(draft: Eagle3Draft | DFlashDraft) -> list[Attention]:
    """The attention of each layer."""
    if isinstance(draft, DFlashDraft):
        return [layer.self_attn for layer in draft.network.layers]
    return [draft.network.midlayer.self_attn]


def _load(path: Path, target: AlpamayoTarget) -> DraftAttention:
    draft, config = load_draft(path, target_parts(target))
    name = f"{config.kind.value}, {config.rope.value}"
    return DraftAttention(path, name, draft, config.taps, [LayerSums() for _ in range(config.shape.layers)])


def _reason(target: AlpamayoTarget, prompt: Any, each: DraftAttention, settings: PlannerSettings) -> None:
    words = target.vocabulary
    target.taps = each.taps
    decode(
        target,
        prompt,
        Closing(words.cot_end, words.future_start, words.bins),
        sampling=Sampling(),
        max_tokens=settings.max_reasoning_tokens,
        generator=torch.Generator(),
        drafts=[each.draft],
        verify_length=VerifyLength(LONGEST),
    )
