"""Draft directories for tests: the golden ones, and random ones that fit the golden target."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from golden_cases import GOLDEN
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from rsd_planner.draft.dflash import DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Network
from rsd_planner.draft.layers import Shape
from rsd_planner.draft.target_parts import TargetParts

EAGLE3, DFLASH = "eagle3", "dflash"
CLOSING = (5791, 5794)  # of the golden target
BINS = range(1782, 5782)
UNUSED = 5802  # <|vectorized_wm_pre_tkn|>
SHAPE = Shape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, head_dim=16, taps=3, eps=1e-6)


def recorded(kind: str) -> Mapping[str, NDArray[Any]]:
    with np.load(GOLDEN / kind / "cases.npz") as file:
        return {name: file[name] for name in file.files}


def golden_directory(kind: str, rope: str, to: Path) -> Path:
    """The golden draft, with the field that the published layout lacks."""
    shutil.copytree(GOLDEN / kind, to, dirs_exist_ok=True)
    edit_config(to, rope=rope)
    return to


def golden_parts(kind: str) -> TargetParts:
    """What stands for the target in the golden record."""
    arrays = {name: torch.from_numpy(array) for name, array in recorded(kind).items()}
    embedding, head = arrays["embedding"], arrays.get("lm_head")
    said = load_file(GOLDEN / EAGLE3 / "model.safetensors")["t2d"].nonzero()[:, 0].tolist()
    return parts(
        hidden_size=64,
        layers=4 if kind == DFLASH else 36,
        vocab_size=400,
        longest_prompt=3100,
        forbidden=range(0),
        closing=(said[0], said[1]),
        embedding=lambda ids: embedding[ids],
        lm_head=lambda hidden: hidden @ head.T,
    )


def parts(**changes: Any) -> TargetParts:
    """Facts of the golden target, changed as a test asks."""
    facts = {
        "hidden_size": 64,
        "layers": 4,
        "vocab_size": 5810,
        "longest_prompt": 3100,
        "rope_sections": (4, 2, 2),
        "forbidden": BINS,
        "closing": CLOSING,
        "embedding": torch.nn.Embedding(5810, 64),
        "lm_head": torch.nn.Linear(64, 5810, bias=False),
        "dtype": torch.float32,
        "device": torch.device("cpu"),
    }
    return TargetParts(**(facts | changes))


def random_draft(kind: str, rope: str, to: Path, *, seed: int = 0, whole_vocabulary: bool = False) -> Path:
    """A draft of random weights that fits the golden target."""
    torch.manual_seed(seed)
    to.mkdir(parents=True, exist_ok=True)
    config = json.loads((GOLDEN / kind / "config.json").read_text()) | {"vocab_size": 5810, "rope": rope}
    tensors: dict[str, Tensor]
    if kind == DFLASH:
        config["dflash_config"] = {"mask_token_id": UNUSED, "target_layer_ids": [0, 1, 3]}
        tensors = dict(DFlashNetwork(SHAPE).state_dict())
    else:
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [0, 1, 3]}
        said = torch.tensor(sorted([*range(0, 1600, 4), *CLOSING]))
        count = 5810 if whole_vocabulary else len(said)
        config["draft_vocab_size"] = count
        tensors = dict(Eagle3Network(SHAPE, count).state_dict())
        if not whole_vocabulary:
            tensors["d2t"] = said - torch.arange(count)
            tensors["t2d"] = torch.zeros(5810, dtype=torch.bool).index_fill(0, said, True)
    (to / "config.json").write_text(json.dumps(config))
    save_file(tensors, to / "model.safetensors")
    return to


def edit_config(directory: Path, **changes: Any) -> None:
    """Change fields of config.json; None removes one."""
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def edit_tensors(directory: Path, **changes: Tensor | None) -> None:
    """Change tensors by name, with __ for a dot; None removes one."""
    path = directory / "model.safetensors"
    tensors = load_file(path) | {name.replace("__", "."): tensor for name, tensor in changes.items()}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
