"""Plans as markers, checked as RViz gets them: serialised and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from example_plan import LIFETIME, POSE_T0, T0, a_history, a_plan, xyz
from message_kinds import KINDS, Kind, message_kind

from rsd_planner.messages.markers import PlanMarkers, deliberative_words, speed_colour
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.plan import Plan, ReasoningPart, TokenOrigin

ROUTINE, DELIBERATIVE, FORCED = TokenOrigin.ROUTINE, TokenOrigin.DELIBERATIVE, TokenOrigin.FORCED


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return message_kind(request.param)


def markers_by_namespace(kind: Kind, plan: Plan, **choices: Any) -> dict[str, Any]:
    types, received = kind
    array = received(PlanMarkers(types).of(plan, a_history(), "odom", LIFETIME, **choices))
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


def test_path_is_a_ribbon_from_the_vehicle_on_coloured_by_speed(kind: Kind) -> None:
    plan = a_plan()
    ribbon = markers_by_namespace(kind, plan)["path"]
    assert ribbon.type == ribbon.TRIANGLE_LIST
    points = np.array([xyz(point) for point in ribbon.points]).reshape(64, 2, 3, 3)  # step, triangle, corner, x y z
    assert [ribbon.scale.x, ribbon.scale.y, ribbon.scale.z] == [1.0, 1.0, 1.0]
    left, right = points[:, 0, 0], points[:, 0, 1]
    centres = np.vstack([POSE_T0.position, POSE_T0.position + plan.positions @ POSE_T0.rotation.T])
    up = POSE_T0.rotation[:, 2]
    np.testing.assert_allclose((left + right) / 2, centres[:-1] + 0.05 * up, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(left - right, axis=1), 1.8, atol=1e-8)
    np.testing.assert_allclose(left[0] - right[0], 1.8 * POSE_T0.rotation[:, 1], atol=1e-8)
    np.testing.assert_array_equal(points[:-1, 0, 2], left[1:])  # steps join without a gap
    np.testing.assert_array_equal(points[:-1, 1, 2], right[1:])
    colours = np.array([[c.r, c.g, c.b, c.a] for c in ribbon.colors]).reshape(64, 6, 4)
    assert colours[-1, -1] == pytest.approx([1.0, 0.0, 0.0, 0.8])  # standing: red
    assert (np.diff(colours[1:, 0, 1]) <= 0).all()  # slowing down: less and less green
    assert (np.diff(colours[1:, 0, 0]) >= 0).all()


def test_colours_of_speeds() -> None:
    assert speed_colour(-3.0) == speed_colour(0.0) == (1.0, 0.0, 0.0)
    assert speed_colour(7.5) == (1.0, 1.0, 0.0)
    assert speed_colour(15.0) == speed_colour(40.0) == (0.0, 1.0, 0.0)


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
    above = np.array(xyz(text.pose.position)) - POSE_T0.position
    np.testing.assert_allclose(above, [0.0, 0.0, 2.0 + len(lines) / 2], atol=1e-8)  # lines 1 m apart, from 2 m on


def test_empty_reasoning_still_has_a_text_to_show(kind: Kind) -> None:
    assert markers_by_namespace(kind, replace(a_plan(), reasoning=""))["reasoning"].text == "(no reasoning)"


def test_markers_in_the_frame_of_the_vehicle(kind: Kind) -> None:
    plan = a_plan()
    markers = markers_by_namespace(kind, plan, in_ego_frame=True)
    ends = np.array([xyz(p) for p in markers["path"].points[-2:]])  # the last right corner and left corner
    np.testing.assert_allclose(np.linalg.norm(ends - plan.positions[[-2, -1]], axis=1) < 1.0, True)
    assert xyz(markers["path"].points[0]) == [0.0, 0.9, 0.05]
    np.testing.assert_allclose([xyz(p) for p in markers["ego_history"].points], a_history().positions, atol=1e-12)
    assert xyz(markers["reasoning"].pose.position) == [0.0, 0.0, 2.5]


def said(*parts: tuple[str, TokenOrigin]) -> Plan:
    text = "".join(text for text, _ in parts).strip()
    return replace(a_plan(), reasoning=text, parts=tuple(ReasoningPart(*part) for part in parts))


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([("Keep the", ROUTINE), (" distance", DELIBERATIVE), (" to it.", ROUTINE)], "... distance ..."),
        ([("Stop", DELIBERATIVE), (" for the pedestri", ROUTINE), ("ans", DELIBERATIVE)], "Stop ... pedestrians"),
        ([("Stop for", ROUTINE), (" them", FORCED)], "... them"),
        ([("Stop", ROUTINE), (" now", ROUTINE)], ""),
        ([("Stop", DELIBERATIVE), (" now", DELIBERATIVE)], ""),
        ([], ""),
    ],
)
def test_words_of_the_models_own(parts: list[tuple[str, TokenOrigin]], shown: str) -> None:
    assert deliberative_words(said(*parts)) == shown


def test_routine_and_deliberative_are_told_apart_and_the_texts_do_not_overlap(kind: Kind) -> None:
    plan = said(("Keep the ", ROUTINE), ("distance to the lead ", DELIBERATIVE), ("vehicle ahead. " * 10, ROUTINE))
    markers = markers_by_namespace(kind, plan, notice="Tiny. " * 20)
    assert markers["deliberative"].text == "... distance to the lead ..."
    assert markers["reasoning"].text.split() == plan.reasoning.split()
    colours = {(m.color.r, m.color.g, m.color.b) for m in (markers["deliberative"], markers["reasoning"])}
    assert len(colours) == 2
    spans = []
    for name in ("notice", "deliberative", "reasoning"):
        marker = markers[name]
        half = len(marker.text.splitlines()) * marker.scale.z / 2
        height = marker.pose.position.z - POSE_T0.position[2]
        spans += [height - half, height + half]
    assert spans == sorted(spans)


def test_all_markers_can_be_deleted(kind: Kind) -> None:
    types, received = kind
    (marker,) = received(PlanMarkers(types).delete_all(T0)).markers
    assert marker.action == marker.DELETEALL == 3
    assert marker.pose.orientation.w == 1.0
