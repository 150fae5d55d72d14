"""Observation in, Plan out: determinism, the vision cache, and refusals that say why."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest
from golden_cases import R1, V1_5, golden_case

from rsd_planner.errors import CheckpointError, ImageError, ModelOutputError, ObservationError, ParameterError
from rsd_planner.plan import FinishReason, Plan, TokenOrigin
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.scene.observation import STEP_NS, Frame, Observation

SENTENCE = "Stop to keep distance to the lead vehicle stopped ahead."


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.load(R1)


def observation(number: int = 1) -> Observation:
    return golden_case(R1, number).observation


def same(one: Plan, other: Plan) -> bool:
    """The same but for the rounding of passes of other lengths: a plan may be guessed from the one before."""
    names = ("positions", "rotations", "speeds")
    arrays = all(np.allclose(getattr(one, n), getattr(other, n), rtol=0, atol=1e-5) for n in names)
    return arrays and one.token_ids == other.token_ids and one.v0 == other.v0


def test_a_plan_says_all_there_is_to_know(planner: Planner) -> None:
    plan = planner.plan(dataclasses.replace(observation(), stamp_ns=7_000_000_001))
    assert plan.reasoning == SENTENCE
    assert plan.finish_reason is FinishReason.STOP
    assert len(plan.origins) == len(plan.token_ids) == sum(plan.tokens_per_pass) + 1
    assert plan.positions.shape == (64, 3)
    assert plan.rotations.shape == (64, 3, 3)
    assert plan.speeds.shape == (64,)
    assert plan.times_ns[0] == 7_000_000_001 + STEP_NS
    assert plan.times_ns[-1] == 7_000_000_001 + 64 * STEP_NS
    stages = dataclasses.asdict(plan.stage_times)
    assert set(stages) == {"decode_images", "encode", "prefill", "decode", "action"}
    assert plan.stage_times.total == pytest.approx(sum(stages.values()))
    assert all(ms > 0 for ms in stages.values())


def test_seed_and_t0_fix_a_plan_whatever_came_before(planner: Planner) -> None:
    first = planner.plan(observation())
    planner.plan(observation(2))
    again = planner.plan(observation())
    assert same(first, again)
    assert again.sequence == first.sequence + 2
    later = planner.plan(dataclasses.replace(observation(), stamp_ns=1))
    assert not np.array_equal(later.positions, first.positions)
    reseeded = Planner.load(R1, PlannerSettings(seed=1)).plan(observation())
    assert reseeded.token_ids == first.token_ids
    assert not np.array_equal(reseeded.positions, first.positions)


def test_sampling_is_reproducible_and_never_says_a_bin() -> None:
    settings = PlannerSettings(temperature=5.0, max_reasoning_tokens=40)
    said = [Planner.load(R1, settings).plan(observation()) for _ in range(2)]
    assert same(*said)
    assert not any(1782 <= token < 5782 for token in said[0].token_ids)
    assert said[0].reasoning != SENTENCE


def test_features_of_a_frame_are_computed_once_and_change_nothing(planner: Planner) -> None:
    planner.reset()
    seen = observation()
    fresh = planner.plan(seen)
    kept = planner.plan(seen)
    assert (fresh.frames_encoded, fresh.frames_reused) == (4, 0)
    assert (kept.frames_encoded, kept.frames_reused) == (0, 4)
    assert same(fresh, kept)

    camera = seen.cameras[1]
    newest = Frame.from_image(STEP_NS, camera[0].image[::-1].copy())
    shifted = dataclasses.replace(seen, cameras={1: (*camera[1:], newest)})
    mixed = planner.plan(shifted)
    assert (mixed.frames_encoded, mixed.frames_reused) == (1, 3)
    planner.reset()
    assert same(planner.plan(shifted), mixed)


def test_features_go_when_their_frame_goes(planner: Planner) -> None:
    seen = observation()
    planner.plan(seen)
    copies = {1: tuple(Frame.from_image(f.stamp_ns, f.image) for f in seen.cameras[1])}
    assert planner.plan(dataclasses.replace(seen, cameras=copies)).frames_encoded == 4
    del seen, copies
    gc.collect()
    assert len(planner._target._features) == 0


def test_a_cap_on_the_reasoning_still_gives_a_path() -> None:
    plan = Planner.load(R1, PlannerSettings(max_reasoning_tokens=3)).plan(observation())
    assert plan.finish_reason is FinishReason.MAX_TOKENS
    assert plan.origins[-2:] == (TokenOrigin.FORCED, TokenOrigin.FORCED)
    assert np.isfinite(plan.positions).all()


def test_bfloat16_plans() -> None:
    plan = Planner.load(R1, PlannerSettings(dtype="bfloat16")).plan(observation())
    assert np.isfinite(plan.positions).all()


def test_route_text_reaches_the_prompt_of_1_5() -> None:
    planner = Planner.load(V1_5)
    case = golden_case(V1_5, 1)
    assert case.observation.route == "Turn left onto Main Street in 40m"
    assert planner.plan(case.observation).token_ids == tuple(case.recorded["generated_ids"][:-1])
    with pytest.raises(ObservationError, match="control token"):
        planner.plan(dataclasses.replace(case.observation, route="<|traj_history|>"))


def test_warm_up_leaves_no_trace() -> None:
    planner, other = Planner.load(R1), Planner.load(R1)
    planner.warm_up([1])
    one, two = planner.plan(observation()), other.plan(observation())
    assert same(one, two)
    assert one.sequence == two.sequence == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda o: {"cameras": {}}, "no camera"),
        (
            lambda o: {"cameras": {3: o.cameras[1]}},
            "camera id 3 is not one that Alpamayo R1 was trained for: 0, 1, 2, 6",
        ),
        (lambda o: {"cameras": {1: o.cameras[1][1:]}}, "camera 1 has 3 frames, expected 4"),
        (lambda o: {"route": "Turn left"}, "Alpamayo R1 does not take"),
        (
            lambda o: {"history": dataclasses.replace(o.history, positions=o.history.positions * np.nan)},
            "positions hold a value that is not finite",
        ),
        (
            lambda o: {"history": dataclasses.replace(o.history, rotations=o.history.rotations[:15])},
            r"rotations have shape \(15, 3, 3\), expected \(16, 3, 3\)",
        ),
        (
            lambda o: {"cameras": {1: (Frame.from_image(0, np.zeros((10, 10), np.uint8)),) * 4}},
            r"image is uint8 \(10, 10\), expected uint8 \(height, width, 3\)",
        ),
    ],
)
def test_an_observation_the_model_cannot_be_given(planner: Planner, change, said: str) -> None:
    seen = observation()
    with pytest.raises(ObservationError, match=said):
        planner.plan(dataclasses.replace(seen, **change(seen)))


def test_an_image_too_thin_for_the_model_is_as_good_as_undecodable(planner: Planner) -> None:
    thin = Frame.from_image(7, np.zeros((1, 999, 3), np.uint8))
    with pytest.raises(ImageError, match="frame at 7 ns: image of 999x1 pixels"):
        planner.plan(dataclasses.replace(observation(), cameras={1: (thin,) * 4}))
    assert thin.undecodable


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("dtype", "float64", "dtype is 'float64', expected one of float32, bfloat16"),
        ("temperature", -1.0, "temperature is -1.0"),
        ("temperature", float("nan"), "temperature is nan"),
        ("top_p", 0.0, "top_p is 0.0"),
        ("max_reasoning_tokens", 0, "max_reasoning_tokens is 0"),
        ("seed", -1, "seed is -1"),
        ("flow_steps", 0, "flow_steps is 0"),
        ("device", "tpu", "device is 'tpu', expected cpu, cuda or cuda:N"),
        ("device", "mps", "device is 'mps', expected cpu, cuda or cuda:N"),
        ("device", "cuda:99", "device is 'cuda:99', but this machine shows"),
    ],
)
def test_settings_out_of_range(name: str, value: object, said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        PlannerSettings(**{name: value})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("vlm.lm_head.weight", "the model's logits are not finite"),
        ("action_out_proj.bias", "the action expert's output"),
    ],
)
def test_output_that_is_not_finite(broken: str, said: str) -> None:
    planner = Planner.load(R1)
    planner._target.network.get_parameter(broken).data.fill_(float("nan"))
    with pytest.raises(ModelOutputError, match=said):
        planner.plan(observation())


def test_a_path_that_is_not_finite() -> None:
    planner = Planner.load(R1)
    planner._target.scaling = dataclasses.replace(planner._target.scaling, accel_mean=float("nan"))
    with pytest.raises(ModelOutputError, match="the path of the action expert's output is not finite"):
        planner.plan(observation())


def test_fewer_flow_steps_are_an_approximation_on_request() -> None:
    exact, quick = (
        Planner.load(R1).plan(observation()),
        Planner.load(R1, PlannerSettings(flow_steps=5)).plan(observation()),
    )
    assert quick.token_ids == exact.token_ids
    assert not np.array_equal(quick.positions, exact.positions)


def test_a_name_that_the_system_refuses(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="aaa: cannot be read: File name too long"):
        Planner.load(tmp_path / ("a" * 300))


def test_loading_needs_a_model_directory(tmp_path) -> None:
    with pytest.raises(CheckpointError, match="no model here"):
        Planner.load(tmp_path)
