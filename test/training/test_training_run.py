"""Whole runs: stopped and gone on with, on two processes, from the command line, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import R1
from rich.console import Console
from torch import Tensor
from training_files import golden_target

from rsd_planner.demo.make_bag import BAG_DIR
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.load import load_draft
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import ParameterError, TrainingError
from rsd_planner.planner import target_parts
from rsd_planner.training.train_draft import DraftTrainee, Request, train_draft

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def request_of(world: Path, shared_cache: Path) -> Any:
    def make(out: Path, kind: DraftKind = DraftKind.DFLASH, **changes: Any) -> Request:
        numbers: dict[str, Any] = {"steps": 6, "batch": 2, "validations": 2, "validation_frames": 2, "anchors": 4}
        request = Request(R1, kind, Rope.FLAT, world, out, cache=shared_cache, max_tokens=24, **numbers)
        return replace(request, **changes)

    return make


def lines(out: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / "run" / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def weights_of(patch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """All weights that runs write from now on, in float32."""
    seen: list[dict[str, Tensor]] = []
    original = DraftTrainee.export

    def export(self: DraftTrainee, weights: Mapping[str, Tensor], directory: Path) -> None:
        seen.append({name: tensor.clone() for name, tensor in weights.items()})
        original(self, weights, directory)

    patch.setattr(DraftTrainee, "export", export)
    return seen


def stop_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C while this step is under way."""
    original = DraftTrainee.batch

    def batch(self: DraftTrainee, number: int, part: int, parts: int) -> tuple[Any, ...]:
        if number == step:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, number, part, parts)

    patch.setattr(DraftTrainee, "batch", batch)


@pytest.mark.parametrize("kind", list(DraftKind))
def test_stopped_it_goes_on_bit_for_bit(request_of: Any, kind: DraftKind, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        seen = weights_of(patch)
        assert train_draft(request_of(tmp_path / "whole", kind), QUIET).finished
        parts = request_of(tmp_path / "parts", kind)
        for step in (2, 3):  # step 3 is the first that is validated: Ctrl-C comes before that
            with pytest.MonkeyPatch.context() as inner:
                stop_at(inner, step - 1)
                progress = train_draft(parts, QUIET)
            assert (progress.finished, progress.step) == (False, step)
            assert len(list((tmp_path / "parts" / "run").glob("state-*"))) == 1
        assert train_draft(parts, QUIET).finished
    whole, resumed = seen[:2], seen[2:]
    assert len(resumed) == 2
    for one, other in zip(whole, resumed, strict=True):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert [line for line in lines(tmp_path / "whole") if "validation" in line] == [
        line for line in lines(tmp_path / "parts") if "validation" in line
    ]
    assert not list((tmp_path / "parts" / "run").glob("state-*"))
    assert train_draft(parts, QUIET).finished  # nothing is left to do
    assert len(seen) == 4


@pytest.mark.parametrize("kind", list(DraftKind))
def test_what_is_written_is_a_draft_that_loads(request_of: Any, kind: DraftKind, tmp_path: Path) -> None:
    request = request_of(tmp_path, kind, rope=Rope.MIRRORED, draft_vocabulary=500)
    progress = train_draft(request, QUIET)
    target = golden_target()
    draft, config = load_draft(tmp_path, target_parts(target))
    assert config.rope is Rope.MIRRORED
    assert config.taps[-1] < 4
    assert draft.longest == (15 if kind is DraftKind.DFLASH else 7)
    assert 1.0 <= progress.best["accepted_length"] <= progress.best["ceiling"]
    assert (tmp_path / "curves.png").stat().st_size > 5000
    card = (tmp_path / "MODEL_CARD.md").read_text()
    assert f"--draft {kind.name.lower()} --rope mirrored" in card
    assert f"| {progress.best['ceiling']:.2f} |" in card
    if kind is DraftKind.DFLASH:
        words = target.vocabulary.tokenizer
        assert config.mask_token == words.convert_tokens_to_ids("<|vectorized_wm_pre_tkn|>")
    else:
        assert config.draft_vocabulary == 500


def test_the_best_is_kept(request_of: Any, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        seen = weights_of(patch)
        progress = train_draft(request_of(tmp_path, steps=4, validations=4, rate=0.5), QUIET)
    found = [line["validation"]["accepted_length"] for line in lines(tmp_path) if "validation" in line]
    assert len(found) == 4
    assert progress.best["accepted_length"] == max(found)
    assert progress.best_step == found.index(max(found)) + 1
    draft, _ = load_draft(tmp_path, target_parts(golden_target()))
    kept = seen[progress.best_step - 1]["network.fc.weight"].bfloat16().float()
    assert torch.equal(draft.network.fc.weight, kept)


def test_another_recipe_is_refused(request_of: Any, tmp_path: Path) -> None:
    train_draft(request_of(tmp_path, steps=1), QUIET)
    with pytest.raises(TrainingError, match=r"recipe\.json: batch is 2, expected 3: use another --out"):
        train_draft(request_of(tmp_path, steps=1, batch=3), QUIET)


def test_numbers_out_of_range_are_named(request_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="--steps is 0, expected 1 or more"):
        request_of(tmp_path, steps=0)
    with pytest.raises(ParameterError, match="--cache-gb is nan, expected 0 or more"):
        request_of(tmp_path, cache_gb=float("nan"))
    with pytest.raises(ParameterError, match="device is 'tpu'"):
        request_of(tmp_path, device="tpu")


def test_a_recording_needs_frames_to_validate_on(request_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"--val is missing: .*bag is no folder of the demo world"):
        train_draft(request_of(tmp_path, data=BAG_DIR), QUIET)


def test_two_processes_from_the_command_line(world: Path, shared_cache: Path, tmp_path: Path) -> None:
    """Frames of a step are shared between them; one of them writes."""
    numbers = "--steps 2 --batch 4 --validations 1 --val-frames 2 --anchors 4 --max-tokens 24"
    flags = f"--target {R1} --draft dflash --data {world} --cache {shared_cache} --out {tmp_path} {numbers}"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "rsd_planner", "train-draft", *flags.split()],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^wrote ", done.stderr, re.MULTILINE)) == 1
    load_draft(tmp_path, target_parts(golden_target()))
    assert [line["step"] for line in lines(tmp_path)] == [2, 2]
    assert lines(tmp_path)[1]["validation"]["frames"] == 2
