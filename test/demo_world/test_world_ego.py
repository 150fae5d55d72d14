import numpy as np
import pytest

from rsd_planner.demo.world.drive import run_drive
from rsd_planner.demo.world.ego import ACTION_MEAN, ACTION_STD, Path, State
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.splits import Event, Split
from rsd_planner.scene.observation import STEP_NS
from rsd_planner.target.action_space import ActionScaling, roll_out, solve_v0

SCALING = ActionScaling(float(ACTION_MEAN[0]), float(ACTION_STD[0]), float(ACTION_MEAN[1]), float(ACTION_STD[1]))


@pytest.fixture(scope="module")
def path() -> Path:
    return run_drive(make_layout(Split.TRAIN, 4, [Event.CURVE, Event.LIGHT])).path


def test_the_state_between_ticks_is_the_integral_of_the_controls() -> None:
    state, accel, curvature = State(1.0, 2.0, 0.3, 8.0), 1.2, 0.05
    fine = state
    for _ in range(1000):
        fine = fine.moved(accel, curvature, 1e-4)
    exact = state.moved(accel, curvature)
    assert (exact.x, exact.y, exact.yaw, exact.speed) == pytest.approx((fine.x, fine.y, fine.yaw, fine.speed), abs=1e-9)


def test_braking_ends_at_rest_and_never_rolls_back() -> None:
    state = State(0.0, 0.0, 0.0, 0.2).moved(-4.0, 0.0)
    assert state.speed == pytest.approx(0.0)
    assert state.x == pytest.approx(0.2**2 / 8)


def test_poses_exist_at_any_nanosecond_and_nowhere_outside(path: Path) -> None:
    tick = path.state(20 * STEP_NS)
    near = path.state(20 * STEP_NS + 1)
    assert near.x == pytest.approx(tick.x, abs=1e-6)
    with pytest.raises(ValueError, match="outside the drive"):
        path.state(path.end_ns + 1)


@pytest.mark.parametrize("offset_ns", [0, 37_123_456])
def test_the_actions_roll_out_to_the_future_path(path: Path, offset_ns: int) -> None:
    for tick in range(15, len(path.controls) - 66, 25):
        stamp = tick * STEP_NS + offset_ns
        plan = roll_out(path.actions(stamp), path.state(stamp).speed, SCALING)
        assert np.abs(plan.positions - path.future(stamp)[0]).max() < 0.03


def test_the_history_tells_the_speed_at_t0(path: Path) -> None:
    for tick in range(15, len(path.controls) - 66, 40):
        history = path.history(tick * STEP_NS)
        assert np.allclose(history.positions[-1], 0.0)
        assert np.allclose(history.rotations[-1], np.eye(3))
        assert solve_v0(history.positions, history.rotations) == pytest.approx(path.states[tick].speed, abs=0.15)
