"""What a new draft looks like: taps, sizes, vocabulary, first weights, and its files in the published layout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from rsd_planner.draft.config import DraftConfig, DraftKind
from rsd_planner.draft.dflash import DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Network
from rsd_planner.draft.layers import Shape
from rsd_planner.draft.rotary import Rope, Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.evaluation.files import write_whole
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.dflash_objective import DFlashObjective
from rsd_planner.training.eagle3_objective import Eagle3Objective

MASK_TOKEN = "<|vectorized_wm_pre_tkn|>"  # never used in a prompt or a reasoning, and no trajectory bin
ROPE_THETA = 10_000.0
_DFLASH_TAPS = 5


def taps_of(kind: DraftKind, layers: int) -> tuple[int, ...]:
    """The published choice of target layers: EAGLE-3 (1, n/2-1, n-4), DFlash five from 1 to n-3.

    A target of fewer than eight layers, where these collide, is tapped evenly.
    """
    if layers < 8:
        count = 3 if kind is DraftKind.EAGLE3 else _DFLASH_TAPS
        return tuple(sorted({round(float(tap)) for tap in np.linspace(0, layers - 1, count)}))
    if kind is DraftKind.EAGLE3:
        return (1, layers // 2 - 1, layers - 4)
    return tuple(round(float(tap)) for tap in np.linspace(1, layers - 3, _DFLASH_TAPS))


def design(
    kind: DraftKind,
    rope: Rope,
    target: AlpamayoTarget,
    *,
    layers: int,
    intermediate: int | None,
    block_size: int,
    draft_vocabulary: int,
) -> DraftConfig:
    """A draft for this target, with the heads of the target's text layers.

    Args:
        layers: Of DFlash; EAGLE-3 has one.
        intermediate: Width of the MLP; None for the target's.
        block_size: Of DFlash: the last committed token and the mask tokens.
        draft_vocabulary: Of EAGLE-3: tokens of its own lm_head.
    """
    text, words = target.network.text.config, target.vocabulary
    dflash = kind is DraftKind.DFLASH
    taps = taps_of(kind, text.num_hidden_layers)
    return DraftConfig(
        path=Path("config.json"),
        kind=kind,
        shape=Shape(
            hidden=text.hidden_size,
            intermediate=intermediate or text.intermediate_size,
            layers=layers if dflash else 1,
            heads=text.num_attention_heads,
            kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            taps=len(taps),
            eps=text.rms_norm_eps,
        ),
        rope=rope,
        rope_theta=ROPE_THETA,
        taps=taps,
        vocab_size=target.vocab_size,
        max_positions=text.max_position_embeddings,
        draft_vocabulary=target.vocab_size if dflash else draft_vocabulary,
        target_layers=text.num_hidden_layers if dflash else None,
        block_size=block_size if dflash else 0,
        mask_token=int(words.tokenizer.convert_tokens_to_ids(MASK_TOKEN)) if dflash else 0,
    )


def likeliest_tokens(reasonings: Sequence[NDArray[np.int32]], count: int, target: TargetParts) -> Tensor | None:
    """(n,) ascending ids of the tokens said most often, the closing ones among them, never a trajectory bin.

    Args:
        count: At most so many; 0 for the target's whole vocabulary, which is None.
    """
    if count == 0:
        return None
    said = np.bincount(np.concatenate(reasonings), minlength=target.vocab_size).astype(np.int64)
    said[list(target.closing)] = said.sum() + 1
    allowed = np.setdiff1d(np.arange(target.vocab_size), np.arange(target.forbidden.start, target.forbidden.stop))
    order = allowed[np.argsort(-said[allowed], kind="stable")]
    return torch.from_numpy(np.sort(order[:count]))


def new_objective(
    config: DraftConfig, target: TargetParts, token_ids: Tensor | None, *, anchors: int, seed: int
) -> DFlashObjective | Eagle3Objective:
    """A draft with random weights inside its objective; EAGLE-3's lm_head starts as the target's."""
    torch.manual_seed(seed)
    rotary = Rotary(config.rope, config.shape.head_dim, config.rope_theta, target.rope_sections, target.device)
    if config.kind is DraftKind.DFLASH:
        block = DFlashNetwork(config.shape).to(target.device)
        sizes = {"block_size": config.block_size, "mask_token": config.mask_token}
        return DFlashObjective(block, rotary, target, **sizes, anchors=anchors)
    chain = Eagle3Network(config.shape, config.draft_vocabulary).to(target.device)
    ids = None if token_ids is None else token_ids.to(target.device)
    _copy_head(chain, target, ids)
    return Eagle3Objective(chain, rotary, target, token_ids=ids)


@torch.no_grad()
def _copy_head(network: Eagle3Network, target: TargetParts, token_ids: Tensor | None) -> None:
    assert network.lm_head is not None
    unit = torch.eye(target.hidden_size, dtype=target.dtype, device=target.device)
    weight = target.lm_head(unit).float().T  # (vocab, hidden)
    network.lm_head.weight.copy_(weight if token_ids is None else weight[token_ids])


def vocabulary_maps(token_ids: Tensor | None, vocab_size: int) -> dict[str, Tensor]:
    """`d2t` (what to add to a draft token for the target's) and `t2d` (which target tokens there are)."""
    if token_ids is None:
        return {}
    said = torch.zeros(vocab_size, dtype=torch.bool)
    said[token_ids] = True
    return {"d2t": token_ids - torch.arange(len(token_ids)), "t2d": said}


def write_draft(directory: Path, config: DraftConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write `config.json` and, in bfloat16, `model.safetensors`."""
    directory.mkdir(parents=True, exist_ok=True)
    stored = {
        name: (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in tensors.items()
    }
    part = directory / "model.part"
    save_file(stored, part, metadata={"format": "pt"})
    part.chmod(0o644)  # safetensors writes for the owner alone
    part.replace(directory / "model.safetensors")
    write_whole(directory / "config.json", json.dumps(published(config), indent=1) + "\n")


def published(config: DraftConfig) -> dict[str, Any]:
    """config.json as the published drafts have it, and `rope`."""
    shape = config.shape
    values: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": shape.eps,
        "attention_bias": False,
        "hidden_act": "silu",
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "rope": config.rope.value,
        "dtype": "bfloat16",
    }
    if config.kind is DraftKind.DFLASH:
        dflash = {"mask_token_id": config.mask_token, "target_layer_ids": list(config.taps)}
        sizes = {"block_size": config.block_size, "num_target_layers": config.target_layers, "dflash_config": dflash}
        return {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", **values, **sizes}
    taps = {"eagle_aux_hidden_state_layer_ids": list(config.taps)}
    own = {"draft_vocab_size": config.draft_vocabulary, "tie_word_embeddings": False, "eagle_config": taps}
    return {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **values, **own}
