"""Long reasoning: long enough, in the tokenizer's words, true to the scene, and ending with the decision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from rsd_planner.demo.long_texts import with_long_texts
from rsd_planner.demo.world.dataset import load_split, write_split
from rsd_planner.demo.world.descriptions import flags_of, phrase, reasoning_of, text_of
from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.facts import observe
from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.sentences import decision_of, say
from rsd_planner.demo.world.splits import SEEDS, Split
from rsd_planner.demo.world.tokenizer import SPLITS_FILE, load_tokenizer, words_of

LEAST = {Reasoning.LONG_200: 200, Reasoning.LONG_500: 500}


@pytest.fixture(scope="module")
def drives() -> list[Drive]:
    return [run_drive(make_layout(split, SEEDS[split][i])) for split in (Split.TEST, Split.OFF_SHELF) for i in range(3)]


@pytest.mark.parametrize("length", LEAST)
def test_every_tick_is_described_at_length_and_decided(drives: list[Drive], length: Reasoning) -> None:
    known = set(json.loads(SPLITS_FILE.read_text()))
    for drive in drives:
        for tick in drive.ticks[::17]:
            pieces, facts = reasoning_of(drive, tick, length), observe(drive, tick)
            text = text_of(pieces)
            ids = load_tokenizer().encode(text, add_special_tokens=False).ids
            assert len(ids) >= LEAST[length]
            assert words_of([text]) <= known  # so each splits as with all of Qwen's ranks
            assert len(flags_of(pieces)) == len(ids)
            assert any(flags_of(pieces))
            assert decision_of(text) == say(facts)
            assert length is Reasoning.LONG_200 or text.count(phrase(facts.cause)) >= 11


def test_a_dataset_is_told_at_length_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(write_split(tmp_path, Split.VAL, drives=1))
    data, console = load_split(tmp_path, Split.VAL), Console(quiet=True)
    told = with_long_texts(data, Reasoning.LONG_200, tmp_path, 1, console)
    assert [decision_of(str(text)) for text in told.columns["text"]] == data.columns["text"].tolist()
    assert told.columns["deliberative"].shape[1] >= LEAST[Reasoning.LONG_200]
    monkeypatch.setattr("rsd_planner.demo.long_texts.describe_drives", None)  # not worked out a second time
    again = with_long_texts(data, Reasoning.LONG_200, tmp_path, 1, console)
    assert (again.columns["text"] == told.columns["text"]).all()
