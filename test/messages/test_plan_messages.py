"""Plans as messages, checked as their receiver gets them: serialised and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from message_kinds import KINDS, Kind, message_kind
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from rsd_planner.errors import ModelOutputError
from rsd_planner.messages.plans import PlanMessages
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.plan import FinishReason, Plan, StageTimes, TokenOrigin
from rsd_planner.scene.observation import EgoHistory, Pose

T0 = 1_722_000_000_950_000_001
LIFETIME = 1_500_000_000
POSE_T0 = Pose(np.array([623_426.5, 4_848_821.25, 153.0]), Rotation.from_euler("ZYX", [2.0, 0.1, -0.05]).as_matrix())


def a_plan() -> Plan:
    """A left turn at 10 m/s, slowing down."""
    angle = np.arange(1, 65) * 0.02
    rotations = Rotation.from_rotvec(angle[:, None] * np.array([0.0, 0.0, 1.0])).as_matrix()
    return Plan(
        stamp_ns=T0,
        sequence=7,
        reasoning="Slow down for the pedestrian",
        token_ids=(1, 2),
        origins=(TokenOrigin.DELIBERATIVE,) * 2,
        finish_reason=FinishReason.STOP,
        positions=np.stack([50 * np.sin(angle), 50 * (1 - np.cos(angle)), 0 * angle], axis=-1),
        rotations=rotations,
        speeds=np.linspace(10.0, 0.0, 64),
        v0=10.0,
        stage_times=StageTimes(0.0, 0.0, 0.0, 0.0, 0.0),
        tokens_per_pass=(1,),
        frames_encoded=4,
        frames_reused=12,
    )


def a_history() -> EgoHistory:
    positions = np.stack([np.arange(-15, 1) * 1.0, np.zeros(16), np.zeros(16)], axis=-1)
    return EgoHistory(positions, np.tile(np.eye(3), (16, 1, 1)), POSE_T0)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return message_kind(request.param)


def xyz(point: Any) -> list[float]:
    return [point.x, point.y, point.z]


def rotations_of(path: Any) -> Rotation:
    quaternions = [pose.pose.orientation for pose in path.poses]
    return Rotation.from_quat([[q.x, q.y, q.z, q.w] for q in quaternions])


def test_path_in_the_odometry_frame(kind: Kind) -> None:
    types, received = kind
    plan = a_plan()
    path = received(PlanMessages(types).path(plan, POSE_T0, "map"))
    assert path.header.frame_id == "map"
    assert stamp_ns(path.header.stamp) == T0
    assert len(path.poses) == 64
    assert [stamp_ns(pose.header.stamp) for pose in path.poses] == [T0 + 100_000_000 * (k + 1) for k in range(64)]
    assert {pose.header.frame_id for pose in path.poses} == {"map"}

    positions = np.array([xyz(pose.pose.position) for pose in path.poses])
    expected = np.array([POSE_T0.position + POSE_T0.rotation @ position for position in plan.positions])
    np.testing.assert_allclose(positions, expected, atol=1e-8)
    turn = Rotation.from_matrix(POSE_T0.rotation) * Rotation.from_matrix(plan.rotations)
    assert (turn.inv() * rotations_of(path)).magnitude().max() < 1e-7
    # the vehicle looks where the path goes
    along = np.diff(positions, axis=0)
    ahead = rotations_of(path).apply([1.0, 0.0, 0.0])[:-1]
    assert ((along / np.linalg.norm(along, axis=1, keepdims=True) * ahead).sum(axis=1) > 0.99).all()


def test_path_in_the_frame_of_the_vehicle(kind: Kind) -> None:
    types, received = kind
    plan = a_plan()
    path = received(PlanMessages(types).path(plan, None, "base_link"))
    assert path.header.frame_id == "base_link"
    np.testing.assert_allclose([xyz(pose.pose.position) for pose in path.poses], plan.positions, atol=1e-12)
    assert (Rotation.from_matrix(plan.rotations).inv() * rotations_of(path)).magnitude().max() < 1e-7


def test_quaternions_are_unit_ones(kind: Kind) -> None:
    types, received = kind
    plan = replace(a_plan(), rotations=a_plan().rotations * (1 + 1e-4))  # rounding, exaggerated
    path = received(PlanMessages(types).path(plan, POSE_T0, "odom"))
    norms = [np.linalg.norm([*xyz(pose.pose.orientation), pose.pose.orientation.w]) for pose in path.poses]
    np.testing.assert_allclose(norms, 1.0, atol=1e-12)


def test_reasoning_text(kind: Kind) -> None:
    types, received = kind
    plan = replace(a_plan(), reasoning='Yield, "Fußgänger" 行人 ahead')
    assert received(PlanMessages(types).reasoning_text(plan)).data == 'Yield, "Fußgänger" 行人 ahead'


def markers_by_namespace(kind: Kind, plan: Plan, **choices: bool) -> dict[str, Any]:
    types, received = kind
    array = received(PlanMessages(types).markers(plan, a_history(), "odom", LIFETIME, **choices))
    assert len({marker.ns for marker in array.markers}) == len(array.markers)
    return {marker.ns: marker for marker in array.markers}


def test_markers_share_stamp_frame_and_lifetime(kind: Kind) -> None:
    markers = markers_by_namespace(kind, a_plan())
    assert set(markers) == {"path", "ego_history", "reasoning"}
    for marker in markers.values():
        assert stamp_ns(marker.header.stamp) == T0
        assert marker.header.frame_id == "odom"
        assert stamp_ns(marker.lifetime) == LIFETIME  # a Duration has the same two fields
        assert marker.action == marker.ADD
        assert marker.color.a == 1.0
        assert marker.pose.orientation.w == 1.0


def test_path_marker_begins_at_the_vehicle_and_is_coloured_by_speed(kind: Kind) -> None:
    plan = a_plan()
    line = markers_by_namespace(kind, plan)["path"]
    assert line.type == line.LINE_STRIP
    assert 0.05 < line.scale.x < 1.0
    points = np.array([xyz(point) for point in line.points])
    np.testing.assert_allclose(points[0], POSE_T0.position)
    np.testing.assert_allclose(points[1:], POSE_T0.position + plan.positions @ POSE_T0.rotation.T, atol=1e-8)
    colours = np.array([[c.r, c.g, c.b, c.a] for c in line.colors])
    assert len(colours) == len(points)
    assert colours[-1] == pytest.approx([1.0, 0.0, 0.0, 1.0])  # standing: red
    assert (np.diff(colours[1:, 1]) <= 0).all()  # slowing down: less and less green
    assert (np.diff(colours[1:, 0]) >= 0).all()


def test_history_marker_ends_at_the_vehicle(kind: Kind) -> None:
    line = markers_by_namespace(kind, a_plan())["ego_history"]
    points = np.array([xyz(point) for point in line.points])
    assert points.shape == (16, 3)
    np.testing.assert_allclose(points[-1], POSE_T0.position)
    np.testing.assert_allclose(points[0], POSE_T0.position - 15 * POSE_T0.rotation[:, 0], atol=1e-8)


def test_reasoning_marker_is_readable_above_the_vehicle(kind: Kind) -> None:
    words = "Nudge to the left to increase clearance to the construction cones encroaching into the lane"
    text = markers_by_namespace(kind, replace(a_plan(), reasoning=f"{words}\n[demo weights]"))["reasoning"]
    assert text.type == text.TEXT_VIEW_FACING
    assert text.scale.z >= 0.5
    lines = text.text.splitlines()
    assert max(map(len, lines)) <= 48
    assert " ".join(lines[:-1]) == words
    assert lines[-1] == "[demo weights]"
    np.testing.assert_allclose(np.array(xyz(text.pose.position)) - POSE_T0.position, [0.0, 0.0, 3.0], atol=1e-8)


def test_empty_reasoning_still_has_a_text_to_show(kind: Kind) -> None:
    assert markers_by_namespace(kind, replace(a_plan(), reasoning=""))["reasoning"].text == "(no reasoning)"


def test_markers_in_the_frame_of_the_vehicle(kind: Kind) -> None:
    plan = a_plan()
    markers = markers_by_namespace(kind, plan, in_ego_frame=True)
    np.testing.assert_allclose([xyz(p) for p in markers["path"].points[1:]], plan.positions, atol=1e-12)
    np.testing.assert_allclose([xyz(p) for p in markers["ego_history"].points], a_history().positions, atol=1e-12)
    assert xyz(markers["reasoning"].pose.position) == [0.0, 0.0, 3.0]


def spoiled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values = values.copy()
    values.flat[-1] = np.nan
    return values


@pytest.mark.parametrize("field", ["positions", "rotations", "speeds"])
def test_what_is_not_finite_never_becomes_a_message(field: str) -> None:
    messages = PlanMessages(message_kind("rosbags_jazzy")[0])
    plan = replace(a_plan(), **{field: spoiled(getattr(a_plan(), field))})
    with pytest.raises(ModelOutputError, match=f"{field} is not finite"):
        messages.path(plan, POSE_T0, "odom")
    with pytest.raises(ModelOutputError, match=f"{field} is not finite"):
        messages.markers(plan, a_history(), "odom", LIFETIME)


def test_an_empty_path_never_becomes_a_message() -> None:
    messages = PlanMessages(message_kind("rosbags_jazzy")[0])
    plan = replace(a_plan(), positions=np.empty((0, 3)), rotations=np.empty((0, 3, 3)))
    with pytest.raises(ModelOutputError, match="no positions"):
        messages.path(plan, None, "base_link")
    with pytest.raises(ModelOutputError, match="no positions"):
        messages.markers(plan, a_history(), "odom", LIFETIME)
