"""All rows from one command: in turn, none twice, and no claim that the numbers do not carry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden_cases import R1, V1_5
from rich.console import Console

from rsd_planner.draft.config import DraftKind
from rsd_planner.errors import CheckpointError, ParameterError, TrainingError
from rsd_planner.training.reproduce import Recipe, ReproduceRequest, directory_of, reproduce, runs
from rsd_planner.training.reproduce_report import verdict, write_report

SMALL: dict[str, Any] = {
    "rows": ["flat", "aarl_policy"],
    "splits": ["val"],
    "dflash_seeds": 0,
    "frames": 4,
    "steps": 2,
    "batch": 2,
    "further_steps": 1,
    "further_batch": 2,
    "candidates": 2,
    "validations": 1,
    "validation_frames": 1,
    "measured": 1,
    "max_tokens": 16,
    "weighted": False,
    "noise_frames": 1,
    "noise_draws": 2,
    "bench_frames": 0,
    "attention_frames": 0,
    "chain_frames": 4,
    "chain_steps": 2,
    "chain_batch": 2,
    "chain_max_tokens": 20,
    "chain_measured": 1,
}


def test_verdicts_by_hand() -> None:
    assert verdict([0.2, 0.3, 0.25]) == "holds here: +0.250 ± 0.050 over 3 seeds"
    assert verdict([-0.2, -0.3]) == "does not hold here: -0.250 ± 0.071 over 2 seeds"
    assert verdict([0.2, -0.1]) == "cannot tell: +0.050 ± 0.212 over 2 seeds"
    assert verdict([0.2]) == "cannot tell from one seed: +0.200"


def test_all_rows_in_turn() -> None:
    names = [run.name for run in runs(Recipe())]
    assert len(names) == 6 * 4
    assert names[:3] == ["dflash_flat_0", "dflash_mirrored_0", "dflash_aarl_static_0"]
    assert [name for name in names if name.startswith("eagle3")] == names[6:12]
    with pytest.raises(ParameterError, match=r"rows are \['token'\], expected flat among them"):
        Recipe(rows=("token",))
    with pytest.raises(ParameterError, match=r"rows holds 'flatt', expected some of flat, mirrored"):
        Recipe(rows=("flatt",))


def test_a_config_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    assert Recipe.read(path).rows == ("flat", "aarl_policy")
    path.write_text('{"frames": null}')
    assert Recipe.read(path) == Recipe()
    for text, message in (
        ('{"stepps": 3}', "holds stepps, expected some of rows"),
        ('{"steps": "3"}', "steps is '3', expected one like 500"),
        ('{"steps": -5}', "--config: steps is -5, expected more than 0"),
        ('{"frames": "x"}', "frames is 'x', expected a whole number, or null for all"),
        ('{"dflash_seeds": 0, "eagle3_seeds": 0}', "are 0, expected a draft to train"),
        ("[1]", r"holds \[1\], expected an object"),
        ("{", "not readable as JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ParameterError, match=message):
            Recipe.read(path)


def test_rows_are_made_once_and_reported(world: Path, tmp_path: Path) -> None:
    config = tmp_path / "small.json"
    config.write_text(json.dumps(SMALL))
    recipe = Recipe.read(config)
    request = ReproduceRequest(R1, world, tmp_path / "out", recipe, cache=tmp_path / "cache")
    assert reproduce(request, Console(quiet=True))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert reproduce(request, Console(quiet=True))
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(row["draft"], row["row"], row["split"]) for row in found["rows"]] == [
        ("eagle3", "flat", "val"),
        ("eagle3", "aarl_policy", "val"),
    ]
    assert list(found["anchor_sets"]) == ["eagle3_aarl_policy_0"]
    assert found["noise"]["action_mse_variance_same_noise"] < found["noise"]["action_mse_variance_independent_noise"]
    assert (tmp_path / "out" / "anchor_sets.png").stat().st_size > 10_000
    page = (tmp_path / "out" / "results.md").read_text()
    assert "under independent noise" in page
    assert "| eagle3 | FlatRoPE + AARL, policy anchors | val |" in page
    with pytest.raises(TrainingError, match=r"recipe\.json: steps is 2, expected 3: use another --out"):
        reproduce(replace(request, recipe=replace(recipe, steps=3)), Console(quiet=True))
    half = tmp_path / "half"
    half.mkdir()
    (half / "train").symlink_to(world / "train")
    with pytest.raises(TrainingError, match=r"recipe\.json: target is .*: use another --out"):
        reproduce(replace(request, target=V1_5), Console(quiet=True))
    with pytest.raises(TrainingError, match=r"half: no split val there; rsd_planner demo render"):
        reproduce(replace(request, data=half), Console(quiet=True))
    with pytest.raises(ParameterError, match=r"--data .*: found no folder train in it, expected splits of the demo"):
        reproduce(replace(request, data=R1), Console(quiet=True))
    (tmp_path / "out" / "recipe.json").write_text("[1")
    with pytest.raises(TrainingError, match=r"recipe\.json: not readable as a JSON object"):
        reproduce(request, Console(quiet=True))


def test_longer_chains_stand_beside_the_own_target(world: Path, tmp_path: Path) -> None:
    recipe = Recipe(**{**SMALL, "rows": ("flat",), "splits": ("val",), "dflash_seeds": 0})
    request = ReproduceRequest(R1, world, tmp_path / "out", recipe, chains=(V1_5,))
    assert reproduce(request, Console(quiet=True))
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["chains"]
    names = {(row["target"], row["name"]) for row in rows}
    longer = {("alpamayo_1_5", name) for name in ("plain loop", "EAGLE-3, flat", "DFlash, flat")}
    assert names == {("own", "plain loop"), ("own", "EAGLE-3, flat"), *longer}
    assert all(row["token_exact"] and row["tokens_per_frame"] <= 20 for row in rows)
    drafted = [row for row in rows if row["name"] != "plain loop"]
    assert all(0 < row["draft_cache_mb"] < row["target_cache_mb"] for row in drafted)
    assert all(row["accepted_length"] <= row["ceiling"] for row in drafted)
    assert "| own | EAGLE-3, flat |" in (tmp_path / "out" / "results.md").read_text()
    assert (tmp_path / "out" / "chains.png").stat().st_size > 10_000
    with pytest.raises(ParameterError, match=r"--chain .*: another one is called alpamayo_1_5 too, expected names"):
        reproduce(replace(request, chains=(V1_5, V1_5)), Console(quiet=True))
    with pytest.raises(CheckpointError, match=r"found nothing, expected a model directory"):
        reproduce(replace(request, chains=(tmp_path / "none",)), Console(quiet=True))


def test_distilled_drafts_that_are_there_are_used(world: Path, tmp_path: Path) -> None:
    recipe = Recipe(splits=("val",))
    request = ReproduceRequest(R1, world, tmp_path / "out", recipe, drafts=tmp_path / "given")
    first = next(runs(recipe))
    assert first.kind is DraftKind.DFLASH
    assert directory_of(request, first) == tmp_path / "out" / "drafts" / "dflash_flat_0"
    with pytest.raises(ParameterError, match=r"--drafts .*: found no finished one of dflash_flat_0, dflash_mirrored_0"):
        reproduce(request, Console(quiet=True))
    (tmp_path / "given" / "dflash_flat_0" / "run").mkdir(parents=True)
    (tmp_path / "given" / "dflash_flat_0" / "run" / "result.json").write_text("{}")
    assert directory_of(request, first) == tmp_path / "given" / "dflash_flat_0"


def test_claims_compare_the_same_seeds(tmp_path: Path) -> None:
    lengths = {"flat": (6.0, 6.4, 6.2), "mirrored": (5.9, 6.2, 6.0), "aarl_static": (6.15, 6.3)}
    for row, values in lengths.items():
        for seed, length in enumerate(values):
            folder = tmp_path / "measured" / f"dflash_{row}_{seed}"
            folder.mkdir(parents=True)
            figures = {"accepted_length": length, "ceiling": 12.0, "routine_share": 0.8}
            (folder / "test.json").write_text(json.dumps(figures))
    found = write_report(tmp_path, ["flat", "mirrored", "aarl_static"], ["test"])
    assert [row["seeds"] for row in found["rows"]] == [3, 3, 2]
    assert found["rows"][0]["accepted_length"] == 6.2
    assert found["rows"][0]["spread"] == 0.2
    verdicts = [claim["verdict"] for claim in found["claims"]]
    assert verdicts == [
        "holds here: +0.167 ± 0.058 over 3 seeds",
        "cannot tell: +0.025 ± 0.177 over 2 seeds",
    ]
