"""`rsd_planner view`: the right moment, everything in the picture, one line for what cannot be shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from bag_writing import FRONT, START_NS, Drive, write
from golden_cases import R1
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.offsetbox import TextArea

from rsd_planner.errors import BagError, ParameterError, PlannerError
from rsd_planner.evaluation.view import ViewRequest, view
from rsd_planner.evaluation.view_figure import AMBER, INK, Shown, draw
from rsd_planner.messages.markers import speed_colour
from rsd_planner.plan import ReasoningPart, TokenOrigin
from rsd_planner.planner import PlannerSettings

AT_S = 2.25  # between two frames


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cameras = {0: "/camera/front_left/image/compressed", 1: FRONT}
    return write(tmp_path_factory.mktemp("bags") / "drive", Drive(seconds=6.0, cameras=cameras))


@pytest.fixture(scope="module")
def request_for(bag: Path, tmp_path_factory: pytest.TempPathFactory) -> ViewRequest:
    out = tmp_path_factory.mktemp("out") / "new" / "view.png"
    return ViewRequest(bag, AT_S, out, R1, PlannerSettings())


@pytest.fixture(scope="module")
def shown(request_for: ViewRequest) -> Shown:
    return view(request_for)


def words(figure: Figure) -> list[TextArea]:
    return figure.findobj(TextArea)


def test_it_plans_at_the_newest_instant_before_that_moment(shown: Shown) -> None:
    assert shown.plan.stamp_ns == START_NS + 2_200_000_000
    assert list(shown.observation.cameras) == [0, 1]


def test_what_the_vehicle_then_did_is_read_on_in_the_recording(shown: Shown) -> None:
    assert len(shown.future) == 38  # 2.3 s to 6.0 s
    angle = 0.01 * np.arange(1, 39)  # of the circle that was driven
    expected = np.stack([100 * np.sin(angle), 100 * (1 - np.cos(angle)), 0 * angle], axis=-1)
    np.testing.assert_allclose(shown.future, expected, atol=1e-3)


def test_the_picture_is_written_in_full_size(shown: Shown, request_for: ViewRequest) -> None:
    picture = cv2.imread(str(request_for.out))
    assert picture.shape == (990, 1760, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100


def test_cameras_stand_as_one_sees_them_and_are_named(shown: Shown) -> None:
    pictures = [axes for axes in draw(shown).axes if axes.get_images()]
    assert [axes.get_title(loc="left") for axes in pictures] == ["front left (0)", "front (1)"]
    for axes, frames in zip(pictures, shown.observation.cameras.values(), strict=True):
        np.testing.assert_array_equal(axes.get_images()[0].get_array(), frames[-1].image)


def test_the_scene_from_above_holds_ribbon_history_and_future(shown: Shown) -> None:
    (axes,) = [axes for axes in draw(shown).axes if axes.get_xlabel() == "x, forward (m)"]
    (ribbon,) = axes.collections
    colours = ribbon.get_facecolor()[:, :3]
    np.testing.assert_allclose(colours, [speed_colour(speed) for speed in shown.plan.speeds], atol=1e-6)
    ends = ribbon.get_paths()[-1].vertices[1:3]  # both sides of the last waypoint
    np.testing.assert_allclose(ends.mean(axis=0), shown.plan.positions[-1, :2], atol=1e-6)
    lines = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    np.testing.assert_allclose(lines["ego history, 1.5 s"], shown.observation.history.positions[:, :2])
    np.testing.assert_allclose(lines["what the vehicle then did"], shown.future[:, :2])


def test_the_reasoning_is_there_word_by_word(shown: Shown) -> None:
    texts = [area.get_text() for area in words(draw(shown))]
    begin = texts.index(shown.plan.reasoning.split()[0])
    assert texts[begin : begin + len(shown.plan.reasoning.split())] == shown.plan.reasoning.split()
    assert f"t0 = {shown.plan.stamp_ns * 1e-9:.3f} s" in texts


def test_routine_and_deliberative_words_have_their_own_colours(shown: Shown) -> None:
    parts = (ReasoningPart("Keep ", TokenOrigin.ROUTINE), ReasoningPart("distance", TokenOrigin.DELIBERATIVE))
    figure = draw(replace(shown, plan=replace(shown.plan, reasoning="Keep distance", parts=parts)))
    colours = {area.get_text(): area._text.get_color() for area in words(figure)}
    assert to_rgb(colours["Keep"]) == to_rgb(INK)
    assert to_rgb(colours["distance"]) == AMBER


def test_a_plan_that_would_be_withheld_is_shown_and_says_so(shown: Shown) -> None:
    texts = " ".join(area.get_text() for area in words(draw(replace(shown, withheld="reverse: backwards"))))
    assert "The node would withhold this plan: reverse: backwards" in texts
    assert "withhold" not in " ".join(area.get_text() for area in words(draw(shown)))


def test_an_empty_reasoning_and_a_standing_vehicle_can_be_drawn(shown: Shown) -> None:
    still = np.zeros_like(shown.plan.positions)
    plan = replace(shown.plan, reasoning="", parts=(), positions=still, speeds=still[:, 0], v0=0.0)
    figure = draw(replace(shown, plan=plan, future=np.empty((0, 3))))
    figure.canvas.draw()
    assert "(no reasoning)" in [area.get_text() for area in words(figure)]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"at_s": 0.5}, BagError, "nothing can be planned at 0.5 s: history_not_covered"),
        ({"at_s": 60.0}, ParameterError, "--at is 60 s, expected 0 to 6.0 s"),
        ({"at_s": -1.0}, ParameterError, "--at is -1 s"),
        ({"at_s": float("nan")}, ParameterError, "--at is nan s"),
        ({"out": Path("view.gif")}, ParameterError, "--out: view.gif expected a name that ends in .png"),
        ({"out": Path("/proc/nowhere/view.png")}, ParameterError, "--out: cannot write /proc/nowhere/view.png"),
        ({"bag": Path("nowhere")}, BagError, "does not exist"),
        ({"cameras": {1: "/other"}}, BagError, "no topic /other"),
        ({"cameras": {4: FRONT}}, ParameterError, "was trained for cameras"),
    ],
)
def test_what_cannot_be_shown_is_one_message(
    request_for: ViewRequest, change: dict[str, object], error: type[PlannerError], said: str
) -> None:
    with pytest.raises(error) as raised:
        view(replace(request_for, **change))
    assert said in str(raised.value)
