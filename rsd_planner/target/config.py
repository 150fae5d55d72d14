"""config.json of an Alpamayo checkpoint, read as plain JSON: nothing it names is imported."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rsd_planner.errors import CheckpointError, UnsupportedModelError
from rsd_planner.plan import WAYPOINTS
from rsd_planner.scene.observation import HISTORY_STEPS
from rsd_planner.target.action_space import DT_S, ActionScaling
from rsd_planner.target.trajectory_tokens import HistoryTokenizer

TRAINED_CAMERAS = (0, 1, 2, 6)  # of the published checkpoints, which do not say so themselves
FRAMES_PER_CAMERA = 4
_REFUSED = {"alpamayo2_super": "Alpamayo 2"}
_LARGEST_BIN_M = (4.0, 4.0, 10.0)
_HISTORY_TOKENS = 3 * HISTORY_STEPS  # x, y, z of each pose


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
    cameras: tuple[int, ...]  # ids the model was trained for
    min_pixels: int
    max_pixels: int
    expert: Mapping[str, Any]  # overrides of the text config
    in_projection: InProjectionConfig
    scaling: ActionScaling
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

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer of at least `least`."""
        value: int = self.get(name, int, default)
        if value < least:
            raise self.unfit(name, value, f"at least {least}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number; JSON as Python reads it also knows NaN and Infinity."""
        value = float(self.get(name, (int, float), default))
        if not math.isfinite(value):
            raise self.unfit(name, value, "a finite number")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.number(name, default)
        if value <= 0:
            raise self.unfit(name, value, "more than 0")
        return value

    def triple(self, name: str, default: tuple[float, float, float] | None = None) -> tuple[float, float, float]:
        """Three finite numbers."""
        values = self.get(name, list, list(default) if default else None)
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
        if len(values) != 3 or len(numbers) != 3:
            raise self.unfit(name, values, "three numbers")
        first, second, third = map(float, numbers)
        return first, second, third

    def unfit(self, name: str, found: Any, expected: str) -> CheckpointError:
        """The error of a field whose value is of the right type and still out of what is supported."""
        return CheckpointError(f"{self._path}: field {self._prefix}{name} is {found!r}, expected {expected}")

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
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
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
    flow = fields.section("diffusion_cfg")
    flow.require("int_method", "euler")
    fields.require("expert_non_causal_attention", True)
    fields.require("tokens_per_history_traj", _HISTORY_TOKENS)
    action_space = fields.section("action_space_cfg")
    action_space.require("dt", DT_S)
    action_space.require("n_waypoints", WAYPOINTS)
    vocab_size, trajectory_start = fields.count("vocab_size"), fields.count("traj_token_start_idx", least=0)
    trajectory_size = fields.count("traj_vocab_size")
    if trajectory_start + trajectory_size > vocab_size:
        raise fields.unfit(
            "traj_vocab_size", trajectory_size, f"at most {vocab_size - trajectory_start}: vocab_size is {vocab_size}"
        )
    min_pixels = fields.count("min_pixels")
    return AlpamayoConfig(
        path=path,
        variant=variant,
        processor_name=fields.get("vlm_name_or_path", str),
        vocab_size=vocab_size,
        trajectory_start=trajectory_start,
        trajectory_size=trajectory_size,
        trajectory_token_ids=fields.get("traj_token_ids", dict),
        history=_history_tokenizer(fields, trajectory_start, trajectory_size),
        history_length=_HISTORY_TOKENS,
        cameras=_cameras(fields),
        min_pixels=min_pixels,
        max_pixels=fields.count("max_pixels", least=min_pixels),
        expert=fields.get("expert_cfg", dict),
        in_projection=_in_projection(fields.section("action_in_proj_cfg")),
        scaling=_scaling(action_space),
        flow_steps=flow.count("num_inference_steps", 10),
    )


def _cameras(fields: Fields) -> tuple[int, ...]:
    """`trained_cameras`, a field of our own; without it the published ones."""
    found = fields.get("trained_cameras", list, list(TRAINED_CAMERAS))
    if not found or not all(type(camera) is int and camera >= 0 for camera in found) or len(set(found)) != len(found):
        raise fields.unfit("trained_cameras", found, "different camera ids, at least one")
    return tuple(sorted(found))


def _history_tokenizer(fields: Fields, trajectory_start: int, trajectory_size: int) -> HistoryTokenizer:
    history = fields.section("hist_traj_tokenizer_cfg")
    bins, future_bins = history.count("num_bins", least=2), fields.section("traj_tokenizer_cfg").count("num_bins")
    if future_bins + bins > trajectory_size:
        raise fields.unfit("traj_vocab_size", trajectory_size, f"at least {future_bins} future + {bins} history bins")
    x, y, z = _LARGEST_BIN_M
    low, high = history.triple("ego_xyz_min", (-x, -y, -z)), history.triple("ego_xyz_max", _LARGEST_BIN_M)
    if not all(below < above for below, above in zip(low, high, strict=True)):
        raise history.unfit("ego_xyz_min", list(low), f"less than ego_xyz_max, {list(high)}")
    return HistoryTokenizer(trajectory_start + future_bins, bins, low, high)


def _variant(path: Path, model_type: object) -> Variant:
    supported = ", ".join(v.value for v in Variant)
    if isinstance(model_type, str) and model_type in _REFUSED:
        raise UnsupportedModelError(
            f"{path}: model_type {model_type!r} is {_REFUSED[model_type]}, which this version does not run "
            f"(supported: {supported})"
        )
    try:
        return Variant(model_type)
    except ValueError:
        found = "missing" if model_type is None else repr(model_type)
        raise UnsupportedModelError(f"{path}: model_type is {found}, expected one of {supported}") from None


def _in_projection(fields: Fields) -> InProjectionConfig:
    return InProjectionConfig(
        num_layers=fields.count("num_enc_layers", 4),
        width=fields.count("hidden_size", 1024),
        max_frequency=fields.positive("max_freq", 100.0),
        fourier_features=fields.count("num_fourier_feats", 20),
    )


def _scaling(fields: Fields) -> ActionScaling:
    return ActionScaling(
        fields.number("accel_mean"),
        fields.positive("accel_std"),
        fields.number("curvature_mean"),
        fields.positive("curvature_std"),
    )
