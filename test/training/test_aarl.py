"""Whole runs of action-aware RL and its baselines, and what their anchors do."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import R1
from rich.console import Console
from torch import Tensor
from training_files import golden_target

from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.load import DraftFiles, load_draft, read_draft
from rsd_planner.errors import ParameterError, TrainingError
from rsd_planner.planner import target_parts
from rsd_planner.scene.observation import Observation
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.aarl import AarlRequest, Objective, objective_of, train_aarl
from rsd_planner.training.aarl_objective import AarlObjective, Options
from rsd_planner.training.aarl_reward import Anchor, Metric
from rsd_planner.training.block_policy import BlockPolicy, all_starts
from rsd_planner.training.cache import Cache, target_fingerprint
from rsd_planner.training.counterfactuals import Counterfactuals, Scene
from rsd_planner.training.frames import BagOptions, open_frames
from rsd_planner.training.samples import Batch, Samples
from rsd_planner.training.teacher import Teacher
from rsd_planner.training.train_draft import DraftTrainee

QUIET = Console(quiet=True)
CAP = 24
FEW = Options(candidates=3, draws=1, blocks=2)


@pytest.fixture(scope="module")
def request_of(world: Path, shared_cache: Path, distilled: dict[DraftKind, Path]) -> Any:
    def make(out: Path, kind: DraftKind = DraftKind.DFLASH, **changes: Any) -> AarlRequest:
        numbers: dict[str, Any] = {"steps": 3, "batch": 2, "validations": 1, "validation_frames": 1, "rate": 1e-3}
        numbers |= {"cache": shared_cache, "max_tokens": CAP}
        request = AarlRequest(R1, distilled[kind], world, out, options=FEW, **numbers)
        return replace(request, **changes)

    return make


def logged(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "run" / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def stop_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C while this step is under way."""
    original = DraftTrainee.batch

    def batch(self: DraftTrainee, number: int, part: int, parts: int) -> tuple[Any, ...]:
        if number == step:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, number, part, parts)

    patch.setattr(DraftTrainee, "batch", batch)


def test_three_steps_stopped_and_gone_on_with_bit_for_bit(request_of: Any, tmp_path: Path) -> None:
    seen: list[dict[str, Tensor]] = []
    original = DraftTrainee.export

    def export(self: DraftTrainee, weights: Mapping[str, Tensor], directory: Path) -> None:
        seen.append({name: tensor.clone() for name, tensor in weights.items()})
        original(self, weights, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DraftTrainee, "export", export)
        assert train_aarl(request_of(tmp_path / "whole"), QUIET).finished
        with pytest.MonkeyPatch.context() as inner:
            stop_at(inner, 1)
            assert train_aarl(request_of(tmp_path / "parts"), QUIET).step == 2
        assert train_aarl(request_of(tmp_path / "parts"), QUIET).finished
    whole, parts = seen
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    assert logged(tmp_path / "whole") == logged(tmp_path / "parts")

    files = read_draft(request_of(tmp_path).draft, target_parts(golden_target()))
    assert whole.keys() == {f"network.{name}" for name in files.tensors}  # the frozen draft is not written
    assert any(not torch.equal(whole[f"network.{name}"], tensor.float()) for name, tensor in files.tensors.items())
    step, validation = logged(tmp_path / "whole")
    assert 0 < step["static_set"] < step["places"]
    assert step["ade_6s"] > step["ade_1s"] > 0
    assert 1 <= validation["validation"]["accepted_length"] <= validation["validation"]["ceiling"]
    load_draft(tmp_path / "whole", target_parts(golden_target()))
    card = (tmp_path / "whole" / "MODEL_CARD.md").read_text()
    assert "--objective aarl" in card
    assert "--anchor static" in card
    before = json.loads((tmp_path / "whole" / "run" / "before.json").read_text())
    assert f"| {before['accepted_length']:.3f} | {validation['validation']['accepted_length']:.3f} |" in card
    assert (tmp_path / "whole" / "curves.png").stat().st_size > 5000
    with pytest.raises(TrainingError, match=r"options is .*static.*, expected .*policy.*: use another --out"):
        train_aarl(request_of(tmp_path / "whole", options=replace(FEW, anchor=Anchor.POLICY)), QUIET)


@pytest.mark.parametrize(
    ("objective", "kind"), [(Objective.TOKEN, DraftKind.EAGLE3), (Objective.DISTILL, DraftKind.DFLASH)]
)
def test_baselines_by_the_same_command(request_of: Any, objective: Objective, kind: DraftKind, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counterfactuals, "actions", None)  # neither of them runs the expert
        assert train_aarl(request_of(tmp_path, kind, objective=objective), QUIET).finished
    step = logged(tmp_path)[0]
    assert ("reward" in step) is (objective is Objective.TOKEN)
    assert "action_mse" not in step
    load_draft(tmp_path, target_parts(golden_target()))


def test_numbers_out_of_range_are_named(request_of: Any, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="--candidates is 1, expected 2 or more"):
        request_of(tmp_path, options=replace(FEW, candidates=1))
    with pytest.raises(ParameterError, match="--kl-weight is -1, expected 0 or more"):
        request_of(tmp_path, options=replace(FEW, kl_weight=-1))
    with pytest.raises(ParameterError, match="--action-weight is 0, expected more; --objective token is RL without"):
        request_of(tmp_path, options=replace(FEW, action_weight=0.0))


@dataclass
class Shared:
    """What objectives of one draft have in common."""

    target: AlpamayoTarget
    judge: Counterfactuals
    files: DraftFiles
    observations: list[Observation]
    scenes: list[Scene]
    batch: Batch


@pytest.fixture(scope="module")
def shared(request_of: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[DraftKind, Shared]:
    target, found = golden_target(), {}
    judge = Counterfactuals(Teacher(target))
    for kind in DraftKind:
        request: AarlRequest = request_of(tmp_path_factory.mktemp("bench"), kind)
        assert request.cache is not None
        files = read_draft(request.draft, target_parts(target))
        source = open_frames(request.data, Split.TRAIN, BagOptions())
        numbers: dict[str, Any] = {"max_tokens": CAP, "gigabytes": request.cache_gb}
        cache = Cache(request.cache, source, judge.teacher, target_fingerprint(R1), **numbers)
        samples = Samples(cache, files.config.taps)
        chosen = samples.epoch(2, 0, 0)[0]
        observations = [source.observation(int(i)) for i in chosen]
        found[kind] = Shared(target, judge, files, observations, judge.scenes(observations), samples.batch(chosen))
    return found


class Bench:
    """One objective on the cached frames, its two drafts still the same."""

    def __init__(self, shared: Shared, options: Options) -> None:
        self.batch, self._scenes = shared.batch, shared.scenes
        parts = target_parts(shared.target)
        learner, frozen = (objective_of(shared.files, parts, blocks=2) for _ in range(2))
        drafts = [BlockPolicy(one, parts, shared.files.token_ids) for one in (learner, frozen.requires_grad_(False))]
        self.draft = drafts[0]
        self.objective = AarlObjective(drafts[0], drafts[1], shared.judge, options)

    def forward(self, seed: int = 0) -> dict[str, Tensor]:
        found: dict[str, Tensor] = self.objective(self.batch, self._scenes, seed, self.batch)
        return found


@pytest.mark.parametrize("kind", list(DraftKind))
def test_a_flipped_place_leaves_the_policy_set_alone(shared: dict[DraftKind, Shared], kind: DraftKind) -> None:
    """The pathology, and the cure: only the static anchors still pull where the draft has changed its mind."""
    pulls = {}
    for anchor in Anchor:
        options = replace(FEW, anchor=anchor, action_weight=0.0, text_weight=0.0, blocks=64)
        bench = Bench(shared[kind], options)
        first = bench.forward()
        assert first["static_set"] == first["policy_set"] > 0
        assert first["left_set"] == first["kl"] == 0
        with torch.no_grad():
            bench.objective.network.norm.weight.neg_()  # what was likeliest is now least likely
        second = bench.forward()
        assert second["static_set"] == first["static_set"]
        assert second["policy_set"] < first["policy_set"]
        assert second["left_set"] > 0
        second["loss"].backward()  # type: ignore[no-untyped-call]
        assert second["kl"] > 0
        weight = bench.objective.network.norm.weight.grad
        assert weight is not None
        pulls[anchor] = float(weight.norm())
    assert pulls[Anchor.STATIC] > 0
    assert pulls[Anchor.NONE] == 0
    assert pulls[Anchor.POLICY] < pulls[Anchor.STATIC]


def test_the_likelier_of_two_candidates_is_the_better_one(shared: dict[DraftKind, Shared]) -> None:
    """Steps along the gradient raise the expected share of matching tokens."""
    options = Options(action_weight=0.0, text_weight=1.0, kl_weight=0.0, candidates=32, blocks=4)
    bench = Bench(shared[DraftKind.DFLASH], options)
    starts, usable = all_starts(bench.batch)

    def chance_of_own() -> float:
        with torch.no_grad():
            logits = bench.draft.logits(bench.batch, starts)
        labels, there = bench.draft.labels(bench.batch, starts, logits.shape[2])
        own = logits.softmax(dim=-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        return float(own[there & usable[:, :, None]].mean())

    before = chance_of_own()
    optimizer = torch.optim.AdamW(bench.objective.parameters(), lr=3e-3)
    for seed in range(8):
        optimizer.zero_grad()
        bench.forward(seed)["loss"].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert chance_of_own() > before + 0.02


def test_actions_are_the_planners(shared: dict[DraftKind, Shared]) -> None:
    """The shared prefill and the batched expert run give what the planner's own passes give."""
    bench = shared[DraftKind.DFLASH]
    noise = torch.randn(2, 64, 2, generator=torch.Generator().manual_seed(1))
    prompt_length = bench.batch.prompt_length
    for row, scene in enumerate(bench.scenes):
        said = bench.batch.tokens[row, prompt_length : prompt_length + int(bench.batch.reasoning_lengths[row])]
        own = bench.judge.closed(said.tolist())
        other = [own[0], own[1] + 1, *own[2:]]
        found = bench.judge.actions(scene, torch.tensor([own, other]), noise)
        for variant, tokens in enumerate((own, other)):
            bench.target.prefill(bench.target.prompt(bench.observations[row]))
            bench.target.verify(tokens)
            for draw in range(2):
                expected = bench.target.sample_actions(noise[draw])
                assert torch.allclose(found[variant, draw], expected, atol=2e-5), (row, variant, draw)


def test_reward_in_metres_is_the_displacement(shared: dict[DraftKind, Shared]) -> None:
    found = {}
    for metric in Metric:
        options = replace(FEW, metric=metric, text_weight=0.0)
        with torch.no_grad():
            found[metric] = Bench(shared[DraftKind.DFLASH], options).forward(seed=3)
    for values in found.values():
        assert values["ade_6s"] > 0
    assert found[Metric.MSE]["reward"] == pytest.approx(-float(found[Metric.MSE]["action_mse"]), rel=1e-5)
    metres = found[Metric.METRES]
    assert metres["reward"] == pytest.approx(-float(metres["ade_1s"] + metres["ade_6s"]) / 2, rel=1e-5)
