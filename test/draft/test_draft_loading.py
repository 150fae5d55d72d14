"""A draft that does not fit its target is refused in one line that says all that differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from draft_files import BINS, CLOSING, DFLASH, EAGLE3, edit_config, edit_tensors, parts, random_draft
from safetensors.torch import load_file, save_file

from rsd_planner.draft.load import load_draft
from rsd_planner.errors import CheckpointError, DraftError

Change = Callable[[Path], None]


def config(**changes: Any) -> Change:
    return lambda directory: edit_config(directory, **changes)


def tensors(**changes: torch.Tensor | None) -> Change:
    return lambda directory: edit_tensors(directory, **changes)


def refused(directory: Path, *said: str, error: type[CheckpointError] = DraftError, **facts: Any) -> None:
    with pytest.raises(error) as caught:
        load_draft(directory, parts(**facts))
    message = str(caught.value)
    assert "\n" not in message
    assert str(directory) in message
    for part in said:
        assert part in message


@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (config(hidden_size=32), "hidden_size is 32, the target's is 64"),
        (config(vocab_size=5809), "vocab_size is 5809, the target's is 5810"),
        (config(max_position_embeddings=2048), "max_position_embeddings is 2048, a prompt has up to 3100"),
        (config(rope=None), "field rope is missing, expected flat or mirrored"),
        (config(rope="interleaved"), "field rope is 'interleaved', expected flat or mirrored"),
        (config(architectures=["Qwen3ForCausalLM"]), "['Qwen3ForCausalLM'], expected one of LlamaForCausalLMEagle3"),
        (config(architectures=None), "architectures is None"),
    ],
)
def test_what_both_kinds_must_fit(kind: str, change: Change, said: str, tmp_path: Path) -> None:
    change(random_draft(kind, "flat", tmp_path))
    refused(tmp_path, said)


@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("hidden_act", "gelu", "hidden_act is 'gelu'"),
        ("attention_bias", True, "attention_bias is True"),
        ("rope_scaling", {"rope_type": "yarn"}, "rope_scaling"),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4}, "rope_parameters.rope_type is 'yarn'"),
        ("use_sliding_window", True, "use_sliding_window is True"),
        ("rope_theta", None, "rope_theta is nothing"),
        ("max_position_embeddings", None, "max_position_embeddings is nothing"),
    ],
)
def test_layers_of_another_make(kind: str, field: str, value: object, said: str, tmp_path: Path) -> None:
    edit_config(random_draft(kind, "flat", tmp_path), **{field: value})
    refused(tmp_path, said, error=CheckpointError)


def test_all_that_differs_is_said_at_once(tmp_path: Path) -> None:
    random_draft(DFLASH, "flat", tmp_path)
    refused(
        tmp_path,
        "hidden_size is 64, the target's is 128",
        "vocab_size is 5810, the target's is 155697",
        "num_target_layers is 4, the target has 36",
        hidden_size=128,
        vocab_size=155697,
        layers=36,
    )


@pytest.mark.parametrize(
    ("taps", "shown"), [([1, 2, 4], "[1, 2, 4]"), ([3, 1, 2], "[3, 1, 2]"), ([-1, 1, 2], "[-1, 1")]
)
def test_taps_the_target_does_not_have(taps: list[int], shown: str, tmp_path: Path) -> None:
    random_draft(DFLASH, "flat", tmp_path)
    edit_config(tmp_path, dflash_config={"mask_token_id": 5802, "target_layer_ids": taps})
    refused(tmp_path, f"it taps layers {shown}", "expected ascending ones from 0 to 3")
    random_draft(EAGLE3, "flat", tmp_path)
    edit_config(tmp_path, eagle_config={"eagle_aux_hidden_state_layer_ids": taps})
    refused(tmp_path, f"it taps layers {shown}")


@pytest.mark.parametrize("taps", [[], ["one", 2], 3])
def test_taps_that_are_no_layers(taps: object, tmp_path: Path) -> None:
    random_draft(DFLASH, "flat", tmp_path)
    edit_config(tmp_path, dflash_config={"mask_token_id": 5802, "target_layer_ids": taps})
    refused(tmp_path, error=CheckpointError)


def test_the_taps_of_dflash_are_never_guessed(tmp_path: Path) -> None:
    random_draft(DFLASH, "flat", tmp_path)
    edit_config(tmp_path, dflash_config={"mask_token_id": 5802})
    refused(tmp_path, "field dflash_config.target_layer_ids is nothing", error=CheckpointError)
    edit_config(tmp_path, dflash_config=None)
    refused(tmp_path, "field dflash_config is nothing", error=CheckpointError)


@pytest.mark.parametrize(
    ("mask_token", "said"),
    [
        (BINS.start, "mask_token_id 1782 is a trajectory bin"),
        (CLOSING[0], "mask_token_id 5791 is not an unused token"),
        (5810, "mask_token_id 5810 is not an unused token"),
    ],
)
def test_a_mask_token_that_is_in_use(mask_token: int, said: str, tmp_path: Path) -> None:
    random_draft(DFLASH, "flat", tmp_path)
    edit_config(tmp_path, dflash_config={"mask_token_id": mask_token, "target_layer_ids": [0, 1, 3]})
    refused(tmp_path, said)


def test_block_and_layers(tmp_path: Path) -> None:
    edit_config(random_draft(DFLASH, "flat", tmp_path), block_size=1)
    refused(tmp_path, "block_size is 1, expected at least 2")
    edit_config(random_draft(EAGLE3, "flat", tmp_path), num_hidden_layers=2)
    refused(tmp_path, "num_hidden_layers is 2, EAGLE-3 has 1")


def test_mirrored_positions_need_the_targets_sections(tmp_path: Path) -> None:
    edit_config(random_draft(DFLASH, "mirrored", tmp_path), max_position_embeddings=2048)
    load_draft(tmp_path, parts())  # it counts as the target does, far below the number of tokens
    refused(tmp_path, "head_dim is 16, mirrored it must be 128", rope_sections=(24, 20, 20))


def drafts_vocabulary(tokens: list[int]) -> Change:
    """Another set of as many tokens."""

    def change(directory: Path) -> None:
        said = torch.tensor(sorted(tokens))
        t2d = torch.zeros(5810, dtype=torch.bool).index_fill(0, said, True)
        edit_tensors(directory, d2t=said - torch.arange(len(said)), t2d=t2d)

    return change


WORDS = list(range(400))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drafts_vocabulary([*WORDS, 500, CLOSING[1]]), "its vocabulary lacks the closing token 5791"),
        (drafts_vocabulary([*WORDS, CLOSING[0], 500]), "its vocabulary lacks the closing token 5794"),
        (drafts_vocabulary([*WORDS[2:], *BINS[:2], *CLOSING]), "its vocabulary holds 2 trajectory bins, such as 1782"),
        (tensors(d2t=torch.zeros(402, dtype=torch.int64)), "d2t and t2d name different tokens"),
        (tensors(t2d=torch.zeros(5810, dtype=torch.bool)), "d2t and t2d name different tokens"),
        (tensors(d2t=torch.zeros(7, dtype=torch.int64)), "d2t and t2d have shapes [7] and [5810]"),
        (tensors(d2t=None), "draft_vocab_size is 402 but d2t is missing"),
        (tensors(d2t=None, t2d=None), "draft_vocab_size is 402 but d2t and t2d is missing"),
        (tensors(lm_head__weight=torch.zeros(5810, 64)), "lm_head.weight has shape [5810, 64], expected [402, 64]"),
        (tensors(lm_head__weight=None), "lm_head.weight is missing"),
    ],
)
def test_a_draft_vocabulary_that_is_wrong(change: Change, said: str, tmp_path: Path) -> None:
    change(random_draft(EAGLE3, "flat", tmp_path))
    refused(tmp_path, said)


def test_weights_that_are_missing_or_damaged(tmp_path: Path) -> None:
    random_draft(DFLASH, "flat", tmp_path)
    edit_tensors(tmp_path, hidden_norm__weight=None)
    refused(tmp_path, "model.safetensors", "tensor hidden_norm.weight is missing")
    random_draft(DFLASH, "flat", tmp_path)
    edit_tensors(tmp_path, fc__weight=torch.zeros(64, 128))
    refused(tmp_path, "fc.weight has shape [64, 128], expected [64, 192]")
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    refused(tmp_path, "not a readable safetensors file", error=CheckpointError)
    (tmp_path / "model.safetensors").unlink()
    refused(tmp_path, "weight file is missing", error=CheckpointError)


def test_the_one_layer_may_be_named_as_the_first_of_a_list(tmp_path: Path) -> None:
    random_draft(EAGLE3, "flat", tmp_path)
    path = tmp_path / "model.safetensors"
    before, _ = load_draft(tmp_path, parts())
    save_file({name.replace("midlayer.", "layers.0."): tensor for name, tensor in load_file(path).items()}, path)
    after, _ = load_draft(tmp_path, parts())
    for one, other in zip(before.network.parameters(), after.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_without_a_head_of_its_own_it_uses_the_targets(tmp_path: Path) -> None:
    random_draft(EAGLE3, "flat", tmp_path, whole_vocabulary=True)
    edit_tensors(tmp_path, lm_head__weight=None)
    target = parts()
    draft, _ = load_draft(tmp_path, target)
    hidden = torch.randn(1, 64)
    torch.testing.assert_close(draft.logits(hidden), target.lm_head(draft.network.norm(hidden)))
