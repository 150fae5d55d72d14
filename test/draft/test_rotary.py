"""Positions of a draft behind a prompt with images, where the number of tokens and the target's positions part."""

from __future__ import annotations

import pytest
import torch
from golden_cases import R1, golden_case
from transformers import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from rsd_planner.draft.rotary import Rope, Rotary, rotate

RECORDED = golden_case(R1, 1).recorded
POSITIONS = torch.from_numpy(RECORDED["position_ids"])  # (3, L), four images
LENGTH = POSITIONS.shape[1]
THETA, SECTIONS = 10000.0, (4, 2, 2)


def rotary(rope: Rope) -> Rotary:
    made = Rotary(rope, 16, THETA, SECTIONS)
    made.begin(POSITIONS)
    return made


def cosines(rope: Rope, start: int, count: int) -> torch.Tensor:
    return rotary(rope).rows(start, count)[0]


def test_flat_counts_every_token_whatever_the_target_does() -> None:
    place = torch.arange(LENGTH, LENGTH + 16)
    assert torch.equal(cosines(Rope.FLAT, LENGTH, 16), rotary(Rope.FLAT).angles(place.expand(3, -1))[0])
    angle = float(place[5]) * THETA ** (-2 / 16)  # of the second frequency
    assert float(cosines(Rope.FLAT, LENGTH, 16)[5, 1]) == pytest.approx(float(torch.tensor(angle).cos()), abs=1e-4)


def test_mirrored_goes_on_where_the_target_does_and_not_at_the_number_of_tokens() -> None:
    first = LENGTH + int(RECORDED["rope_delta"].item())  # of the token behind the prompt, on all axes
    assert first < LENGTH
    expected = rotary(Rope.MIRRORED).angles(torch.arange(first, first + 16).expand(3, -1))[0]
    torch.testing.assert_close(cosines(Rope.MIRRORED, LENGTH, 16), expected)


def test_mirrored_is_the_targets_own_rotation() -> None:
    parameters = {"rope_type": "default", "rope_theta": THETA, "mrope_section": list(SECTIONS)}
    config = Qwen3VLTextConfig(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16, rope_parameters=parameters
    )
    cos, sin = Qwen3VLTextRotaryEmbedding(config)(torch.zeros(1, 1, 1), POSITIONS[:, None])
    found = rotary(Rope.MIRRORED).rows(0, LENGTH)
    torch.testing.assert_close(found[0], cos[0])
    torch.testing.assert_close(found[1], sin[0])


def test_the_prompts_positions_are_read_and_not_written() -> None:
    before = POSITIONS.clone()
    for rope in Rope:
        rotate(torch.randn(2, 20, 16), rotary(rope).rows(LENGTH - 4, 20))
    assert torch.equal(POSITIONS, before)


@pytest.mark.parametrize("rope", list(Rope))
def test_a_row_does_not_depend_on_what_was_asked_before(rope: Rope) -> None:
    used = Rotary(rope, 16, THETA, SECTIONS)
    used.begin(POSITIONS.flip(1))
    with torch.inference_mode():
        used.rows(3, 600)
    used.begin(POSITIONS)
    for start, count in ((LENGTH, 16), (0, 4), (900, 200)):
        for found, expected in zip(used.rows(start, count), rotary(rope).rows(start, count), strict=True):
            torch.testing.assert_close(found, expected)
            assert not found.is_inference()  # a trainer may use what a proposal has worked out
