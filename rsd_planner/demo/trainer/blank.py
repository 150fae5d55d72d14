"""An untrained Alpamayo R1 of demo size in the published layout: what training starts from, and how it is saved."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rsd_planner.demo.world.cameras import FRONT, HEIGHT, WIDTH
from rsd_planner.demo.world.tokenizer import PROCESSOR_DIR
from rsd_planner.target.action_space import DT_S
from rsd_planner.target.config import AlpamayoConfig, read_config, read_json
from rsd_planner.target.network import AlpamayoNetwork, read_vlm_config
from rsd_planner.target.vocabulary import SPECIAL_TOKENS

HISTORY_BINS = 1000
FUTURE_BINS = 64  # future trajectories are never said as tokens; a small room for them keeps the published order
LAYERS, HEAD_DIM, KV_HEADS = 12, 64, 2
TEXT = {"hidden_size": 256, "intermediate_size": 448, "num_attention_heads": 4}
EXPERT = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
VISION = {"hidden_size": 128, "intermediate_size": 256, "depth": 6, "num_heads": 2, "deepstack_visual_indexes": [3]}
POSITION_EMBEDDINGS = 256
MROPE_SECTION = [12, 10, 10]
IN_PROJECTION = {"num_enc_layers": 2, "hidden_size": 128, "max_freq": 100.0, "num_fourier_feats": 20}
ACTION_SPACE = {
    "accel_mean": 0.02902694707164455,
    "accel_std": 0.6810426736454882,
    "curvature_mean": 0.0002692167976330542,
    "curvature_std": 0.026148280660833106,
    "dt": DT_S,
    "n_waypoints": 64,
}
_EMBEDDING_STD = 0.1
_RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight", "attn.proj.weight", "linear_fc2.weight")


def write_model_directory(out: Path) -> None:
    """Write `checkpoint/config.json` and `processor/`: everything of a model directory but its weights."""
    processor, checkpoint = out / "processor", out / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    shutil.copytree(PROCESSOR_DIR, processor, dirs_exist_ok=True)
    words = _base_vocabulary(processor)
    (processor / "config.json").write_text(json.dumps(_vlm_config(words), indent=1) + "\n")
    (checkpoint / "config.json").write_text(json.dumps(_checkpoint_config(len(words)), indent=1) + "\n")


def new_network(model_dir: Path, seed: int) -> tuple[AlpamayoConfig, AlpamayoNetwork]:
    """A network with random weights for a written model directory; the same for the same seed."""
    config = read_config(model_dir / "checkpoint")
    network = AlpamayoNetwork(config, read_vlm_config(config, model_dir / "processor"))
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers() if not buffer.is_meta}
    network.to_empty(device="cpu")
    for name, buffer in buffers.items():
        network.get_buffer(name).copy_(buffer)
    network.rebuild_rotary(torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            _initialise(name, parameter, generator)
        first = config.history.bin_start
        network.text.embed_tokens.weight[first : first + config.history.num_bins] = _ordered(config.history.num_bins)
    return config, network


def save_weights(network: AlpamayoNetwork, model_dir: Path) -> None:
    """Write the weights as bfloat16 safetensors under the published names."""
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in network.state_dict().items()}
    path = model_dir / "checkpoint" / "model.safetensors"
    temporary = path.with_suffix(".part")
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.rename(path)


def _initialise(name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    if parameter.ndim < 2:
        parameter.fill_(1.0 if name.endswith("weight") else 0.0)
        return
    inputs = parameter[0].numel()
    deviation = _EMBEDDING_STD if "embed" in name and "patch" not in name else inputs**-0.5
    if name.endswith(_RESIDUAL_OUTPUTS):
        deviation /= (2 * LAYERS) ** 0.5
    parameter.normal_(std=deviation, generator=generator)


def _ordered(bins: int) -> Tensor:
    """(bins, hidden) embeddings of neighbouring bins start alike, so that what one bin teaches its neighbours learn."""
    place = torch.arange(bins) / bins
    waves = torch.logspace(-1, math.log10(bins / 4), TEXT["hidden_size"] // 2)  # per range of all bins
    angle = 2 * math.pi * place[:, None] * waves
    return _EMBEDDING_STD * 2**0.5 * torch.cat([angle.sin(), angle.cos()], dim=1)


def _base_vocabulary(processor: Path) -> dict[str, int]:
    tokenizer = read_json(processor / "tokenizer.json")
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return {**tokenizer["model"]["vocab"], **added}


def _vlm_config(words: dict[str, int]) -> dict[str, Any]:
    return {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": False,
        "image_token_id": words["<|image_pad|>"],
        "video_token_id": words["<|video_pad|>"],
        "vision_start_token_id": words["<|vision_start|>"],
        "vision_end_token_id": words["<|vision_end|>"],
        "text_config": {
            "model_type": "qwen3_vl_text",
            "vocab_size": len(words),
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "max_position_embeddings": 8192,
            "rope_theta": 5000000.0,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": MROPE_SECTION, "rope_type": "default"},
            **TEXT,
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "num_position_embeddings": POSITION_EMBEDDINGS,
            "out_hidden_size": TEXT["hidden_size"],
            **VISION,
        },
    }


def _checkpoint_config(base: int) -> dict[str, Any]:
    bins = FUTURE_BINS + HISTORY_BINS
    special = {token: base + bins + i for i, token in enumerate(SPECIAL_TOKENS)}
    names = ("history", "future", "history_start", "future_start", "history_end", "future_end")
    return {
        "model_type": "alpamayo_r1",
        "architectures": ["AlpamayoR1"],
        "vlm_name_or_path": "processor",
        "vocab_size": base + bins + len(SPECIAL_TOKENS),
        "traj_token_start_idx": base,
        "traj_vocab_size": bins,
        "traj_tokenizer_cfg": {"num_bins": FUTURE_BINS},
        "hist_traj_tokenizer_cfg": {"num_bins": HISTORY_BINS},
        "traj_token_ids": {name: special[f"<|traj_{name}|>"] for name in names},
        "tokens_per_history_traj": 48,
        "tokens_per_future_traj": 128,
        "trained_cameras": [FRONT],
        "min_pixels": HEIGHT * WIDTH,
        "max_pixels": HEIGHT * WIDTH,
        "action_space_cfg": ACTION_SPACE,
        "action_in_proj_cfg": IN_PROJECTION,
        "diffusion_cfg": {"num_inference_steps": 10, "int_method": "euler"},
        "expert_cfg": EXPERT,
        "expert_non_causal_attention": True,
    }
