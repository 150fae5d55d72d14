"""From ticks to the rows of bench.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rsd_planner.bench.exactness import Agreement
from rsd_planner.bench.step_times import StepTimes
from rsd_planner.bench.strategies import Strategy, Tick


@dataclass
class Measured:
    """All ticks of one strategy on one kind of frames."""

    strategy: Strategy
    ticks: list[Tick] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)


@dataclass(frozen=True)
class Baselines:
    """What a row is compared with; None where it was not measured."""

    plain: Measured | None  # the plain loop of the same backend
    reference: Measured | None
    steps: StepTimes  # of the same backend


def accepted_length(ticks: Sequence[Tick]) -> float | None:
    """L: tokens committed per verify pass, over all passes."""
    passes = [count for tick in ticks for count in tick.tokens_per_pass]
    return sum(passes) / len(passes) if passes else None


def accepted_length_by_frame(ticks: Sequence[Tick]) -> float | None:
    """The mean of L per frame, over frames that had a pass."""
    lengths = [float(np.mean(tick.tokens_per_pass)) for tick in ticks if tick.tokens_per_pass]
    return float(np.mean(lengths)) if lengths else None


def ceiling(lengths: Sequence[int], depth: int) -> float | None:
    """L of a draft that is always right and proposes `depth` tokens a pass.

    Args:
        lengths: Committed tokens of each frame, the closing ones included; the prefill commits the first.
    """
    behind = [length - 1 for length in lengths if length > 1]
    passes = sum(-(-count // (depth + 1)) for count in behind)
    return sum(behind) / passes if passes else None


def row(measured: Measured, frames: str, base: Baselines) -> dict[str, Any]:
    """One row. Times are medians in milliseconds; what a definition leaves open for a strategy is None.

    Args:
        frames: `independent` or `consecutive`.
    """
    ticks, depth = measured.ticks, measured.strategy.depth
    length = None if depth is None else accepted_length(ticks)
    said = sum(tick.reasoning_tokens for tick in ticks)
    return {
        "name": measured.strategy.name,
        "frames": frames,
        "backend": measured.strategy.backend,
        "draft": measured.strategy.origin,
        "accepted_length": length,
        "accepted_length_by_frame": None if depth is None else accepted_length_by_frame(ticks),
        "ceiling": None if depth is None else ceiling([len(tick.token_ids) for tick in ticks], depth),
        "passes_per_frame": _mean([len(tick.tokens_per_pass) for tick in ticks]),
        "frames_without_pass": sum(not tick.tokens_per_pass for tick in ticks),
        "prefill_committed": _mean([tick.prefill_committed for tick in ticks]),
        "tokens_per_frame": _mean([len(tick.token_ids) for tick in ticks]),
        "target_cache_mb": _megabytes([tick.target_cache_bytes for tick in ticks]),
        "draft_cache_mb": _megabytes([tick.draft_cache_bytes for tick in ticks]),
        "routine_share": sum(tick.routine_tokens for tick in ticks) / said if said else None,
        **_modelled(measured, length, base.steps),
        "reasoning_ms": _median(measured, "reasoning_ms"),
        "tick_ms": _median(measured, "tick_ms"),
        "speedup_vs_plain": None if depth is None else _ratio(base.plain, measured, "reasoning_ms"),
        "speedup_vs_reference": None if depth is None else _ratio(base.reference, measured, "reasoning_ms"),
        "tick_speedup_vs_plain": _ratio(base.plain, measured, "tick_ms"),
        "tick_speedup_vs_reference": _ratio(base.reference, measured, "tick_ms"),
        **_exactness(measured.agreements),
        "ticks": len(ticks),
    }


def _modelled(measured: Measured, length: float | None, steps: StepTimes) -> dict[str, float | None]:
    """S_paper = L / (1 + T_draft / t(1)); S_model = L t(1) / (t(k + 1) + T_draft)."""
    depth, ticks = measured.strategy.depth, measured.ticks
    if length is None or not depth or not steps.medians():
        return {"draft_ms_per_pass": None, "s_paper": None, "s_model": None}
    drafting = sum(tick.draft_ms for tick in ticks) / sum(len(tick.tokens_per_pass) for tick in ticks)
    one = steps.ms(1)
    return {
        "draft_ms_per_pass": drafting,
        "s_paper": length / (1 + drafting / one),
        "s_model": length * one / (steps.ms(depth + 1) + drafting),
    }


def _exactness(agreements: Sequence[Agreement]) -> dict[str, Any]:
    """`token_exact`: all frames are equal to the plain loop, ties apart, which are counted."""
    differences = [found.kv_difference for found in agreements if found.margin is None]
    compared = [difference for difference in differences if difference is not None]
    worst = max(compared, default=None)
    return {
        "token_exact": all(found.exact for found in agreements) if agreements else None,
        "token_equal_frames": sum(found.margin is None for found in agreements),
        "ties": sum(found.margin is not None and found.exact for found in agreements),
        "inexact_frames": sum(not found.exact for found in agreements),
        "kv_difference": worst if worst is None or np.isfinite(worst) else "lengths differ",
    }


def _median(measured: Measured, name: str) -> float | None:
    return float(np.median([getattr(tick, name) for tick in measured.ticks])) if measured.ticks else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _megabytes(sizes: Sequence[int]) -> float | None:
    """Mean of those that are known."""
    mean = _mean([size for size in sizes if size])
    return None if mean is None else mean / 1e6


def _ratio(base: Measured | None, measured: Measured, name: str) -> float | None:
    if base is None:
        return None
    theirs, ours = _median(base, name), _median(measured, name)
    return theirs / ours if theirs is not None and ours else None
