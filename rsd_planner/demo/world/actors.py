"""Road users in motion: each steps every 0.1 s and leaves a track behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rsd_planner.demo.world.ego import DT_S
from rsd_planner.demo.world.layout import (
    SIZE_M,
    Body,
    CyclistPlan,
    ParkedPlan,
    Phase,
    SignalPlan,
    VehiclePlan,
    WalkerPlan,
)
from rsd_planner.demo.world.road import SIGNAL_M, Road

_AMBER_S = 3.0
_ALL_RED_WAIT_S = 12.0
_TURN_RADIUS_M = 8.0
_TURN_SPEED_MPS = 5.0
_BRAKE_LAMP_MPS2 = -0.5
_FEASIBLE_MPS2 = 3.2  # a pedestrian steps out only before an ego that can still stop


@dataclass(frozen=True)
class Spot:
    """An actor at one tick, in road coordinates; yaw relative to the road."""

    s: float
    l: float  # noqa: E741
    yaw: float
    speed: float = 0.0
    braking: bool = False
    stride: float = 0.0  # m walked or cycled: the phase of the legs
    present: bool = True  # in the way or able to get there; a walker: off the kerb


@dataclass(frozen=True)
class Track:
    """One actor over a drive, a spot per tick."""

    body: Body
    colour: int
    spots: tuple[Spot, ...]


class Surroundings(Protocol):
    """What actors see of each other."""

    road: Road
    ego_front: float
    ego_speed: float
    signals: list[Signal]
    walkers: list[Walker]
    vehicles: list[Vehicle]


def stopping(speed: float, room: float) -> float:
    """Constant deceleration that comes to rest within `room` metres, m/s^2."""
    return speed * speed / (2 * max(room, 0.1))


@dataclass
class Signal:
    """A traffic light, switched by the ego's approach."""

    plan: SignalPlan
    phase: Phase = field(init=False)
    phases: list[Phase] = field(default_factory=list)
    _since: float = 0.0
    _waiting: float = 0.0

    def __post_init__(self) -> None:
        self.phase = self.plan.start

    def record(self) -> None:
        self.phases.append(self.phase)

    def step(self, around: Surroundings) -> None:
        """Red turns green for whoever waits; green turns amber, then red, before whoever comes."""
        distance = self.plan.stop - around.ego_front
        self._since += DT_S
        reached = self.plan.switch_distance > 0 and 0 < distance < self.plan.switch_distance
        if self.phase is Phase.RED:
            self._waiting += DT_S if around.ego_speed < 0.3 and 0 < distance < 30 else 0.0
            called = self.plan.start is Phase.RED and reached
            if called or self._waiting > min(self.plan.dwell, _ALL_RED_WAIT_S):
                self._switch(Phase.GREEN)
        elif self.phase is Phase.AMBER and self._since > _AMBER_S:
            self._switch(Phase.RED)
        elif self.phase is Phase.GREEN and self.plan.start is Phase.GREEN and reached and self._waiting == 0:
            self._switch(Phase.AMBER)

    def _switch(self, phase: Phase) -> None:
        self.phase, self._since = phase, 0.0


@dataclass
class Walker:
    """A pedestrian who crosses once, or never."""

    plan: WalkerPlan
    spots: list[Spot] = field(default_factory=list)
    crossing: bool = False
    done: bool = False

    def __post_init__(self) -> None:
        self.s, self.l, self.yaw, self.stride = self.plan.s, self.plan.l, self.plan.heading, 0.0
        self.side = "left" if self.plan.l > 0 else "right"

    def record(self) -> None:
        self.spots.append(Spot(self.s, self.l, self.yaw, stride=self.stride, present=self.crossing))

    def step(self, around: Surroundings) -> None:
        if not self.crossing and not self.done and self.plan.trigger > 0:
            self.crossing = self._may_start(around)
        if self.crossing:
            self.l += -np.sign(self.plan.l) * self.plan.speed * DT_S
            self.stride += self.plan.speed * DT_S
            beyond = around.road.right_kerb - 1.2 if self.plan.l > 0 else around.road.left_kerb + 1.2
            if (self.l - beyond) * np.sign(self.plan.l) < 0:
                self.crossing, self.done = False, True

    def _may_start(self, around: Surroundings) -> bool:
        distance = self.plan.s - around.ego_front
        if not 7.0 < distance < self.plan.trigger or stopping(around.ego_speed, distance - 5.5) > _FEASIBLE_MPS2:
            return False
        return all(not -14 < v.s - self.s < 10 for v in around.vehicles if v.plan.direction > 0)


@dataclass
class Vehicle:
    """A vehicle on a lane; it obeys signals, yields to pedestrians, and may turn off to the right."""

    plan: VehiclePlan
    spots: list[Spot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.s, self.l, self.yaw, self.accel = self.plan.s, self.plan.l, 0.0, 0.0
        self.length = SIZE_M[self.plan.body][0]
        self.started = self.plan.trigger == np.inf
        self.speed = self.plan.speeds[0][1] if self.started else 0.0
        self.elapsed, self._turned, self._braking = 0.0, 0.0, not self.started

    @property
    def rear(self) -> float:
        return self.s - self.length / 2

    @property
    def in_lane(self) -> bool:
        """Still in the lane it drives along."""
        return self._turned < 0.9 * _TURN_RADIUS_M

    def record(self) -> None:
        facing = self.yaw if self.plan.direction > 0 else self.yaw + np.pi
        self.spots.append(Spot(self.s, self.l, facing, self.speed, self._braking, present=self.in_lane))

    def step(self, around: Surroundings) -> None:
        if not self.started:
            self.started = abs(self.s - around.ego_front) - self.length / 2 < self.plan.trigger
            return
        self.elapsed += DT_S
        wanted = self._wanted(around)
        self.accel += float(np.clip(wanted - self.accel, -6.0 * DT_S, 3.0 * DT_S))
        if self.speed + self.accel * DT_S <= 0:
            self.accel = min(self.accel, 0.0)
        moved = max(0.0, self.speed * DT_S + self.accel * DT_S**2 / 2)
        self.speed = max(0.0, self.speed + self.accel * DT_S)
        self._braking = self.accel < _BRAKE_LAMP_MPS2 or (self.speed < 0.2 and wanted < 0.3)
        self._advance(moved)

    def _wanted(self, around: Surroundings) -> float:
        target = self._target_speed()
        accel = float(np.clip((target - self.speed) / 1.2, -2.4, 1.7))
        for stop in self._stops(around):
            room = (stop - self.s) * self.plan.direction - self.length / 2 - 1.0
            need = stopping(self.speed, room)
            if room > -2.0 and (need > 1.4 or room < 1.0):
                accel = min(accel, -max(need, 0.6))
        if self.plan.turn_at is not None and self._turned == 0.0:
            room = self.plan.turn_at - self.s
            if (self.speed**2 - _TURN_SPEED_MPS**2) / (2 * max(room, 0.5)) > 1.3:
                accel = min(accel, -1.5)
        return accel

    def _target_speed(self) -> float:
        left = self.elapsed
        for seconds, speed in self.plan.speeds:
            if left < seconds:
                return speed
            left -= seconds
        return self.plan.speeds[-1][1]

    def _stops(self, around: Surroundings) -> list[float]:
        """Stations before which the vehicle must come to rest."""
        front = self.s + self.plan.direction * self.length / 2
        stops: list[float] = []
        for signal in around.signals:
            line = signal.plan.stop if self.plan.direction > 0 else signal.plan.stop + SIGNAL_M + 2.0
            ahead = (line - front) * self.plan.direction
            if signal.phase is not Phase.GREEN and ahead > -1.0 and stopping(self.speed, ahead) < 3.5:
                stops.append(line)
        for walker in around.walkers:
            if walker.crossing and 0 < (walker.s - front) * self.plan.direction < 35:
                stops.append(walker.s - self.plan.direction * 2.0)
        return stops

    def _advance(self, moved: float) -> None:
        if self.plan.turn_at is None or (self.s < self.plan.turn_at and self._turned == 0.0):
            self.s += self.plan.direction * moved
            return
        self._turned += moved
        angle = min(self._turned / _TURN_RADIUS_M, np.pi / 2)
        straight = max(0.0, self._turned - _TURN_RADIUS_M * np.pi / 2)
        self.s = self.plan.turn_at + _TURN_RADIUS_M * float(np.sin(angle))
        self.l = self.plan.l - _TURN_RADIUS_M * float(1 - np.cos(angle)) - straight
        self.yaw = -angle


@dataclass
class Cyclist:
    """Rides along the right edge of the lane until the ego is well past."""

    plan: CyclistPlan
    spots: list[Spot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.s, self.l, self.stride, self.speed = self.plan.s, self.plan.l, 0.0, 0.0

    @property
    def rear(self) -> float:
        return self.s - SIZE_M[Body.CYCLIST][0] / 2

    def record(self) -> None:
        self.spots.append(Spot(self.s, self.l, 0.0, self.speed, stride=self.stride))

    def step(self, around: Surroundings) -> None:
        if self.s - around.ego_front > self.plan.trigger or self.s < around.ego_front - 15:
            self.speed = 0.0
            return
        self.speed = min(self.plan.speed, self.speed + 1.5 * DT_S)
        self.s += self.speed * DT_S
        self.stride += self.speed * DT_S


def parked_rear(plan: ParkedPlan) -> float:
    """s of the end that faces the ego."""
    return plan.s - SIZE_M[plan.body][0] / 2
