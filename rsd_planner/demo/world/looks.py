"""How a drive looks: light, air, colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rsd_planner.demo.world.mesh import Colour
from rsd_planner.demo.world.splits import STYLES, Split, Weather

# two palettes: the second is never seen in training
PAINT: tuple[tuple[Colour, ...], ...] = (
    (
        (0.75, 0.75, 0.77), (0.12, 0.12, 0.14), (0.45, 0.47, 0.50), (0.15, 0.25, 0.55),
        (0.55, 0.10, 0.10), (0.85, 0.84, 0.80), (0.20, 0.35, 0.25), (0.62, 0.55, 0.40),
        (0.32, 0.42, 0.62), (0.70, 0.22, 0.14), (0.94, 0.94, 0.92), (0.28, 0.20, 0.30),
        (0.52, 0.60, 0.56), (0.60, 0.36, 0.20), (0.20, 0.20, 0.26), (0.66, 0.70, 0.78),
    ),
    (
        (0.90, 0.62, 0.12), (0.10, 0.48, 0.52), (0.42, 0.18, 0.45), (0.70, 0.86, 0.92),
        (0.88, 0.88, 0.55), (0.25, 0.20, 0.16), (0.50, 0.66, 0.28), (0.30, 0.33, 0.62),
        (0.80, 0.50, 0.46), (0.06, 0.30, 0.24), (0.56, 0.76, 0.70), (0.40, 0.40, 0.18),
        (0.80, 0.70, 0.86), (0.14, 0.36, 0.60), (0.74, 0.62, 0.50), (0.34, 0.12, 0.18),
    ),
)  # fmt: skip
CLOTHES: tuple[tuple[Colour, ...], ...] = (
    (
        (0.80, 0.20, 0.18), (0.18, 0.32, 0.75), (0.85, 0.75, 0.20), (0.20, 0.55, 0.30),
        (0.85, 0.45, 0.15), (0.70, 0.70, 0.72), (0.55, 0.20, 0.55), (0.25, 0.65, 0.70),
        (0.90, 0.88, 0.82), (0.24, 0.24, 0.28), (0.55, 0.35, 0.22), (0.40, 0.50, 0.20),
        (0.72, 0.42, 0.50), (0.14, 0.18, 0.42), (0.60, 0.72, 0.86), (0.45, 0.12, 0.16),
    ),
    (
        (0.95, 0.55, 0.65), (0.10, 0.60, 0.85), (0.95, 0.90, 0.55), (0.60, 0.85, 0.35),
        (0.72, 0.28, 0.20), (0.96, 0.96, 0.96), (0.40, 0.30, 0.75), (0.15, 0.45, 0.40),
        (0.98, 0.70, 0.40), (0.30, 0.20, 0.20), (0.75, 0.55, 0.90), (0.50, 0.55, 0.62),
        (0.35, 0.75, 0.62), (0.60, 0.10, 0.40), (0.85, 0.80, 0.70), (0.20, 0.30, 0.20),
    ),
)  # fmt: skip
_WALLS: tuple[tuple[Colour, ...], ...] = (
    (
        (0.62, 0.42, 0.34), (0.74, 0.68, 0.58), (0.55, 0.55, 0.57), (0.80, 0.76, 0.70), (0.50, 0.38, 0.32),
        (0.68, 0.72, 0.74), (0.40, 0.42, 0.46), (0.72, 0.58, 0.42), (0.86, 0.86, 0.82),
    ),
    ((0.80, 0.56, 0.46), (0.46, 0.55, 0.62), (0.70, 0.72, 0.50), (0.88, 0.86, 0.84), (0.42, 0.32, 0.42)),
)  # fmt: skip
_GRASS: tuple[tuple[Colour, ...], ...] = (
    ((0.30, 0.45, 0.20), (0.36, 0.44, 0.24), (0.24, 0.38, 0.22)),
    ((0.52, 0.48, 0.26), (0.46, 0.40, 0.22)),
)
_LEAVES: tuple[tuple[Colour, ...], ...] = (
    ((0.18, 0.36, 0.14), (0.25, 0.42, 0.18), (0.14, 0.30, 0.16), (0.36, 0.46, 0.18), (0.26, 0.34, 0.24)),
    ((0.62, 0.34, 0.12), (0.70, 0.52, 0.16), (0.40, 0.36, 0.14)),
)
_TINT = 0.14
_EXPOSURES = {False: (0.62, 1.22), True: (0.85, 1.15)}  # in weathers of training, and in the others


@dataclass(frozen=True)
class Look:
    """Everything about a drive that only the camera notices."""

    weather: Weather
    palette: int
    asphalt: Colour
    grass: Colour
    pavement: Colour
    walls: tuple[Colour, ...]
    leaves: tuple[Colour, ...]
    zenith: Colour
    horizon: Colour  # also what fog fades to
    sun: Colour
    ambient: Colour
    sun_direction: tuple[float, float, float]
    fog_per_m: float
    headlamps: bool
    gain: float  # exposure
    seed: int


def make_look(split: Split, seed: int) -> Look:
    """The look of a seed."""
    rng = np.random.default_rng([seed, 14])
    style = STYLES[split]
    weather = style.weathers[int(rng.integers(len(style.weathers)))]
    zenith, horizon, sun, ambient, fog = _AIR[weather]
    murky = weather in (Weather.FOG, Weather.DUSK, Weather.RAIN)
    grey = float(rng.uniform(0.20, 0.40)) * (0.8 if weather is Weather.RAIN else 1.0)
    azimuth, height = float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(0.5, 1.2))
    return Look(
        weather=weather,
        palette=style.palette,
        asphalt=(grey, grey, grey * float(rng.uniform(1.0, 1.08))),
        grass=_tinted(rng, _GRASS[style.palette][int(rng.integers(len(_GRASS[style.palette])))]),
        pavement=_tinted(rng, (0.56, 0.55, 0.53)),
        walls=_WALLS[style.palette],
        leaves=_LEAVES[style.palette],
        zenith=_tinted(rng, zenith),
        horizon=_tinted(rng, horizon),
        sun=sun,
        ambient=ambient,
        sun_direction=(np.cos(azimuth) * np.cos(height), np.sin(azimuth) * np.cos(height), np.sin(height)),
        fog_per_m=fog * float(rng.uniform(0.6, 1.3)),
        headlamps=murky,
        gain=float(rng.uniform(*_EXPOSURES[murky])),
        seed=int(rng.integers(1 << 31)),
    )


_AIR: dict[Weather, tuple[Colour, Colour, Colour, Colour, float]] = {  # zenith, horizon, sun, ambient, fog per metre
    Weather.SUN: ((0.30, 0.52, 0.85), (0.72, 0.82, 0.92), (0.62, 0.60, 0.54), (0.52, 0.54, 0.58), 0.0008),
    Weather.OVERCAST: ((0.66, 0.70, 0.75), (0.80, 0.82, 0.84), (0.18, 0.18, 0.18), (0.78, 0.79, 0.80), 0.0024),
    Weather.EVENING: ((0.42, 0.50, 0.72), (0.92, 0.74, 0.52), (0.72, 0.54, 0.36), (0.56, 0.54, 0.57), 0.0012),
    Weather.FOG: ((0.74, 0.76, 0.77), (0.74, 0.76, 0.77), (0.08, 0.08, 0.08), (0.78, 0.79, 0.80), 0.0100),
    Weather.DUSK: ((0.08, 0.10, 0.24), (0.42, 0.30, 0.34), (0.12, 0.10, 0.10), (0.38, 0.39, 0.47), 0.0020),
    Weather.RAIN: ((0.42, 0.46, 0.50), (0.55, 0.58, 0.61), (0.06, 0.06, 0.06), (0.60, 0.63, 0.68), 0.0060),
}


def _tinted(rng: np.random.Generator, colour: Colour) -> Colour:
    shade = rng.uniform(-_TINT, _TINT, 3) * 0.6 + rng.uniform(-_TINT, _TINT)
    red, green, blue = np.clip(np.asarray(colour) + shade * np.asarray(colour) * 1.5, 0.0, 1.0).tolist()
    return red, green, blue
