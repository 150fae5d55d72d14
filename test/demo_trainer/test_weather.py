"""Pictures in another weather: what they keep, and that the dark ones have a dark sky."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rsd_planner.demo.trainer import weather
from rsd_planner.demo.world.cameras import HEIGHT, WIDTH

COUNT, HORIZON = 6, HEIGHT // 3


@pytest.fixture
def day() -> Tensor:
    """(6, 2, H, W, 3) grey roads under a bright sky, each with a red lamp and a wall before the sky."""
    images = torch.full((COUNT, 2, HEIGHT, WIDTH, 3), 90, dtype=torch.uint8)
    images[:, :, :HORIZON] = torch.tensor([150, 190, 230], dtype=torch.uint8)
    images[:, :, :HORIZON, :40] = 120
    images[:, :, HORIZON + 5 : HORIZON + 9, 100:104] = torch.tensor([250, 30, 20], dtype=torch.uint8)
    return images


def test_the_same_numbers_give_the_same_weather_and_every_sample_its_own(day: Tensor) -> None:
    first, again = (weather.varied(day, np.random.default_rng(3)) for _ in range(2))
    assert first.equal(again)
    assert first.dtype == torch.uint8
    assert first.shape == day.shape
    assert len({tuple(one.flatten().tolist()) for one in first}) == COUNT


def test_frames_of_a_sample_share_their_weather(day: Tensor) -> None:
    frames = weather.varied(day, np.random.default_rng(3)).float()
    assert (frames[:, 0] - frames[:, 1]).abs().mean() < 10  # sensor noise only
    assert (frames[0, 0] - frames[1, 0]).abs().mean() > 10


def test_in_the_dark_the_sky_is_dark_and_lamps_are_not(day: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weather, "_DARK", 1.0)
    monkeypatch.setattr(weather, "_FOGGY", 0.0)
    seen = weather.varied(day, np.random.default_rng(0)).float()
    sky, wall = seen[:, :, :10, 60:].mean(dim=(1, 2, 3, 4)), seen[:, :, :10, :40].mean(dim=(1, 2, 3, 4))
    by_day = day.float()[:, :, :10, 60:].mean()
    assert (sky < 0.75 * by_day).all()
    assert (sky < wall).any()  # by day no wall is brighter than the sky
    lamp = seen[:, :, HORIZON + 6 : HORIZON + 8, 101:103, 0].mean(dim=(1, 2, 3))
    assert (lamp > 1.5 * wall).all()
