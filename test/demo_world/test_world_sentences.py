"""The wording: a function of the facts, in the form and with the variety the labels need."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.facts import (
    DISTANCES_M,
    Cause,
    CauseKind,
    EgoMotion,
    Facts,
    Motion,
    ego_motion,
    observe,
    spoken_distance,
    visible_cause,
)
from rsd_planner.demo.world.layout import Body
from rsd_planner.demo.world.origins import deliberative
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.sentences import action_of, all_causes, cause_of, say
from rsd_planner.demo.world.splits import SEEDS, Event, Split
from rsd_planner.demo.world.tokenizer import load_tokenizer
from rsd_planner.scene.observation import STEP_NS
from rsd_planner.target.trajectory_tokens import HistoryTokenizer

CRUISING = EgoMotion(124, Motion.STEADY)


@pytest.fixture(scope="module")
def drives() -> list[list[Facts]]:
    """Facts of every tick of off-shelf drives."""
    runs = [run_drive(make_layout(Split.OFF_SHELF, seed)) for seed in SEEDS[Split.OFF_SHELF][:16]]
    return [[observe(drive, tick) for tick in drive.ticks] for drive in runs]


@pytest.mark.parametrize("motion", list(Motion))
@pytest.mark.parametrize("tenths", [0, 11, 64, 124, 180])
def test_every_sentence_has_the_form_of_the_real_ones(motion: Motion, tenths: int) -> None:
    for cause in all_causes():
        text = say(Facts(EgoMotion(tenths, motion), cause))
        assert 10 <= len(text.split()) <= 22, text
        assert cause_of(text) is cause.kind, text
        assert action_of(text), text
        assert any(f" {link} " in text for link in ("because", "since", "for", "to")), text


@pytest.mark.parametrize(
    ("ego", "cause", "text"),
    [
        (
            CRUISING,
            Cause(CauseKind.LEAD, 25, body=Body.TRUCK),
            "Keep distance at 12.4 m/s since the lead truck is 25 m ahead in the same lane",
        ),
        (
            EgoMotion(61, Motion.SLOWING),
            Cause(CauseKind.LEAD, 9.5, body=Body.CAR, braking=True),
            "Brake from 6.1 m/s to keep distance because the lead car is braking 9.5 m ahead",
        ),
        (
            CRUISING,
            Cause(CauseKind.LIGHT_AMBER, 12),
            "Keep speed at 12.4 m/s through the junction since the amber light is only 12 m ahead",
        ),
        (
            EgoMotion(0, Motion.STANDING),
            Cause(CauseKind.LIGHT_RED, 1.5),
            "Remain stopped 1.5 m before the stop line since the straight traffic light is red",
        ),
        (
            EgoMotion(70, Motion.STEADY),
            Cause(CauseKind.PEDESTRIAN, 18, side="left"),
            "Yield and brake from 7.0 m/s because a pedestrian is crossing from the left 18 m ahead",
        ),
        (
            EgoMotion(70, Motion.STEADY),
            Cause(CauseKind.PARKED, 18, body=Body.VAN, side="right"),
            "Nudge left at 7.0 m/s to pass the parked van 18 m ahead on the right",
        ),
        (
            EgoMotion(95, Motion.STEADY),
            Cause(CauseKind.CURVE, 20, side="left", sharp=True),
            "Slow down from 9.5 m/s for the sharp left curve 20 m ahead",
        ),
    ],
)
def test_the_wording_follows_from_the_facts(ego: EgoMotion, cause: Cause, text: str) -> None:
    assert say(Facts(ego, cause)) == text


def test_distances_are_spoken_to_the_nearest_word() -> None:
    assert spoken_distance(14.8) == 15.0
    assert spoken_distance(33.1) == 34.0
    assert list(DISTANCES_M) == sorted(set(DISTANCES_M))


def test_off_shelf_labels_are_varied_enough(drives: list[list[Facts]]) -> None:
    texts = [[say(facts) for facts in drive] for drive in drives]
    counts = Counter(text for drive in texts for text in drive)
    total = sum(counts.values())
    repeated = sum(a == b for drive in texts for a, b in pairwise(drive))
    assert len(counts) >= 400
    assert sum(count for _, count in counts.most_common(100)) / total <= 0.45
    assert repeated / (total - len(texts)) <= 0.33
    assert 12 <= np.mean([len(text.split()) for drive in texts for text in drive]) <= 17


def test_every_cause_occurs(drives: list[list[Facts]]) -> None:
    seen = {facts.cause.kind for drive in drives for facts in drive}
    assert seen == set(CauseKind)


def test_facts_of_a_drive_are_among_those_the_grammar_knows(drives: list[list[Facts]]) -> None:
    known = set(all_causes())
    for drive in drives:
        assert {facts.cause for facts in drive} <= known


def test_ego_motion_needs_the_history_only() -> None:
    drive = run_drive(make_layout(Split.TRAIN, 9, [Event.LIGHT]))
    for tick in drive.ticks[::10]:
        motion = ego_motion(drive.path.history(tick * STEP_NS))
        assert motion.speed == pytest.approx(drive.path.state(tick * STEP_NS - STEP_NS // 2).speed, abs=0.1)


def test_the_spoken_speed_can_be_looked_up_in_the_last_history_token() -> None:
    tokens = HistoryTokenizer(0, 1000, (-4.0, -4.0, -10.0), (4.0, 4.0, 10.0))
    spoken: dict[int, set[int]] = {}
    for seed in range(60, 66):
        drive = run_drive(make_layout(Split.TRAIN, seed))
        for tick in drive.ticks:
            history = drive.path.history(tick * STEP_NS)
            forward = int(tokens.encode(history.positions)[-3])
            spoken.setdefault(forward, set()).add(ego_motion(history).speed_tenths)
    assert len(spoken) > 60
    assert all(len(speeds) == 1 for speeds in spoken.values())


def test_an_event_becomes_the_cause_when_it_comes_near() -> None:
    for event, kind in ((Event.PARKED, CauseKind.PARKED), (Event.PEDESTRIAN, CauseKind.PEDESTRIAN)):
        seen: set[CauseKind] = set()
        for seed in range(20, 26):
            drive: Drive = run_drive(make_layout(Split.TRAIN, seed, [event]))
            seen |= {visible_cause(drive, tick).kind for tick in drive.ticks}
        assert kind in seen


def test_tokens_are_deliberative_where_only_the_image_can_tell() -> None:
    facts = Facts(CRUISING, Cause(CauseKind.LEAD, 25, body=Body.TRUCK))
    tokens = [load_tokenizer().decode([token]) for token in load_tokenizer().encode(say(facts)).ids]
    looked = [token for token, flag in zip(tokens, deliberative(facts), strict=True) if flag]
    assert looked == ["Keep", " distance", " truck", "2", "5"]


def test_sentences_part_at_deliberative_tokens_only() -> None:
    tokenizer, texts = load_tokenizer(), {}
    for cause in all_causes():
        facts = Facts(CRUISING, cause)
        texts[say(facts)] = deliberative(facts)
    coded = sorted((tokenizer.encode(text).ids, mask) for text, mask in texts.items())
    for (first, mask), (second, _) in pairwise(coded):
        parting = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        assert mask[parting]
