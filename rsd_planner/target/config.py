"""config.json of an Alpamayo checkpoint, read as plain JSON: nothing it names is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rsd_planner.errors import CheckpointError, UnsupportedModelError
from rsd_planner.target.action_space import DT_S, ActionScaling
from rsd_planner.target.trajectory_tokens import HistoryTokenizer

TRAINED_CAMERAS = (0, 1, 2, 6)
FRAMES_PER_CAMERA = 4
_REFUSED = {"alpamayo2_super": "Alpamayo 2"}
_LARGEST_BIN_M = (4.0, 4.0, 10.0)


class Variant(str, Enum):
    """The published generations this version runs, by `model_type`."""

    R1 = "alpamayo_r1"
    V1_5 = "alpamayo1_5"

    @property
    def model_name(self) -> str:
        return {Variant.R1: "Alpamayo R1", Variant.V1_5: "Alpamayo 1.5"}[self]


@dataclass(frozen=True)
class InProjectionConfig:
    """Width and depth of the network that embeds a noisy action and the flow time."""

    num_layers: int
    width: int
    max_frequency: float
    fourier_features: int


@dataclass(frozen=True)
class AlpamayoConfig:
    """What the loader needs to know of a checkpoint."""

    path: Path  # the config.json
    variant: Variant
    processor_name: str  # `vlm_name_or_path`
    vocab_size: int
    trajectory_start: int  # first trajectory bin `<i0>`
    trajectory_size: int  # number of bins
    trajectory_token_ids: Mapping[str, int]  # history, history_start, ... as the checkpoint numbers them
    history: HistoryTokenizer
    history_length: int  # tokens
    min_pixels: int
    max_pixels: int
    expert: Mapping[str, Any]  # overrides of the text config
    in_projection: InProjectionConfig
    scaling: ActionScaling
    waypoints: int
    flow_steps: int


class Fields:
    """Typed access to a JSON object; a missing or mistyped field is one message that names it."""

    def __init__(self, path: Path, values: Any, prefix: str = "") -> None:
        if not isinstance(values, dict):
            raise CheckpointError(f"{path}: {prefix or 'the file'} is {type(values).__name__}, expected an object")
        self._path, self._values, self._prefix = path, values, prefix

    def get(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        value = self._values.get(name, default)
        if isinstance(value, kind) and not isinstance(value, bool):
            return value
        expected = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        found = "nothing" if value is None else repr(value)
        raise CheckpointError(f"{self._path}: field {self._prefix}{name} is {found}, expected {expected}")

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def section(self, name: str) -> Fields:
        return Fields(self._path, self.get(name, dict), f"{self._prefix}{name}.")

    def require(self, name: str, expected: Any) -> None:
        found = self._values.get(name, expected)
        if found != expected:
            raise CheckpointError(
                f"{self._path}: field {self._prefix}{name} is {found!r}, only {expected!r} is supported"
            )


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        CheckpointError: The file is missing or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: not readable as JSON ({error})") from None


def read_config(checkpoint_dir: Path) -> AlpamayoConfig:
    """Read and check `checkpoint_dir/config.json`.

    Raises:
        UnsupportedModelError: Alpamayo 2, or a `model_type` that is none of ours.
        CheckpointError: The file is missing, not JSON, or a field is missing or out of what is supported.
    """
    path = checkpoint_dir / "config.json"
    values = read_json(path)
    fields = Fields(path, values)
    variant = _variant(path, values.get("model_type"))
    trajectory_start = fields.get("traj_token_start_idx", int)
    history = fields.section("hist_traj_tokenizer_cfg")
    history_bins = history.get("num_bins", int)
    future_bins = fields.section("traj_tokenizer_cfg").get("num_bins", int)
    trajectory_size = fields.get("traj_vocab_size", int)
    if future_bins + history_bins > trajectory_size:
        raise CheckpointError(
            f"{path}: field traj_vocab_size is {trajectory_size}, expected at least {future_bins} future + "
            f"{history_bins} history bins"
        )
    low = history.get("ego_xyz_min", list, [-x for x in _LARGEST_BIN_M])
    high = history.get("ego_xyz_max", list, list(_LARGEST_BIN_M))
    flow = fields.section("diffusion_cfg")
    flow.require("int_method", "euler")
    fields.require("expert_non_causal_attention", True)
    action_space = fields.section("action_space_cfg")
    action_space.require("dt", DT_S)
    return AlpamayoConfig(
        path=path,
        variant=variant,
        processor_name=fields.get("vlm_name_or_path", str),
        vocab_size=fields.get("vocab_size", int),
        trajectory_start=trajectory_start,
        trajectory_size=trajectory_size,
        trajectory_token_ids=fields.get("traj_token_ids", dict),
        history=HistoryTokenizer(trajectory_start + future_bins, history_bins, tuple(low), tuple(high)),
        history_length=fields.get("tokens_per_history_traj", int),
        min_pixels=fields.get("min_pixels", int),
        max_pixels=fields.get("max_pixels", int),
        expert=fields.get("expert_cfg", dict),
        in_projection=_in_projection(fields.section("action_in_proj_cfg")),
        scaling=_scaling(action_space),
        waypoints=action_space.get("n_waypoints", int),
        flow_steps=flow.get("num_inference_steps", int, 10),
    )


def _variant(path: Path, model_type: object) -> Variant:
    supported = ", ".join(v.value for v in Variant)
    if model_type in _REFUSED:
        raise UnsupportedModelError(
            f"{path}: model_type {model_type!r} is {_REFUSED[str(model_type)]}, which this version does not run "
            f"(supported: {supported})"
        )
    try:
        return Variant(model_type)
    except ValueError:
        found = "missing" if model_type is None else repr(model_type)
        raise UnsupportedModelError(f"{path}: model_type is {found}, expected one of {supported}") from None


def _in_projection(fields: Fields) -> InProjectionConfig:
    number = (int, float)
    return InProjectionConfig(
        num_layers=fields.get("num_enc_layers", int, 4),
        width=fields.get("hidden_size", int, 1024),
        max_frequency=float(fields.get("max_freq", number, 100.0)),
        fourier_features=fields.get("num_fourier_feats", int, 20),
    )


def _scaling(fields: Fields) -> ActionScaling:
    names = ("accel_mean", "accel_std", "curvature_mean", "curvature_std")
    return ActionScaling(*(float(fields.get(name, (int, float))) for name in names))
