"""Triangles gathered in NumPy: what the renderer uploads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Colour = tuple[float, float, float]

FLOATS_PER_VERTEX = 10  # position 3, normal 3, colour 3, glow 1

_CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)])
_SIDES = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (1, 5, 7, 3))  # no floor: nobody looks from below
_BOX = np.array([[a, b, c, a, c, d] for a, b, c, d in _SIDES])  # (5, 6) corner indices


class Mesh:
    """A growing list of flat-shaded triangles. Angles in rad, lengths in m, colours 0..1."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.float32]] = []

    def vertices(self) -> NDArray[np.float32]:
        """(N, 10) float32, three consecutive rows a triangle."""
        return np.concatenate(self._parts) if self._parts else np.zeros((0, FLOATS_PER_VERTEX), np.float32)

    def triangles(self, points: ArrayLike, colour: ArrayLike, glow: float = 0.0) -> None:
        """Add (N, 3, 3) triangles of one colour, or with one colour each (N, 3)."""
        corners = np.asarray(points, np.float64)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
        part = np.empty((len(corners), 3, FLOATS_PER_VERTEX), np.float32)
        part[:, :, :3] = corners
        part[:, :, 3:6] = normals[:, None]
        part[:, :, 6:9] = np.broadcast_to(np.asarray(colour, np.float64), (len(corners), 3))[:, None]
        part[:, :, 9] = glow
        self._parts.append(part.reshape(-1, FLOATS_PER_VERTEX))

    def quads(self, points: ArrayLike, colour: ArrayLike, glow: float = 0.0) -> None:
        """Add (N, 4, 3) quadrilaterals."""
        corners = np.asarray(points, np.float64).reshape(-1, 4, 3)
        both = np.stack([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]], axis=1).reshape(-1, 3, 3)
        colours = np.asarray(colour, np.float64)
        self.triangles(both, np.repeat(colours, 2, axis=0) if colours.ndim == 2 else colours, glow)

    def box(
        self, base: Sequence[float], size: Sequence[float], colour: Colour, yaw: float = 0.0, glow: float = 0.0
    ) -> None:
        """Add a box standing on the middle of its base; size along its own x, y, z."""
        corners = _CORNERS * np.asarray(size)
        cos, sin = np.cos(yaw), np.sin(yaw)
        turned = np.stack(
            [corners[:, 0] * cos - corners[:, 1] * sin, corners[:, 0] * sin + corners[:, 1] * cos, corners[:, 2]], -1
        )
        self.triangles((turned + np.asarray(base))[_BOX].reshape(-1, 3, 3), colour, glow)

    def frustum(
        self,
        base: Sequence[float],
        length: tuple[float, float],
        width: tuple[float, float],
        height: float,
        colour: Colour,
    ) -> None:
        """Add a box whose top (second value) is smaller than its base (first), as a car's cabin."""
        corners = _CORNERS.copy()
        top = corners[:, 2] > 0.5
        corners[:, 0] *= np.where(top, length[1], length[0])
        corners[:, 1] *= np.where(top, width[1], width[0])
        corners[:, 2] *= height
        self.triangles((corners + np.asarray(base))[_BOX].reshape(-1, 3, 3), colour)

    def ball(self, centre: Sequence[float], radius: float, height: float, colour: Colour, sides: int = 7) -> None:
        """Add a coarse ellipsoid."""
        turn = np.linspace(0, 2 * np.pi, sides + 1)
        ring = np.stack([np.cos(turn), np.sin(turn)], axis=-1)
        levels = ((0.45, -0.75), (1.0, -0.1), (0.7, 0.65))
        rings = [np.column_stack([ring * radius * r, np.full(sides + 1, z * height)]) for r, z in levels]
        middle = np.asarray(centre)
        for low, high in pairwise(rings):
            self.quads(np.stack([low[:-1], low[1:], high[1:], high[:-1]], axis=1) + middle, colour)
        top = np.broadcast_to([0.0, 0.0, height], (sides, 3))
        self.triangles(np.stack([rings[-1][:-1], rings[-1][1:], top], axis=1) + middle, colour)

    def disc(self, centre: Sequence[float], radius: float, colour: Colour, glow: float = 0.0, sides: int = 8) -> None:
        """Add a disc that faces -x, towards whoever drives up to it."""
        turn = np.linspace(0, 2 * np.pi, sides + 1)
        rim = np.column_stack([np.zeros(sides + 1), np.cos(turn) * radius, np.sin(turn) * radius])
        hub = np.zeros((sides, 3))
        self.triangles(np.stack([hub, rim[1:], rim[:-1]], axis=1) + np.asarray(centre), colour, glow)
