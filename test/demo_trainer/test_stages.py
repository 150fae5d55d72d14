"""The stages on a handful of samples: they go on where they stopped, and what they save is a model directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rsd_planner.demo.trainer.blank import new_network, save_weights, write_model_directory
from rsd_planner.demo.trainer.stages import Recipe, TrainingStateError, train_drive, train_see, train_weather
from rsd_planner.demo.world.dataset import Dataset, load_split, write_split
from rsd_planner.demo.world.splits import Split
from rsd_planner.planner import Planner
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.images import ImagePatcher
from rsd_planner.target.vocabulary import load_vocabulary

STAGES = {"see": train_see, "drive": train_drive, "weather": train_weather}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("world")
    assert len(list(write_split(folder, Split.TRAIN, drives=1))) == 1
    return load_split(folder, Split.TRAIN)


def new_target(out: Path) -> AlpamayoTarget:
    write_model_directory(out)
    config, network = new_network(out, seed=0)
    processor = out / "processor"
    return AlpamayoTarget(config, network, load_vocabulary(config, processor), ImagePatcher(config, processor))


def losses(out: Path) -> list[dict[str, float]]:
    return [{**json.loads(line), "seconds": 0.0} for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stopped_stage_goes_on_as_if_it_had_not_stopped(data: Dataset, tmp_path: Path, stage: str) -> None:
    recipe = Recipe(steps=3, batch=2, rate=1e-3, warm_up=2)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    STAGES[stage](new_target(whole), data, whole, recipe)

    original, seen = Dataset.images, 0

    def counting(self: Dataset, index: int):
        nonlocal seen
        seen += 1
        if seen > 2 * recipe.batch:
            raise KeyboardInterrupt
        return original(self, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dataset, "images", counting)
        with pytest.raises(KeyboardInterrupt):
            STAGES[stage](new_target(parts), data, parts, recipe)
    assert len(losses(parts)) == 2
    STAGES[stage](new_target(parts), data, parts, recipe)
    assert losses(parts) == losses(whole)


def test_losses_fall_and_the_result_is_a_model_directory(data: Dataset, tmp_path: Path) -> None:
    target = new_target(tmp_path)
    train_see(target, data, tmp_path, Recipe(steps=4, batch=4, rate=1e-3, warm_up=1))
    train_drive(target, data, tmp_path, Recipe(steps=6, batch=4, rate=1e-3, warm_up=1))
    lines = losses(tmp_path)
    assert lines[3]["cause"] < lines[0]["cause"]
    assert lines[-1]["reasoning"] < lines[4]["reasoning"]
    save_weights(target.network, tmp_path)
    assert (tmp_path / "checkpoint" / "model.safetensors").stat().st_size < 24e6
    planner = Planner.load(tmp_path)
    planner.warm_up([1])
    assert planner.info.name == "Alpamayo R1"


def test_weather_changes_the_tower_and_nothing_else(data: Dataset, tmp_path: Path) -> None:
    target = new_target(tmp_path)
    before = {name: tensor.clone() for name, tensor in target.network.state_dict().items()}
    train_weather(target, data, tmp_path, Recipe(steps=6, batch=4, rate=1e-3, warm_up=1))
    lines = losses(tmp_path)
    assert lines[-1]["changed"] < lines[0]["changed"]
    changed = {name for name, tensor in target.network.state_dict().items() if not tensor.equal(before[name])}
    assert changed
    assert all(name.startswith("vlm.model.visual.") for name in changed)


def test_another_recipe_does_not_go_on_with_this_state(data: Dataset, tmp_path: Path) -> None:
    train_see(new_target(tmp_path), data, tmp_path, Recipe(steps=1, batch=2, rate=1e-3))
    with pytest.raises(TrainingStateError, match=r"see\.pt: made with .*'steps': 1.*expected .*'steps': 2"):
        train_see(new_target(tmp_path), data, tmp_path, Recipe(steps=2, batch=2, rate=1e-3))
