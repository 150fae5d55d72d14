"""summary.json: every number of an evaluation, and what to keep in mind when reading them."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import rsd_planner
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.metrics import HORIZONS_S, Percentiles, horizon_errors, percentiles
from rsd_planner.evaluation.results import BagResult, Evaluation, PlanRecord
from rsd_planner.plan import StageTimes

STAGES = tuple(field.name for field in fields(StageTimes))
LIBRARIES = ("torch", "transformers", "numpy", "rosbags")
SUSPICIOUS_SHARE = 1e-3  # of the distance travelled
SUSPICIOUS_PLANS, SUSPICIOUS_STEPS = 5, 30


def write_summary(result: Evaluation, path: Path) -> None:
    """Writes summary.json."""
    write_whole(path, json.dumps(summarize(result), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def summarize(result: Evaluation) -> dict[str, Any]:
    """All numbers as plain JSON values. Lengths in m, times in ms unless a name says otherwise."""
    records = result.records
    encoded, reused = (sum(getattr(record, f"frames_{what}") for record in records) for what in ("encoded", "reused"))
    return {
        "stopped": result.stopped,
        "warnings": warnings(result),
        "model": {**asdict(result.model), "path": str(result.model.path)},
        "settings": {**asdict(result.planner), "stride": result.stride},
        "ticks": {"done": result.ticks_done, "expected": result.ticks_expected},
        "plans": len(records),
        "skipped": dict(result.skipped),
        "withheld": dict(withheld(records)),
        "errors": error_table(records),
        "latency_ms": {stage: asdict(value) for stage, value in latency(records).items()},
        "tokens": tokens(records),
        "speculation": speculation(records),
        "finish_reasons": dict(Counter(record.finish_reason for record in records)),
        "vision_features": {"encoded": encoded, "reused": reused, "hit_rate": hit_rate(records)},
        "bags": [_bag(bag, own) for bag, own in result.by_bag()],
        "versions": {
            "rsd_planner": rsd_planner.__version__,
            "python": platform.python_version(),
            "opencv": cv2.__version__,
            **{name: version(name) for name in LIBRARIES},
        },
    }


def error_table(records: Sequence[PlanRecord]) -> list[dict[str, Any]]:
    """ADE and FDE at each horizon, of the plans and of constant velocity on the same plans."""
    both = [record.errors() for record in records]
    plan = horizon_errors([ours for ours, _ in both])
    velocity = horizon_errors([baseline for _, baseline in both])
    return [
        {
            "horizon_s": ours.horizon_s,
            "plans": ours.plans,
            "plan": {"ade_m": ours.ade_m, "fde_m": ours.fde_m},
            "constant_velocity": {"ade_m": baseline.ade_m, "fde_m": baseline.fde_m},
        }
        for ours, baseline in zip(plan, velocity, strict=True)
    ]


def latency(records: Sequence[PlanRecord]) -> dict[str, Percentiles]:
    """Per stage and in total; empty without plans."""
    if not records:
        return {}
    stages = {stage: [getattr(record.stage_times, stage) for record in records] for stage in STAGES}
    stages["total"] = [record.stage_times.total for record in records]
    return {stage: percentiles(values) for stage, values in stages.items()}


def tokens(records: Sequence[PlanRecord]) -> dict[str, float]:
    """Committed tokens per plan."""
    counts = [record.tokens for record in records]
    return {"total": sum(counts), "mean": float(np.mean(counts)), "max": max(counts)} if counts else {"total": 0}


def speculation(records: Sequence[PlanRecord]) -> dict[str, float | int | None]:
    """How the reasoning was guessed and verified; None where nothing was counted."""
    passes = [record.tokens_per_pass for record in records]
    said = sum(record.reasoning_tokens for record in records)
    return {
        "accepted_length": _ratio(sum(map(sum, passes)), sum(map(len, passes))),
        "passes_per_frame": _ratio(sum(map(len, passes)), len(records)),
        "frames_without_pass": sum(not own for own in passes),
        "prefill_committed": _ratio(sum(record.prefill_committed for record in records), len(records)),
        "routine_share": _ratio(sum(record.routine_tokens for record in records), said),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def hit_rate(records: Sequence[PlanRecord]) -> float | None:
    """Share of images whose vision features were still there from an earlier plan."""
    reused = sum(record.frames_reused for record in records)
    seen = reused + sum(record.frames_encoded for record in records)
    return reused / seen if seen else None


def withheld(records: Sequence[PlanRecord]) -> Counter[str]:
    """Plans that the node would not publish, by the check they failed."""
    return Counter(record.withheld.split(":")[0] for record in records if record.withheld)


def warnings(result: Evaluation) -> list[str]:
    """What a reader of the numbers has to know."""
    texts = [result.stopped] if result.stopped else []
    if result.model.notice:
        texts.append(result.model.notice.strip())
    if looks_estimated(result.records):
        texts.append(
            "The recorded path is just what constant velocity predicts: the odometry looks estimated, not measured. "
            "The errors say nothing about the planner."
        )
    longest = HORIZONS_S[-1]
    scored = sum(len(ours) == round(longest * 10) for ours, _ in (record.errors() for record in result.records))
    if scored < len(result.records):
        texts.append(
            f"{len(result.records) - scored} of {len(result.records)} plans have less than {longest} s of recorded "
            "future; each horizon counts the plans that reach it."
        )
    for bag in result.bags:
        texts += _bag_warnings(bag, result)
    if failed := withheld(result.records):
        reasons = ", ".join(f"{count} {reason}" for reason, count in failed.most_common())
        texts.append(f"{failed.total()} of {len(result.records)} plans would be withheld by the node: {reasons}.")
    return texts


def _bag_warnings(bag: BagResult, result: Evaluation) -> list[str]:
    texts = []
    missing = [str(number) for number in result.model.camera_ids if number not in bag.inputs.cameras]
    if missing:
        texts.append(
            f"{bag.name} has camera {', '.join(map(str, bag.inputs.cameras))}; {result.model.name} was trained with "
            f"{', '.join(missing)} as well."
        )
    if bag.odometry_refused:
        texts.append(
            f"{bag.name}: {bag.odometry_refused} odometry messages were unusable: {bag.odometry_refused_example}."
        )
    if bag.skipped["undecodable_image"]:
        texts.append(f"{bag.name}: {bag.skip_examples['undecodable_image']}.")
    return texts


def looks_estimated(records: Sequence[PlanRecord]) -> bool:
    """Whether a moving vehicle always was where constant velocity says: over seconds no measured drive is.

    A measured one (60 s of comma2k19) is that close in 1% of its instants.
    """
    shares = []
    for record in records:
        _, error = record.errors()
        if len(error) >= SUSPICIOUS_STEPS and record.v0 > 1.0:
            shares.append(error[-1] / (record.v0 * 0.1 * len(error)))
    return len(shares) >= SUSPICIOUS_PLANS and max(shares) < SUSPICIOUS_SHARE


def _bag(bag: BagResult, records: Sequence[PlanRecord]) -> dict[str, Any]:
    return {
        "name": bag.name,
        "path": str(bag.path),
        "duration_s": bag.duration_s,
        "cameras": {str(number): topic for number, topic in bag.inputs.cameras.items()},
        "odometry": bag.inputs.odometry,
        "unused_images": list(bag.inputs.unused_images),
        "plans": bag.plans,
        "speculation": speculation(records),
        "skipped": dict(bag.skipped),
        "skip_examples": bag.skip_examples,
        "odometry_refused": bag.odometry_refused,
        "recording": bag.recording.name,
    }
