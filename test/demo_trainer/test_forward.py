"""The training forward computes what the planner's passes compute, on the golden checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from golden_cases import R1, golden_case

from rsd_planner.demo.trainer.forward import encode_images, patchify, read_text, velocity
from rsd_planner.scene.observation import Frame, Observation
from rsd_planner.target.alpamayo import AlpamayoTarget

SIZE = (320, 576)  # the golden model's own: nothing is resized


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32)


def observation(seed: int) -> Observation:
    case = golden_case(R1, 1)
    images = np.random.default_rng(seed).integers(0, 256, (4, *SIZE, 3), dtype=np.uint8)
    history = case.observation.history
    return Observation(0, {1: tuple(Frame.from_image(i, image) for i, image in enumerate(images))}, history)


def test_patches_are_the_image_processors(target: AlpamayoTarget) -> None:
    frame = observation(0).cameras[1][0]
    expected = target.patches(frame).values
    torch.testing.assert_close(patchify(torch.from_numpy(frame.image)[None], 16, 2), expected, rtol=0, atol=1e-6)


@torch.no_grad()
def test_logits_and_velocity_of_a_batch(target: AlpamayoTarget) -> None:
    seen = [observation(1), observation(2)]
    prompts = [target.prompt(one) for one in seen]
    said = [[5, 6, 7, 8, 5791, 5794], [9, 5791, 5794]]
    images = torch.from_numpy(np.stack([[f.image for f in one.cameras[1]] for one in seen]))
    padded = torch.tensor([ids + [0] * (6 - len(ids)) for ids in said])
    token_ids = torch.cat([torch.stack([p.token_ids for p in prompts]), padded], dim=1)
    text = read_text(target.network, prompts[0].layout, token_ids, encode_images(target.network.vision, images))
    lengths = torch.tensor([len(p.token_ids) + len(ids) for p, ids in zip(prompts, said, strict=True)])
    noise = torch.randn(4, 64, 2, generator=torch.Generator().manual_seed(0))
    time = torch.tensor([0.0, 0.3, 0.6, 0.9])
    found = velocity(target.network, text, lengths, noise, time)

    for i, prompt in enumerate(prompts):
        step = target.prefill(prompt, said[i])
        torch.testing.assert_close(text.logits[i, : len(said[i])], step.logits[:-1], rtol=1e-4, atol=1e-4)
        for draw in (2 * i, 2 * i + 1):
            expected = target.velocity(noise[draw], float(time[draw]))
            torch.testing.assert_close(found[draw], expected, rtol=1e-4, atol=1e-4)
