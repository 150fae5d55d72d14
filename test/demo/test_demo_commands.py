"""`rsd_planner demo ...` as a user runs it, on a world of a few drives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from golden_cases import R1
from rich.console import Console
from safetensors.torch import load_file
from small_world import untrained_model

from rsd_planner import cli
from rsd_planner.demo.commands import Stage
from rsd_planner.demo.evaluation.run import Asked, ask_all
from rsd_planner.demo.evaluation.tasks import Kind, Part, parts
from rsd_planner.demo.model import demo_model_dir
from rsd_planner.demo.trainer.stages import Recipe, TrainingStateError
from rsd_planner.demo.training import train
from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import CheckpointError, ParameterError
from rsd_planner.planner import Planner

QUICK = {stage: Recipe(steps=3, batch=2, rate=1e-3, warm_up=1) for stage in Stage}


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["rsd_planner", "demo", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_model(tmp_path_factory.mktemp("model"))


def test_render_writes_the_splits_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("render", tmp_path, "--split", "val", "--drives", 1, "--workers", 1)
    assert run_cli(monkeypatch, *arguments) == 0
    shard = tmp_path / "val" / "shard-00000.npz"
    written = shard.stat().st_mtime_ns
    assert run_cli(monkeypatch, *arguments) == 0
    assert shard.stat().st_mtime_ns == written
    assert not (tmp_path / "train").exists()


def test_training_writes_a_model_directory_with_its_curves(small_world: Path, tmp_path: Path) -> None:
    console = Console(quiet=True)
    train(small_world, tmp_path, [Stage.SEE], "cpu", console, QUICK)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"stage": "see", "st\n')  # as a killed process leaves it
    train(small_world, tmp_path, [Stage.DRIVE], "cpu", console, QUICK)
    with pytest.raises(ParameterError, match=r"weather\.pt is not there; train the stage weather first"):
        train(small_world, tmp_path, [Stage.POLISH], "cpu", console, QUICK)
    train(small_world, tmp_path, [Stage.WEATHER, Stage.POLISH], "cpu", console, QUICK)
    steps = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines() if line.endswith("}")]
    assert [line["stage"] for line in steps[::3]] == ["see", "drive", "weather", "polish"]
    assert len(steps) == 12
    assert (tmp_path / "curves.png").stat().st_size > 5000
    planner = Planner.load(tmp_path)
    assert planner.info.parameters > 1e6
    planner.close()


def test_a_long_reasoning_is_learned_from_the_bundled_weights(small_world: Path, tmp_path: Path) -> None:
    recipes = {**QUICK, Stage.LENGTHEN: Recipe(steps=4, batch=2, rate=2e-4, warm_up=1)}
    train(small_world, tmp_path, [Stage.LENGTHEN], "cpu", Console(quiet=True), recipes, Reasoning.LONG_500)
    losses = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert losses[-1]["reasoning"] < losses[0]["reasoning"]
    trained = load_file(tmp_path / "checkpoint" / "model.safetensors")
    for name, bundled in load_file(demo_model_dir() / "checkpoint" / "model.safetensors").items():
        torch.testing.assert_close(trained[name].float(), bundled.float(), atol=0.01, rtol=0.01)

    quiet = Console(quiet=True)
    with pytest.raises(TrainingStateError, match=r"lengthen\.pt: made with .*'long-500'.* use another folder"):
        train(small_world, tmp_path, [Stage.LENGTHEN], "cpu", quiet, recipes, Reasoning.LONG_200)
    with pytest.raises(ParameterError, match="found a model that was not begun here, and would be lost"):
        train(small_world, tmp_path, [Stage.SEE], "cpu", quiet, QUICK)
    with pytest.raises(ParameterError, match="found a model that was not begun here"):
        train(small_world, demo_model_dir(), [Stage.LENGTHEN], "cpu", quiet, QUICK, Reasoning.LONG_500)


def test_what_a_long_reasoning_begins_with_is_checked(small_world: Path, tmp_path: Path) -> None:
    console = Console(quiet=True)
    with pytest.raises(ParameterError, match="--start: only a long reasoning begins with a trained model"):
        train(small_world, tmp_path, [Stage.SEE], "cpu", console, QUICK, start=demo_model_dir())
    with pytest.raises(CheckpointError, match="not the weights of a demo model"):
        train(small_world, tmp_path, [Stage.LENGTHEN], "cpu", console, QUICK, Reasoning.LONG_200, R1)


@pytest.mark.parametrize(("stage", "reasoning"), [(Stage.DRIVE, Reasoning.LONG_200), (Stage.LENGTHEN, Reasoning.SHORT)])
def test_a_stage_that_does_not_teach_this_reasoning_is_refused(
    stage: Stage, reasoning: Reasoning, small_world: Path, tmp_path: Path
) -> None:
    said = f"--stage {stage.value} with --reasoning {reasoning.value}: a long reasoning, and no other, is learned in"
    with pytest.raises(ParameterError, match=said):
        train(small_world, tmp_path, [stage], "cpu", Console(quiet=True), QUICK, reasoning)
    assert not list(tmp_path.iterdir())


def test_driving_is_not_taught_to_the_blind(small_world: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"see\.pt is not there; train the stage see first"):
        train(small_world, tmp_path, [Stage.DRIVE], "cpu", Console(quiet=True), QUICK)


def test_evaluate_writes_figures_card_and_page_and_does_not_ask_twice(
    small_world: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("evaluate", model, small_world, "--out", tmp_path, "--limit", 1, "--workers", 1, "--max-tokens", 4)
    assert run_cli(monkeypatch, *arguments) == 0
    assert "off_shelf: distinct sentences: 1 (at least 150: not reached)" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [figures["splits"][split]["samples"] for split in ("val", "test", "off_shelf")] == [1, 1, 1]
    assert figures["pairs_by_image"]["test"]["pairs"] == figures["pairs_by_history"]["off_shelf"]["pairs"] == 1
    assert figures["drives"]["off_shelf"]["ticks"] == 1
    assert figures["model"]["sha256"] in (tmp_path / "MODEL_CARD.md").read_text()
    page = (tmp_path / "scenes.html").read_text()
    assert page.count("<article>") == 1
    assert "data:image/jpeg;base64," in page

    answers = tmp_path / "answers" / "samples_test.jsonl"
    written = answers.read_text()
    answers.write_text(written + '{"key": "cut sh')  # as a killed process leaves it
    monkeypatch.setattr("rsd_planner.demo.evaluation.run.answer", None)  # nothing is left to be asked
    assert run_cli(monkeypatch, *arguments) == 0
    assert answers.read_text() == written


def test_answers_of_another_model_are_not_mixed_in(small_world: Path, model: Path, tmp_path: Path) -> None:
    console = Console(quiet=True)
    ask_all(Asked(model, small_world, 1, 4), [], tmp_path, console)
    with pytest.raises(ParameterError, match="holds answers of another model"):
        ask_all(Asked(model, small_world, 1, 5), [], tmp_path, console)


def test_a_part_is_cut_into_tasks_that_cover_it_once() -> None:
    samples = list(Part(Kind.SAMPLES, Split.TEST, 12).tasks())
    assert [(task.first, task.count) for task in samples] == [(0, 5), (5, 5), (10, 2)]
    ticks = list(Part(Kind.DRIVE, Split.OFF_SHELF, 200).tasks())
    assert sum(task.count for task in ticks) == 200
    assert len({task.seed for task in ticks}) == 2
    assert len({task.key for task in ticks}) == len(ticks)


def test_the_limit_holds_for_every_part() -> None:
    sizes = dict.fromkeys(Split, 1000)
    assert {part.size for part in parts(sizes, 7)} == {7}
    assert {part.size for part in parts(sizes, None)} == {1000, 100, 1200}
