"""A draft directory becomes a draft, if it fits its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from rsd_planner.draft.config import DraftConfig, DraftKind, read_draft_config
from rsd_planner.draft.dflash import DFlashDraft, DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Draft, Eagle3Network
from rsd_planner.draft.rotary import Rope, Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.errors import DraftError
from rsd_planner.target.checkpoint import open_weights
from rsd_planner.target.layout import store_by_columns

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class DraftFiles:
    """A draft that fits its target, as it was read."""

    config: DraftConfig
    tensors: Mapping[str, Tensor]
    token_ids: Tensor | None  # see `Eagle3Chain`
    rotary: Rotary


def load_draft(directory: Path, target: TargetParts) -> tuple[Eagle3Draft | DFlashDraft, DraftConfig]:
    """Load a draft in PyTorch; raises as `read_draft`."""
    files = read_draft(directory, target)
    config, path = files.config, directory / "model.safetensors"
    if config.kind is DraftKind.DFLASH:
        block = _fill(DFlashNetwork(config.shape), files.tensors, path, target)
        sizes = {"block_size": config.block_size, "mask_token": config.mask_token}
        return DFlashDraft(block, config.shape, files.rotary, target, **sizes), config
    own_head = "lm_head.weight" in files.tensors or config.draft_vocabulary != config.vocab_size
    chain = _fill(
        Eagle3Network(config.shape, config.draft_vocabulary if own_head else None), files.tensors, path, target
    )
    return Eagle3Draft(chain, config.shape, files.rotary, target, token_ids=files.token_ids), config


def read_draft(directory: Path, target: TargetParts) -> DraftFiles:
    """Read `config.json` and `model.safetensors` of a draft.

    The target must tap the layers that the returned config names.

    Raises:
        DraftError: The draft does not fit the target; the message says all that differs.
        CheckpointError: A file or tensor is missing, damaged or of another shape than the config says.
    """
    config = read_draft_config(directory, target.layers)
    path = directory / "model.safetensors"
    tensors = _read(path, config.kind)
    token_ids = None
    differences = _misfits(config, target)
    if config.kind is DraftKind.EAGLE3 and not differences:
        token_ids, differences = _draft_vocabulary(config, tensors, target)
    if differences:
        raise DraftError(f"{directory}: this draft does not fit its target: {'; '.join(differences)}")
    rotary = Rotary(config.rope, config.shape.head_dim, config.rope_theta, target.rope_sections, target.device)
    return DraftFiles(config, tensors, token_ids, rotary)


def _misfits(config: DraftConfig, target: TargetParts) -> list[str]:
    """What differs, each in a few words."""
    found = []
    if config.shape.hidden != target.hidden_size:
        found.append(f"hidden_size is {config.shape.hidden}, the target's is {target.hidden_size}")
    if config.vocab_size != target.vocab_size:
        found.append(f"vocab_size is {config.vocab_size}, the target's is {target.vocab_size}")
    if config.target_layers not in (None, target.layers):
        found.append(f"num_target_layers is {config.target_layers}, the target has {target.layers}")
    ascending = all(low < high for low, high in zip(config.taps, config.taps[1:], strict=False))
    if not (config.taps and ascending and config.taps[0] >= 0 and config.taps[-1] < target.layers):
        found.append(f"it taps layers {list(config.taps)}, expected ascending ones from 0 to {target.layers - 1}")
    if config.rope is Rope.FLAT and config.max_positions < target.longest_prompt:
        found.append(f"max_position_embeddings is {config.max_positions}, a prompt has up to {target.longest_prompt}")
    if config.rope is Rope.MIRRORED and 2 * sum(target.rope_sections) != config.shape.head_dim:
        found.append(f"head_dim is {config.shape.head_dim}, mirrored it must be {2 * sum(target.rope_sections)}")
    if config.kind is DraftKind.DFLASH:
        if config.mask_token in target.forbidden:
            found.append(f"mask_token_id {config.mask_token} is a trajectory bin of the target")
        elif config.mask_token in target.closing or not 0 <= config.mask_token < target.vocab_size:
            found.append(f"mask_token_id {config.mask_token} is not an unused token of the target")
        if config.block_size < 2:
            found.append(f"block_size is {config.block_size}, expected at least 2")
    elif config.shape.layers != 1:
        found.append(f"num_hidden_layers is {config.shape.layers}, EAGLE-3 has 1")
    return found


def _draft_vocabulary(
    config: DraftConfig, tensors: Mapping[str, Tensor], target: TargetParts
) -> tuple[Tensor | None, list[str]]:
    """(draft vocabulary,) token ids of the target, None if the vocabularies are the same; and what is wrong with it."""
    if config.draft_vocabulary == config.vocab_size:
        return None, []
    if missing := [name for name in ("d2t", "t2d") if name not in tensors]:
        return None, [f"draft_vocab_size is {config.draft_vocabulary} but {' and '.join(missing)} is missing"]
    d2t, t2d = tensors["d2t"].to(torch.int64), tensors["t2d"].to(torch.bool)
    expected = ([config.draft_vocabulary], [config.vocab_size])
    if (list(d2t.shape), list(t2d.shape)) != expected:
        return None, [f"d2t and t2d have shapes {list(d2t.shape)} and {list(t2d.shape)}, expected {expected}"]
    ids = torch.arange(len(d2t)) + d2t
    if not torch.equal(ids, t2d.nonzero()[:, 0]):
        return None, ["d2t and t2d name different tokens"]
    said = set(ids.tolist())
    found = [f"its vocabulary lacks the closing token {token}" for token in target.closing if token not in said]
    if bins := sorted(said.intersection(target.forbidden)):
        found.append(f"its vocabulary holds {len(bins)} trajectory bins, such as {bins[0]}")
    return ids.to(target.device), found


def _read(path: Path, kind: DraftKind) -> dict[str, Tensor]:
    with open_weights(path) as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    if kind is DraftKind.EAGLE3:  # some trainers write the one layer as the first of a list
        tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()}
    return tensors


def _fill(network: Network, tensors: Mapping[str, Tensor], path: Path, target: TargetParts) -> Network:
    """Give the network its parameters; whatever else is in the file was asked for before or stays unread."""
    expected = network.state_dict()
    for name, parameter in expected.items():
        if name not in tensors:
            raise DraftError(f"{path}: tensor {name} is missing")
        if (found := list(tensors[name].shape)) != (wanted := list(parameter.shape)):
            raise DraftError(f"{path}: tensor {name} has shape {found}, expected {wanted}")
    network.load_state_dict({name: tensors[name] for name in expected})
    network.to(target.device, target.dtype).eval().requires_grad_(False)
    store_by_columns(network)
    return network
