"""Frames of the golden target for training tests: recorded images and histories, mixed anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from golden_cases import R1, golden_case

from rsd_planner.scene.observation import EgoHistory, Frame, Observation
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.cache import Cache, target_fingerprint
from rsd_planner.training.samples import Samples
from rsd_planner.training.teacher import Teacher

CAP = 40
CASES = [golden_case(R1, number) for number in range(3)]


class MixedFrames:
    """Frames of two layouts: one image, or three."""

    name = "mixed"

    def __init__(self, count: int, seed: int = 0, broken: Sequence[int] = ()) -> None:
        self.count, self.seed, self.broken = count, seed, broken
        self.fingerprint = f"{count}, {seed}"
        self.asked = 0

    def __len__(self) -> int:
        return self.count

    def id(self, number: int) -> str:
        return f"mixed/{number}"

    def observation(self, number: int) -> Observation:
        self.asked += 1
        chance = np.random.default_rng([self.seed, number])
        cells = CASES[chance.integers(3)].recorded["image_cells"]
        shown = chance.integers(len(cells), size=1 if number % 3 else 3)
        images = [cells[i].repeat(40, 0).repeat(40, 1) for i in shown]
        if number in self.broken:
            images[0] = images[0][:1]
        history = CASES[chance.integers(3)].observation.history
        positions = history.positions * chance.uniform(-1, 2) + chance.normal(0, 1, (16, 3))
        frames = tuple(Frame.from_image(i, image) for i, image in enumerate(images))
        return Observation(number, {1: frames}, EgoHistory(positions, history.rotations, history.pose_t0))


def golden_target() -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=torch.float32)


def golden_cache(
    folder: Path, source: MixedFrames, target: AlpamayoTarget, gigabytes: float = 1.0, layers: Sequence[int] = (0, 2)
) -> Cache:
    cache = Cache(folder, source, Teacher(target), target_fingerprint(R1), max_tokens=CAP, gigabytes=gigabytes)
    cache.fill(range(cache.chunks), layers, lambda: False)
    return cache


def golden_samples(folder: Path, target: AlpamayoTarget, layers: Sequence[int], count: int = 12) -> Samples:
    """Hidden states recomputed in float32: nothing is rounded."""
    return Samples(golden_cache(folder, MixedFrames(count), target, gigabytes=0.0), layers)
