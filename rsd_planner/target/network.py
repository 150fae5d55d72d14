"""The whole network under its published names: transformers' Qwen3-VL, the action expert and its projections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding, Qwen3VLVisionRotaryEmbedding

from rsd_planner.errors import CheckpointError, one_line
from rsd_planner.target.action_expert import ACTION_DIMS, ActionExpert, ActionInProjection, expert_config
from rsd_planner.target.action_space import ActionScaling
from rsd_planner.target.config import AlpamayoConfig, read_json

_EXPERT_SHARES = ("num_hidden_layers", "num_key_value_heads", "head_dim")


class ScalingBuffers(nn.Module):
    """The action scaling, kept as buffers because a bf16 checkpoint rounds them."""

    def __init__(self, scaling: ActionScaling) -> None:
        super().__init__()
        for name, value in vars(scaling).items():
            self.register_buffer(name, torch.tensor(value))

    def scaling(self) -> ActionScaling:
        return ActionScaling(**{name: float(buffer) for name, buffer in self.named_buffers()})


class AlpamayoNetwork(nn.Module):
    """Parameters and buffers named as in a published checkpoint."""

    def __init__(self, config: AlpamayoConfig, vlm_config: Qwen3VLConfig) -> None:
        super().__init__()
        expert = expert_config(vlm_config.text_config, dict(config.expert))
        with torch.device("meta"):  # no memory until the checkpoint's own tensors take these places
            self.vlm = Qwen3VLForConditionalGeneration._from_config(vlm_config, attn_implementation="sdpa")
            expert._attn_implementation = "sdpa"
            self.expert = ActionExpert(expert)
        self.action_in_proj = ActionInProjection(config.in_projection, expert.hidden_size)
        self.action_out_proj = nn.Linear(expert.hidden_size, ACTION_DIMS)
        self.action_space = ScalingBuffers(config.scaling)

    @property
    def text(self) -> Any:
        return self.vlm.model.language_model

    @property
    def vision(self) -> Any:
        return self.vlm.model.visual

    def logits(self, hidden: Tensor) -> Tensor:
        """(T, hidden) after the final norm -> (T, vocab) float32."""
        logits: Tensor = self.vlm.lm_head(hidden)
        return logits.float()

    def rebuild_rotary(self, device: torch.device) -> None:
        """Recompute the rotary frequencies, which no checkpoint carries and which a meta-device build leaves empty."""
        for parent in self.modules():
            for name, child in list(parent.named_children()):
                if isinstance(child, Qwen3VLTextRotaryEmbedding | Qwen3VLVisionRotaryEmbedding):
                    setattr(parent, name, type(child)(child.config).to(device))


def build_network(config: AlpamayoConfig, vlm_config: Qwen3VLConfig, processor_dir: Path) -> AlpamayoNetwork:
    """The network that checkpoint and base VLM describe, without weights.

    Raises:
        CheckpointError: They describe none.
    """
    path = processor_dir / "config.json"
    try:
        network = AlpamayoNetwork(config, vlm_config)
    except Exception as error:  # transformers and torch have no error of their own for dimensions that make no sense
        raise CheckpointError(f"{config.path}, {path}: no network has these dimensions ({one_line(error)})") from error
    sections, pairs = list(network.text.rotary_emb.mrope_section), vlm_config.text_config.head_dim // 2
    if len(sections) != 3 or sum(sections) != pairs:
        raise CheckpointError(
            f"{path}: text_config.rope_scaling.mrope_section is {sections}, expected three numbers that add up to "
            f"{pairs}, half of head_dim"
        )
    return network


def read_vlm_config(config: AlpamayoConfig, processor_dir: Path) -> Qwen3VLConfig:
    """Dimensions of vision and text from the base VLM's directory, with the checkpoint's vocabulary size.

    Raises:
        CheckpointError: The file is missing, or describes no Qwen3-VL, or the expert does not fit the text model.
    """
    path = processor_dir / "config.json"
    values = read_json(path)
    model_type = values.get("model_type") if isinstance(values, dict) else None
    if model_type != "qwen3_vl":
        raise CheckpointError(f"{path}: model_type is {model_type!r}, expected 'qwen3_vl'")
    try:
        vlm_config = Qwen3VLConfig.from_dict(values)
    except Exception as error:  # whatever transformers' checks of the fields raise
        raise CheckpointError(f"{path}: not a usable configuration of a Qwen3-VL ({one_line(error)})") from error
    vision = vlm_config.vision_config
    if vision.num_heads < 1 or vision.hidden_size % vision.num_heads:
        raise CheckpointError(
            f"{path}: vision_config.num_heads is {vision.num_heads}, expected a divisor of the hidden size, "
            f"{vision.hidden_size}"
        )
    vlm_config.text_config.vocab_size = config.vocab_size
    for name in _EXPERT_SHARES:
        shared = getattr(vlm_config.text_config, name)
        if config.expert.get(name, shared) != shared:
            raise CheckpointError(
                f"{config.path}: expert_cfg.{name} is {config.expert[name]!r}, expected {shared} as in the text model "
                f"({path}): the expert reads the text model's KV cache layer by layer"
            )
    return vlm_config
