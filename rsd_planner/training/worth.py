"""`rsd_planner measure-draft` and `measure-path-changes`: what was surveyed, summed up."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from rsd_planner.draft.path_changes import PathChange, PathChanges
from rsd_planner.engine.manifest import target_fingerprint
from rsd_planner.evaluation.files import write_whole
from rsd_planner.target.alpamayo import read_parts
from rsd_planner.training.frames import open_frames
from rsd_planner.training.survey import FrameFound, SurveyRequest, survey, total


def measure_draft(request: SurveyRequest, console: Console) -> dict[str, Any] | None:
    """Survey frames and write `<split>.json`, or `<recording>.json`; None if Ctrl-C came before the end.

    Raises:
        PlannerError: As `survey`.
    """
    found = survey(request, console)
    if found is None:
        return None
    name = open_frames(request.data, request.split, request.bags).name
    figures = {"draft": str(request.draft), "split": name, **summary(found, request.tolerance_m)}
    write_whole(request.out / f"{name}.json", json.dumps(figures, indent=1) + "\n")
    return figures


def summary(found: Sequence[FrameFound], tolerance_m: float | None) -> dict[str, Any]:
    """The figures over all frames.

    `action_weighted_acceptance`: share of the reasoning's tokens that were drafted and accepted, each weighted by how
    far the target's second choice in its place moves the path over 6.4 s. `action_mse_variance_same_noise` and
    `..._independent_noise`: what the draw of the noise alone does to the reward; of several draws only.
    """
    figures: dict[str, Any] = total([frame.acceptance for frame in found]).as_json()
    weighed = [(frame.weight, frame.weight_routine) for frame in found if frame.weight is not None]
    if weighed:
        whole, routine = (sum(float(pair[i] or 0.0) for pair in weighed) for i in range(2))
        figures["action_weighted_acceptance"] = round(routine / whole, 4) if whole else None
    rejected = [one for frame in found for one in frame.rejected]
    figures["rejected_guesses"] = len(rejected)
    if rejected:
        for name in ("action_mse", "ade_1s_m", "ade_6s_m"):
            figures[f"rejected_{name}"] = round(mean(getattr(one, name) for one in rejected), 5)
        for name in ("variance_same", "variance_independent"):
            seen = [value for one in rejected if (value := getattr(one, name)) is not None]
            if seen:
                figures[f"action_mse_{name}_noise"] = float(f"{mean(seen):.4g}")
    lenient = [frame.lenient for frame in found if frame.lenient is not None]
    if lenient:
        exact_ms, lossy_ms = sum(frame.decode_ms for frame in found), sum(one.decode_ms for one in lenient)
        figures["action_tolerant"] = {
            "path_tolerance_m": tolerance_m,
            **total([one.acceptance for one in lenient]).as_json(),
            "tolerated_tokens": sum(one.tolerated for one in lenient),
            "frames_changed": sum(one.changed for one in lenient),
            "ade_1s_m": round(mean(one.ade_1s_m for one in lenient), 5),
            "ade_6s_m": round(mean(one.ade_6s_m for one in lenient), 5),
            "worst_ade_6s_m": round(max(one.ade_6s_m for one in lenient), 5),
            "reasoning_time_exact_over_lossy": round(exact_ms / lossy_ms, 3),
        }
    return figures


def measure_path_changes(request: SurveyRequest, console: Console) -> PathChanges | None:
    """Survey frames and write `path_changes.json` into the draft's directory; None if Ctrl-C came before the end.

    Raises:
        PlannerError: As `survey`.
    """
    found = survey(request, console)
    if found is None:
        return None
    changes = PathChanges(target_fingerprint(request.target), len(found), kinds_of(found))
    tokenizer = read_parts(request.target).vocabulary.tokenizer
    texts = {token: tokenizer.decode([token]) for kind in changes.kinds for token in (kind.own, kind.drafted)}
    changes.write(request.draft, texts)
    return changes


def kinds_of(found: Sequence[FrameFound]) -> tuple[PathChange, ...]:
    """Kinds of rejected guesses, the most frequent first."""
    metres: dict[tuple[int, int], list[float]] = defaultdict(list)
    for frame in found:
        for one in frame.rejected:
            metres[one.own, one.drafted].append(one.ade_6s_m)
    kinds = [
        PathChange(*pair, count=len(seen), mean_m=round(mean(seen), 5), worst_m=round(max(seen), 5))
        for pair, seen in metres.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: (-kind.count, kind.own, kind.drafted)))


def print_figures(figures: Mapping[str, Any], console: Console) -> None:
    """As a table; the lossy mode in a column of its own."""
    lossy: Mapping[str, Any] = figures.get("action_tolerant", {})
    table = Table("figure", "exact", *(["action_tolerant"] if lossy else []))
    names = [name for name in (*figures, *lossy) if name != "action_tolerant"]
    for name in dict.fromkeys(names):
        values = [str(column.get(name, "")) for column in ((figures, lossy) if lossy else (figures,))]
        table.add_row(name, *values)
    console.print(table)
