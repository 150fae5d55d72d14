"""Sizes to measure: Alpamayo R1 as published, and a tiny one that takes the same way through the code on a CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import Qwen3VLConfig

from rsd_planner.draft.layers import Shape
from rsd_planner.target.config import AlpamayoConfig, read_config

IMAGES = 16  # four cameras, four frames each
NEW_IMAGES = 4  # of them since the last tick
STEPS = (1, 2, 4, 8, 16, 32)  # tokens per pass
FLOW_STEPS = (10, 5)
DFLASH_BLOCK, EAGLE3_CHAIN = 16, 7
DRAFT_ROWS = 16  # rows of features a draft's pass reads, of which the accepted ones count
LONGEST_REASONING = 110  # tokens
_ROWS_BEHIND = LONGEST_REASONING + DFLASH_BLOCK + 64  # rows of cache behind a prompt: one more block, the waypoints
_ACTION_SPACE = {
    "accel_mean": 0.02902694707164455,
    "accel_std": 0.6810426736454882,
    "curvature_mean": 0.0002692167976330542,
    "curvature_std": 0.026148280660833106,
    "dt": 0.1,
    "n_waypoints": 64,
}


@dataclass(frozen=True)
class CheckShape:
    """Everything of a model that its speed depends on."""

    name: str
    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    expert: Mapping[str, Any]
    in_projection: Mapping[str, Any]
    vocab_size: int
    bins: range
    closing: tuple[int, int]  # cot_end, traj_future_start
    image_pad: int
    pixels: tuple[int, int]  # of an image as the vision tower takes it, at least and at most
    grid: tuple[int, int, int]  # patches of a Full HD image: 1, rows, columns
    prompt_tokens: int
    past: int  # tokens in the cache when steps are measured
    dflash: Shape
    dflash_taps: tuple[int, ...]
    mask_token: int
    eagle3: Shape
    eagle3_vocabulary: int
    floor_size: int  # side of the square matrices of the matmul floor
    floor_bytes: int  # of the buffer that is copied

    @property
    def capacity(self) -> int:
        """Rows of the KV cache, a multiple of 64."""
        return -(-(self.prompt_tokens + _ROWS_BEHIND) // 64) * 64

    def vlm_config(self) -> Qwen3VLConfig:
        return Qwen3VLConfig.from_dict(
            {
                "model_type": "qwen3_vl",
                "tie_word_embeddings": False,
                "image_token_id": self.image_pad,
                "text_config": {
                    "model_type": "qwen3_vl_text",
                    "vocab_size": self.vocab_size,
                    "max_position_embeddings": 262144,
                    "rms_norm_eps": 1e-6,
                    "rope_theta": 5000000.0,
                    **self.text,
                },
                "vision_config": {"model_type": "qwen3_vl", "out_hidden_size": self.text["hidden_size"], **self.vision},
            }
        )

    def checkpoint_config(self) -> AlpamayoConfig:
        """As if read from a checkpoint."""
        with TemporaryDirectory() as directory:
            path = Path(directory) / "config.json"
            path.write_text(json.dumps(self._checkpoint_fields()))
            return read_config(path.parent)

    def _checkpoint_fields(self) -> dict[str, Any]:
        history_bins = len(self.bins) // 4
        return {
            "model_type": "alpamayo_r1",
            "vlm_name_or_path": "",
            "vocab_size": self.vocab_size,
            "traj_token_start_idx": self.bins.start,
            "traj_vocab_size": len(self.bins),
            "traj_tokenizer_cfg": {"num_bins": len(self.bins) - history_bins},
            "hist_traj_tokenizer_cfg": {"num_bins": history_bins},
            "traj_token_ids": {},
            "tokens_per_history_traj": 48,
            "min_pixels": self.pixels[0],
            "max_pixels": self.pixels[1],
            "action_space_cfg": _ACTION_SPACE,
            "action_in_proj_cfg": dict(self.in_projection),
            "diffusion_cfg": {"num_inference_steps": FLOW_STEPS[0], "int_method": "euler"},
            "expert_cfg": dict(self.expert),
            "expert_non_causal_attention": True,
        }


def _text(
    hidden: int, intermediate: int, layers: int, heads: int, head_dim: int, sections: Sequence[int]
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 4,
        "head_dim": head_dim,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": list(sections), "rope_type": "default"},
    }


ALPAMAYO = CheckShape(
    name="alpamayo",
    text=_text(4096, 12288, 36, 32, 128, (24, 20, 20)),
    vision={
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
    expert={"hidden_size": 2048, "intermediate_size": 8256, "num_attention_heads": 16},
    in_projection={"num_enc_layers": 2, "hidden_size": 512, "max_freq": 100.0, "num_fourier_feats": 20},
    vocab_size=155697,
    bins=range(151669, 155669),
    closing=(155678, 155681),
    image_pad=151655,
    pixels=(163840, 196608),
    grid=(1, 20, 36),
    prompt_tokens=3006,
    past=3000,
    dflash=Shape(hidden=4096, intermediate=12288, layers=2, heads=32, kv_heads=8, head_dim=128, taps=5, eps=1e-6),
    dflash_taps=(1, 9, 17, 25, 33),
    mask_token=155689,
    eagle3=Shape(hidden=4096, intermediate=12288, layers=1, heads=32, kv_heads=8, head_dim=128, taps=3, eps=1e-6),
    eagle3_vocabulary=32000,
    floor_size=8192,
    floor_bytes=4 << 30,
)

TINY = CheckShape(
    name="tiny",
    text=_text(64, 128, 4, 8, 16, (4, 2, 2)),
    vision={
        "depth": 4,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2],
    },
    expert={"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4},
    in_projection={"num_enc_layers": 2, "hidden_size": 32, "max_freq": 100.0, "num_fourier_feats": 20},
    vocab_size=500,
    bins=range(300, 400),
    closing=(401, 404),
    image_pad=290,
    pixels=(4096, 9000),
    grid=(1, 4, 6),
    prompt_tokens=190,
    past=184,
    dflash=Shape(hidden=64, intermediate=128, layers=2, heads=8, kv_heads=2, head_dim=16, taps=3, eps=1e-6),
    dflash_taps=(0, 1, 3),
    mask_token=420,
    eagle3=Shape(hidden=64, intermediate=128, layers=1, heads=8, kv_heads=2, head_dim=16, taps=2, eps=1e-6),
    eagle3_vocabulary=250,
    floor_size=256,
    floor_bytes=1 << 24,
)

SHAPES = {shape.name: shape for shape in (ALPAMAYO, TINY)}
