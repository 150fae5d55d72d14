"""Target and drafts with random weights, made on the device: no file of 22 GB is read to learn what a step costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.draft.dflash import DFlashDraft, DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Draft, Eagle3Network
from rsd_planner.draft.rotary import Rope, Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.gpu_check.shapes import DFLASH_BLOCK, CheckShape
from rsd_planner.target.network import AlpamayoNetwork

_RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight", "attn.proj.weight", "linear_fc2.weight")
_DRAFT_THETA = 10000.0


@dataclass(frozen=True)
class Drafts:
    """Both published kinds, as the planner serves them."""

    dflash: DFlashDraft
    eagle3: Eagle3Draft


def random_network(shape: CheckShape, dtype: torch.dtype, device: torch.device) -> AlpamayoNetwork:
    """The network of a checkpoint with random parameters that keep activations near one.

    Raises:
        RuntimeError: A tensor was left without memory.
    """
    network = AlpamayoNetwork(shape.checkpoint_config(), shape.vlm_config())
    _randomise(network, dtype, device)
    for module in network.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if not buffer.is_meta:  # action space and Fourier features, float32 as the loader keeps them
                module.register_buffer(
                    name, buffer.to(device), persistent=name not in module._non_persistent_buffers_set
                )
    network.rebuild_rotary(device)
    _require_memory(network, device)
    return network.eval().requires_grad_(False)


def random_drafts(shape: CheckShape, network: AlpamayoNetwork, device: torch.device) -> Drafts:
    """A DFlash and an EAGLE-3 draft in the target's width, with FlatRoPE."""
    parts = _parts(shape, network)
    with torch.device("meta"):
        block, chain = DFlashNetwork(shape.dflash), Eagle3Network(shape.eagle3, shape.eagle3_vocabulary)
    for draft in (block, chain):
        _randomise(draft, parts.dtype, device)
        draft.eval().requires_grad_(False)
    token_ids = torch.arange(shape.eagle3_vocabulary, device=device)
    return Drafts(
        DFlashDraft(
            block,
            shape.dflash,
            _rotary(shape.dflash.head_dim, device),
            parts,
            block_size=DFLASH_BLOCK,
            mask_token=shape.mask_token,
        ),
        Eagle3Draft(chain, shape.eagle3, _rotary(shape.eagle3.head_dim, device), parts, token_ids=token_ids),
    )


def greedy(shape: CheckShape) -> Choice:
    """How all tokens are chosen here."""
    return Choice(Sampling(), shape.bins, torch.Generator())


def parameter_count(modules: Iterable[nn.Module]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def _randomise(network: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Give every parameter memory on the device and a value: norms one, biases zero, matrices normal."""
    depth = sum(name.endswith("input_layernorm.weight") for name, _ in network.named_parameters())
    for prefix, module in network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            value = torch.empty(parameter.shape, dtype=dtype, device=device)
            _initialise(f"{prefix}.{name}", value, depth)
            module.register_parameter(name, nn.Parameter(value, requires_grad=False))


def _initialise(name: str, value: Tensor, depth: int) -> None:
    if value.ndim < 2:
        value.fill_(1.0 if name.endswith("weight") else 0.0)
        return
    deviation = 1.0 if "embed_tokens" in name else 0.1 if "pos_embed" in name else value[0].numel() ** -0.5
    if name.endswith(_RESIDUAL_OUTPUTS):
        deviation /= (2 * max(depth, 1)) ** 0.5
    value.normal_(std=deviation)


def _require_memory(network: nn.Module, device: torch.device) -> None:
    if device.type == "meta":
        return
    tensors = [*network.named_parameters(), *network.named_buffers()]
    if left := [name for name, tensor in tensors if tensor.is_meta or tensor.device.type != device.type]:
        raise RuntimeError(f"{len(left)} tensors are not on {device}, such as {left[0]}")
    if coarse := [
        name for name, buffer in network.named_buffers() if buffer.is_floating_point() and buffer.dtype != torch.float32
    ]:
        raise RuntimeError(f"buffer {coarse[0]} is not float32")


def _rotary(head_dim: int, device: torch.device) -> Rotary:
    return Rotary(Rope.FLAT, head_dim, _DRAFT_THETA, (), device)


def _parts(shape: CheckShape, network: AlpamayoNetwork) -> TargetParts:
    weight = network.vlm.lm_head.weight
    return TargetParts(
        hidden_size=weight.shape[1],
        layers=len(network.text.layers),
        vocab_size=shape.vocab_size,
        longest_prompt=shape.prompt_tokens,
        rope_sections=network.text.rotary_emb.mrope_section,
        forbidden=shape.bins,
        closing=shape.closing,
        embedding=network.text.embed_tokens,
        lm_head=network.vlm.lm_head,
        dtype=weight.dtype,
        device=weight.device,
    )
