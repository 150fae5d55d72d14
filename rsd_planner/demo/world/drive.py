"""A drive: the ego and everybody else, from the first tick to the last, 10 Hz."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rsd_planner.demo.world.actors import Cyclist, Signal, Track, Vehicle, Walker
from rsd_planner.demo.world.driver import Driver, Traffic
from rsd_planner.demo.world.ego import DT_S, FRONT_M, FUTURE_STEPS, Path, State
from rsd_planner.demo.world.layout import Body, Layout, Phase
from rsd_planner.scene.observation import HISTORY_STEPS

FIRST_TICK = HISTORY_STEPS - 1
_END_M = 70.0  # the drive ends this far before the road does


@dataclass(frozen=True)
class Drive:
    """What happened. Tick k is at k * 0.1 s."""

    layout: Layout
    path: Path
    stations: tuple[float, ...]  # s of the ego's front bumper at each tick, m
    vehicles: tuple[Track, ...]  # in the order of the layout's plans, as all below
    walkers: tuple[Track, ...]
    cyclists: tuple[Track, ...]
    phases: tuple[tuple[Phase, ...], ...]

    @property
    def ticks(self) -> range:
        """Ticks with a whole history before and a whole future after them."""
        return range(FIRST_TICK, len(self.path.controls) - FUTURE_STEPS + 1)


def run_drive(layout: Layout) -> Drive:
    """Drive a layout. Same layout, same drive."""
    road, driver = layout.road, Driver(layout)
    start = road.point(0.0, road.lane_centre)
    state = State(float(start[0]), float(start[1]), float(road.heading(0.0)), layout.driver.start_speed)
    traffic = Traffic(
        road,
        FRONT_M,
        state.speed,
        [Signal(plan) for plan in layout.signals],
        [Walker(plan) for plan in layout.walkers],
        [Vehicle(plan) for plan in layout.vehicles],
        [Cyclist(plan) for plan in layout.cyclists],
        layout.parked,
    )
    states, stations = [state], [FRONT_M]
    controls: list[tuple[float, float]] = []
    s = 0.0
    actors: list[Signal | Walker | Vehicle | Cyclist] = [
        *traffic.signals, *traffic.walkers, *traffic.vehicles, *traffic.cyclists
    ]  # fmt: skip
    for actor in actors:
        actor.record()
    while s < road.length - _END_M and len(controls) * DT_S < layout.max_seconds:
        control = driver.controls(state, s, traffic)
        for actor in actors:
            actor.step(traffic)
        state = state.moved(*control)
        s, _ = road.locate(state.x, state.y, s)
        traffic.ego_front, traffic.ego_speed = s + FRONT_M, state.speed
        for actor in actors:
            actor.record()
        controls.append(control)
        states.append(state)
        stations.append(traffic.ego_front)
    return Drive(
        layout,
        Path(tuple(states), np.array(controls)),
        tuple(stations),
        tuple(Track(v.plan.body, v.plan.colour, tuple(v.spots)) for v in traffic.vehicles),
        tuple(Track(Body.PEDESTRIAN, w.plan.colour, tuple(w.spots)) for w in traffic.walkers),
        tuple(Track(Body.CYCLIST, c.plan.colour, tuple(c.spots)) for c in traffic.cyclists),
        tuple(tuple(signal.phases) for signal in traffic.signals),
    )
