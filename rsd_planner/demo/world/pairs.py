"""Pairs that prove what a model uses: one history with different images, the same images with different histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.world.actors import stopping
from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.ego import Path, yaw_rotation
from rsd_planner.demo.world.facts import CauseKind, Facts, ego_motion, observe, visible_cause
from rsd_planner.demo.world.layout import Layout
from rsd_planner.demo.world.looks import make_look
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.samples import Camerawork, choose_ticks
from rsd_planner.demo.world.sentences import action_of, say
from rsd_planner.demo.world.splits import SEEDS, Event, Split
from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS, EgoHistory, Pose

Floats = NDArray[np.float64]

_TICKS = range(30, 75, 5)
_VARIANTS = 16
_TOWN_MPS = 9.0
_ROOM_M = (8.0, 40.0)  # a nearer cause would have changed the history, a farther one is hard to make out
_MOTIONS = ((0.0, 0.0), (2.5, 0.0), (5.0, -1.0), (7.0, 0.0), (9.5, 0.8), (12.0, 0.0), (14.0, -0.6))  # m/s, m/s^2
_OTHER_SPEED_MPS = 3.0
_DRIVABLE_MPS2 = 4.5
_EVENTS = (
    Event.LIGHT,
    Event.LIGHT,
    Event.PEDESTRIAN,
    Event.PEDESTRIAN,
    Event.LEAD,
    Event.PARKED,
    Event.CYCLIST,
    Event.CURVE,
    Event.CLEAR,
)
_IDLE = (CauseKind.CLEAR, CauseKind.BYSTANDER, CauseKind.ONCOMING)
_STOPPERS = (CauseKind.LEAD, CauseKind.LIGHT_RED, CauseKind.LIGHT_AMBER, CauseKind.PEDESTRIAN)


@dataclass(frozen=True)
class Case:
    """What a model is given, and what it is expected to say."""

    seed: int
    tick: int
    images: NDArray[np.uint8]  # (cameras, 4, H, W, 3) RGB
    history: EgoHistory
    facts: Facts

    @property
    def text(self) -> str:
        return say(self.facts)

    @property
    def cause(self) -> CauseKind:
        return self.facts.cause.kind

    @property
    def action(self) -> str:
        return action_of(self.text)


def pairs_by_image(split: Split) -> Iterator[tuple[Case, Case]]:
    """Endless: identical history, different images: the causes differ."""
    return _all_pairs(pair_by_image, split)


def pairs_by_history(split: Split) -> Iterator[tuple[Case, Case]]:
    """Endless: identical images, different histories: the cause stays, the action changes."""
    return _all_pairs(pair_by_history, split)


def pair_seeds(split: Split) -> Iterator[int]:
    """Seeds to look for pairs in, from the far end: no dataset gets there."""
    return reversed(SEEDS[split])


def pair_by_image(split: Split, seed: int, camerawork: Camerawork) -> tuple[Case, Case] | None:
    """One road, one driver, two events that the ego has not reacted to yet; None if the seed has no such pair."""
    found = _unreacted(split, seed)
    if found is None:
        return None
    tick, drives = found
    cases = []
    for drive in drives:
        images = _photographed(drive, tick, split, seed, camerawork)
        cases.append(Case(seed, tick, images, drive.path.history(tick * STEP_NS), observe(drive, tick)))
    return cases[0], cases[1]


def pair_by_history(split: Split, seed: int, camerawork: Camerawork) -> tuple[Case, Case] | None:
    """A tick, and the same tick as if reached at another speed over the same ground; None if none calls for it."""
    rng = np.random.default_rng([seed, 17])
    drive = run_drive(make_layout(split, seed))
    tick = int(rng.choice(choose_ticks(drive, seed)))
    facts = observe(drive, tick)
    other = _other_motion(drive.path, tick, facts, rng)
    if other is None:
        return None
    images = _photographed(drive, tick, split, seed, camerawork)
    first = Case(seed, tick, images, drive.path.history(tick * STEP_NS), facts)
    return first, replace(first, history=other, facts=replace(facts, ego=ego_motion(other)))


def _all_pairs(
    find: Callable[[Split, int, Camerawork], tuple[Case, Case] | None], split: Split
) -> Iterator[tuple[Case, Case]]:
    camerawork = Camerawork()
    for seed in pair_seeds(split):
        pair = find(split, seed, camerawork)
        if pair is not None:
            yield pair


def _photographed(drive: Drive, tick: int, split: Split, seed: int, camerawork: Camerawork) -> NDArray[np.uint8]:
    scene = camerawork.scene(drive, make_look(split, seed))
    try:
        return camerawork.frames(scene, tick)
    finally:
        scene.release()


def _unreacted(split: Split, seed: int) -> tuple[int, tuple[Drive, Drive]] | None:
    """A tick and two drives of a seed, the same up to it, that show different causes: two that matter, if possible."""
    rng = np.random.default_rng([seed, 16])
    tick = int(rng.choice(_TICKS))
    usable: list[tuple[CauseKind, Drive]] = []
    for variant in range(1, _VARIANTS + 1):
        event = _EVENTS[int(rng.integers(len(_EVENTS)))]
        drive = run_drive(_inattentive(make_layout(split, seed, [event], variant), tick))
        cause = visible_cause(drive, tick)
        if tick in drive.ticks and (cause.distance == 0 or _ROOM_M[0] <= cause.distance <= _ROOM_M[1]):
            usable.append((cause.kind, drive))
    usable.sort(key=lambda entry: entry[0] in _IDLE)
    for (kind, first), (other, second) in combinations(usable, 2):
        if kind is not other and kind not in _IDLE and _same_past(first.path, second.path, tick):
            return tick, (first, second)
    return None


def _inattentive(layout: Layout, tick: int) -> Layout:
    """The same drive, not faster than a town allows, by an ego that reacts as late as it safely can."""
    driver = replace(
        layout.driver,
        free_speed=min(layout.driver.free_speed, _TOWN_MPS),
        start_speed=min(layout.driver.start_speed, _TOWN_MPS),
    )
    return replace(
        layout,
        driver=driver,
        vehicles=tuple(replace(plan, notice=-1.0) for plan in layout.vehicles),
        signals=tuple(replace(plan, notice=0.0) for plan in layout.signals),
        walkers=tuple(replace(plan, notice=0.0) for plan in layout.walkers),
        parked=tuple(replace(plan, notice=0.0) for plan in layout.parked),
        cyclists=tuple(replace(plan, notice=0.0) for plan in layout.cyclists),
        curve_notice=0.0,
        max_seconds=tick * 0.1 + 6.5,
    )


def _same_past(first: Path, second: Path, tick: int) -> bool:
    one, two = (path.history(tick * STEP_NS) for path in (first, second))
    return np.array_equal(one.positions, two.positions) and np.array_equal(one.rotations, two.rotations)


def _other_motion(path: Path, tick: int, facts: Facts, rng: np.random.Generator) -> EgoHistory | None:
    """A history at another speed that calls for another action, if there is one."""
    for index in rng.permutation(len(_MOTIONS)):
        speed, accel = _MOTIONS[int(index)]
        if abs(speed - facts.ego.speed) < _OTHER_SPEED_MPS or not drivable(speed, facts):
            continue
        history = history_at(path, tick, speed, accel)
        if action_of(say(replace(facts, ego=ego_motion(history)))) != action_of(say(facts)):
            return history
    return None


def drivable(speed: float, facts: Facts) -> bool:
    """Whether the ego could still do what the scene asks, had it come at this speed."""
    cause = facts.cause
    return cause.kind not in _STOPPERS or stopping(speed, cause.distance - 2.0) < _DRIVABLE_MPS2


def history_at(path: Path, tick: int, speed: float, accel: float) -> EgoHistory:
    """16 poses over the ground the ego has covered, straight on before that, ending at `speed` after `accel`."""
    states = path.states[: tick + 1]
    xy = np.array([(state.x, state.y) for state in states])
    yaw = np.unwrap([state.yaw for state in states])
    back = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(xy[::-1], axis=0), axis=1))])  # m behind t0
    ago = np.arange(HISTORY_STEPS - 1, -1, -1) * 0.1
    behind = np.maximum.accumulate(np.maximum(speed * ago - accel * ago**2 / 2, 0.0)[::-1])[::-1]
    beyond = np.maximum(behind - back[-1], 0.0)[:, None] * np.array([np.cos(yaw[0]), np.sin(yaw[0])])
    world = np.stack([np.interp(behind, back, xy[::-1, axis]) for axis in (0, 1)], axis=-1) - beyond
    headings = np.interp(behind, back, yaw[::-1])
    pose: Pose = path.pose(tick * STEP_NS)
    points = np.column_stack([world, np.zeros(HISTORY_STEPS)])
    positions = (points - pose.position) @ pose.rotation
    rotations = np.stack([pose.rotation.T @ yaw_rotation(float(heading)) for heading in headings])
    return EgoHistory(positions, rotations, pose)
