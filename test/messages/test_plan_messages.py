"""Plans as messages, checked as their receiver gets them: serialised and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from example_plan import LIFETIME, POSE_T0, T0, a_history, a_plan, xyz
from message_kinds import KINDS, Kind, message_kind
from numpy.typing import NDArray
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from scipy.spatial.transform import Rotation

from rsd_planner.errors import ModelOutputError
from rsd_planner.messages.markers import PlanMarkers
from rsd_planner.messages.plans import PlanMessages
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.plan import Plan
from rsd_planner.scene.observation import Pose


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return message_kind(request.param)


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
    words = 'Yield, "Fußgänger" 行人 ahead'
    assert received(PlanMessages(types).reasoning_text(words)).data == 'Yield, "Fußgänger" 行人 ahead'


TRAJECTORY = {
    "autoware_planning_msgs/msg/TrajectoryPoint": """
        builtin_interfaces/Duration time_from_start
        geometry_msgs/Pose pose
        float32 longitudinal_velocity_mps
        float32 lateral_velocity_mps
        float32 acceleration_mps2
        float32 heading_rate_rps
        float32 front_wheel_angle_rad
        float32 rear_wheel_angle_rad""",
    "autoware_planning_msgs/msg/Trajectory": """
        std_msgs/Header header
        autoware_planning_msgs/TrajectoryPoint[] points""",
}  # as autoware_msgs declares them


def trajectory_of(plan: Plan, pose_t0: Pose | None, frame_id: str) -> Any:
    types = get_typestore(Stores.ROS2_HUMBLE)
    for name, text in TRAJECTORY.items():
        types.register(get_types_from_msg(text, name))
    message = PlanMessages(types.types).trajectory(plan, pose_t0, frame_id)
    return types.deserialize_cdr(types.serialize_cdr(message, message.__msgtype__), message.__msgtype__)


def test_trajectory_begins_at_the_vehicle_and_goes_through_the_waypoints() -> None:
    plan = a_plan()
    trajectory = trajectory_of(plan, POSE_T0, "map")
    assert trajectory.header.frame_id == "map"
    assert stamp_ns(trajectory.header.stamp) == T0
    points = trajectory.points
    assert [stamp_ns(point.time_from_start) for point in points] == [100_000_000 * k for k in range(65)]
    positions = np.array([xyz(point.pose.position) for point in points])
    np.testing.assert_allclose(positions[0], POSE_T0.position)
    np.testing.assert_allclose(positions[1:], POSE_T0.position + plan.positions @ POSE_T0.rotation.T, atol=1e-8)
    rotations = Rotation.from_quat([[*xyz(p.pose.orientation), p.pose.orientation.w] for p in points])
    turn = Rotation.from_matrix(POSE_T0.rotation) * Rotation.from_matrix(plan.rotations)
    assert (turn.inv() * rotations[1:]).magnitude().max() < 1e-7
    assert (Rotation.from_matrix(POSE_T0.rotation).inv() * rotations[0]).magnitude() < 1e-7


def test_trajectory_carries_speed_acceleration_and_heading_rate() -> None:
    plan = a_plan()
    points = trajectory_of(plan, None, "base_link").points
    speeds = [point.longitudinal_velocity_mps for point in points]
    np.testing.assert_allclose(speeds, [plan.v0, *plan.speeds], rtol=1e-6)
    np.testing.assert_allclose([p.heading_rate_rps for p in points], 0.2, rtol=1e-5)  # 0.02 rad every 0.1 s
    np.testing.assert_allclose([p.acceleration_mps2 for p in points[2:]], -10 / 6.3, rtol=1e-4)
    assert {p.lateral_velocity_mps for p in points} == {0.0}


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
        PlanMarkers(message_kind("rosbags_jazzy")[0]).of(plan, a_history(), "odom", LIFETIME)
    with pytest.raises(ModelOutputError, match=f"{field} is not finite"):
        messages.trajectory(plan, POSE_T0, "odom")


def test_an_empty_path_never_becomes_a_message() -> None:
    messages = PlanMessages(message_kind("rosbags_jazzy")[0])
    plan = replace(a_plan(), positions=np.empty((0, 3)), rotations=np.empty((0, 3, 3)))
    with pytest.raises(ModelOutputError, match="no positions"):
        messages.path(plan, None, "base_link")
    with pytest.raises(ModelOutputError, match="no positions"):
        PlanMarkers(message_kind("rosbags_jazzy")[0]).of(plan, a_history(), "odom", LIFETIME)
