"""The sentence of a tick: a function of its facts, worded like the reasoning of a real Alpamayo.

Every sentence is "<action> <because / since / for / to> <cause>". The action follows from the ego's motion and from
what the cause demands of it; every varying word is decided by a fact.
"""

from __future__ import annotations

from collections.abc import Iterator

from rsd_planner.demo.world.actors import stopping
from rsd_planner.demo.world.driver import AMBER_LIMIT_MPS2, STOP_BEFORE_LINE_M, STOP_BEFORE_WALKER_M
from rsd_planner.demo.world.facts import (
    BRAKE_LAMPS_M,
    DISTANCES_M,
    RANGE_M,
    Cause,
    CauseKind,
    EgoMotion,
    Facts,
    Motion,
    Side,
)
from rsd_planner.demo.world.layout import Body

SPEED = "{v}"  # where the speed goes in a sentence without it
_BRAKE_MPS2 = 1.7  # what stopping takes: above, brake; below the lower bound, roll on
_SLOW_MPS2 = 0.7
_CLOSE_S = 1.25  # headway below which the gap is too small
_NEAR_S = 2.2  # and below which slowing is meant to widen it
_SHARP_MPS = 8.5  # a curve is eased for above these speeds
_GENTLE_MPS = 12.5
_PASS_MPS = 9.0
_ROLLING_OFF_MPS = 1.5  # nobody holds so low a speed on a free road
_VEHICLES = (Body.CAR, Body.VAN, Body.TRUCK)


def say(facts: Facts) -> str:
    """The sentence, 10 to 22 words, without a full stop."""
    return wording(facts).replace(SPEED, f"{facts.ego.speed:.1f}")


def wording(facts: Facts) -> str:
    """The sentence with SPEED where the ego's speed goes."""
    return _WORDING[facts.cause.kind](facts.ego, facts.cause)


def cause_of(text: str) -> CauseKind | None:
    """The cause a sentence names; None if it names none of this world."""
    for kind, marks in _MARKS.items():
        if any(mark in text for mark in marks):
            return kind
    return None


def action_of(text: str) -> str:
    """The first words of a sentence, up to its first number or cause: what the ego does."""
    for action in _ACTIONS:
        if text.startswith(action):
            return action
    return ""


def decision_of(text: str) -> str:
    """The sentence that decides: the last line of a reasoning that describes the scene before."""
    return text.rsplit("\n", 1)[-1]


def all_causes() -> Iterator[Cause]:
    """Every cause the world can show."""
    for kind in CauseKind:
        yield from _CAUSES[kind]


def _gaining(ego: EgoMotion) -> bool:
    return ego.motion is Motion.GAINING or ego.speed < _ROLLING_OFF_MPS


def _clear(ego: EgoMotion, cause: Cause) -> str:
    reason = "the lane ahead is clear" if cause.lanes else "no critical agent needs attention"
    if ego.motion is Motion.STANDING:
        return f"Pull away from standstill to continue driving since {reason}"
    if _gaining(ego):
        return f"Accelerate from {SPEED} m/s to continue driving since {reason}"
    return f"Keep lane to continue driving at {SPEED} m/s since {reason}"


def _other(ego: EgoMotion, cause: Cause) -> str:
    """Somebody is there who does not matter: said why not."""
    if cause.kind is CauseKind.ONCOMING:
        other = f"since the oncoming {_word(cause)} {cause.distance:g} m ahead stays in its lane"
    elif cause.moving and cause.body is Body.PEDESTRIAN:
        other = f"since the pedestrian {cause.distance:g} m ahead has left the lane to the {cause.side}"
    elif cause.moving:
        other = f"since the {_word(cause)} {cause.distance:g} m ahead keeps to the {cause.side} lane"
    else:
        other = f"since the {_word(cause)} {cause.distance:g} m ahead on the {cause.side} stays off the road"
    if ego.motion is Motion.STANDING:
        return f"Pull away from standstill {other}"
    if _gaining(ego):
        return f"Accelerate from {SPEED} m/s {other}"
    return f"Keep lane at {SPEED} m/s {other}"


def _lead(ego: EgoMotion, cause: Cause) -> str:
    lead, gap = f"the lead {_word(cause)}", f"{cause.distance:g} m ahead"
    if ego.motion is Motion.STANDING:
        if cause.braking:
            return f"Remain stopped behind {lead} because it waits {gap} with its brake lights on"
        return f"Pull away from standstill to follow {lead} since it moves off {gap}"
    if cause.braking:
        if stopping(ego.speed, cause.distance - 2.5) > _BRAKE_MPS2:
            return f"Brake from {SPEED} m/s to keep distance because {lead} is braking {gap}"
        return f"Slow down from {SPEED} m/s because {lead} is braking {gap}"
    near = _NEAR_S if ego.motion is Motion.SLOWING else _CLOSE_S
    if cause.distance < near * ego.speed:
        return f"Ease off from {SPEED} m/s to widen the gap to {lead} {gap}"
    if ego.motion is Motion.GAINING:
        return f"Accelerate from {SPEED} m/s to follow {lead} {gap} in the same lane"
    return f"Keep distance at {SPEED} m/s since {lead} is {gap} in the same lane"


def _light_red(ego: EgoMotion, cause: Cause) -> str:
    if cause.distance == 0:
        return f"Keep speed at {SPEED} m/s to clear the junction since the light above has turned red"
    if ego.motion is Motion.STANDING:
        return f"Remain stopped {cause.distance:g} m before the stop line since the straight traffic light is red"
    need = stopping(ego.speed, cause.distance - STOP_BEFORE_LINE_M)
    if need > _BRAKE_MPS2:
        return f"Brake from {SPEED} m/s to stop within {cause.distance:g} m because the straight traffic light is red"
    if need > _SLOW_MPS2:
        return f"Slow down from {SPEED} m/s to stop {cause.distance:g} m ahead for the red traffic light"
    return f"Roll at {SPEED} m/s to the stop line {cause.distance:g} m ahead since the traffic light is red"


def _light_amber(ego: EgoMotion, cause: Cause) -> str:
    if cause.distance == 0:
        return f"Keep speed at {SPEED} m/s to clear the junction since the light above is amber"
    if ego.motion is Motion.STANDING:
        return f"Remain stopped {cause.distance:g} m before the stop line since the straight traffic light is amber"
    need = stopping(ego.speed, cause.distance - STOP_BEFORE_LINE_M)
    if need > AMBER_LIMIT_MPS2:
        return (
            f"Keep speed at {SPEED} m/s through the junction since the amber light is only {cause.distance:g} m ahead"
        )
    return f"Slow down from {SPEED} m/s to stop {cause.distance:g} m ahead for the amber traffic light"


def _light_green(ego: EgoMotion, cause: Cause) -> str:
    if ego.motion is Motion.STANDING:
        return "Pull away from standstill through the junction since the straight traffic light is green"
    action = "Accelerate from" if _gaining(ego) else "Keep speed at"
    if cause.distance == 0:
        return f"{action} {SPEED} m/s to clear the junction since the light above is green"
    return f"{action} {SPEED} m/s through the junction since the traffic light {cause.distance:g} m ahead is green"


def _pedestrian(ego: EgoMotion, cause: Cause) -> str:
    who = f"because a pedestrian is crossing from the {cause.side} {cause.distance:g} m ahead"
    if ego.motion is Motion.STANDING:
        return f"Yield and remain stopped {who}"
    need = stopping(ego.speed, cause.distance - STOP_BEFORE_WALKER_M)
    if need > _BRAKE_MPS2:
        return f"Yield and brake from {SPEED} m/s {who}"
    if need > _SLOW_MPS2:
        return f"Yield and slow down from {SPEED} m/s {who}"
    return f"Yield and roll at {SPEED} m/s {who}"


def _parked(ego: EgoMotion, cause: Cause) -> str:
    away = "left" if cause.side == "right" else "right"
    parked = f"the parked {_word(cause)} {cause.distance:g} m ahead on the {cause.side}"
    if ego.motion is Motion.STANDING:
        return f"Pull away and nudge {away} to pass {parked}"
    if ego.speed > _PASS_MPS:
        return f"Slow down from {SPEED} m/s and nudge {away} to pass {parked}"
    return f"Nudge {away} at {SPEED} m/s to pass {parked}"


def _cyclist(ego: EgoMotion, cause: Cause) -> str:
    cyclist = f"the cyclist {cause.distance:g} m ahead at the lane edge"
    if ego.motion is Motion.STANDING:
        return f"Pull away and give room to {cyclist}"
    if ego.speed > _PASS_MPS:
        return f"Slow down from {SPEED} m/s to give room to {cyclist}"
    return f"Nudge left at {SPEED} m/s to give room to {cyclist}"


def _junction(ego: EgoMotion, cause: Cause) -> str:
    action = "Accelerate from" if _gaining(ego) else "Keep speed at"
    return f"{action} {SPEED} m/s through the junction {cause.distance:g} m ahead since no vehicle is crossing"


def _curve(ego: EgoMotion, cause: Cause) -> str:
    curve = f"{'sharp' if cause.sharp else 'gentle'} {cause.side} curve"
    where = f"{cause.distance:g} m ahead" if cause.distance else "of the road"
    if ego.motion is Motion.STANDING:
        return f"Pull away from standstill to follow the {curve} {where}"
    if ego.speed > (_SHARP_MPS if cause.sharp else _GENTLE_MPS):
        return f"Slow down from {SPEED} m/s for the {curve} {where}"
    return f"Adapt speed at {SPEED} m/s to follow the {curve} {where}"


def _word(cause: Cause) -> str:
    assert cause.body is not None
    return cause.body.value


def _distances(kind: CauseKind, least: float) -> list[float]:
    return [word for word in DISTANCES_M if least <= word <= RANGE_M[kind]]


_LIGHT_KINDS = (CauseKind.LIGHT_RED, CauseKind.LIGHT_AMBER, CauseKind.LIGHT_GREEN)
_SIDES: tuple[Side, ...] = ("left", "right")
_CAUSES: dict[CauseKind, list[Cause]] = {
    CauseKind.CLEAR: [Cause(CauseKind.CLEAR, lanes=lanes) for lanes in (False, True)],
    CauseKind.ONCOMING: [
        Cause(CauseKind.ONCOMING, d, body=body) for body in _VEHICLES for d in _distances(CauseKind.ONCOMING, 4)
    ],
    CauseKind.BYSTANDER: [
        Cause(CauseKind.BYSTANDER, d, body=body, side=side, moving=moving)
        for body in (*_VEHICLES, Body.PEDESTRIAN)
        for side in _SIDES
        for moving in (False, True)
        for d in _distances(CauseKind.BYSTANDER, 4)
    ],
    CauseKind.LEAD: [
        Cause(CauseKind.LEAD, d, body=body, braking=braking)
        for body in _VEHICLES
        for d in _distances(CauseKind.LEAD, 0)
        for braking in ((False, True) if d <= BRAKE_LAMPS_M else (False,))
    ],
    **{kind: [Cause(kind, d) for d in (0.0, *_distances(kind, 0))] for kind in _LIGHT_KINDS},
    CauseKind.PEDESTRIAN: [
        Cause(CauseKind.PEDESTRIAN, d, side=side) for side in _SIDES for d in _distances(CauseKind.PEDESTRIAN, 0)
    ],
    CauseKind.PARKED: [
        Cause(CauseKind.PARKED, d, body=body, side=side)
        for body in _VEHICLES
        for side in _SIDES
        for d in _distances(CauseKind.PARKED, 3)
    ],
    CauseKind.CYCLIST: [Cause(CauseKind.CYCLIST, d) for d in _distances(CauseKind.CYCLIST, 3)],
    CauseKind.JUNCTION: [Cause(CauseKind.JUNCTION, d) for d in _distances(CauseKind.JUNCTION, 3)],
    CauseKind.CURVE: [
        Cause(CauseKind.CURVE, d, side=side, sharp=sharp)
        for side in _SIDES
        for sharp in (False, True)
        for d in (0.0, *_distances(CauseKind.CURVE, 0))
    ],
}

_WORDING = {
    CauseKind.CLEAR: _clear,
    CauseKind.BYSTANDER: _other,
    CauseKind.ONCOMING: _other,
    CauseKind.LEAD: _lead,
    CauseKind.LIGHT_RED: _light_red,
    CauseKind.LIGHT_AMBER: _light_amber,
    CauseKind.LIGHT_GREEN: _light_green,
    CauseKind.PEDESTRIAN: _pedestrian,
    CauseKind.PARKED: _parked,
    CauseKind.CYCLIST: _cyclist,
    CauseKind.JUNCTION: _junction,
    CauseKind.CURVE: _curve,
}

_MARKS = {
    CauseKind.BYSTANDER: ("stays off the road", "keeps to the", "has left the lane"),
    CauseKind.LEAD: ("the lead ",),
    CauseKind.PEDESTRIAN: ("pedestrian",),
    CauseKind.PARKED: ("the parked ",),
    CauseKind.CYCLIST: ("cyclist",),
    CauseKind.ONCOMING: ("the oncoming ",),
    CauseKind.LIGHT_RED: ("light is red", "red traffic light", "turned red"),
    CauseKind.LIGHT_AMBER: ("light is amber", "amber traffic light", "amber light", "above is amber"),
    CauseKind.LIGHT_GREEN: ("light is green", "ahead is green", "above is green"),
    CauseKind.CURVE: ("curve",),
    CauseKind.JUNCTION: ("no vehicle is crossing",),
    CauseKind.CLEAR: ("is clear", "no critical agent"),
}

_ACTIONS = (
    "Yield and remain stopped",
    "Yield and brake",
    "Yield and slow down",
    "Yield and roll",
    "Pull away",
    "Remain stopped",
    "Keep lane",
    "Keep speed",
    "Keep distance",
    "Accelerate",
    "Slow down",
    "Brake",
    "Ease off",
    "Roll",
    "Nudge left",
    "Nudge right",
    "Adapt speed",
)
