"""What is wrong with a model directory is said in one line that names file and field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from golden_cases import R1, V1_5, golden_case
from safetensors.torch import load_file, save_file

from rsd_planner.errors import CheckpointError, UnsupportedModelError
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.checkpoint import ModelDirectory, open_weights

EMBEDDING = "vlm.model.language_model.embed_tokens.weight"


def load(directory: Path) -> AlpamayoTarget:
    return AlpamayoTarget.load(directory, device="cpu", dtype=torch.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the golden R1 model directory that a test may damage."""
    for part in ("checkpoint", "processor"):
        shutil.copytree(R1 / part, tmp_path / part)
    return tmp_path


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def split_into_shards(checkpoint: Path) -> dict[str, str]:
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, checkpoint / file)
        weight_map |= dict.fromkeys(part, file)
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


def test_shards_load_as_the_single_file_does(model: Path) -> None:
    whole = load(model)
    split_into_shards(model / "checkpoint")
    sharded = load(model).network.state_dict()
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, sharded[name]), name


def test_buffers_left_out_of_a_1_5_checkpoint_come_from_the_config() -> None:
    written, absent = load(R1).network.state_dict(), load(V1_5).network.state_dict()
    for name in (n for n in written if "freqs" in n or n.startswith("action_space.")):
        torch.testing.assert_close(absent[name], written[name], rtol=1e-6, atol=0)


def test_rounded_buffers_of_a_bf16_checkpoint_are_kept(model: Path) -> None:
    path = model / "checkpoint" / "model.safetensors"
    save_file({name: t.to(torch.bfloat16) for name, t in load_file(path).items()}, path)
    target = AlpamayoTarget.load(model, device="cpu", dtype=torch.bfloat16)
    assert target.scaling.accel_std == float(torch.tensor(0.6810426736454882).bfloat16())
    assert target.network.vlm.lm_head.weight.dtype == torch.bfloat16
    case = golden_case(R1, 1)
    step = target.prefill(target.prompt(case.observation))
    assert step.logits.dtype == torch.float32
    assert torch.isfinite(step.logits).all()


def expect(model: Path, *parts: str, error: type[CheckpointError] = CheckpointError) -> None:
    with pytest.raises(error) as caught:
        load(model)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_no_such_directory(tmp_path: Path) -> None:
    expect(tmp_path / "nowhere", "nowhere", "found nothing")


def test_no_checkpoint(tmp_path: Path) -> None:
    expect(tmp_path, str(tmp_path), "target/config.json")


def test_no_weights(model: Path) -> None:
    (model / "checkpoint" / "model.safetensors").unlink()
    expect(model, "model.safetensors", "no weights")


def test_missing_shard(model: Path) -> None:
    split_into_shards(model / "checkpoint")
    (model / "checkpoint" / "model-00002-of-00002.safetensors").unlink()
    expect(model, "model-00002-of-00002.safetensors", "missing")


def test_tensor_that_the_index_promises_is_absent(model: Path) -> None:
    weight_map = split_into_shards(model / "checkpoint")
    shard = model / "checkpoint" / weight_map[EMBEDDING]
    tensors = load_file(shard)
    del tensors[EMBEDDING]
    save_file(tensors, shard)
    expect(model, EMBEDDING, shard.name)


def test_missing_tensor(model: Path) -> None:
    path = model / "checkpoint" / "model.safetensors"
    tensors = load_file(path)
    del tensors[EMBEDDING], tensors["vlm.lm_head.weight"]
    save_file(tensors, path)
    expect(model, EMBEDDING, "and 1 more", "in no weight file")


def test_wrong_shape(model: Path) -> None:
    path = model / "checkpoint" / "model.safetensors"
    tensors = load_file(path)
    tensors["action_out_proj.weight"] = torch.zeros(2, 31)
    save_file(tensors, path)
    expect(model, "action_out_proj.weight", "[2, 31]", "[2, 32]")


def test_weights_that_may_not_be_read_are_not_called_missing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, *_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(CheckpointError, match="Permission denied"):
        open_weights(model / "checkpoint" / "model.safetensors")


def test_truncated_weights(model: Path) -> None:
    path = model / "checkpoint" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100_000])
    expect(model, "model.safetensors", "not a readable safetensors file")


def test_pickle_is_never_read(model: Path) -> None:
    path = model / "checkpoint" / "model.safetensors"
    torch.save(load_file(path), model / "checkpoint" / "pytorch_model.bin")
    path.unlink()
    expect(model, "no weights", "model.safetensors")


def test_alpamayo_2_is_recognised(model: Path) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c.update(model_type="alpamayo2_super"))
    expect(model, "Alpamayo 2", "alpamayo_r1", "alpamayo1_5", error=UnsupportedModelError)


@pytest.mark.parametrize(("value", "said"), [("llama", "'llama'"), (None, "missing"), (7, "7")])
def test_unknown_model_type(model: Path, value: object, said: str) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c.update(model_type=value))
    expect(model, "model_type", said, "alpamayo_r1", error=UnsupportedModelError)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("vocab_size", None, "vocab_size is nothing, expected int"),
        ("vocab_size", "many", "vocab_size is 'many', expected int"),
        ("traj_vocab_size", 1000, "traj_vocab_size is 1000, expected at least 3000 future + 1000 history bins"),
        ("traj_vocab_size", 10**12, "traj_vocab_size is 1000000000000, expected at most 4028: vocab_size is 5810"),
        ("traj_token_start_idx", -5, "traj_token_start_idx is -5, expected at least 0"),
        ("tokens_per_history_traj", 0, "tokens_per_history_traj is 0, only 48 is supported"),
        ("min_pixels", 0, "min_pixels is 0, expected at least 1"),
        ("max_pixels", 100, "max_pixels is 100, expected at least 163840"),
        ("model_type", [], "model_type is [], expected one of"),
        ("expert_non_causal_attention", False, "expert_non_causal_attention is False"),
        ("trained_cameras", [], "trained_cameras is [], expected different camera ids, at least one"),
        ("trained_cameras", [1, "6"], "trained_cameras is [1, '6'], expected different camera ids"),
    ],
)
def test_config_field(model: Path, field: str, value: object, said: str) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c.update({field: value}))
    expect(model, "config.json", said)


@pytest.mark.parametrize(
    ("section", "field", "value", "said"),
    [
        ("action_space_cfg", "dt", 0.2, "is 0.2, only 0.1 is supported"),
        ("action_space_cfg", "n_waypoints", 32, "is 32, only 64 is supported"),
        ("action_space_cfg", "accel_mean", float("nan"), "is nan, expected a finite number"),
        ("action_space_cfg", "curvature_std", 0, "is 0.0, expected more than 0"),
        ("diffusion_cfg", "num_inference_steps", 0, "is 0, expected at least 1"),
        ("hist_traj_tokenizer_cfg", "num_bins", 1, "is 1, expected at least 2"),
        ("hist_traj_tokenizer_cfg", "ego_xyz_min", ["a", "b", "c"], "is ['a', 'b', 'c'], expected three numbers"),
        ("hist_traj_tokenizer_cfg", "ego_xyz_min", [4, 4, 10], "expected less than ego_xyz_max"),
        ("action_in_proj_cfg", "hidden_size", -1, "is -1, expected at least 1"),
        ("action_in_proj_cfg", "max_freq", 0, "is 0.0, expected more than 0"),
    ],
)
def test_nested_config_field(model: Path, section: str, field: str, value: object, said: str) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c[section].update({field: value}))
    expect(model, "checkpoint/config.json", f"{section}.{field} {said}" if said.startswith("is") else said)


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", "wide"), ("hidden_size", -4), ("hidden_act", "nope"), ("num_attention_heads", 0)],
)
def test_expert_that_cannot_be_built(model: Path, field: str, value: object) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c["expert_cfg"].update({field: value}))
    expect(model, "checkpoint/config.json", "no network has these dimensions")


@pytest.mark.parametrize(
    ("section", "field", "value", "said"),
    [
        ("text_config", "hidden_size", "64", "'hidden_size' expected int"),
        ("text_config", "head_dim", 15, "head_dim"),
        ("text_config", "rope_scaling", "x", "rope_parameters"),
        ("text_config", "rope_scaling", {"mrope_section": [1, 1]}, "mrope_section is [1, 1], expected three numbers"),
        ("text_config", "rope_scaling", None, "mrope_section is [24, 20, 20], expected three numbers that add up to 8"),
        ("vision_config", "depth", None, "'depth' expected int"),
        ("vision_config", "num_heads", 3, "vision_config.num_heads is 3, expected a divisor of the hidden size, 32"),
        ("text_config", "num_key_value_heads", 0, "no network has these dimensions"),
    ],
)
def test_vlm_config_field(model: Path, section: str, field: str, value: object, said: str) -> None:
    edit(model / "processor" / "config.json", lambda c: c[section].update({field: value}))
    expect(model, "processor/config.json", said)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("patch_size", 14, "patch_size is 14, expected 16 as vision_config.patch_size"),
        ("merge_size", 3, "merge_size is 3, expected 2 as vision_config.spatial_merge_size"),
        ("patch_size", None, "patch_size is nothing, expected int"),
        ("image_mean", [0.5], "image_mean is [0.5], expected three numbers"),
        ("image_std", [0, 0, 0], "image_std is [0.0, 0.0, 0.0], expected more than 0"),
    ],
)
def test_preprocessor_field(model: Path, field: str, value: object, said: str) -> None:
    edit(model / "processor" / "preprocessor_config.json", lambda c: c.update({field: value}))
    expect(model, "preprocessor_config.json", said)


@pytest.mark.parametrize(
    ("section", "change", "surplus"),
    [
        ("text_config", {"num_hidden_layers": 3}, ".layers.3."),
        ("text_config", {"num_hidden_layers": 0}, ".layers.0."),
        ("vision_config", {"depth": 2}, "visual.blocks.2."),
        ("vision_config", {"deepstack_visual_indexes": [0, 1]}, "deepstack_merger_list.2."),
    ],
)
def test_a_checkpoint_of_a_deeper_model_is_not_cut(
    model: Path, section: str, change: dict[str, Any], surplus: str
) -> None:
    edit(model / "processor" / "config.json", lambda c: c[section].update(change))
    expect(model, surplus, "has no place in a model of the dimensions")


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_weights_that_are_no_plain_floats(model: Path, dtype: torch.dtype) -> None:
    path = model / "checkpoint" / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    expect(model, "model.safetensors", "expected one of F32, BF16, F16")


def test_an_index_with_a_name_that_no_file_can_have(model: Path) -> None:
    weight_map = split_into_shards(model / "checkpoint")
    index = {"weight_map": dict.fromkeys(weight_map, "a\0b")}
    (model / "checkpoint" / "model.safetensors.index.json").write_text(json.dumps(index))
    expect(model, "embedded null byte")


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", ".", "", 5, None])
def test_an_index_names_only_files_beside_it(model: Path, file: object) -> None:
    weight_map = split_into_shards(model / "checkpoint")
    index = {"weight_map": dict.fromkeys(weight_map, file)}
    (model / "checkpoint" / "model.safetensors.index.json").write_text(json.dumps(index))
    expect(model, "model.safetensors.index.json", repr(file), "expected a file beside the index")


def test_json_of_endless_depth(model: Path) -> None:
    (model / "checkpoint" / "config.json").write_text("[" * 200_000)
    expect(model, "config.json", "not readable as JSON")


def test_notice_that_is_no_text(model: Path) -> None:
    (model / "NOTICE.txt").write_bytes(b"\xff research only")
    assert ModelDirectory.find(model).notice == "\ufffd research only"


def test_draft_that_is_a_file(model: Path) -> None:
    (model / "draft").write_text("")
    (model / "draft_other").mkdir()
    (model / "draft_notes.txt").write_text("about drafts")
    found = ModelDirectory.find(model)
    assert found.draft == model / "draft"
    assert found.drafts == (model / "draft", model / "draft_other")


def test_expert_must_share_the_cache(model: Path) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c["expert_cfg"].update(head_dim=32))
    expect(model, "expert_cfg.head_dim is 32", "expected 16")


def test_config_that_is_no_json(model: Path) -> None:
    (model / "checkpoint" / "config.json").write_text("{")
    expect(model, "config.json", "not readable as JSON")


def test_no_processor(model: Path) -> None:
    shutil.rmtree(model / "processor")
    expect(model, "processor", "preprocessor_config.json")


def test_processor_of_another_model(model: Path) -> None:
    edit(model / "processor" / "config.json", lambda c: c.update(model_type="qwen2_vl"))
    expect(model, "'qwen2_vl'", "'qwen3_vl'")


def test_tokenizer_of_another_size(model: Path) -> None:
    def drop_last_token(tokenizer: dict[str, Any]) -> None:
        tokenizer["added_tokens"].pop()

    edit(model / "processor" / "tokenizer.json", drop_last_token)
    expect(model, "<i0>", "1782", "traj_token_start_idx")


def test_special_ids_that_disagree(model: Path) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c["traj_token_ids"].update(future_start=5795))
    expect(model, "<|traj_future_start|>", "5794", "5795", "traj_token_ids.future_start")


def test_no_tokenizer_json(model: Path) -> None:
    (model / "processor" / "tokenizer.json").unlink()
    expect(model, "processor", "<|image_pad|>", "expected tokenizer.json of a Qwen3-VL")


def test_damaged_tokenizer(model: Path) -> None:
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (model / "processor" / name).write_text("{")
    expect(model, "processor", "no tokenizer")
