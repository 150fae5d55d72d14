"""What stands and drives beside the road: trees, reflector posts and cars, each painted into a View."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rsd_planner.demo.camera import Floats, View
from rsd_planner.demo.drive import LANE_WIDTH_M, ROAD_END_M, ROAD_START_M, Motion, Road

HAZE = np.array([200.0, 212.0, 222.0])
HAZE_LENGTH_M = 260.0
BARK, LEAVES, GLASS = np.array([[84.0, 68.0, 52.0], [58.0, 84.0, 40.0], [46.0, 56.0, 66.0]])
WHITE, BLACK, AMBER = np.array([[228.0, 228.0, 224.0], [34.0, 35.0, 38.0], [214.0, 120.0, 60.0]])
BRAKE_LAMP, TAIL_LAMP = np.array([[255.0, 60.0, 50.0], [170.0, 26.0, 26.0]])


def hazed(colour: Floats, distance: Any) -> Floats:
    """RGB in 0..255 as seen through `distance` metres of air; the two broadcast."""
    seen: Floats = colour + (HAZE - colour) * (1 - np.exp(-distance / HAZE_LENGTH_M))
    return seen


@dataclass(frozen=True)
class Tree:
    foot: Floats  # (3,) m
    height: float  # m
    blobs: Floats  # (n, 3): offset across, offset up, radius, all in crown radii
    shade: float


def plant_tree(road: Road, rng: np.random.Generator) -> Tree:
    s, side = rng.uniform(ROAD_START_M, ROAD_END_M), rng.choice([-1.0, 1.0])
    foot = road.points(s, side * (LANE_WIDTH_M + rng.gamma(2.0, 9.0) + 4.0))[0]
    blobs = np.column_stack([rng.normal(0, 0.38, 9), rng.normal(0, 0.42, 9), rng.uniform(0.35, 0.6, 9)])
    blobs[0] = (0.0, 0.0, 0.85)
    return Tree(foot, rng.uniform(4.0, 11.0), blobs[np.argsort(blobs[:, 1])], rng.uniform(0.75, 1.15))


def paint_tree(view: View, tree: Tree, distance: float) -> None:
    radius, middle = 0.36 * tree.height, 0.66 * tree.height
    trunk = np.array([[-0.03, 0.0], [0.03, 0.0], [0.02, 0.6], [-0.02, 0.6]]) * tree.height
    view.polygon(_upright(view, tree.foot, trunk), hazed(BARK, distance))
    angle = np.linspace(0, 2 * np.pi, 14, endpoint=False)
    ragged = 1 + 0.10 * np.sin(5 * angle) + 0.06 * np.sin(3 * angle + 1)
    outline = ragged[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    for across, up, size in tree.blobs:
        blob = radius * (outline * size + [across, up]) + [0.0, middle]
        light = tree.shade * (1.0 + 0.28 * up)
        view.polygon(_upright(view, tree.foot, blob), hazed(LEAVES * light, distance))


def paint_post(view: View, foot: Floats, distance: float) -> None:
    for half_width, low, high, colour in (
        (0.06, 0.0, 1.0, WHITE),
        (0.06, 0.72, 0.9, BLACK),
        (0.035, 0.76, 0.86, AMBER),
    ):
        quad = np.array([[-half_width, low], [half_width, low], [half_width, high], [-half_width, high]])
        view.polygon(_upright(view, foot, quad), hazed(colour, distance))


def _upright(view: View, foot: Floats, outline: Floats) -> Floats:
    """World points of an outline (N, 2) across and up, standing at `foot` and facing the camera."""
    x, y = view.origin[:2] - foot[:2]
    across = np.array([-y, x, 0.0]) / np.hypot(x, y)
    points: Floats = foot + outline[:, :1] * across + outline[:, 1:] * [0.0, 0.0, 1.0]
    return points


def paint_car(view: View, motion: Motion, paint: Floats, brakes: bool, distance: float) -> None:
    """Wheels, a body and a cabin of glass under a roof; lamps behind and in front. x = 0 is the rear axle."""
    pose = motion.pose

    def face(corners: Floats, colour: Floats) -> None:
        """A flat face, corners (N, 3) anticlockwise seen from outside; those turned away are left out."""
        world = pose.position + corners @ pose.rotation.T
        normal = np.cross(world[1] - world[0], world[2] - world[1])
        if normal @ (view.origin - world[0]) > 0:
            light = 0.72 + 0.28 * float(normal[2] / np.linalg.norm(normal))
            view.polygon(world, hazed(colour * light, distance))

    def block(rear: float, front: float, low: float, high: float, width: float, colour: Floats, lean: float) -> None:
        w, t = width / 2, width / 2 - 0.45 * lean
        base = np.array([(rear, w, low), (rear, -w, low), (front, -w, low), (front, w, low)])
        top = np.array([(rear + lean, t, high), (rear + lean, -t, high)])
        top = np.concatenate([top, [(front - 1.6 * lean, -t, high), (front - 1.6 * lean, t, high)]])
        for i, j in ((0, 1), (1, 2), (2, 3), (3, 0)):
            face(np.array([top[j], top[i], base[i], base[j]]), colour)
        face(top, paint)

    def plate(x: float, left: float, right: float, low: float, high: float, colour: Floats) -> None:
        """An upright rectangle across the car, seen from behind when `left` > `right`, else from the front."""
        face(np.array([(x, right, low), (x, right, high), (x, left, high), (x, left, low)]), colour)

    face(np.array([(-1.0, -0.95, 0.02), (3.8, -0.95, 0.02), (3.8, 0.95, 0.02), (-1.0, 0.95, 0.02)]), BLACK)
    for axle in (0.0, 2.7):
        block(axle - 0.32, axle + 0.32, 0.0, 0.6, 1.74, BLACK, lean=0.0)
    block(-0.85, 3.55, 0.28, 0.88, 1.8, paint, lean=0.0)
    block(-0.7, 2.6, 0.88, 1.46, 1.66, GLASS, lean=0.44)
    for side in (0.62, -0.62):
        plate(-0.86, side + 0.2, side - 0.2, 0.64, 0.8, BRAKE_LAMP if brakes else TAIL_LAMP)
        plate(3.56, side - 0.2, side + 0.2, 0.58, 0.74, WHITE)
    plate(-0.86, 0.26, -0.26, 0.44, 0.56, WHITE)
