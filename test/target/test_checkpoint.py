"""What is wrong with a model directory is said in one line that names file and field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import R1, V1_5, golden_case
from safetensors.torch import load_file, save_file

from rsd_planner.errors import CheckpointError, UnsupportedModelError
from rsd_planner.target.alpamayo import AlpamayoTarget

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
        ("expert_non_causal_attention", False, "expert_non_causal_attention is False"),
    ],
)
def test_config_field(model: Path, field: str, value: object, said: str) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c.update({field: value}))
    expect(model, "config.json", said)


def test_nested_config_field(model: Path) -> None:
    edit(model / "checkpoint" / "config.json", lambda c: c["action_space_cfg"].update(dt=0.2))
    expect(model, "action_space_cfg.dt is 0.2", "0.1")


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


def test_damaged_tokenizer(model: Path) -> None:
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        (model / "processor" / name).write_text("{")
    expect(model, "processor", "no tokenizer")
