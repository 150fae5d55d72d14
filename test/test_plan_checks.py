"""What makes a plan unfit to be followed."""

from __future__ import annotations

import numpy as np
import pytest

from rsd_planner.plan import FinishReason, Plan, StageTimes
from rsd_planner.plan_checks import withhold_reason
from rsd_planner.target.action_space import ActionScaling, roll_out

PLAIN = ActionScaling(0.0, 1.0, 0.0, 1.0)


def plan(accel: float | np.ndarray, v0: float, **changes: np.ndarray) -> Plan:
    actions = np.column_stack([np.broadcast_to(accel, 64), np.zeros(64)])
    path = roll_out(actions, v0, PLAIN)
    arrays = {"positions": path.positions, "rotations": path.rotations, "speeds": path.speeds} | changes
    return Plan(
        stamp_ns=0,
        sequence=1,
        reasoning="",
        token_ids=(),
        origins=(),
        finish_reason=FinishReason.STOP,
        v0=v0,
        stage_times=StageTimes(0, 0, 0, 0, 0),
        tokens_per_pass=(),
        frames_encoded=0,
        frames_reused=0,
        **arrays,
    )


@pytest.mark.parametrize(
    ("accel", "v0"),
    [
        (0.0, 30.0),
        (2.0, 0.0),
        (0.0, 0.0),
        (-9.8 * (np.arange(64) < 10), 9.8),  # a full stop
        (-0.01, 0.0),  # creeping back 20 cm is noise
        (-0.1, -2.0),  # reversing, and going on with it
    ],
)
def test_a_sound_plan_passes(accel: float | np.ndarray, v0: float) -> None:
    assert withhold_reason(plan(accel, v0)) is None


@pytest.mark.parametrize("name", ["positions", "rotations", "speeds"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_not_finite(name: str, value: float) -> None:
    broken = getattr(plan(0.0, 5.0), name).copy()
    broken.flat[-1] = value
    assert withhold_reason(plan(0.0, 5.0, **{name: broken})) == f"not finite: {name} hold a value that is not finite"


def test_far_from_the_vehicle() -> None:
    moved = plan(0.0, 5.0).positions + np.array([0.0, 2.0, 0.0])
    reason = withhold_reason(plan(0.0, 5.0, positions=moved))
    assert reason is not None
    assert reason.startswith("start: the first waypoint is 2.00 m")


@pytest.mark.parametrize(("accel", "v0"), [(-1.0, 0.0), (-2.0, 5.0), (-0.5, -0.2)])
def test_backwards(accel: float, v0: float) -> None:
    reason = withhold_reason(plan(accel, v0))
    assert reason is not None
    assert reason.startswith("reverse: the path runs ")
