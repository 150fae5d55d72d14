"""What a tick is about: how the ego moves, known from its history, and the one cause that matters, known from sight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import atan2, cos, pi, sin
from typing import Literal

import numpy as np

from rsd_planner.demo.world.actors import parked_rear
from rsd_planner.demo.world.drive import Drive
from rsd_planner.demo.world.driver import walker_in_way
from rsd_planner.demo.world.ego import FRONT_M
from rsd_planner.demo.world.layout import SIZE_M, Body, Phase
from rsd_planner.demo.world.road import SIGNAL_M
from rsd_planner.scene.observation import STEP_NS, EgoHistory

# spoken distances: half metres to 15 m, metres to 30 m, two metres beyond, each at least half a pixel in the picture
DISTANCES_M = (*(half / 2 for half in range(1, 31)), *(float(m) for m in (*range(16, 31), *range(32, 47, 2))))
STANDING_MPS = 0.3
MAX_SPEED_MPS = 18.0
_CAMERA_X_M = 1.6  # before the rear axle
_VIEW_RAD = 0.436  # 25 degrees: a cause lies inside the front camera's view
_STRAIGHT_RAD = 0.2  # a road that turns less than this hides nothing
_SIGHT_M = 9.0  # from kerb to whatever may hide what lies behind
_CHANGING_MPS2 = 0.45
_TOKEN_REACH_M = np.float32(4.0)  # history tokens: steps of -4..4 m in 1000 bins
_TOKEN_M = np.float32(8.0 / 999)

Side = Literal["left", "right"]


class Motion(str, Enum):
    """How the ego has moved over the last second."""

    STANDING = "standing"
    SLOWING = "slowing"
    STEADY = "steady"
    GAINING = "gaining"


class CauseKind(str, Enum):
    """Classes of causes."""

    CLEAR = "clear"
    BYSTANDER = "bystander"
    ONCOMING = "oncoming"
    LEAD = "lead"
    LIGHT_RED = "light_red"
    LIGHT_AMBER = "light_amber"
    LIGHT_GREEN = "light_green"
    PEDESTRIAN = "pedestrian"
    PARKED = "parked"
    CYCLIST = "cyclist"
    JUNCTION = "junction"
    CURVE = "curve"


RANGE_M = {  # farthest at which a cause is one: its pixels still show what it is
    CauseKind.BYSTANDER: 26.5,
    CauseKind.ONCOMING: 38.5,
    CauseKind.LEAD: 46.5,
    CauseKind.LIGHT_RED: 46.5,
    CauseKind.LIGHT_AMBER: 46.5,
    CauseKind.LIGHT_GREEN: 40.5,
    CauseKind.PEDESTRIAN: 38.5,
    CauseKind.PARKED: 36.5,
    CauseKind.CYCLIST: 30.5,
    CauseKind.JUNCTION: 32.5,
    CauseKind.CURVE: 34.5,
}
BRAKE_LAMPS_M = 38.0  # beyond, lamps are not spoken of
_PASSED_M = 3.0  # nearer than this, things at the side leave the picture
_WORDS = np.array(DISTANCES_M, np.float64)
_LIGHTS = {Phase.RED: CauseKind.LIGHT_RED, Phase.AMBER: CauseKind.LIGHT_AMBER, Phase.GREEN: CauseKind.LIGHT_GREEN}


@dataclass(frozen=True)
class Cause:
    """The visible reason for what the ego does. Fields that say nothing about a kind keep their defaults."""

    kind: CauseKind
    distance: float = 0.0  # m from the front bumper, one of DISTANCES_M; 0 when beside, inside or without distance
    body: Body | None = None
    side: Side | None = None
    braking: bool = False  # brake lamps lit
    sharp: bool = False
    lanes: bool = False  # more than one lane in the ego's direction
    moving: bool = False  # a bystander in the next lane, or who has crossed ours; not beside the road


@dataclass(frozen=True)
class EgoMotion:
    """What ego history tells, as the sentences use it."""

    speed_tenths: int  # 0.1 m/s, over the last 0.1 s
    motion: Motion

    @property
    def speed(self) -> float:
        return self.speed_tenths / 10


@dataclass(frozen=True)
class Facts:
    """All that the sentence of a tick is made from."""

    ego: EgoMotion
    cause: Cause


def spoken_distance(distance: float) -> float:
    """The nearest distance that has a word."""
    return float(_WORDS[np.abs(_WORDS - distance).argmin()])


def ego_motion(history: EgoHistory) -> EgoMotion:
    """Speed and motion from a history and nothing else; what its tokens are too coarse to show is not said."""
    deltas = np.diff(history.positions[:, :2].astype(np.float32), axis=0)  # (15, 2) m
    shown = np.rint((deltas + _TOKEN_REACH_M) / _TOKEN_M) * _TOKEN_M - _TOKEN_REACH_M
    step = np.linalg.norm(shown, axis=1) / (STEP_NS * 1e-9)  # (15,) m/s
    accel = (step[-3:].mean() - step[-9:-6].mean()) / 0.6
    tenths = int(min(np.floor(abs(shown[-1, 0]) * 100 + 0.5), MAX_SPEED_MPS * 10))
    if tenths < STANDING_MPS * 10:
        return EgoMotion(tenths, Motion.STANDING)
    if accel < -_CHANGING_MPS2:
        return EgoMotion(tenths, Motion.SLOWING)
    return EgoMotion(tenths, Motion.GAINING if accel > _CHANGING_MPS2 else Motion.STEADY)


def observe(drive: Drive, tick: int) -> Facts:
    """The facts of a tick."""
    return Facts(ego_motion(drive.path.history(tick * STEP_NS)), visible_cause(drive, tick))


def visible_cause(drive: Drive, tick: int) -> Cause:
    """The cause that matters: what stops the ego, else what it passes or follows, else who is there.

    Within each of these the nearest counts.
    """
    view = _View(drive, tick)
    for candidates in (view.stoppers(), view.features(), view.others()):
        found = sorted(candidates, key=lambda entry: entry[0])
        if found:
            return found[0][1]
    return Cause(CauseKind.CLEAR, lanes=drive.layout.road.forward > 1)


def all_visible(drive: Drive, tick: int) -> list[Cause]:
    """Everything in view that could be a cause, nearest first."""
    view = _View(drive, tick)
    candidates = [*view.stoppers(), *view.features(), *view.others()]
    return [cause for _, cause in sorted(candidates, key=lambda entry: entry[0])]


Candidates = Iterator[tuple[float, Cause]]


class _View:
    """The front camera's view at one tick, in terms of what is there."""

    def __init__(self, drive: Drive, tick: int) -> None:
        self._drive, self._tick = drive, tick
        self._road, self._front = drive.layout.road, drive.stations[tick]
        state = drive.path.states[tick]
        self._yaw = state.yaw
        self._x, self._y = state.x + _CAMERA_X_M * cos(state.yaw), state.y + _CAMERA_X_M * sin(state.yaw)
        self._s, self._l = self._road.locate(self._x, self._y, self._front - FRONT_M + _CAMERA_X_M)

    def stoppers(self) -> Candidates:
        """What the ego may have to stop for."""
        yield from self._leads()
        yield from self._red_lights()
        yield from self._walkers()

    def features(self) -> Candidates:
        """What the ego passes, crosses or follows."""
        yield from self._parked()
        yield from self._cyclists()
        yield from self._green_lights()
        for junction in self._road.junctions:
            distance = junction.stop - self._front
            if not junction.signals and self._near(CauseKind.JUNCTION, distance, _PASSED_M):
                yield distance, Cause(CauseKind.JUNCTION, spoken_distance(distance))
        for curve in self._road.curves:
            distance = curve.start - self._front
            side: Side = "left" if curve.radius > 0 else "right"
            if distance <= 0 and self._front < curve.end - 12.0:
                yield 0.0, Cause(CauseKind.CURVE, side=side, sharp=curve.sharp)
            elif self._near(CauseKind.CURVE, distance, 0.0) and self._seen(curve.start, self._road.lane_centre):
                yield distance, Cause(CauseKind.CURVE, spoken_distance(distance), side=side, sharp=curve.sharp)

    def others(self) -> Candidates:
        """Who is near and does not matter."""
        for plan, track in zip(self._drive.layout.vehicles, self._drive.vehicles, strict=True):
            spot = track.spots[self._tick]
            distance = spot.s - SIZE_M[plan.body][0] / 2 - self._front
            if plan.direction < 0 and self._near(CauseKind.ONCOMING, distance, 4.0) and self._seen(spot.s, spot.l):
                yield distance, Cause(CauseKind.ONCOMING, spoken_distance(distance), body=plan.body)
            elif plan.direction > 0 and not plan.lead:
                yield from self._beside(distance, spot.s, spot.l, plan.body, moving=True)
        for parked in self._drive.layout.parked:
            yield from self._beside(parked_rear(parked) - self._front, parked.s, parked.l, parked.body)
        for track in self._drive.walkers:
            spot = track.spots[self._tick]
            on_road = self._road.right_kerb < spot.l < self._road.left_kerb
            yield from self._beside(spot.s - self._front, spot.s, spot.l, Body.PEDESTRIAN, moving=on_road)

    def _beside(self, distance: float, s: float, l: float, body: Body, moving: bool = False) -> Candidates:  # noqa: E741
        if self._near(CauseKind.BYSTANDER, distance, 4.0) and self._seen(s, l):
            side: Side = "left" if l > self._road.lane_centre else "right"
            yield distance, Cause(CauseKind.BYSTANDER, spoken_distance(distance), body=body, side=side, moving=moving)

    def _leads(self) -> Candidates:
        for plan, track in zip(self._drive.layout.vehicles, self._drive.vehicles, strict=True):
            spot = track.spots[self._tick]
            distance = spot.s - SIZE_M[plan.body][0] / 2 - self._front
            if plan.lead and spot.present and self._near(CauseKind.LEAD, distance, -1.0) and self._seen(spot.s, spot.l):
                word = spoken_distance(distance)
                lamps = spot.braking and word <= BRAKE_LAMPS_M
                yield distance, Cause(CauseKind.LEAD, word, body=plan.body, braking=lamps)

    def _red_lights(self) -> Candidates:
        for phase, distance in self._lights():
            kind = _LIGHTS[phase]
            if kind is not CauseKind.LIGHT_GREEN and self._near(kind, distance, -SIGNAL_M + 4.0):
                yield max(distance, 0.0), Cause(kind, spoken_distance(distance) if distance > -0.7 else 0.0)

    def _green_lights(self) -> Candidates:
        for phase, distance in self._lights():
            if phase is Phase.GREEN and self._near(CauseKind.LIGHT_GREEN, distance, -SIGNAL_M + 4.0):
                yield (
                    max(distance, 0.0),
                    Cause(CauseKind.LIGHT_GREEN, spoken_distance(distance) if distance > -0.7 else 0.0),
                )

    def _lights(self) -> Iterator[tuple[Phase, float]]:
        for plan, phases in zip(self._drive.layout.signals, self._drive.phases, strict=True):
            if self._seen(plan.stop + SIGNAL_M, self._road.lane_centre):
                yield phases[self._tick], plan.stop - self._front

    def _walkers(self) -> Candidates:
        for plan, track in zip(self._drive.layout.walkers, self._drive.walkers, strict=True):
            spot = track.spots[self._tick]
            distance = spot.s - self._front
            from_left = plan.l > 0
            in_way = spot.present and walker_in_way(self._road, spot.l, from_left)
            if in_way and self._near(CauseKind.PEDESTRIAN, distance, 0.0) and self._seen(spot.s, spot.l):
                side: Side = "left" if from_left else "right"
                yield distance, Cause(CauseKind.PEDESTRIAN, spoken_distance(distance), side=side)

    def _parked(self) -> Candidates:
        for plan in self._drive.layout.parked:
            distance = parked_rear(plan) - self._front
            if plan.overlap > 0 and self._near(CauseKind.PARKED, distance, _PASSED_M) and self._seen(plan.s, plan.l):
                side: Side = "right" if plan.side == "right" else "left"
                yield distance, Cause(CauseKind.PARKED, spoken_distance(distance), body=plan.body, side=side)

    def _cyclists(self) -> Candidates:
        for track in self._drive.cyclists:
            spot = track.spots[self._tick]
            distance = spot.s - SIZE_M[Body.CYCLIST][0] / 2 - self._front
            if self._near(CauseKind.CYCLIST, distance, _PASSED_M) and self._seen(spot.s, spot.l):
                yield distance, Cause(CauseKind.CYCLIST, spoken_distance(distance))

    @staticmethod
    def _near(kind: CauseKind, distance: float, least: float) -> bool:
        return least < distance < RANGE_M[kind]

    def _seen(self, s: float, l: float) -> bool:  # noqa: E741
        """Inside the picture, and the line of sight stays over the road and its verges."""
        x, y, yaw = self._road.spot(s, l)
        bearing = atan2(y - self._y, x - self._x) - self._yaw
        if abs((bearing + pi) % (2 * pi) - pi) > _VIEW_RAD:
            return False
        if abs(yaw - self._yaw) < _STRAIGHT_RAD:
            return True
        for share in (0.2, 0.4, 0.6, 0.8):
            at_x, at_y = self._x + share * (x - self._x), self._y + share * (y - self._y)
            _, lateral = self._road.locate(at_x, at_y, self._s + share * (s - self._s))
            middle = self._l + share * (l - self._l)
            if abs(lateral - middle) > _SIGHT_M + min(self._road.left_kerb - middle, middle - self._road.right_kerb):
                return False
        return True
