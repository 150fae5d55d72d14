"""Layouts from seeds: a road with one event after another, and bystanders that matter to nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rsd_planner.demo.world.layout import (
    SIZE_M,
    Body,
    CyclistPlan,
    DriverTraits,
    Layout,
    ParkedPlan,
    Phase,
    SignalPlan,
    VehiclePlan,
    WalkerPlan,
)
from rsd_planner.demo.world.looks import PAINT
from rsd_planner.demo.world.motion_fit import load_motion
from rsd_planner.demo.world.road import SIGNAL_M, Curve, Junction, Road
from rsd_planner.demo.world.splits import STYLES, Event, Split, Style

COLOURS = len(PAINT[0])  # of vehicles, and of clothes, in every palette
_BODIES = (Body.CAR, Body.CAR, Body.VAN, Body.TRUCK)
_EVENTS_PER_DRIVE = (2, 5)
_FIRST_EVENT_M = 62.0
_SHORT_CROSSING_M = 8.5  # nobody sets out from farther away than this before an ego


@dataclass
class _Draft:
    """A layout while it is being drawn."""

    rng: np.random.Generator
    style: Style
    road: Road
    cursor: float = _FIRST_EVENT_M
    curves: list[Curve] = field(default_factory=list)
    junctions: list[Junction] = field(default_factory=list)
    vehicles: list[VehiclePlan] = field(default_factory=list)
    signals: list[SignalPlan] = field(default_factory=list)
    walkers: list[WalkerPlan] = field(default_factory=list)
    parked: list[ParkedPlan] = field(default_factory=list)
    cyclists: list[CyclistPlan] = field(default_factory=list)
    free_of_oncoming: list[tuple[float, float]] = field(default_factory=list)

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def colour(self) -> int:
        return int(self.rng.integers(COLOURS))

    def body(self) -> Body:
        return _BODIES[int(self.rng.integers(len(_BODIES)))]

    def notice(self) -> float:
        """Half of all events are seen from afar, the others late: history alone must not give them away."""
        return self.uniform(0.75, 1.0) if self.chance(0.5) else self.uniform(0.1, 0.75)


def make_layout(split: Split, seed: int, events: Sequence[Event] | None = None, variant: int = 0) -> Layout:
    """The drive of a seed.

    Args:
        split: Whose style to draw from.
        seed: Decides everything else.
        events: What happens, in order; drawn when None.
        variant: Draws other events for the same road and driver.
    """
    style = STYLES[split]
    rng = np.random.default_rng([seed, 11, variant])
    draft = _Draft(rng, style, _road(np.random.default_rng([seed, 12]), style))
    for event in events if events is not None else _draw_events(rng, style):
        _ADD[event](draft)
        draft.cursor += draft.uniform(0.0, 12.0) if draft.chance(style.follow_ups) else draft.uniform(10.0, 35.0)
    end = draft.cursor + 155.0
    draft.road = replace(draft.road, length=end, curves=tuple(draft.curves), junctions=tuple(draft.junctions))
    _add_oncoming(draft)
    _add_neighbours(draft)
    _add_bystanders(draft)
    return Layout(
        draft.road,
        _traits(np.random.default_rng([seed, 13])),
        tuple(draft.vehicles),
        tuple(draft.signals),
        tuple(draft.walkers),
        tuple(draft.parked),
        tuple(draft.cyclists),
        curve_notice=draft.notice(),
    )


def _draw_events(rng: np.random.Generator, style: Style) -> list[Event]:
    kinds = list(style.event_weights)
    weights = np.array([style.event_weights[kind] for kind in kinds])
    count = int(rng.integers(*_EVENTS_PER_DRIVE))
    return [kinds[i] for i in rng.choice(len(kinds), size=count, p=weights / weights.sum())]


def _road(rng: np.random.Generator, style: Style) -> Road:
    forward, backward = style.lanes[int(rng.integers(len(style.lanes)))]
    outer = rng.random() < 0.7
    return Road(
        length=0.0,
        forward=forward,
        backward=backward,
        lane_width=float(rng.uniform(*style.lane_width_m)),
        strip=float(rng.choice([0.0, 2.4])),
        ego_lane=0 if outer else forward - 1,
        curves=(),
        junctions=(),
        sway=(float(rng.uniform(0.0, 0.0025)), float(rng.uniform(0, 2 * np.pi))),
    )


def _traits(rng: np.random.Generator) -> DriverTraits:
    motion = load_motion()
    free = float(np.interp(rng.random(), [0.0, 0.25, 0.5, 0.75, 1.0], motion.free_speed_quantiles_mps))
    free = float(np.clip(free, 7.0, 14.5))
    return DriverTraits(
        free_speed=free,
        start_speed=free * float(rng.choice([1.0, rng.uniform(0.4, 1.0)], p=[0.7, 0.3])),
        accel=float(rng.uniform(0.65, 1.0)) * motion.accel_mps2,
        onset=float(rng.uniform(0.45, 0.8)) * motion.braking_mps2,
        headway=float(rng.uniform(1.2, 1.7)),
        lateral=float(rng.uniform(0.9, 1.1)) * motion.lateral_mps2,
        pass_speed=float(rng.uniform(7.0, 8.0)),
        seed=int(rng.integers(1 << 31)),
    )


def _add_clear(draft: _Draft) -> None:
    draft.cursor += draft.uniform(30.0, 60.0)


def _add_lead(draft: _Draft) -> None:
    """A vehicle ahead that turns off at a junction, with or without lights."""
    start = draft.cursor + 8.0
    length = draft.uniform(70.0, 140.0)
    cruise = draft.uniform(5.0, 12.0)
    speeds = [(draft.uniform(2.0, 5.0), cruise)]
    for _ in range(6):
        slow = draft.uniform(0.0, 2.0) if draft.chance(0.25) else cruise * draft.uniform(0.35, 0.75)
        speeds += [(draft.uniform(2.0, 4.0), slow), (draft.uniform(2.5, 5.0), cruise * draft.uniform(0.8, 1.3))]
    first = draft.cursor == _FIRST_EVENT_M and draft.chance(0.7)
    draft.vehicles.append(
        VehiclePlan(
            body=draft.body(),
            colour=draft.colour(),
            s=draft.uniform(22.0, 45.0) if first else start,
            l=draft.road.lane_centre,
            direction=1,
            trigger=np.inf if first else draft.uniform(20.0, 48.0),
            speeds=tuple(speeds),
            turn_at=start + length + 7.0,
            lead=True,
            notice=draft.notice(),
        )
    )
    draft.free_of_oncoming.append((start + length - 20, start + length + 30))
    if draft.chance(0.45):
        draft.junctions.append(Junction(start + length, signals=True))
        draft.signals.append(_signal_plan(draft, start + length))
    else:
        draft.junctions.append(Junction(start + length, signals=False))
    draft.cursor = start + length + 30.0


def _signal_plan(draft: _Draft, stop: float) -> SignalPlan:
    script = float(draft.rng.random())
    notice = draft.notice()
    if script < 0.25:
        return SignalPlan(stop, Phase.GREEN, 0.0, 3.0, notice)
    if script < 0.65:  # turns amber, then red, before the ego
        return SignalPlan(stop, Phase.GREEN, draft.uniform(8.0, 48.0), draft.uniform(0.5, 2.5), notice)
    late = draft.uniform(6.0, 30.0) if draft.chance(0.3) else 0.0  # red; sometimes green before the ego has stopped
    return SignalPlan(stop, Phase.RED, late, draft.uniform(0.5, 2.5), notice)


def _add_light(draft: _Draft) -> None:
    stop = draft.cursor + draft.uniform(5.0, 30.0)
    draft.junctions.append(Junction(stop, signals=True))
    draft.signals.append(_signal_plan(draft, stop))
    draft.cursor = stop + SIGNAL_M + 8.0


def _add_junction(draft: _Draft) -> None:
    stop = draft.cursor + draft.uniform(5.0, 30.0)
    draft.junctions.append(Junction(stop, signals=False))
    draft.cursor = stop + SIGNAL_M + 4.0


def _add_pedestrian(draft: _Draft) -> None:
    road, s = draft.road, draft.cursor + draft.uniform(2.0, 25.0)
    to_left, to_right = road.left_kerb - road.lane_centre, road.lane_centre - road.right_kerb
    from_left = draft.chance(0.5) if max(to_left, to_right) < _SHORT_CROSSING_M else to_left < to_right
    draft.walkers.append(
        WalkerPlan(
            s=s,
            l=(road.left_kerb + 0.6) if from_left else (road.right_kerb - 0.6),
            colour=draft.colour(),
            speed=draft.uniform(1.2, 1.8),
            trigger=draft.uniform(14.0, 42.0),
            heading=-np.pi / 2 if from_left else np.pi / 2,
            marked=draft.chance(0.85),
            notice=1.0,
        )
    )
    draft.cursor = s + 10.0


def _add_parked(draft: _Draft) -> None:
    """A parked vehicle that reaches into the ego's lane, from the right or, where nothing is in between, the left."""
    road = draft.road
    sides = [side for side, free in (("right", road.ego_lane == 0), ("left", _left_is_open(road))) if free]
    if not sides:
        _add_clear(draft)
        return
    side, body = sides[int(draft.rng.integers(len(sides)))], draft.body()
    length, width, _ = SIZE_M[body]
    s, overlap = draft.cursor + draft.uniform(4.0, 25.0), draft.uniform(0.9, 1.3)
    lane_right = road.lane_centre - road.lane_width / 2
    if side == "right":
        lateral, heading = lane_right + overlap - width / 2, 0.0
    else:
        lateral = lane_right + road.lane_width - overlap + width / 2
        heading = np.pi if road.backward else 0.0
    draft.parked.append(
        ParkedPlan(
            body, draft.colour(), s, lateral, heading + draft.uniform(-0.04, 0.04), overlap, side, draft.notice()
        )
    )
    draft.free_of_oncoming.append((s - 60, s + 40))
    draft.cursor = s + length + 12.0


def _left_is_open(road: Road) -> bool:
    return road.ego_lane == road.forward - 1 and road.backward <= 1


def _add_cyclist(draft: _Draft) -> None:
    road = draft.road
    if road.ego_lane != 0:
        _add_clear(draft)
        return
    start = draft.cursor
    draft.cyclists.append(
        CyclistPlan(
            s=start,
            l=road.right_edge + 0.7,
            colour=draft.colour(),
            trigger=draft.uniform(40.0, 60.0),
            speed=draft.uniform(2.5, 4.5),
            notice=draft.notice(),
        )
    )
    draft.free_of_oncoming.append((start - 40, start + 130))
    draft.cursor = start + 70.0


def _add_curve(draft: _Draft) -> None:
    sharp = draft.chance(0.5)
    sign = 1.0 if draft.chance(0.5) else -1.0
    radius = draft.uniform(*(draft.style.sharp_radius_m if sharp else draft.style.gentle_radius_m))
    repeat = 2 if draft.chance(draft.style.double_curves) else 1
    for turn in range(repeat):
        angle = draft.uniform(0.6, 1.3) if sharp else draft.uniform(0.45, 0.9)
        ramp = 12.0 if sharp else 20.0
        start = draft.cursor + draft.uniform(4.0, 15.0)
        curve = Curve(start, angle * radius + ramp, radius * sign * (-1) ** turn, ramp)
        draft.curves.append(curve)
        draft.cursor = curve.end + 6.0


_ADD = {
    Event.CLEAR: _add_clear,
    Event.LEAD: _add_lead,
    Event.LIGHT: _add_light,
    Event.PEDESTRIAN: _add_pedestrian,
    Event.PARKED: _add_parked,
    Event.CYCLIST: _add_cyclist,
    Event.JUNCTION: _add_junction,
    Event.CURVE: _add_curve,
}


def _add_oncoming(draft: _Draft) -> None:
    road = draft.road
    if road.backward == 0:
        return
    s = draft.uniform(20.0, 120.0)
    while s < road.length - 60:
        if not any(low < s < high for low, high in draft.free_of_oncoming):
            lane = int(draft.rng.integers(road.backward))
            speed = draft.uniform(7.0, 12.0)
            trigger = draft.uniform(45.0, 80.0)
            meet = s + trigger  # starts beyond, about to meet the ego around s
            if not any(low < p < high for p in (meet, s) for low, high in draft.free_of_oncoming):
                lateral = (lane + 0.5) * road.lane_width
                draft.vehicles.append(
                    VehiclePlan(draft.body(), draft.colour(), meet, lateral, -1, trigger, ((60.0, speed),))
                )
        s += draft.uniform(45.0, 120.0)


def _add_neighbours(draft: _Draft) -> None:
    """Vehicles in the next lane, going the same way: beside the point, and easily taken for a lead."""
    road = draft.road
    nudges = bool(draft.cyclists) or any(plan.overlap > 0 for plan in draft.parked)
    if road.forward < 2 or nudges or not draft.chance(0.8):
        return
    lane = 1 if road.ego_lane == 0 else road.ego_lane - 1
    lateral = road.right_edge + (lane + 0.5) * road.lane_width
    for s in (draft.uniform(8.0, 40.0), draft.uniform(60.0, 160.0)):
        speeds = tuple((draft.uniform(4.0, 9.0), draft.uniform(3.0, 13.0)) for _ in range(6))
        draft.vehicles.append(VehiclePlan(draft.body(), draft.colour(), s, lateral, 1, np.inf, speeds))


def _add_bystanders(draft: _Draft) -> None:
    road = draft.road
    for _ in range(int(draft.rng.poisson(draft.style.bystanders * road.length / 100.0))):
        s, right = draft.uniform(5.0, road.length - 20.0), draft.chance(0.65)
        if any(junction.stop - 6 < s < junction.stop + SIGNAL_M + 6 for junction in road.junctions):
            continue
        if draft.chance(0.5):
            lateral = (
                (road.right_kerb - draft.uniform(1.2, 2.2)) if right else (road.left_kerb + draft.uniform(1.2, 2.2))
            )
            heading = float(draft.rng.choice([0.0, np.pi, np.pi / 2, -np.pi / 2]))
            draft.walkers.append(WalkerPlan(s, lateral, draft.colour(), 0.0, 0.0, heading))
        elif not any(abs(s - plan.s) < 10 for plan in draft.parked):
            body = draft.body()
            half = SIZE_M[body][1] / 2
            gap = draft.uniform(0.6, 1.1)
            lateral = (road.right_edge - gap - half) if right else (road.left_edge + gap + half)
            heading = 0.0 if right or not road.backward else np.pi
            draft.parked.append(
                ParkedPlan(body, draft.colour(), s, lateral, heading, 0.0, "right" if right else "left")
            )
