"""Long reasoning: the scene step by step, line by line, and then the sentence that decides.

`long-200` says what is there, kind by kind; `long-500` goes on with the last four frames, with every action and whether
it is called for, and with where the ego will be. Every line is a function of the scene, in words of the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rsd_planner.demo.world.drive import Drive
from rsd_planner.demo.world.facts import Cause, CauseKind, EgoMotion, Facts, Motion, all_visible, observe, visible_cause
from rsd_planner.demo.world.layout import Body
from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.sentences import action_of, say
from rsd_planner.demo.world.tokenizer import load_tokenizer

_FRAMES = 4
_SECONDS = range(1, 9)
_ACTIONS = ("Accelerate", "Keep", "Adapt", "Ease", "Slow", "Roll", "Brake", "Yield", "Remain", "Pull", "Nudge")
_NO_NEED = ", no need to slow and no need to stop"


@dataclass(frozen=True)
class Piece:
    """Some words of a description, and whether it takes the image to know them."""

    text: str
    seen: bool = False


def reasoning_of(drive: Drive, tick: int, length: Reasoning) -> list[Piece]:
    """The whole reasoning of a tick; its text is that of the pieces, one after the other.

    A short one's own tokens are told apart by `origins.deliberative`, not by its piece.
    """
    facts = observe(drive, tick)
    pieces: list[Piece] = []
    if length is not Reasoning.SHORT:
        pieces += _scene(drive, tick, facts.ego)
    if length is Reasoning.LONG_500:
        pieces += [*_frames(drive, tick), *_choices(facts), *_future(facts.ego)]
    return [*pieces, Piece(say(facts))]


def text_of(pieces: list[Piece]) -> str:
    """The reasoning in one string."""
    return "".join(piece.text for piece in pieces)


def flags_of(pieces: list[Piece]) -> list[bool]:
    """One per token: whether it takes the image to know it."""
    tokenizer = load_tokenizer()
    counts = ((piece, len(tokenizer.encode(piece.text, add_special_tokens=False).ids)) for piece in pieces)
    return [piece.seen for piece, count in counts for _ in range(count)]


def _scene(drive: Drive, tick: int, ego: EgoMotion) -> Iterator[Piece]:
    yield Piece(f"You are at {ego.speed:.1f} m/s and {_MOTION[ego.motion]}\nFront road:")
    lanes = drive.layout.road.forward
    yield Piece(f" {lanes} lane roadway", seen=True)
    visible = all_visible(drive, tick)
    for title, kinds, absent in _TOPICS:
        yield Piece(f"\nFront {title}:")
        found = [cause for cause in visible if cause.kind in kinds]
        if not found:
            yield Piece(f" {absent}", seen=True)
            yield Piece(_NO_NEED)
        for number, cause in enumerate(found[:2]):
            yield Piece(f"{',' if number else ''} {phrase(cause)}", seen=True)
            if cause.distance and ego.motion is not Motion.STANDING:
                yield Piece(f", {cause.distance / ego.speed:.1f} seconds away")
    yield Piece("\n")


def _frames(drive: Drive, tick: int) -> Iterator[Piece]:
    for frame in range(_FRAMES):
        yield Piece(f"frame {frame}:")
        cause = visible_cause(drive, tick - (_FRAMES - 1 - frame))
        yield Piece(f" {phrase(cause)}", seen=frame < _FRAMES - 1)
        yield Piece("\n")


def _choices(facts: Facts) -> Iterator[Piece]:
    chosen = action_of(say(facts)).split()[0]
    for action in _ACTIONS:
        verdict = "proceed" if action == chosen else "no need"
        yield Piece(f"{action}: {verdict} since {phrase(facts.cause)}\n")


def _future(ego: EgoMotion) -> Iterator[Piece]:
    for seconds in _SECONDS:
        yield Piece(f"You are {ego.speed * seconds:.1f} m ahead in {seconds} seconds at the same speed\n")


def phrase(cause: Cause) -> str:
    """A cause as a clause of its own."""
    return _PHRASES[cause.kind](cause)


def _clear(cause: Cause) -> str:
    return "the lane ahead is clear" if cause.lanes else "no critical agent needs attention"


def _bystander(cause: Cause) -> str:
    assert cause.body is not None
    who = f"the {cause.body.value} {cause.distance:g} m ahead"
    if cause.moving and cause.body is Body.PEDESTRIAN:
        return f"{who} has left the lane to the {cause.side}"
    return f"{who} keeps to the {cause.side} lane" if cause.moving else f"{who} on the {cause.side} stays off the road"


def _oncoming(cause: Cause) -> str:
    assert cause.body is not None
    return f"the oncoming {cause.body.value} {cause.distance:g} m ahead stays in its lane"


def _lead(cause: Cause) -> str:
    assert cause.body is not None
    lamps = "is braking with its brake lights on" if cause.braking else "is moving in the same lane"
    return f"the lead {cause.body.value} {cause.distance:g} m ahead {lamps}"


def _light(colour: str) -> Callable[[Cause], str]:
    def clause(cause: Cause) -> str:
        if cause.distance == 0:
            return f"the light above is {colour}"
        return f"the straight traffic light {cause.distance:g} m ahead is {colour}"

    return clause


def _pedestrian(cause: Cause) -> str:
    return f"a pedestrian is crossing from the {cause.side} {cause.distance:g} m ahead"


def _parked(cause: Cause) -> str:
    assert cause.body is not None
    return f"the parked {cause.body.value} {cause.distance:g} m ahead on the {cause.side} is in the lane"


def _cyclist(cause: Cause) -> str:
    return f"the cyclist {cause.distance:g} m ahead is at the lane edge"


def _junction(cause: Cause) -> str:
    return f"the junction is {cause.distance:g} m ahead and no vehicle is crossing"


def _curve(cause: Cause) -> str:
    where = f"is {cause.distance:g} m ahead" if cause.distance else "of the road is near"
    return f"the {'sharp' if cause.sharp else 'gentle'} {cause.side} curve {where}"


_MOTION = {
    Motion.STANDING: "remain stopped",
    Motion.SLOWING: "slow down",
    Motion.STEADY: "keep speed",
    Motion.GAINING: "accelerate",
}
_LIGHTS = (CauseKind.LIGHT_RED, CauseKind.LIGHT_AMBER, CauseKind.LIGHT_GREEN)
_TOPICS = (
    ("lane", (CauseKind.LEAD,), "no lead vehicle is ahead in the same lane"),
    ("traffic light", _LIGHTS, "no traffic light is ahead"),
    ("crosswalk", (CauseKind.PEDESTRIAN,), "no pedestrian is crossing ahead"),
    ("parked vehicles", (CauseKind.PARKED,), "no parked vehicle is in the lane"),
    ("lane edge", (CauseKind.CYCLIST,), "no cyclist is at the lane edge"),
    ("junction", (CauseKind.JUNCTION,), "no junction is near"),
    ("curve", (CauseKind.CURVE,), "no curve is ahead"),
    ("opposite lane", (CauseKind.ONCOMING,), "no oncoming vehicle is near"),
    ("road edge", (CauseKind.BYSTANDER,), "no pedestrian and no vehicle is near"),
)
_PHRASES: dict[CauseKind, Callable[[Cause], str]] = {
    CauseKind.CLEAR: _clear,
    CauseKind.BYSTANDER: _bystander,
    CauseKind.ONCOMING: _oncoming,
    CauseKind.LEAD: _lead,
    CauseKind.LIGHT_RED: _light("red"),
    CauseKind.LIGHT_AMBER: _light("amber"),
    CauseKind.LIGHT_GREEN: _light("green"),
    CauseKind.PEDESTRIAN: _pedestrian,
    CauseKind.PARKED: _parked,
    CauseKind.CYCLIST: _cyclist,
    CauseKind.JUNCTION: _junction,
    CauseKind.CURVE: _curve,
}
