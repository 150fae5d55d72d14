"""The figures of the demo model, counted on answers whose figures are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rsd_planner.demo.evaluation.ask import Answer
from rsd_planner.demo.evaluation.card import model_card
from rsd_planner.demo.evaluation.figures import (
    drive_figures,
    pairs_by_history_figures,
    pairs_by_image_figures,
    requirements,
    split_figures,
)
from rsd_planner.demo.evaluation.page import EVEN, FAR, WRONG, choose
from rsd_planner.demo.world.dataset import CAUSES, Dataset
from rsd_planner.demo.world.facts import CauseKind

CLEAR = "Keep lane to continue driving at 8.0 m/s since the lane ahead is clear"
FASTER = "Accelerate from 8.0 m/s to continue driving since the lane ahead is clear"
RED = "Slow down from 8.0 m/s to stop 24 m ahead for the red traffic light"
AT_8_MPS = [[0.8 * step, 0.0] for step in range(1, 65)]
STANDING = [[0.0, 0.0]] * 64


def answer(tick: int, truth: str, said: str, path: list[list[float]] = AT_8_MPS, seed: int = 7) -> Answer:
    cause = CauseKind.LIGHT_RED if truth == RED else CauseKind.CLEAR
    return Answer(seed, tick, truth, cause.value, said, 20, 8.0, path)


def dataset(futures: list[list[list[float]]]) -> Dataset:
    count = len(futures)
    future = np.zeros((count, 64, 3), np.float32)
    future[:, :, :2] = futures
    deliberative = np.full((count, 48), -1, np.int8)
    deliberative[:, :10], deliberative[:, 8:10] = 0, 1
    empty = np.zeros(count, np.int64)
    return Dataset({"future": future, "deliberative": deliberative}, [], [], empty, empty, 1)


ANSWERS = [
    answer(20, RED, RED, STANDING),
    answer(21, RED, CLEAR),
    answer(22, CLEAR, CLEAR),
    answer(23, CLEAR, FASTER),
]
FUTURES = [STANDING, STANDING, AT_8_MPS, AT_8_MPS]


def numbers() -> dict[str, Any]:
    ceiling = np.zeros((len(CAUSES), len(CAUSES)), np.int64)
    red, clear = CAUSES.index(CauseKind.LIGHT_RED), CAUSES.index(CauseKind.CLEAR)
    ceiling[red, red], ceiling[clear, clear] = 2, 2
    split = split_figures(ANSWERS, dataset(FUTURES), ceiling)
    pairs = [[answer(20, CLEAR, CLEAR), answer(20, RED, RED)], [answer(21, CLEAR, CLEAR), answer(21, RED, CLEAR)]]
    figures = {
        "model": {"sha256": "0" * 64, "parameters": 1_000_000},
        "commands": ["rsd_planner demo evaluate model world"],
        "ceiling": {"samples": "100", "epochs": "5"},
        "splits": dict.fromkeys(("val", "test", "off_shelf"), split),
        "pairs_by_image": {name: pairs_by_image_figures(pairs) for name in ("test", "off_shelf")},
        "pairs_by_history": {name: pairs_by_history_figures(pairs) for name in ("test", "off_shelf")},
        "drives": {"off_shelf": drive_figures([ANSWERS])},
    }
    return {**figures, "required": requirements(figures)}


def test_shares_of_a_split() -> None:
    split = numbers()["splits"]["test"]
    assert (split["cause"], split["ceiling"], split["cause_of_ceiling"]) == (0.75, 1.0, 0.75)
    assert (split["exact_sentence"], split["action"]) == (0.5, 0.5)
    assert split["causes"]["light_red"] == {"samples": 2, "cause": 0.5, "ceiling": 1.0}
    assert split["said"]["distinct"] == 3
    assert split["origins"] == {"tokens": 40, "routine": 0.8, "deliberative": 0.2}


def test_ade_on_event_scenes_counts_only_what_the_ego_reacts_to() -> None:
    ade = numbers()["splits"]["test"]["ade"]
    halted = 0.8 * np.mean(np.arange(1, 65))  # error of 8 m/s where the ego stood
    assert (ade["all"]["samples"], ade["events"]["samples"]) == (4, 2)
    events = ade["events"]["horizons"]["6.4"]
    assert events["constant_velocity"] == pytest.approx(halted)
    assert events["plan"] == pytest.approx(halted / 2)
    assert events["better"] == pytest.approx(0.5)
    assert ade["all"]["horizons"]["6.4"]["plan"] == pytest.approx(halted / 4)


def test_repetition_is_counted_between_neighbouring_ticks_of_one_drive() -> None:
    elsewhere = [answer(30, CLEAR, FASTER), answer(31, CLEAR, FASTER, seed=8)]
    found = drive_figures([ANSWERS, elsewhere])
    assert (found["drives"], found["ticks"]) == (2, 6)
    assert found["as_before"] == pytest.approx(1 / 3)  # 21 -> 22; not 23 -> 30, not across drives
    assert found["truth_as_before"] == pytest.approx(2 / 3)


def test_a_pair_counts_when_both_of_it_are_right() -> None:
    found = numbers()
    assert found["pairs_by_image"]["test"] == {"pairs": 2, "both_causes": 0.5, "different_causes": 0.5}
    assert found["pairs_by_history"]["test"] == {"pairs": 2, "both_actions": 0.5, "different_actions": 0.5}


def test_requirements_say_what_is_reached_and_the_card_shows_it() -> None:
    found = numbers()
    met = {(entry["what"], entry["split"]): entry["met"] for entry in found["required"]}
    assert met["ADE at 6.4 s on event scenes, better than constant velocity by", "test"]
    assert not met["cause named, of what the ceiling classifier names", "test"]
    assert not met["distinct sentences", "off_shelf"]
    assert met["sentences as at the tick before, 10 Hz", "off_shelf"]
    card = model_card(found)
    assert "| cause named, of what the ceiling classifier names | test | at least 90% | 75.0% | **no** |" in card
    assert "rsd_planner demo evaluate model world" in card
    assert "| light red | 50% / 100% (2) | 50% / 100% (2) |" in card


def test_scenes_are_chosen_by_rule_and_hold_failures() -> None:
    answers = [replace(ANSWERS[2], tick=tick) for tick in range(100)]
    for tick in (10, 20, 30, 40):
        answers[tick] = answer(tick, RED, CLEAR)
    errors = [float(tick == 77) for tick in range(100)]
    shown = choose(answers, errors)
    assert len({entry.index for entry in shown}) == len(shown) == EVEN + WRONG + FAR
    assert [entry.index for entry in shown[EVEN : EVEN + WRONG]] == [10, 30, 40]
    assert shown[EVEN + WRONG].index == 77
