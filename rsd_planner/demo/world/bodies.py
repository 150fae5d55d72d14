"""Shapes of road users and signals, each about its own origin on the ground: x forward, y left, z up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rsd_planner.demo.world.layout import SIZE_M, Body, Phase
from rsd_planner.demo.world.mesh import Colour, Mesh

GLASS: Colour = (0.10, 0.13, 0.17)
TYRE: Colour = (0.06, 0.06, 0.06)
_SKIN: Colour = (0.78, 0.58, 0.46)
_TROUSERS: Colour = (0.14, 0.15, 0.22)
_LAMP_OFF: Colour = (0.32, 0.03, 0.03)
LAMP_ON: Colour = (1.0, 0.10, 0.06)
HEADLAMP: Colour = (1.0, 0.98, 0.90)
LIGHTS: dict[Phase, Colour] = {
    Phase.RED: (1.0, 0.08, 0.06), Phase.AMBER: (1.0, 0.72, 0.05), Phase.GREEN: (0.10, 1.0, 0.42)
}  # fmt: skip
HEAD_M = 4.3  # height of the middle of the overhead signal
POLE_HEAD_M = 2.7


@dataclass(frozen=True)
class Halo:
    """A light's glare: a soft disc that always faces the camera."""

    at: tuple[float, float, float]
    radius: float  # m
    colour: Colour
    faces: float = 0.0  # yaw in which it shines, rad; NaN all around


def vehicle(body: Body, paint: Colour, braking: bool, driving: bool, dark: bool) -> tuple[Mesh, list[Halo]]:
    """A car, van or truck, its middle at the origin; whoever drives has lights on, brighter in the `dark`."""
    mesh = Mesh()
    length, width, height = SIZE_M[body]
    _wheels(mesh, length, width)
    if body is Body.CAR:
        mesh.box((0, 0, 0.28), (length, width, 0.58), paint)
        mesh.frustum((-0.25, 0, 0.86), (2.7, 1.7), (width * 0.92, width * 0.76), height - 0.92, GLASS)
        mesh.box((-0.3, 0, height - 0.07), (1.6, width * 0.74, 0.07), paint)
        lamp_height = 0.62
    elif body is Body.VAN:
        mesh.box((-0.35, 0, 0.32), (length - 0.7, width, height - 0.32), paint)
        mesh.box((length / 2 - 0.35, 0, 0.32), (0.7, width, 0.85), paint)
        mesh.box((-length / 2 + 0.02, 0, 1.35), (0.08, width * 0.72, 0.62), GLASS)
        mesh.box((length / 2 - 0.72, 0, 1.25), (0.1, width * 0.9, 0.75), GLASS)
        lamp_height = 0.8
    else:
        mesh.box((-1.1, 0, 0.95), (length - 2.4, width, height - 0.95), _paler(paint))
        mesh.box((length / 2 - 1.1, 0, 0.5), (2.0, width * 0.96, 2.2), paint)
        mesh.box((length / 2 - 0.12, 0, 1.6), (0.1, width * 0.88, 0.8), GLASS)
        mesh.box((-0.3, 0, 0.45), (length - 0.8, width * 0.7, 0.5), (0.12, 0.12, 0.13))
        lamp_height = 0.78
    return mesh, _lamps(mesh, body, braking, driving, dark, lamp_height)


def _wheels(mesh: Mesh, length: float, width: float) -> None:
    for x in (-length * 0.31, length * 0.31):
        for y in (-width / 2 + 0.1, width / 2 - 0.1):
            mesh.box((x, y, 0.0), (0.62, 0.24, 0.6), TYRE)


def _lamps(mesh: Mesh, body: Body, braking: bool, driving: bool, dark: bool, height: float) -> list[Halo]:
    length, width, top = SIZE_M[body]
    halos: list[Halo] = []
    colour, glow = (LAMP_ON, 1.0) if braking else (_LAMP_OFF, 0.5 if driving and dark else 0.2)
    rear, side = -length / 2 - 0.02, width / 2 - 0.2
    spots = [(rear, side, height), (rear, -side, height)]
    if braking and body is not Body.TRUCK:
        spots.append((rear + (0.45 if body is Body.CAR else 0.0), 0.0, top - 0.12))
    for at in spots:
        mesh.box(at, (0.06, 0.36, 0.24), colour, glow=glow)
        if braking:
            halos.append(Halo((at[0] - 0.1, at[1], at[2] + 0.12), 0.42, LAMP_ON, np.pi))
    mesh.box((rear, 0, height - 0.22), (0.05, 0.5, 0.13), (0.85, 0.85, 0.8))
    for y in (side, -side):
        mesh.box(
            (length / 2 + 0.02, y, height), (0.06, 0.32, 0.18), HEADLAMP if driving else GLASS, glow=float(driving)
        )
        if driving:
            halos.append(Halo((length / 2 + 0.12, y, height + 0.1), 0.45 if dark else 0.3, (0.75, 0.72, 0.6), 0.0))
    return halos


def _paler(paint: Colour) -> Colour:
    red, green, blue = (0.55 + 0.45 * value for value in paint)
    return red, green, blue


def pedestrian(clothes: Colour, stride: float, walking: bool) -> Mesh:
    """A person facing x, a rucksack on the back; `stride` in metres walked moves the legs."""
    mesh = Mesh()
    swing = 0.30 * np.sin(stride / 0.75 * np.pi) if walking else 0.0
    for side, forward in ((0.12, swing), (-0.12, -swing)):
        mesh.box((forward, side, 0.0), (0.22, 0.19, 0.9), _TROUSERS)
        mesh.box((-forward * 0.9, side * 2.5, 0.86), (0.16, 0.14, 0.62), clothes)
    mesh.box((0.0, 0.0, 0.86), (0.34, 0.5, 0.7), clothes)
    mesh.box((-0.28, 0.0, 1.02), (0.24, 0.38, 0.5), (0.05, 0.05, 0.06))
    mesh.box((0.03, 0.0, 1.57), (0.26, 0.24, 0.28), _SKIN)
    return mesh


def cyclist(clothes: Colour, stride: float) -> tuple[Mesh, list[Halo]]:
    """A person on a bicycle, facing x, with a bright helmet and a rear light."""
    mesh = Mesh()
    for x in (-0.55, 0.55):
        mesh.box((x, 0.0, 0.0), (0.66, 0.07, 0.66), TYRE)
    mesh.box((0.0, 0.0, 0.5), (1.1, 0.07, 0.12), (0.75, 0.75, 0.78))
    mesh.box((0.5, 0.0, 0.95), (0.08, 0.5, 0.06), (0.1, 0.1, 0.1))
    swing = 0.16 * np.sin(stride / 1.2 * np.pi)
    for side, lift in ((0.13, swing), (-0.13, -swing)):
        mesh.box((0.05, side, 0.38 + lift), (0.18, 0.15, 0.6), _TROUSERS)
    mesh.box((0.05, 0.0, 0.95), (0.42, 0.46, 0.52), clothes)
    mesh.box((0.3, 0.0, 1.0), (0.35, 0.5, 0.16), clothes)
    mesh.box((0.22, 0.0, 1.45), (0.22, 0.2, 0.24), _SKIN)
    mesh.box((0.2, 0.0, 1.58), (0.28, 0.24, 0.14), (0.95, 0.95, 0.3))
    mesh.box((-0.9, 0.0, 0.66), (0.04, 0.14, 0.12), LAMP_ON, glow=1.0)
    return mesh, [Halo((-1.0, 0.0, 0.72), 0.3, LAMP_ON, np.pi)]


def signal(arm: float, phase: Phase) -> tuple[Mesh, list[Halo]]:
    """A mast with one head on the pole and one over the lane `arm` metres to the left; faces -x."""
    mesh, halos = Mesh(), []
    grey = (0.32, 0.33, 0.34)
    mesh.box((0, 0, 0), (0.22, 0.22, HEAD_M + 1.0), grey)
    mesh.box((0, arm / 2, HEAD_M + 0.75), (0.16, arm + 0.3, 0.16), grey)
    for y, middle, scale in ((arm, HEAD_M, 1.25), (0.0, POLE_HEAD_M, 1.0)):
        mesh.box((-0.02, y, middle - 0.85 * scale), (0.06, 0.78 * scale, 1.7 * scale), (0.02, 0.02, 0.02))
        mesh.box((-0.18, y, middle - 0.62 * scale), (0.26, 0.42 * scale, 1.24 * scale), (0.10, 0.10, 0.09))
        for lamp, offset in ((Phase.RED, 0.41), (Phase.AMBER, 0.0), (Phase.GREEN, -0.41)):
            at = (-0.33, y, middle + offset * scale)
            lit = lamp is phase
            off = tuple(0.14 * value for value in LIGHTS[lamp])
            mesh.disc(at, 0.22 * scale, LIGHTS[lamp] if lit else (off[0], off[1], off[2]), glow=1.0 if lit else 0.0)
            if lit:
                halos.append(Halo((at[0] - 0.15, at[1], at[2]), 0.75 * scale, LIGHTS[lamp], np.pi))
    return mesh, halos
