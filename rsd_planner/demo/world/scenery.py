"""What never moves: road surface, markings, pavements, buildings, trees, lamp posts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.world.layout import Layout
from rsd_planner.demo.world.looks import Look
from rsd_planner.demo.world.mesh import Colour, Floats, Mesh
from rsd_planner.demo.world.road import CROSSROAD_M, CROSSWALK_M, Junction, Road

_CHUNK_M = 40.0
_PAVEMENT_M = 2.4
_RIBBON_M = 2.0
_WHITE: Colour = (0.90, 0.90, 0.88)
_YELLOW: Colour = (0.88, 0.70, 0.18)
_CROSSROAD_REACH_M = 70.0
_BUILDINGS_FROM_M = 8.5  # behind the kerb
_BACK_M = 40.0


@dataclass(frozen=True)
class Chunk:
    """Vertices of a stretch of road: flat ones, drawn in order without depth, and standing ones."""

    s: float
    flat: NDArray[np.float32]
    standing: NDArray[np.float32]


def build_scenery(layout: Layout, look: Look) -> list[Chunk]:
    """The whole road, cut into stretches along s."""
    road = layout.road
    rng = np.random.default_rng(look.seed)
    crossings = [walker.s for walker in layout.walkers if walker.trigger > 0 and walker.marked]
    starts = np.arange(-_BACK_M, road.length, _CHUNK_M)
    chunks = []
    for start in starts:
        span = (float(start), float(min(start + _CHUNK_M, road.length)))
        flat, standing = Mesh(), Mesh()
        _surface(flat, road, look, span)
        for junction in road.junctions:
            if span[0] <= junction.stop < span[1]:
                _crossroad(flat, road, look, junction)
        _markings(flat, road, span)
        for s in crossings:
            if span[0] <= s < span[1]:
                _stripes(flat, road, s - 1.5, s + 1.5)
        _roadside(standing, road, look, span, rng)
        _curve_signs(standing, road, span)
        for junction in road.junctions:
            if span[0] <= junction.stop < span[1] and not junction.signals:
                _priority_sign(standing, road, junction.stop)
        chunks.append(Chunk(span[0], flat.vertices(), standing.vertices()))
    return chunks


def _ribbon(mesh: Mesh, road: Road, span: tuple[float, float], sides: tuple[float, float], colour: Colour) -> None:
    """A strip of ground between two offsets along a stretch."""
    count = max(2, int(np.ceil((span[1] - span[0]) / _RIBBON_M)) + 1)
    s = np.linspace(*span, count)
    left, right = road.point(s, max(sides)), road.point(s, min(sides))
    corners = np.stack([right[:-1], right[1:], left[1:], left[:-1]], axis=1)
    mesh.quads(_flat(corners), colour)


def _flat(points: Floats) -> Floats:
    return np.concatenate([points, np.zeros((*points.shape[:-1], 1))], axis=-1)


def _surface(mesh: Mesh, road: Road, look: Look, span: tuple[float, float]) -> None:
    kerb: Colour = (0.72, 0.72, 0.70)
    for edge, sign in ((road.left_kerb, 1.0), (road.right_kerb, -1.0)):
        _ribbon(mesh, road, span, (edge, edge + sign * _PAVEMENT_M), look.pavement)
        _ribbon(mesh, road, span, (edge, edge + sign * 0.25), kerb)
    _ribbon(mesh, road, span, (road.right_kerb, road.left_kerb), look.asphalt)


def _crossroad(mesh: Mesh, road: Road, look: Look, junction: Junction) -> None:
    low, high = junction.stop + CROSSROAD_M[0], junction.stop + CROSSROAD_M[1]
    for margin, colour in ((1.8, look.pavement), (0.0, look.asphalt)):
        s = np.array([low - margin, high + margin])
        left, right = road.point(s, _CROSSROAD_REACH_M), road.point(s, -_CROSSROAD_REACH_M)
        mesh.quads(_flat(np.stack([right[0], right[1], left[1], left[0]])[None]), colour)
    _ribbon(mesh, road, (low - 1.8, high + 1.8), (road.right_kerb, road.left_kerb), look.asphalt)
    middle = (low + high) / 2
    for sign, start in ((1, road.left_kerb), (-1, road.right_kerb)):
        for reach in np.arange(abs(start) + 3.0, _CROSSROAD_REACH_M, 6.0):
            _patch(mesh, road, (middle - 0.08, middle + 0.08), (sign * reach, sign * (reach + 3.0)), _YELLOW)
    if junction.signals:
        _patch(
            mesh, road, (junction.stop, junction.stop + 0.5), (road.right_edge + 0.1, min(road.left_edge, 0.0)), _WHITE
        )
        _stripes(mesh, road, junction.stop + CROSSWALK_M[0] + 0.4, junction.stop + CROSSWALK_M[1])


def _stripes(mesh: Mesh, road: Road, low: float, high: float) -> None:
    """A zebra crossing over the whole width."""
    for offset in np.arange(road.right_kerb + 0.3, road.left_kerb - 0.5, 1.1):
        _patch(mesh, road, (low, high), (offset, offset + 0.55), _WHITE)


def _patch(mesh: Mesh, road: Road, span: tuple[float, float], sides: tuple[float, float], colour: Colour) -> None:
    s = np.array([span[0], span[1], span[1], span[0]])
    offset = np.array([sides[0], sides[0], sides[1], sides[1]])
    mesh.quads(_flat(road.point(s, offset))[None], colour)


def _markings(mesh: Mesh, road: Road, span: tuple[float, float]) -> None:
    for piece in _between_junctions(road, span):
        for edge in (road.right_edge, road.left_edge):
            _ribbon(mesh, road, piece, (edge - 0.08, edge + 0.08), _WHITE)
        if road.backward:
            _ribbon(mesh, road, piece, (-0.18, -0.06), _YELLOW)
            _ribbon(mesh, road, piece, (0.06, 0.18), _YELLOW)
        lines = [-road.lane_width * i for i in range(1, road.forward)]
        lines += [road.lane_width * i for i in range(1, road.backward)]
        for s in np.arange(np.ceil(piece[0] / 9.0) * 9.0, piece[1], 9.0):
            for line in lines:
                _patch(mesh, road, (s, min(s + 3.5, piece[1])), (line - 0.08, line + 0.08), _WHITE)


def _between_junctions(road: Road, span: tuple[float, float]) -> list[tuple[float, float]]:
    pieces, low = [], span[0]
    for junction in sorted(road.junctions, key=lambda j: j.stop):
        start, end = junction.stop - 0.1, junction.stop + CROSSROAD_M[1] + 4.0
        if end < span[0] or start > span[1]:
            continue
        if start > low:
            pieces.append((low, start))
        low = max(low, end)
    if low < span[1]:
        pieces.append((low, span[1]))
    return pieces


def _roadside(mesh: Mesh, road: Road, look: Look, span: tuple[float, float], rng: np.random.Generator) -> None:
    for sign, kerb in ((1, road.left_kerb), (-1, road.right_kerb)):
        s = span[0] + float(rng.uniform(0, 6))
        while s < span[1]:
            length = float(rng.uniform(9, 20))
            if rng.random() < 0.62:
                _building(mesh, road, look, s, sign, kerb, length, rng)
            s += length + float(rng.uniform(2, 14))
        for s in np.arange(span[0] + float(rng.uniform(0, 8)), span[1], 13.0):
            if rng.random() < 0.6:
                _tree(mesh, road, look, float(s), sign, kerb, rng)
        if sign < 0:
            _lamp_post(mesh, road, span[0] + 11.0, kerb)


def _curve_signs(mesh: Mesh, road: Road, span: tuple[float, float]) -> None:
    """Chevron boards along the outside of a sharp curve, white posts along a gentle one."""
    for curve in road.curves:
        outside = (road.right_kerb - 0.7) if curve.radius > 0 else (road.left_kerb + 0.7)
        for s in np.arange(curve.start, curve.end, 7.0 if curve.sharp else 9.0):
            if not span[0] <= s < span[1]:
                continue
            at = road.point(s, outside)
            if not curve.sharp:
                mesh.box((at[0], at[1], 0.0), (0.16, 0.22, 1.1), (0.94, 0.94, 0.92))
                mesh.box((at[0], at[1], 0.75), (0.18, 0.24, 0.2), (0.75, 0.1, 0.08))
                continue
            ahead = road.point(max(s - 28.0, curve.start - 30.0), road.lane_centre)  # who should read it
            yaw = float(np.arctan2(at[1] - ahead[1], at[0] - ahead[0]))
            mesh.box((at[0], at[1], 0.0), (0.1, 0.12, 1.0), (0.4, 0.4, 0.4))
            mesh.box((at[0], at[1], 0.8), (0.08, 1.0, 1.0), (0.96, 0.80, 0.10), yaw=yaw, glow=0.4)
            _chevron(mesh, at, yaw, 1.0 if curve.radius > 0 else -1.0)


def _priority_sign(mesh: Mesh, road: Road, s: float) -> None:
    """The yellow diamond of a priority road, before a junction without lights."""
    at = road.point(s, road.right_kerb - 0.7)
    yaw = float(road.heading(s))
    left = np.array([-np.sin(yaw), np.cos(yaw)])
    mesh.box((at[0], at[1], 0.0), (0.1, 0.1, 2.0), (0.45, 0.45, 0.46))
    for half, colour, nearer in ((0.62, (0.95, 0.95, 0.93), 0.06), (0.44, (0.98, 0.78, 0.08), 0.10)):
        middle = at - nearer * np.array([np.cos(yaw), np.sin(yaw)])
        corners = [(0.0, -half), (half, 0.0), (0.0, half), (-half, 0.0)]
        mesh.quads([[(*(middle - left * across), 2.3 + up) for across, up in corners]], colour, glow=0.35)


def _chevron(mesh: Mesh, at: Floats, yaw: float, towards: float) -> None:
    """A black arrow head on a board, pointing left (1) or right (-1)."""
    left = np.array([-np.sin(yaw), np.cos(yaw)]) * towards
    nearer = at - 0.06 * np.array([np.cos(yaw), np.sin(yaw)])
    tip, tail = 0.34, 0.22
    for low, high in ((0.85, 1.3), (1.75, 1.3)):
        corners = [(-tail, low), (-tail + 0.3, low), (tip, high), (tip - 0.3, high)]
        points = [(*(nearer + left * across), z) for across, z in corners]
        mesh.quads([points], (0.05, 0.05, 0.05))


def _free(road: Road, point: Floats, distance: float) -> bool:
    """Whether a place keeps clear of the road itself and of crossing roads."""
    line = road.point(np.arange(-_BACK_M, road.length, 3.0), 0.0)
    return bool(np.min(np.linalg.norm(line - point, axis=1)) >= distance)


def _crossing_near(road: Road, s: float, reach: float) -> bool:
    return any(j.stop + CROSSROAD_M[0] - reach < s < j.stop + CROSSROAD_M[1] + reach for j in road.junctions)


def _building(
    mesh: Mesh, road: Road, look: Look, s: float, sign: int, kerb: float, length: float, rng: np.random.Generator
) -> None:
    depth, height = float(rng.uniform(8, 14)), float(rng.uniform(4.5, 13))
    offset = kerb + sign * (_BUILDINGS_FROM_M + float(rng.uniform(0, 6)) + depth / 2)
    wall = look.walls[int(rng.integers(len(look.walls)))]
    shade = float(rng.uniform(0.85, 1.12))
    middle = s + length / 2
    centre = road.point(middle, offset)
    half_width = max(abs(road.left_kerb), abs(road.right_kerb))
    if _crossing_near(road, middle, length / 2 + 3.0) or not _free(
        road, centre, half_width + _BUILDINGS_FROM_M + np.hypot(length, depth) / 2 - 3.0
    ):
        return
    yaw = float(road.heading(middle))
    colour = (wall[0] * shade, wall[1] * shade, wall[2] * shade)
    mesh.box((centre[0], centre[1], 0.0), (length, depth, height), colour, yaw=yaw)
    along = np.array([np.cos(yaw), np.sin(yaw)])
    inward = -sign * np.array([-np.sin(yaw), np.cos(yaw)])
    for floor in np.arange(1.0, height - 1.6, 2.9):
        for column in np.arange(-length / 2 + 1.6, length / 2 - 1.0, 3.0):
            at = centre + along * column + inward * (depth / 2 + 0.02)
            mesh.box((at[0], at[1], floor), (1.2, 0.06, 1.4), (0.16, 0.19, 0.24), yaw=yaw)


def _tree(mesh: Mesh, road: Road, look: Look, s: float, sign: int, kerb: float, rng: np.random.Generator) -> None:
    offset = kerb + sign * float(rng.uniform(_PAVEMENT_M + 1.2, 7.0))
    at = road.point(s, offset)
    half_width = max(abs(road.left_kerb), abs(road.right_kerb))
    if _crossing_near(road, s, 5.0) or not _free(road, at, half_width + _PAVEMENT_M + 0.6):
        return
    crown, trunk = float(rng.uniform(1.3, 2.2)), float(rng.uniform(1.9, 2.8))
    leaf = look.leaves[int(rng.integers(len(look.leaves)))]
    mesh.box((at[0], at[1], 0.0), (0.28, 0.28, trunk + 0.8), (0.30, 0.22, 0.15))
    mesh.ball((at[0], at[1], trunk + crown), crown, crown * 1.15, leaf)


def _lamp_post(mesh: Mesh, road: Road, s: float, kerb: float) -> None:
    if _crossing_near(road, s, 3.0):
        return
    at = road.point(s, kerb - 0.5)
    yaw = float(road.heading(s))
    mesh.box((at[0], at[1], 0.0), (0.14, 0.14, 7.0), (0.42, 0.43, 0.44))
    arm = road.point(s, kerb + 0.4)
    mesh.box((arm[0], arm[1], 6.9), (0.25, 1.9, 0.12), (0.42, 0.43, 0.44), yaw=yaw)
