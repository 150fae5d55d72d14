"""A model directory on disk: where its parts are, and its safetensors, single or sharded, into the network."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rsd_planner.errors import CheckpointError
from rsd_planner.target.config import AlpamayoConfig, read_json
from rsd_planner.target.network import AlpamayoNetwork

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_CHECKPOINT_NAMES = ("target", "checkpoint")
_DTYPES = ("F32", "BF16", "F16", "F64")
_MODULES = ("vlm.", "expert.", "action_in_proj.", "action_out_proj.")
_PARAMETERS = (".weight", ".bias")
# Buffers that 1.5 leaves out of its checkpoints; computed from the config where absent.
_OPTIONAL = ("action_space.", "action_in_proj.sinus.", "action_in_proj.timestep_fourier_encoder.")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelDirectory:
    """A folder with `target/` (or `checkpoint/`), `processor/`, perhaps drafts and, to say something, NOTICE.txt."""

    root: Path
    checkpoint: Path

    @classmethod
    def find(cls, path: Path) -> ModelDirectory:
        """Locate the checkpoint in a model directory, or take the path itself if it is one.

        Raises:
            CheckpointError: There is no such folder, or no checkpoint in it.
        """
        if not path.is_dir():
            found = "a file" if path.exists() else "nothing"
            raise CheckpointError(f"{path}: found {found}, expected a model directory")
        for name in _CHECKPOINT_NAMES:
            if (path / name / "config.json").is_file():
                return cls(path, path / name)
        if (path / "config.json").is_file():
            return cls(path.resolve().parent, path)
        places = ", ".join(f"{name}/config.json" for name in _CHECKPOINT_NAMES)
        raise CheckpointError(f"{path}: no model here, expected {places} or config.json")

    def processor(self, config: AlpamayoConfig) -> Path:
        """The base VLM's directory: `processor/`, or what `vlm_name_or_path` names as a local folder.

        Raises:
            CheckpointError: Neither exists; nothing is ever downloaded.
        """
        candidates = [self.root / "processor", self.root / config.processor_name, self.checkpoint / "processor"]
        for candidate in candidates:
            if (candidate / "preprocessor_config.json").is_file():
                return candidate
        raise CheckpointError(
            f"{self.root}: no processor directory, expected {candidates[0]} with tokenizer.json, "
            f"preprocessor_config.json and config.json of the base VLM {config.processor_name!r}"
        )

    @property
    def draft(self) -> Path | None:
        """The folder of the draft, if there is one."""
        path = self.root / "draft"
        return path if path.exists() else None

    @property
    def drafts(self) -> tuple[Path, ...]:
        """The folder of the draft, then `draft_*/`: others, which only comparisons use."""
        own = () if self.draft is None else (self.draft,)
        return (*own, *sorted(path for path in self.root.glob("draft_*") if path.is_dir()))

    @property
    def notice(self) -> str:
        path = self.root / "NOTICE.txt"
        return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""


@contextmanager
def accessible(path: Path) -> Iterator[None]:
    """Turns an OSError, such as that of a directory that may not be entered, into a CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error


def load_weights(
    network: AlpamayoNetwork, checkpoint: Path, *, dtype: torch.dtype, device: torch.device
) -> AlpamayoNetwork:
    """Fill the network from the checkpoint's safetensors.

    Parameters become `dtype`; the action space and Fourier buffers keep the checkpoint's rounded values in float32.

    Raises:
        CheckpointError: A shard or tensor is missing or damaged, or a shape differs from what the configs say.
    """
    expected = network.state_dict()
    loaded: dict[str, Tensor] = {}
    for path, names in _shards(checkpoint, set(expected)).items():
        loaded.update(_read(path, names, expected, dtype, device))
    missing = [name for name in expected if name not in loaded and not name.startswith(_OPTIONAL)]
    if missing:
        raise CheckpointError(f"{checkpoint}: tensor {missing[0]}{_and_more(missing)} is in no weight file")
    network.load_state_dict(loaded, strict=False, assign=True)
    network.rebuild_rotary(device)
    return network.to(device).eval().requires_grad_(False)


def load_part(
    network: AlpamayoNetwork, checkpoint: Path, prefixes: tuple[str, ...], *, dtype: torch.dtype, device: torch.device
) -> None:
    """Fill only the tensors whose names begin so; the rest of the network stays without memory.

    Raises:
        CheckpointError: As `load_weights`.
    """
    expected = network.state_dict()
    loaded: dict[str, Tensor] = {}
    for path, names in _shards(checkpoint, set(expected)).items():
        if wanted := [name for name in names if name.startswith(prefixes)]:
            loaded.update(_read(path, wanted, expected, dtype, device))
    network.load_state_dict(loaded, strict=False, assign=True)
    network.eval().requires_grad_(False)


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _shards(checkpoint: Path, expected: set[str]) -> dict[Path, list[str]]:
    """Weight file -> names of the expected tensors in it."""
    single, index = checkpoint / _WEIGHTS, checkpoint / _INDEX
    if index.is_file():
        values = read_json(index)
        located = values.get("weight_map") if isinstance(values, dict) else None
        if not isinstance(located, dict):
            raise CheckpointError(f"{index}: field weight_map is missing, expected an object of tensor -> file")
    elif single.is_file():
        with open_weights(single) as file:
            located = dict.fromkeys(file.keys(), _WEIGHTS)
    else:
        raise CheckpointError(f"{checkpoint}: no weights, expected {_WEIGHTS} or {_INDEX}")
    unknown = sorted(set(located) - expected)
    if surplus := [name for name in unknown if name.startswith(_MODULES) and name.endswith(_PARAMETERS)]:
        raise CheckpointError(
            f"{checkpoint}: tensor {surplus[0]}{_and_more(surplus)} has no place in a model of the dimensions that "
            "the configs of checkpoint and processor say, such as a number of layers"
        )
    if unknown:
        logger.warning(
            "%s: %d tensors are not part of this model and stay unread: %s ...", checkpoint, len(unknown), unknown[0]
        )
    shards: dict[Path, list[str]] = {}
    for name in sorted(expected & set(located)):
        file = located[name]
        if not isinstance(file, str) or not file or Path(file).name != file:
            raise CheckpointError(f"{index}: tensor {name} is said to be in {file!r}, expected a file beside the index")
        shards.setdefault(checkpoint / file, []).append(name)
    return shards


def _read(
    path: Path, names: list[str], expected: dict[str, Tensor], dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    tensors = {}
    with open_weights(path) as file:
        present = set(file.keys())
        for name in names:
            if name not in present:
                raise CheckpointError(f"{path}: tensor {name} is not in the file, although the index says so")
            stored = file.get_slice(name)
            found, wanted = list(stored.get_shape()), list(expected[name].shape)
            if found != wanted:
                raise CheckpointError(f"{path}: tensor {name} has shape {found}, expected {wanted}")
            if stored.get_dtype() not in _DTYPES:
                raise CheckpointError(
                    f"{path}: tensor {name} is {stored.get_dtype()}, expected one of {', '.join(_DTYPES)}: "
                    "quantised checkpoints are not supported"
                )
            kept = torch.float32 if name.startswith(_OPTIONAL) else dtype
            tensors[name] = file.get_tensor(name).to(device=device, dtype=kept)
    return tensors


def open_weights(path: Path) -> safe_open:
    """Raises CheckpointError when the file is missing or damaged."""
    try:
        path.open("rb").close()  # safetensors calls a file missing that may not be read
        return safe_open(str(path), framework="pt", device="cpu")
    except FileNotFoundError:
        raise CheckpointError(f"{path}: weight file is missing") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error})") from None
