"""Splits by disjoint seeds, and what may differ between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Split(str, Enum):
    """A share of the world's seeds. `off_shelf` shows roads, colours, weather and event mixes training never has."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    OFF_SHELF = "off_shelf"


SEEDS = {
    Split.TRAIN: range(0, 1_000_000),
    Split.VAL: range(1_000_000, 1_100_000),
    Split.TEST: range(1_100_000, 1_200_000),
    Split.OFF_SHELF: range(2_000_000, 2_100_000),
}


class Weather(str, Enum):
    """Light and air."""

    SUN = "sun"
    OVERCAST = "overcast"
    EVENING = "evening"  # low sun, warm
    FOG = "fog"
    DUSK = "dusk"
    RAIN = "rain"


class Event(str, Enum):
    """What a stretch of road has in store for the ego."""

    CLEAR = "clear"
    LEAD = "lead"
    LIGHT = "light"
    PEDESTRIAN = "pedestrian"
    PARKED = "parked"
    CYCLIST = "cyclist"
    JUNCTION = "junction"
    CURVE = "curve"


@dataclass(frozen=True)
class Style:
    """Ranges a drive is drawn from."""

    weathers: tuple[Weather, ...]
    lane_width_m: tuple[float, float]
    lanes: tuple[tuple[int, int], ...]  # (forward, backward)
    sharp_radius_m: tuple[float, float]
    gentle_radius_m: tuple[float, float]
    double_curves: float  # probability that a curve is followed by its mirror image
    follow_ups: float  # probability that the next event comes before the last one is over
    bystanders: float  # number per 100 m
    palette: int
    event_weights: dict[Event, float]


_SEEN = Style(
    weathers=(Weather.SUN, Weather.OVERCAST, Weather.EVENING),
    lane_width_m=(3.3, 3.7),
    lanes=((1, 1), (1, 1), (2, 2), (2, 0)),
    sharp_radius_m=(24.0, 38.0),
    gentle_radius_m=(62.0, 110.0),
    double_curves=0.0,
    follow_ups=0.25,
    bystanders=3.5,
    palette=0,
    event_weights={
        Event.CLEAR: 0.4,
        Event.LEAD: 1.2,
        Event.LIGHT: 2.2,
        Event.PEDESTRIAN: 2.4,
        Event.PARKED: 1.8,
        Event.CYCLIST: 1.0,
        Event.JUNCTION: 0.8,
        Event.CURVE: 1.2,
    },
)

_OFF_SHELF = Style(
    weathers=(Weather.FOG, Weather.DUSK, Weather.RAIN),
    lane_width_m=(3.1, 4.0),
    lanes=((1, 1), (2, 1), (3, 0), (3, 3), (2, 0)),
    sharp_radius_m=(19.0, 42.0),
    gentle_radius_m=(55.0, 150.0),
    double_curves=0.5,
    follow_ups=0.7,
    bystanders=6.0,
    palette=1,
    event_weights={
        Event.CLEAR: 0.2,
        Event.LEAD: 1.0,
        Event.LIGHT: 2.2,
        Event.PEDESTRIAN: 2.8,
        Event.PARKED: 1.8,
        Event.CYCLIST: 1.4,
        Event.JUNCTION: 0.5,
        Event.CURVE: 0.9,
    },
)

STYLES = {Split.TRAIN: _SEEN, Split.VAL: _SEEN, Split.TEST: _SEEN, Split.OFF_SHELF: _OFF_SHELF}


def split_of(seed: int) -> Split:
    """The split a seed belongs to.

    Raises:
        ValueError: No split has this seed.
    """
    for split, seeds in SEEDS.items():
        if seed in seeds:
            return split
    raise ValueError(f"seed {seed} belongs to no split")
