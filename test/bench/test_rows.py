"""The figures follow their definitions."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from rsd_planner.bench.exactness import Agreement, kv_difference
from rsd_planner.bench.rows import Baselines, Measured, accepted_length, accepted_length_by_frame, ceiling, row
from rsd_planner.bench.step_times import StepTimes
from rsd_planner.bench.strategies import Tick
from rsd_planner.scene.observation import Observation


def tick(passes: tuple[int, ...], *, prefill: int = 1, routine: int = 0, draft: float = 0.0, ms: float = 1.0) -> Tick:
    count = prefill + sum(passes)
    return Tick(tuple(range(count)), passes, prefill, count - 2, routine, draft, ms, 2 * ms)


class Named:
    """A strategy that has run already."""

    origin, backend = "", "pytorch"

    def __init__(self, name: str, depth: int | None) -> None:
        self.name, self.depth = name, depth

    def run(self, observation: Observation) -> Tick:
        raise AssertionError

    def keys_values(self) -> Tensor | None:
        return None

    def forget(self) -> None: ...


class Steps(StepTimes):
    """Ten milliseconds for one token, fourteen for sixteen."""

    def __init__(self) -> None:
        self._ms = {1: [10.0, 10.0, 50.0], 16: [14.0]}


def test_accepted_length_weighs_passes_and_its_mean_weighs_frames() -> None:
    ticks = [tick((6, 2)), tick((8,)), tick((), prefill=9)]
    assert accepted_length(ticks) == pytest.approx(16 / 3)
    assert accepted_length_by_frame(ticks) == pytest.approx((4 + 8) / 2)
    assert accepted_length([tick(())]) is None


def test_the_ceiling_is_what_a_perfect_draft_reaches() -> None:
    assert ceiling([17], 15) == 16.0  # one pass: fifteen drafted, the target adds the stop token
    assert ceiling([18], 15) == 8.5
    assert ceiling([17, 18, 1], 7) == pytest.approx((16 + 17) / (2 + 3))
    assert ceiling([12], 0) == 1.0


@pytest.mark.parametrize("depth", [7, 15])
def test_the_ceiling_is_a_perfect_draft_counted_pass_by_pass(depth: int) -> None:
    lengths = [int(length) for length in torch.randint(1, 40, (200,), generator=torch.Generator().manual_seed(0))]
    tokens = passes = 0
    for length in lengths:
        left = length - 1
        while left:
            committed = min(left, depth + 1)
            left, tokens, passes = left - committed, tokens + committed, passes + 1
    assert ceiling(lengths, depth) == pytest.approx(tokens / passes)


def test_a_row_states_both_models_and_what_was_measured() -> None:
    drafted = Measured(Named("draft", 15), [tick((8, 8), routine=10, draft=4.0, ms=20.0)], [Agreement(None, 1e-6)])
    plain = Measured(Named("plain", 0), [tick((1,) * 16, ms=80.0)], [Agreement(None, None)])
    reference = Measured(Named("reference", 0), [tick((1,) * 16, ms=120.0)], [Agreement(None, None)])
    found = row(drafted, "independent", Baselines(plain, reference, Steps()))
    assert found["accepted_length"] == 8.0
    assert found["ceiling"] == 16.0
    assert found["routine_share"] == pytest.approx(10 / 15)
    assert found["draft_ms_per_pass"] == 2.0
    assert found["s_paper"] == pytest.approx(8 / (1 + 2 / 10))
    assert found["s_model"] == pytest.approx(8 * 10 / (14 + 2))
    assert found["speedup_vs_plain"] == 4.0
    assert found["speedup_vs_reference"] == 6.0
    assert found["tick_speedup_vs_reference"] == 6.0
    assert found["token_exact"] is True
    alone = row(plain, "independent", Baselines(plain, None, Steps()))
    assert (alone["accepted_length"], alone["ceiling"], alone["s_model"]) == (1.0, 1.0, None)
    assert alone["speedup_vs_reference"] is None


def test_with_a_memory_whole_ticks_are_compared_and_no_accepted_length_is_stated() -> None:
    remembered = Measured(Named("memory", None), [tick((), prefill=9, ms=5.0), tick((4,), prefill=5, ms=5.0)])
    plain = Measured(Named("plain", 0), [tick((1,) * 8, ms=10.0)])
    found = row(remembered, "consecutive", Baselines(plain, None, Steps()))
    for name in ("accepted_length", "ceiling", "s_paper", "s_model", "speedup_vs_plain", "speedup_vs_reference"):
        assert found[name] is None
    assert found["tick_speedup_vs_plain"] == 2.0
    assert found["passes_per_frame"] == 0.5
    assert found["frames_without_pass"] == 1
    assert found["prefill_committed"] == 7.0


def test_other_tokens_count_unless_the_target_itself_was_torn() -> None:
    agreements = [Agreement(None, 1e-6), Agreement(5e-5, 0.3), Agreement(0.5, None), Agreement(None, 1e-3)]
    found = row(Measured(Named("x", 7), [tick((4,))] * 4, agreements), "independent", baselines())
    assert found["token_exact"] is False
    assert (found["token_equal_frames"], found["ties"], found["inexact_frames"]) == (2, 1, 2)
    assert found["kv_difference"] == 1e-3


def test_a_cache_of_another_length_is_no_near_miss() -> None:
    rows = torch.ones(4, 2, 10, 8)
    assert kv_difference(rows, rows.clone()) == 0.0
    assert kv_difference(2 * rows, 2 * rows + 0.5) == pytest.approx(0.25)
    assert kv_difference(rows, rows[:, :, :-1]) == float("inf")
    assert kv_difference(rows, None) is None
    assert not Agreement(None, float("inf")).exact
    found = row(Measured(Named("x", 7), [tick((4,))], [Agreement(None, float("inf"))]), "independent", baselines())
    assert found["kv_difference"] == "lengths differ"
    json.dumps(found, allow_nan=False)


def baselines() -> Baselines:
    return Baselines(Measured(Named("plain", 0), [tick((1, 1, 1, 1))]), None, Steps())
