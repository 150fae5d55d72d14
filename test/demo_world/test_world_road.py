import numpy as np
import pytest

from rsd_planner.demo.world.road import Curve, Junction, Road


def make_road(*curves: Curve, junctions: tuple[Junction, ...] = ()) -> Road:
    return Road(400.0, 1, 1, 3.5, 0.0, 0, curves, junctions, sway=(0.002, 1.0))


@pytest.mark.parametrize(("s", "lateral"), [(10.0, 0.0), (123.4, -1.75), (150.0, 4.0), (300.0, -6.0)])
def test_road_coordinates_survive_the_way_to_the_world_and_back(s: float, lateral: float) -> None:
    road = make_road(Curve(100.0, 60.0, 35.0, 12.0), Curve(200.0, 60.0, -80.0, 20.0))
    found = road.locate(*road.point(s, lateral), near=s + 3.0)
    assert found == pytest.approx((s, lateral), abs=0.02)


def test_a_left_curve_turns_left_by_its_length_over_its_radius() -> None:
    curve = Curve(100.0, 60.0, 35.0, 12.0)
    road = Road(400.0, 1, 1, 3.5, 0.0, 0, (curve,), ())
    turned = road.heading(180.0) - road.heading(90.0)
    assert curve.side == "left"
    assert curve.sharp
    assert turned == pytest.approx((curve.length - curve.ramp) / curve.radius, rel=0.02)


def test_junctions_lie_on_a_straight_stretch() -> None:
    road = make_road(junctions=(Junction(150.0, True),))
    assert np.allclose(road.curvature(np.linspace(145.0, 170.0, 20)), 0.0)


def test_the_ego_lane_lies_between_the_edges_of_its_direction() -> None:
    road = Road(100.0, forward=3, backward=1, lane_width=3.2, strip=2.0, ego_lane=2, curves=(), junctions=())
    assert road.lane_centre == pytest.approx(-1.6)
    assert road.right_kerb == pytest.approx(-11.6)
    assert road.left_kerb == pytest.approx(5.2)
