"""The ego's driver: brakes for what is in the way, eases for curves, makes room for parked vehicles and cyclists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rsd_planner.demo.world.actors import Cyclist, Signal, Vehicle, Walker, parked_rear, stopping
from rsd_planner.demo.world.ego import DT_S, FRONT_M, HALF_WIDTH_M, State
from rsd_planner.demo.world.layout import SIZE_M, Body, CyclistPlan, DriverTraits, Layout, ParkedPlan, Phase
from rsd_planner.demo.world.motion_fit import load_motion
from rsd_planner.demo.world.road import Road

STOP_BEFORE_LINE_M = 1.5
STOP_BEFORE_WALKER_M = 5.0
AMBER_LIMIT_MPS2 = 2.8  # a harder stop than this for amber: drive on
_STANDSTILL_GAP_M = 2.5
_PAST_LANE_M = 0.6  # beyond the lane, a pedestrian is out of the way
_NOTICE_M = 48.0
_CLEARANCE_M = 0.85
_SHIFT_AHEAD_M = 16.0
_SHIFT_RATE_MPS = 1.1
_HARDEST_MPS2 = 6.0


@dataclass
class Traffic:
    """Everything around the ego at one tick."""

    road: Road
    ego_front: float
    ego_speed: float
    signals: list[Signal]
    walkers: list[Walker]
    vehicles: list[Vehicle]
    cyclists: list[Cyclist]
    parked: tuple[ParkedPlan, ...]


class Driver:
    """Controls for one tick after another, from what the traffic is now."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._traits: DriverTraits = layout.driver
        self._motion = load_motion()
        self._rng = np.random.default_rng(self._traits.seed)
        self._accel = 0.0
        self._unrest = 0.0
        self._wave = 0.0  # m/s, slow change of the speed the driver has in mind
        self._wander = 0.0  # m, and so of the place in the lane
        self._shift = 0.0
        self._curvature = 0.0
        self._noticed: set[int] = set()
        self._runs_light: set[int] = set()

    def controls(self, state: State, s: float, traffic: Traffic) -> tuple[float, float]:
        """Acceleration (m/s^2) and curvature (1/m) for the next 0.1 s.

        Args:
            state: The ego now.
            s: Its station on the road, m.
            traffic: All around it now.
        """
        return self._longitudinal(s, traffic), self._lateral(state, s, traffic)

    # speed

    def _longitudinal(self, s: float, traffic: Traffic) -> float:
        speed = traffic.ego_speed
        wishes = [self._free(speed), *self._stops(traffic), *self._follows(traffic), *self._eases(s, traffic)]
        self._drift()
        wanted = min(wishes) + (self._unrest if speed > 1.0 else 0.0)
        jerk = self._motion.jerk_mps3 * (3.0 if wanted < -2.5 else 1.0)
        self._accel += float(np.clip(wanted - self._accel, -jerk * DT_S * 1.5, jerk * DT_S * 1.5))
        self._accel = max(self._accel, -_HARDEST_MPS2)
        if speed < 0.05 and wanted <= 0.05:
            self._accel = 0.0
        return self._accel

    def _free(self, speed: float) -> float:
        wish = max(self._traits.free_speed + self._wave, 1.0)
        if speed > wish:
            return max(0.6 * (wish - speed), -1.2)
        return self._traits.accel * (1 - (speed / wish) ** 4)

    def _drift(self) -> None:
        """Ornstein-Uhlenbeck steps of what is never quite constant."""
        step = DT_S / self._motion.unrest_time_s
        normal = self._rng.standard_normal(3)
        self._unrest += -step * self._unrest + self._motion.unrest_mps2 * np.sqrt(2 * step) * normal[0]
        self._wave += -DT_S / 5.0 * self._wave + self._motion.wave_mps * np.sqrt(2 * DT_S / 5.0) * normal[1]
        self._wander += -DT_S / 4.0 * self._wander + 0.10 * np.sqrt(2 * DT_S / 4.0) * normal[2]

    def _sees(self, plan: object, distance: float, notice: float) -> bool:
        """Noticed once, remembered; never so late that there is no room left."""
        if id(plan) not in self._noticed:
            speed = self._traits.free_speed
            latest = speed * speed / (2 * 3.0) + 4.0 + 0.5 * speed
            if distance > max(notice * _NOTICE_M, latest):
                return False
            self._noticed.add(id(plan))
        return True

    def _stop(self, speed: float, room: float) -> float:
        """Acceleration of a planned stop: coasts until the deceleration it takes is worth a brake."""
        need = stopping(speed, room)
        if room < 0.3:
            return -max(1.0, min(need, _HARDEST_MPS2))
        if need > self._traits.onset or room < 4.0:
            return -min(1.04 * need, _HARDEST_MPS2) if speed > 0.4 or room < 1.0 else 0.3
        return -0.1 if room < 40.0 else 0.3

    def _stops(self, traffic: Traffic) -> list[float]:
        wishes: list[float] = []
        speed, front = traffic.ego_speed, traffic.ego_front
        for signal in traffic.signals:
            distance = signal.plan.stop - front
            seen = distance > -0.7 and signal.phase is not Phase.GREEN
            if not seen or not self._sees(signal.plan, distance, signal.plan.notice):
                continue
            hard = stopping(speed, distance - STOP_BEFORE_LINE_M / 2) > AMBER_LIMIT_MPS2
            if signal.phase is Phase.AMBER and distance > 0 and hard:
                self._runs_light.add(id(signal))
            if id(signal) not in self._runs_light:
                wishes.append(self._stop(speed, distance - STOP_BEFORE_LINE_M))
        for walker in traffic.walkers:
            distance = walker.s - front
            if (
                walker.crossing
                and walker_in_way(traffic.road, walker.l, walker.side == "left")
                and distance > 0
                and self._sees(walker.plan, distance, walker.plan.notice)
            ):
                wishes.append(self._stop(speed, distance - STOP_BEFORE_WALKER_M))
        return wishes

    def _follows(self, traffic: Traffic) -> list[float]:
        wishes: list[float] = []
        for vehicle in traffic.vehicles:
            gap = vehicle.rear - traffic.ego_front
            if not vehicle.plan.lead or not vehicle.in_lane or gap < -3.0:
                continue
            if self._sees(vehicle.plan, gap, vehicle.plan.notice + 0.3):
                wishes.append(self._behind(traffic.ego_speed, gap, vehicle.speed))
        return wishes

    def _behind(self, speed: float, gap: float, lead_speed: float) -> float:
        """The intelligent driver model's interaction."""
        traits, braking = self._traits, self._motion.braking_mps2
        closing = speed * (speed - lead_speed) / (2 * np.sqrt(traits.accel * braking))
        wanted_gap = _STANDSTILL_GAP_M + max(0.0, speed * traits.headway + closing)
        accel = traits.accel * (1 - (speed / traits.free_speed) ** 4 - (wanted_gap / max(gap, 0.3)) ** 2)
        if speed < 0.4 and gap < _STANDSTILL_GAP_M + 0.8:
            accel = min(accel, -0.3)
        return float(max(accel, -_HARDEST_MPS2))

    def _eases(self, s: float, traffic: Traffic) -> list[float]:
        """Curves, and what is passed with little room."""
        wishes = [
            self._bend(traffic.ego_speed, s, curve.start, curve.end, curve.radius) for curve in traffic.road.curves
        ]
        for distance, beyond, plan in obstacles(traffic):
            if beyond > -1.0 and self._sees(plan, distance, plan.notice):
                wishes.append(self._towards(traffic.ego_speed, self._traits.pass_speed, max(distance - 4.0, 0.0)))
        return wishes

    def _bend(self, speed: float, s: float, start: float, end: float, radius: float) -> float:
        distance = start + 4.0 - s - FRONT_M
        if s > end - 6.0 or distance > _NOTICE_M * max(self._layout.curve_notice, 0.5):
            return np.inf
        return self._towards(speed, float(np.sqrt(self._traits.lateral * abs(radius))), max(distance, 0.0))

    def _towards(self, speed: float, allowed: float, distance: float) -> float:
        """Acceleration that is down to `allowed` within `distance` metres."""
        if distance < 1.0:
            return 0.9 * (allowed - speed)
        if speed <= allowed:
            return (allowed - speed) * 0.9 + 0.1 * distance
        need = (speed**2 - allowed**2) / (2 * distance)
        return -need if need > min(self._traits.onset, 1.0) else 0.0

    # path

    def _lateral(self, state: State, s: float, traffic: Traffic) -> float:
        road = traffic.road
        target = self._shift_wanted(traffic)
        self._shift += (
            float(np.clip(1.5 * (target - self._shift), -_SHIFT_RATE_MPS, _SHIFT_RATE_MPS))
            * DT_S
            * min(1.0, traffic.ego_speed / 3.0)
        )
        ahead = float(np.clip(0.75 * traffic.ego_speed, 4.0, 11.0))
        x, y, _ = road.spot(s + ahead, road.lane_centre + self._shift + self._wander)
        angle = np.arctan2(y - state.y, x - state.x) - state.yaw
        wanted = float(2 * np.sin(angle) / np.hypot(x - state.x, y - state.y))
        self._curvature += float(np.clip(wanted - self._curvature, -0.012, 0.012))
        return self._curvature

    def _shift_wanted(self, traffic: Traffic) -> float:
        """Lateral room made for what reaches into the lane, m to the left."""
        shift = 0.0
        for distance, beyond, plan in obstacles(traffic):
            if not self._sees(plan, distance, plan.notice) or distance > _SHIFT_AHEAD_M or beyond < -1.0:
                continue
            half = traffic.road.lane_width / 2
            if isinstance(plan, ParkedPlan):
                need = plan.overlap + _CLEARANCE_M + HALF_WIDTH_M - half
                shift = max(need, 0.3) if plan.side == "right" else -max(need, 0.3)
            else:
                shift = SIZE_M[Body.CYCLIST][1] / 2 + 0.7 + 1.2 + HALF_WIDTH_M - half
        return shift


def obstacles(traffic: Traffic) -> list[tuple[float, float, ParkedPlan | CyclistPlan]]:
    """What reaches into the lane from its edge: distance to its near and far end from the ego's front, m; its plan."""
    found: list[tuple[float, float, ParkedPlan | CyclistPlan]] = []
    for plan in traffic.parked:
        if plan.overlap > 0:
            near = parked_rear(plan) - traffic.ego_front
            found.append((near, near + SIZE_M[plan.body][0] + 2 * FRONT_M, plan))
    for cyclist in traffic.cyclists:
        near = cyclist.rear - traffic.ego_front
        found.append((near, near + SIZE_M[Body.CYCLIST][0] + 2 * FRONT_M, cyclist.plan))
    return [entry for entry in found if entry[1] > -1.0]


def walker_in_way(road: Road, l: float, from_left: bool) -> bool:  # noqa: E741
    """Whether a crossing pedestrian is on the road and not yet past the ego's lane."""
    half = road.lane_width / 2 + _PAST_LANE_M
    if from_left:
        return road.lane_centre - half < l < road.left_kerb
    return road.right_kerb < l < road.lane_centre + half
