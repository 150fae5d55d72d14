"""What is to be said had the ego come otherwise: the cause stays, the history and what is said about it change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rsd_planner.demo.other_histories import with_other_histories
from rsd_planner.demo.trainer.batches import Tokens, make_batch
from rsd_planner.demo.training import new_target
from rsd_planner.demo.world.dataset import Dataset, load_split, write_split
from rsd_planner.demo.world.sentences import action_of, cause_of
from rsd_planner.demo.world.splits import Split


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("world")
    assert len(list(write_split(folder, Split.TRAIN, drives=2))) == 1
    return with_other_histories(load_split(folder, Split.TRAIN), folder, 1, Console(quiet=True))


def test_the_cause_stays_and_the_history_is_another(data: Dataset) -> None:
    texts, others = data.columns["text"], data.columns["other_text"]
    known = others != ""
    assert known.mean() > 0.7
    for text, other in zip(texts[known], others[known], strict=True):
        assert cause_of(str(text)) is cause_of(str(other))
    changed = [action_of(str(a)) != action_of(str(b)) for a, b in zip(texts[known], others[known], strict=True)]
    assert np.mean(changed) > 0.5
    gaps = np.abs(data.columns["other_history"] - data.columns["history"])[known].max(axis=(1, 2))
    assert (gaps > 0.05).mean() > 0.9
    assert not data.columns["other_history"][:, -1].any()  # t0 is the origin


def test_they_are_kept(data: Dataset, tmp_path: Path) -> None:
    first = with_other_histories(data, tmp_path, 1, Console(quiet=True))
    written = (tmp_path / "other_histories.npz").stat().st_mtime_ns
    again = with_other_histories(data, tmp_path, 1, Console(quiet=True))
    assert (tmp_path / "other_histories.npz").stat().st_mtime_ns == written
    assert np.array_equal(first.columns["other_text"], again.columns["other_text"])


def test_a_batch_says_what_its_history_asks_for_and_drives_only_its_own(data: Dataset, tmp_path: Path) -> None:
    target = new_target(tmp_path / "model", 0, "cpu")
    tokens = Tokens(target, data)
    chosen = np.arange(len(data))
    rows = tokens.some_other(chosen, 0.5, np.random.default_rng(0))
    other = rows >= len(data)
    assert 0 < other.sum() < len(data)
    batch = make_batch(data, tokens, rows, next(target.network.parameters()).device)
    assert np.array_equal(batch.driven.numpy(), ~other)
    words = target.vocabulary
    for row, is_other in enumerate(other):
        text = data.columns["other_text" if is_other else "text"][row]
        history = data.columns["other_history" if is_other else "history"][row]
        said = batch.token_ids[row, len(tokens.layout.token_ids) : int(batch.lengths[row])].tolist()
        assert words.reasoning(said[:-2]) == text
        assert set(target.config.history.encode(history)) <= set(batch.token_ids[row].tolist())
