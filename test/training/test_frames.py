"""Frames come out of both kinds of data as the planner would be given them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rsd_planner.demo.make_bag import BAG_DIR
from rsd_planner.demo.world.dataset import load_split
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import BagError, TrainingError
from rsd_planner.scene.observation import STEP_NS
from rsd_planner.training.frames import BagFrames, BagOptions, WorldFrames, open_frames, spread


def test_a_split_gives_its_samples(world: Path) -> None:
    source, data = open_frames(world, Split.VAL, BagOptions()), load_split(world, Split.VAL)
    assert isinstance(source, WorldFrames)
    assert (source.name, len(source)) == ("val", len(data))
    for number in (0, len(data) - 1):
        observation, sample = source.observation(number), data[number]
        (frames,) = observation.cameras.values()
        assert list(observation.cameras) == [1]
        assert np.array_equal(np.stack([frame.image for frame in frames]), sample["images"][0])
        assert [observation.stamp_ns - frame.stamp_ns for frame in frames] == [3 * STEP_NS, 2 * STEP_NS, STEP_NS, 0]
        assert np.array_equal(observation.history.positions.astype(np.float32), sample["history"])
        assert source.id(number) == f"val/{sample['seed']}/{sample['tick']}"
    assert open_frames(world / "val", Split.TRAIN, BagOptions()).fingerprint == source.fingerprint
    assert len(open_frames(world / "val", Split.TRAIN, BagOptions(), limit=3)) == 3


def test_a_recording_gives_the_ticks_of_an_evaluation(tmp_path: Path) -> None:
    source = open_frames(BAG_DIR, Split.TRAIN, BagOptions(stride=5), limit=3)
    assert isinstance(source, BagFrames)
    observations = [source.observation(number) for number in range(3)]
    stamps = [observation.stamp_ns for observation in observations]
    assert np.allclose(np.diff(stamps), 5 * STEP_NS, atol=STEP_NS / 2)
    for number, observation in enumerate(observations):
        assert source.id(number) == f"{source.name}/{observation.stamp_ns}"
        assert 1 in observation.cameras
        for frames in observation.cameras.values():
            assert len(frames) == 4
            assert frames[-1].image.shape[2] == 3
        positions = observation.history.positions
        assert positions.shape == (16, 3)
        assert np.allclose(positions[-1], 0)
    again = source.observation(0)
    assert again.cameras[1][0] is not observations[0].cameras[1][0]  # nothing decoded is kept
    assert np.array_equal(again.cameras[1][0].image, observations[0].cameras[1][0].image)


def test_other_data_has_another_fingerprint(world: Path) -> None:
    sources = [
        open_frames(world, Split.VAL, BagOptions()),
        open_frames(world, Split.TRAIN, BagOptions()),
        open_frames(world, Split.VAL, BagOptions(), limit=2),
        open_frames(BAG_DIR, Split.VAL, BagOptions()),
        open_frames(BAG_DIR, Split.VAL, BagOptions(stride=2)),
    ]
    assert len({source.fingerprint for source in sources}) == len(sources)
    assert open_frames(world, Split.VAL, BagOptions()).fingerprint == sources[0].fingerprint


def test_what_is_no_data_is_named(world: Path, tmp_path: Path) -> None:
    with pytest.raises(BagError, match="nowhere: does not exist"):
        open_frames(tmp_path / "nowhere", Split.TRAIN, BagOptions())
    shutil.copytree(world / "val", tmp_path / "renamed")
    with pytest.raises(TrainingError, match="holds the split val, expected a folder of that name"):
        open_frames(tmp_path / "renamed", Split.TRAIN, BagOptions())
    (tmp_path / "renamed" / "about.json").write_text('{"split": "val", "cameras": [0]}')
    (tmp_path / "renamed").rename(tmp_path / "val")
    with pytest.raises(TrainingError, match="holds cameras \\[0\\], expected the front camera 1"):
        open_frames(tmp_path / "val", Split.TRAIN, BagOptions())
    (tmp_path / "val" / "about.json").write_text("{")
    with pytest.raises(TrainingError, match=r"about\.json: found .*, expected a split of the demo world"):
        open_frames(tmp_path / "val", Split.TRAIN, BagOptions())


def test_frames_are_taken_from_all_over_a_source(world: Path) -> None:
    source = open_frames(world, Split.VAL, BagOptions())
    assert spread(source, 3) == [0, (len(source) - 1) // 2, len(source) - 1]
    assert spread(source, 10_000) == list(range(len(source)))
