"""config.json of a draft in the published layouts, with the one field they lack: the positions it was trained with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rsd_planner.draft.layers import Shape
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import DraftError
from rsd_planner.target.config import Fields, read_json


class DraftKind(str, Enum):
    """The published families this version runs."""

    EAGLE3 = "EAGLE-3"
    DFLASH = "DFlash"


_ARCHITECTURES = {"LlamaForCausalLMEagle3": DraftKind.EAGLE3, "DFlashDraftModel": DraftKind.DFLASH}


@dataclass(frozen=True)
class DraftConfig:
    """What a draft says of itself."""

    path: Path
    kind: DraftKind
    shape: Shape
    rope: Rope
    rope_theta: float
    taps: tuple[int, ...]  # target layers whose outputs it reads
    vocab_size: int  # of the target it was made for
    max_positions: int
    draft_vocabulary: int  # EAGLE-3: tokens of its own lm_head
    target_layers: int | None  # DFlash: of the target it was made for, where it says so
    block_size: int  # DFlash: the last committed token and the mask tokens
    mask_token: int


def read_draft_config(directory: Path, target_layers: int) -> DraftConfig:
    """Read `directory/config.json`.

    Args:
        target_layers: EAGLE-3 taps three layers by convention, counted from the target's ends.

    Raises:
        DraftError: A field says what this version does not run, or one that must not be guessed is missing.
        CheckpointError: The file is missing, not JSON, or a field has another type.
    """
    path = directory / "config.json"
    values = read_json(path)
    fields = Fields(path, values)
    kind = _kind(path, values.get("architectures"))
    _require_plain_layers(fields)
    vocab_size = fields.get("vocab_size", int)
    dflash = fields.section("dflash_config") if kind is DraftKind.DFLASH else None
    taps = _taps(path, dflash.get("target_layer_ids", list)) if dflash else _eagle3_taps(path, fields, target_layers)
    return DraftConfig(
        path=path,
        kind=kind,
        shape=_shape(fields, len(taps)),
        rope=_rope(path, values.get("rope")),
        rope_theta=_rope_theta(fields),
        taps=taps,
        vocab_size=vocab_size,
        max_positions=fields.get("max_position_embeddings", int),
        draft_vocabulary=fields.count("draft_vocab_size", vocab_size),
        target_layers=fields.get("num_target_layers", int) if fields.has("num_target_layers") else None,
        block_size=fields.get("block_size", int) if dflash else 0,
        mask_token=dflash.get("mask_token_id", int) if dflash else 0,
    )


def _kind(path: Path, architectures: object) -> DraftKind:
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if name not in _ARCHITECTURES:
        raise DraftError(f"{path}: architectures is {architectures!r}, expected one of {', '.join(_ARCHITECTURES)}")
    return _ARCHITECTURES[name]


def _rope(path: Path, found: object) -> Rope:
    try:
        return Rope(str(found))
    except ValueError:
        shown = "missing" if found is None else repr(found)
        raise DraftError(
            f"{path}: field rope is {shown}, expected flat or mirrored: the positions the draft was trained with"
        ) from None


def _require_plain_layers(fields: Fields) -> None:
    fields.require("hidden_act", "silu")
    fields.require("attention_bias", False)
    fields.require("rope_scaling", None)
    fields.require("use_sliding_window", False)


def _rope_theta(fields: Fields) -> float:
    parameters = fields
    if fields.has("rope_parameters"):
        parameters = fields.section("rope_parameters")
        parameters.require("rope_type", "default")
    return parameters.positive("rope_theta")


def _eagle3_taps(path: Path, fields: Fields, target_layers: int) -> tuple[int, ...]:
    if fields.has("eagle_config"):
        return _taps(path, fields.section("eagle_config").get("eagle_aux_hidden_state_layer_ids", list))
    return (1, target_layers // 2 - 1, target_layers - 4)


def _taps(path: Path, found: list[object]) -> tuple[int, ...]:
    taps = tuple(layer for layer in found if isinstance(layer, int))
    if not taps or len(taps) != len(found):
        raise DraftError(f"{path}: the target layers to read are {found}, expected numbers of layers")
    return taps


def _shape(fields: Fields, taps: int) -> Shape:
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    return Shape(
        hidden=hidden,
        intermediate=fields.count("intermediate_size"),
        layers=fields.count("num_hidden_layers"),
        heads=heads,
        kv_heads=fields.count("num_key_value_heads", heads),
        head_dim=fields.count("head_dim", hidden // heads),
        taps=taps,
        eps=fields.positive("rms_norm_eps"),
    )
