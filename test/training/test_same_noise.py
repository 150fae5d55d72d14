"""Why candidates and the target's own reasoning share their noise, measured on the demo model."""

from __future__ import annotations

from pathlib import Path

import torch

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing
from rsd_planner.demo.model import demo_model_dir
from rsd_planner.demo.world.splits import Split
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.counterfactuals import Counterfactuals
from rsd_planner.training.frames import BagOptions, open_frames
from rsd_planner.training.survey import noise_variances
from rsd_planner.training.teacher import Teacher


def test_one_noise_makes_the_reward_ten_times_steadier(world: Path) -> None:
    """Variance over the noise of -MSE of a candidate that changes one word, the noise shared and not."""
    target = AlpamayoTarget.load(demo_model_dir(), device="cpu", dtype=torch.float32)
    words, judge = target.vocabulary, Counterfactuals(Teacher(target))
    source = open_frames(world, Split.VAL, BagOptions())
    observation = source.observation(len(source) // 2)
    closing = Closing(words.cot_end, words.future_start, words.bins)
    said = decode(
        target,
        target.prompt(observation),
        closing,
        sampling=Sampling(),
        max_tokens=64,
        generator=torch.Generator(),
    )
    own = torch.tensor(said.token_ids)
    (scene,) = judge.scenes([observation])
    other = judge.runners_up(scene, own)
    candidates = own.repeat(3, 1)
    for row, place in ((1, 1), (2, len(own) // 2)):
        candidates[row, place] = other[place]
    noise = torch.randn(6, 64, 2, generator=torch.Generator().manual_seed(0))
    actions = judge.actions(scene, candidates, noise)
    for candidate in actions[1:]:
        same, independent = noise_variances(candidate, actions[0])
        assert same * 10 < independent
