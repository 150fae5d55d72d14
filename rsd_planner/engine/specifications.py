"""Which graphs there are: module, example inputs, names, and the lengths that are chosen per pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.dflash import DFlashDraft
from rsd_planner.draft.eagle3 import Eagle3Draft
from rsd_planner.engine import draft_graphs, graphs
from rsd_planner.engine.manifest import Span
from rsd_planner.plan import WAYPOINTS
from rsd_planner.target.action_expert import ACTION_DIMS
from rsd_planner.target.alpamayo import AlpamayoTarget

CHUNK = 1024  # tokens per pass at most
MOST_ASKED = 64  # logits per pass at most: a proposal behind the prompt and one more
IMAGE_TOKENS = "image_tokens"  # name of a length: a quarter of the patches
USUAL_STEP = 16  # tokens of a verify pass
_PAST = 2 * WAYPOINTS  # rows of the example cache


@dataclass(frozen=True)
class Specification:
    """One graph to export. Inputs of a cache come last and go out again under `<name>_out`, in the same memory."""

    module: nn.Module
    inputs: Mapping[str, Tensor]  # examples
    outputs: Sequence[str]
    lengths: Mapping[str, Mapping[int, str]]  # input -> axis -> name of its dimension
    spans: Mapping[str, Span]
    cache: Sequence[Tensor] = field(default_factory=tuple)

    @property
    def cache_names(self) -> list[str]:
        return cache_names(len(self.cache))


def cache_names(count: int) -> list[str]:
    """Of the buffers of a cache, keys first."""
    return [f"{kind}_{layer}" for kind in ("key", "value") for layer in range(count // 2)]


def graph_names(draft: str) -> tuple[str, ...]:
    """All graphs of a target with a draft of this kind, "" for none."""
    of_draft = {
        DraftKind.EAGLE3.value: ("draft_context", "draft_step"),
        DraftKind.DFLASH.value: ("draft_context", "draft_block"),
    }
    return ("vision", "text", "action", *of_draft.get(draft, ()))


def target_graphs(target: AlpamayoTarget, capacity: int) -> dict[str, Specification]:
    """Vision, text and action."""
    return {
        "vision": _vision(target),
        "text": _text(target, capacity),
        "action": _action(target, capacity),
    }


def _vision(target: AlpamayoTarget) -> Specification:
    vision, config = target.network.vision, target.config
    area = vision.config.patch_size**2
    merged = vision.spatial_merge_size**2
    count = 4 * merged
    width = vision.config.in_channels * vision.config.temporal_patch_size * area
    levels = [f"deepstack_{i}" for i in range(len(vision.deepstack_visual_indexes))]
    most = config.max_pixels // area
    return Specification(
        graphs.VisionGraph(target.network),
        {
            "patches": torch.randn(count, width).to(target.dtype),
            "table_index": torch.zeros(count, 4, dtype=torch.int64),
            "table_weight": torch.full((count, 4), 0.25),
            "places": torch.zeros(count, 2, dtype=torch.int64),
        },
        ["embeddings", *levels],
        {name: {0: "patches"} for name in ("patches", "table_index", "table_weight", "places")},
        {"patches": Span(max(config.min_pixels // area // merged * merged, merged), most, most)},
    )


def _text(target: AlpamayoTarget, capacity: int) -> Specification:
    config, count = target.network.text.config, 6
    levels = len(target.network.vision.deepstack_visual_indexes)
    return Specification(
        graphs.TextGraph(target.network, target.taps),
        {
            "embeddings": torch.randn(1, count, config.hidden_size).to(target.dtype),
            "positions": torch.arange(count).expand(3, 1, -1).clone(),
            "deepstack": torch.zeros(levels, count, config.hidden_size, dtype=target.dtype),
            "asked": torch.arange(3),
            "mask": torch.zeros(1, 1, count, _PAST),
            "write_index": torch.tensor([5]),
        },
        ["logits", *(["features"] if target.taps else [])],
        {
            "embeddings": {1: "tokens"},
            "positions": {2: "tokens"},
            "deepstack": {1: "tokens"},
            "asked": {0: "asked"},
            "mask": {2: "tokens", 3: "capacity"},
        },
        {
            "tokens": Span(1, USUAL_STEP, CHUNK),
            "asked": Span(1, USUAL_STEP, MOST_ASKED),
            "capacity": Span(capacity, capacity, capacity),
        },
        _buffers(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, target.dtype),
    )


def _action(target: AlpamayoTarget, capacity: int) -> Specification:
    config = target.network.text.config
    return Specification(
        graphs.ActionGraph(target.network),
        {
            "actions": torch.randn(1, WAYPOINTS, ACTION_DIMS),
            "time": torch.tensor([0.5]),
            "positions": torch.arange(WAYPOINTS).expand(3, 1, -1).clone(),
            "mask": torch.zeros(1, 1, WAYPOINTS, _PAST),
            "write_index": torch.tensor([5]),
        },
        ["velocity"],
        {"mask": {3: "capacity"}},
        {"capacity": Span(capacity, capacity, capacity)},
        _buffers(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, target.dtype),
    )


def draft_specifications(draft: Eagle3Draft | DFlashDraft, capacity: int) -> dict[str, Specification]:
    """Taking in context, and proposing."""
    draft_graphs.use_graph_attention(draft.network)
    return _eagle3(draft, capacity) if isinstance(draft, Eagle3Draft) else _dflash(draft, capacity)


def _eagle3(draft: Eagle3Draft, capacity: int) -> dict[str, Specification]:
    shape, dtype, count = draft.shape, draft.target.dtype, 6
    tokens = Span(1, 1, CHUNK)
    context = Specification(
        draft_graphs.Eagle3ContextGraph(draft.network),
        {"features": torch.randn(1, count, shape.taps * shape.hidden).to(dtype)},
        ["fused"],
        {"features": {1: "tokens"}},
        {"tokens": tokens},
    )
    step = Specification(
        draft_graphs.Eagle3StepGraph(draft.network, draft.lm_head),
        {
            "embeddings": torch.randn(1, count, shape.hidden).to(dtype),
            "features": torch.randn(1, count, shape.hidden).to(dtype),
            **_rotation(count, shape.head_dim),
            "mask": torch.zeros(1, 1, count, _PAST),
            "write_index": torch.tensor([5]),
        },
        ["hidden", "logits"],
        {
            "embeddings": {1: "tokens"},
            "features": {1: "tokens"},
            "cos": {0: "tokens"},
            "sin": {0: "tokens"},
            "mask": {2: "tokens", 3: "capacity"},
        },
        {"tokens": tokens, "capacity": Span(capacity, capacity, capacity)},
        _buffers(1, shape.kv_heads, shape.head_dim, dtype),
    )
    return {"draft_context": context, "draft_step": step}


def _dflash(draft: DFlashDraft, capacity: int) -> dict[str, Specification]:
    shape, dtype, count, block = draft.shape, draft.target.dtype, 6, draft.longest + 1
    rows = Span(capacity, capacity, capacity)
    buffers = _buffers(shape.layers, shape.kv_heads, shape.head_dim, dtype)
    context = Specification(
        draft_graphs.DFlashContextGraph(draft.network),
        {
            "features": torch.randn(1, count, shape.taps * shape.hidden).to(dtype),
            **_rotation(count, shape.head_dim),
            "write_index": torch.tensor([5]),
        },
        [],
        {"features": {1: "tokens"}, "cos": {0: "tokens"}, "sin": {0: "tokens"}},
        {"tokens": Span(1, 1, CHUNK), "capacity": rows},
        buffers,
    )
    whole = Specification(
        draft_graphs.DFlashBlockGraph(draft.network, draft.target.lm_head),
        {
            "embeddings": torch.randn(1, block, shape.hidden).to(dtype),
            **_rotation(block, shape.head_dim),
            "mask": torch.zeros(1, 1, block, _PAST),
            "write_index": torch.tensor([5]),
        },
        ["logits"],
        {"mask": {3: "capacity"}},
        {"capacity": rows},
        buffers,
    )
    return {"draft_context": context, "draft_block": whole}


def _rotation(count: int, head_dim: int) -> dict[str, Tensor]:
    return {"cos": torch.ones(count, head_dim), "sin": torch.zeros(count, head_dim)}


def _buffers(layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(1, kv_heads, _PAST, head_dim, dtype=dtype) for _ in range(2 * layers))
