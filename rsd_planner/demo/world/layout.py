"""What a drive is made of: everything that stands, moves or shines along a road, before anything has moved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rsd_planner.demo.world.road import Road


class Body(str, Enum):
    """What a road user looks like; the value is the word for it."""

    CAR = "car"
    VAN = "van"
    TRUCK = "truck"
    CYCLIST = "cyclist"
    PEDESTRIAN = "pedestrian"


SIZE_M = {  # length, width, height
    Body.CAR: (4.4, 1.82, 1.45),
    Body.VAN: (5.3, 2.0, 2.35),
    Body.TRUCK: (8.2, 2.45, 3.4),
    Body.CYCLIST: (1.8, 0.6, 1.75),
    Body.PEDESTRIAN: (0.5, 0.6, 1.85),
}


class Phase(str, Enum):
    """A traffic light."""

    RED = "red"
    AMBER = "amber"
    GREEN = "green"


@dataclass(frozen=True)
class VehiclePlan:
    """A vehicle that drives along a lane: the lead, a neighbour, oncoming traffic."""

    body: Body
    colour: int  # index into the palette
    s: float  # middle of the vehicle at the start, m
    l: float  # noqa: E741
    direction: int  # 1 with the ego, -1 towards it
    trigger: float  # it starts off when the ego's front is closer than this, m
    speeds: tuple[tuple[float, float], ...]  # (seconds, m/s) one after the other, the last one kept
    turn_at: float | None = None  # s where it turns off to the right
    lead: bool = False  # in the ego's lane
    notice: float = 1.0


@dataclass(frozen=True)
class SignalPlan:
    """The lights of a junction."""

    stop: float
    start: Phase
    switch_distance: float  # the phase changes when the ego's front is this close to the stop line, 0: by dwelling only
    dwell: float  # s the ego stands before red turns green
    notice: float


@dataclass(frozen=True)
class WalkerPlan:
    """A pedestrian: crosses at s when `trigger` is positive, stays on the pavement otherwise."""

    s: float
    l: float  # noqa: E741
    colour: int
    speed: float
    trigger: float  # steps off the kerb when the ego's front is this close, m
    heading: float  # relative to the road, rad
    marked: bool = False  # at a zebra crossing
    notice: float = 1.0


@dataclass(frozen=True)
class ParkedPlan:
    """A parked vehicle; `overlap` is how far it reaches into the ego's lane, negative or 0 if it leaves it free."""

    body: Body
    colour: int
    s: float  # middle
    l: float  # noqa: E741
    heading: float
    overlap: float
    side: str  # right or left of the ego's lane
    notice: float = 1.0


@dataclass(frozen=True)
class CyclistPlan:
    """A cyclist at the right edge of the ego's lane."""

    s: float
    l: float  # noqa: E741
    colour: int
    trigger: float
    speed: float
    notice: float


@dataclass(frozen=True)
class DriverTraits:
    """How this drive's ego is driven."""

    free_speed: float  # m/s
    start_speed: float  # m/s
    accel: float  # m/s^2
    onset: float  # deceleration at which a planned stop begins, m/s^2
    headway: float  # s
    lateral: float  # m/s^2 in curves
    pass_speed: float  # m/s beside cyclists and parked vehicles
    seed: int


@dataclass(frozen=True)
class Layout:
    """A drive before it is driven."""

    road: Road
    driver: DriverTraits
    vehicles: tuple[VehiclePlan, ...] = ()
    signals: tuple[SignalPlan, ...] = ()
    walkers: tuple[WalkerPlan, ...] = ()
    parked: tuple[ParkedPlan, ...] = ()
    cyclists: tuple[CyclistPlan, ...] = ()
    curve_notice: float = 1.0
    max_seconds: float = 60.0
