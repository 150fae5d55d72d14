"""What is reported of a draft, the kinds of tokens the lossy mode goes by, and plans that are marked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import R1, golden_case
from rich.console import Console

from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.path_changes import PathChange, PathChanges, read_path_changes
from rsd_planner.errors import DraftError, ParameterError, TrainingError
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.training.counterfactuals import Counterfactuals
from rsd_planner.training.journal import Journal
from rsd_planner.training.survey import FrameFound, Lenient, Rejected, SurveyRequest, noise_variances
from rsd_planner.training.validation import Acceptance
from rsd_planner.training.worth import kinds_of, measure_draft, measure_path_changes, summary
from rsd_planner.worker.wire import plan_message, read_plan

QUIET = Console(quiet=True)


def frame(
    rejected: list[tuple[int, int, float]], weight: float, routine: float, lenient: Lenient | None = None
) -> FrameFound:
    accepted = Acceptance(1, 20, 4, 5.0, 0, 2, 9, 18)
    found = tuple(Rejected(3, own, drafted, 0.25, metres / 10, metres) for own, drafted, metres in rejected)
    return FrameFound(accepted, 40.0, found, weight, routine, lenient)


def test_figures_by_hand() -> None:
    lossy = Lenient(Acceptance(1, 20, 2, 10.0, 0, 2, 18, 18), 20.0, 3, True, 0.1, 0.6)
    same = Lenient(Acceptance(1, 20, 3, 20 / 3, 0, 2, 15, 18), 20.0, 0, False, 0.0, 0.0)
    found = summary([frame([(5, 6, 0.2)], 4.0, 1.0, lossy), frame([(5, 7, 0.6)], 1.0, 0.25, same)], 0.5)
    assert found["accepted_length"] == 5.0
    assert found["routine_share"] == 0.5
    assert found["action_weighted_acceptance"] == 0.25
    assert found["rejected_guesses"] == 2
    assert found["rejected_action_mse"] == 0.25
    assert (found["rejected_ade_1s_m"], found["rejected_ade_6s_m"]) == (0.04, 0.4)
    mode = found["action_tolerant"]
    assert mode["accepted_length"] == 8.0
    assert (mode["tolerated_tokens"], mode["frames_changed"]) == (3, 1)
    assert (mode["ade_6s_m"], mode["worst_ade_6s_m"]) == (0.3, 0.6)
    assert mode["reasoning_time_exact_over_lossy"] == 2.0


def test_variances_over_the_noise_by_hand() -> None:
    """Two draws: the candidate is 1 and 2 away from its own noise's actions, 3 and 2 from the other's."""
    own = torch.tensor([0.0, 4.0])[:, None, None].expand(2, 64, 2)
    candidate = torch.tensor([1.0, 2.0])[:, None, None].expand(2, 64, 2)
    same, independent = noise_variances(candidate, own)
    assert same == pytest.approx(4.5)  # of 1 and 4
    assert independent == pytest.approx(12.5)  # of 9 and 4
    quiet, loud = Rejected(3, 5, 6, 0.25, 0.0, 0.0, 1.0, 20.0), Rejected(3, 5, 6, 0.25, 0.0, 0.0, 3.0, 40.0)
    found = summary([replace(frame([], 1.0, 1.0), rejected=(quiet, loud))], None)
    assert (found["action_mse_variance_same_noise"], found["action_mse_variance_independent_noise"]) == (2.0, 30.0)


def test_a_kind_is_tolerated_only_if_seen_often_and_never_beyond_the_bound() -> None:
    frames = [
        frame([(5, 6, 0.01), (5, 7, 0.01), (8, 9, 0.01)], 0, 0),
        frame([(5, 6, 0.03), (5, 7, 0.01), (8, 9, 0.01)], 0, 0),
        frame([(5, 6, 0.02), (5, 7, 0.2)], 0, 0),
    ]
    kinds = kinds_of(frames)
    assert kinds == (
        PathChange(5, 6, 3, 0.02, 0.03),
        PathChange(5, 7, 3, 0.07333, 0.2),
        PathChange(8, 9, 2, 0.01, 0.01),
    )
    changes = PathChanges("t", 3, kinds)
    assert changes.below(0.1) == {(5, 6)}
    assert changes.below(0.03) == frozenset()
    assert changes.below(0.3) == {(5, 6), (5, 7)}


def test_a_journal_goes_on_behind_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    journal = Journal(path, {"draws": 2})
    journal.write("one", {"x": 1})
    with path.open("a") as file:
        file.write('{"id": "two", "x"')
    again = Journal(path, {"draws": 2})
    assert again.found == {"one": {"x": 1}}
    again.write("two", {"x": 2})
    assert Journal(path, {"draws": 2}).found == {"one": {"x": 1}, "two": {"x": 2}}
    with pytest.raises(TrainingError, match=r"a\.jsonl: draws is 2, expected 3: use another --out"):
        Journal(path, {"draws": 3})


@pytest.fixture(scope="module")
def request_of(world: Path, distilled: dict[DraftKind, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of a model directory with the draft and its table in it; both measured on the same frames, so that it matters."""
    model = tmp_path_factory.mktemp("model")
    for part in ("checkpoint", "processor"):
        (model / part).symlink_to(R1 / part)
    (model / "draft").mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / "draft" / name).write_bytes((distilled[DraftKind.DFLASH] / name).read_bytes())

    def make(out: Path, **changes: Any) -> SurveyRequest:
        request = SurveyRequest(model, model / "draft", world, out, Split.VAL, frames=2, draws=1, max_tokens=14)
        return replace(request, **changes)

    return make


def test_the_lossy_mode_is_measured_and_every_plan_is_marked(request_of: Any, tmp_path: Path) -> None:
    request = request_of(tmp_path)
    with pytest.raises(DraftError, match=r"path_changes\.json is missing, expected what `rsd_planner measure-path"):
        measure_draft(replace(request, tolerance_m=1.0), QUIET)
    exact = measure_draft(request, QUIET)
    assert exact is not None
    assert "action_tolerant" not in exact
    assert 0 <= exact["action_weighted_acceptance"] <= 1

    changes = measure_path_changes(replace(request, out=tmp_path / "changes", weighted=False), QUIET)
    assert changes is not None
    assert read_path_changes(request.draft, changes.target) == changes
    with pytest.raises(DraftError, match=r"measured with target .*, expected other"):
        read_path_changes(request.draft, "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counterfactuals, "runners_up", None)  # the weights are there
        lossy = measure_draft(replace(request, out=tmp_path / "lossy", weights=tmp_path, tolerance_m=1.0), QUIET)
    assert lossy is not None
    mode = lossy.pop("action_tolerant")
    assert lossy == exact
    assert mode["tolerated_tokens"] > 0
    assert mode["accepted_length"] > exact["accepted_length"]
    assert mode["passes_per_frame"] < exact["passes_per_frame"]
    assert mode["worst_ade_6s_m"] > 0
    assert json.loads((tmp_path / "lossy" / "val.json").read_text())["action_tolerant"] == mode

    with pytest.raises(ParameterError, match=r"accept is action_tolerant, but .*alpamayo_r1 has no draft/"):
        Planner.load(R1, PlannerSettings(accept="action_tolerant"))
    observation = golden_case(R1, 0).observation
    settings = PlannerSettings(max_reasoning_tokens=14)
    plain = Planner.load(request.target, settings)
    assert not plain.plan(observation).lossy
    assert "LOSSY" not in plain.info.notice
    planner = Planner.load(request.target, replace(settings, accept="action_tolerant", path_tolerance_m=1.0))
    plan = planner.plan(observation)
    assert plan.lossy
    assert planner.info.notice.startswith("LOSSY: accept is action_tolerant")
    assert plan.finish_text == f"{plan.finish_reason.value}, lossy"
    received = read_plan(plan_message(plan, 0.0))
    assert received.lossy
    assert received.speculation == plan.speculation


def test_settings_that_make_no_sense_are_named() -> None:
    with pytest.raises(ParameterError, match="accept is 'loosely', expected one of exact, action_tolerant"):
        PlannerSettings(accept="loosely")
    with pytest.raises(ParameterError, match=r"accept is action_tolerant with temperature 0.5, expected 0"):
        PlannerSettings(accept="action_tolerant", temperature=0.5)
    with pytest.raises(ParameterError, match="path_tolerance_m is 0, expected more than 0"):
        PlannerSettings(path_tolerance_m=0)
    with pytest.raises(ParameterError, match="--draws is 0, expected 1 or more"):
        SurveyRequest(Path(), Path(), Path(), Path(), draws=0)
