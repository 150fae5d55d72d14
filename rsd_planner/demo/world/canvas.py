"""Off-screen drawing with OpenGL over EGL: a framebuffer, three programs, meshes on the graphics side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import moderngl
import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.world import shaders
from rsd_planner.demo.world.bodies import Halo
from rsd_planner.demo.world.cameras import Camera
from rsd_planner.demo.world.looks import Look
from rsd_planner.errors import PlannerError
from rsd_planner.scene.observation import Pose, RgbImage

Floats = NDArray[np.float64]

_SUPERSAMPLING = 2
_NEAR_M, _FAR_M = 0.6, 400.0
_GLARE_TOWARDS_EYE_M = 0.35


class RenderError(PlannerError):
    """No picture can be rendered on this machine."""


@dataclass(frozen=True)
class View:
    """A camera at a pose: where it is, and the matrix from world to clip space."""

    eye: Floats  # (3,)
    forward: Floats  # (3,)
    matrix: Floats  # (4, 4)
    horizon: float  # in normalised device coordinates


def view_from(vehicle: Pose, camera: Camera) -> View:
    """The view of a camera on the vehicle."""
    cos, sin = np.cos(camera.yaw), np.sin(camera.yaw)
    axes = vehicle.rotation @ np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    forward, left, up = axes.T
    eye = vehicle.position + vehicle.rotation @ np.array(camera.position)
    look = np.eye(4)
    look[:3, :3] = np.stack([-left, up, -forward])
    look[:3, 3] = -look[:3, :3] @ eye
    horizon = 1.0 - 2.0 * camera.horizon
    near, far = _NEAR_M, _FAR_M
    projection = np.array(
        [
            [2 * camera.focal / camera.width, 0.0, 0.0, 0.0],
            [0.0, 2 * camera.focal / camera.height, -horizon, 0.0],
            [0.0, 0.0, -(far + near) / (far - near), -2 * far * near / (far - near)],
            [0.0, 0.0, -1.0, 0.0],
        ]
    )
    return View(eye, forward, projection @ look, horizon)


@cache
def _context() -> Any:
    try:
        return moderngl.create_context(standalone=True, backend="egl")  # type: ignore[arg-type]
    except Exception as error:
        raise RenderError(
            f"no OpenGL over EGL here ({error}): expected libEGL and a driver (Debian: libegl1, libgl1-mesa-dri)"
        ) from None


class Canvas:
    """A framebuffer of one picture size. Not for more than one thread.

    Raises:
        RenderError: The machine has no OpenGL over EGL.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._gl = _context()
        size = (width * _SUPERSAMPLING, height * _SUPERSAMPLING)
        self._frame = self._gl.framebuffer([self._gl.renderbuffer(size)], self._gl.depth_renderbuffer(size))
        self._world = self._gl.program(shaders.WORLD_VERTEX, shaders.WORLD_FRAGMENT)
        self._sky = self._gl.program(shaders.SKY_VERTEX, shaders.SKY_FRAGMENT)
        self._glare = self._gl.program(shaders.GLARE_VERTEX, shaders.GLARE_FRAGMENT)
        corners = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]], np.float32)
        self._sky_array = self._gl.vertex_array(self._sky, [(self._gl.buffer(corners), "2f", "in_corner")])

    def upload(self, vertices: NDArray[np.float32]) -> Any:
        """A mesh on the graphics side, None if it is empty; give it back with `free`."""
        if len(vertices) == 0:
            return None
        buffer = self._gl.buffer(np.ascontiguousarray(vertices))
        names = ("in_position", "in_normal", "in_colour", "in_glow")
        return self._gl.vertex_array(self._world, [(buffer, "3f 3f 3f 1f", *names)]), buffer

    @staticmethod
    def free(mesh: Any) -> None:
        """Release an uploaded mesh."""
        for part in mesh or ():
            part.release()

    def begin(self, view: View, look: Look) -> None:
        """Clear to the sky and set light, air and camera."""
        self._view = view
        self._frame.use()
        self._gl.disable(moderngl.DEPTH_TEST | moderngl.BLEND)
        self._frame.clear(depth=1.0)
        self._sky["horizon"], self._sky["low"], self._sky["high"] = view.horizon, look.horizon, look.zenith
        self._sky_array.render(moderngl.TRIANGLE_STRIP)
        for name, value in {
            "eye": tuple(view.eye), "forward": tuple(view.forward), "sun": look.sun, "ambient": look.ambient,
            "sun_direction": look.sun_direction, "haze": look.horizon, "fog": look.fog_per_m,
            "headlight": 0.55 if look.headlamps else 0.0,
        }.items():  # fmt: skip
            self._world[name] = value
        self._world["matrix"].write(_columns(view.matrix))
        self._glare["matrix"].write(_columns(view.matrix))

    def solid(self, on: bool) -> None:
        """Depth testing: off for what is painted on the ground, on for what stands there."""
        (self._gl.enable if on else self._gl.disable)(moderngl.DEPTH_TEST)

    def draw(self, mesh: Any, model: Floats | None = None) -> None:
        """Draw an uploaded mesh, placed by a (4, 4) matrix."""
        if mesh is None:
            return
        self._world["model"].write(_columns(np.eye(4) if model is None else model))
        mesh[0].render(moderngl.TRIANGLES)

    def shadows(self, footprints: Sequence[Floats]) -> None:
        """Darken the ground under (4, 3) quadrilaterals, softly towards their edges."""
        rows = []
        for quad in footprints:
            rows += [_glare_row(quad[i], _CORNERS[i], (0.0, 0.0, 0.0, 0.95)) for i in (0, 1, 2, 0, 2, 3)]
        self._blend(rows, moderngl.ONE_MINUS_SRC_ALPHA)

    def halos(self, halos: Sequence[tuple[Halo, Floats, float]]) -> None:
        """Add glare: halo, its place in the world (3,), its strength 0..1."""
        rows = []
        right = np.cross(self._view.forward, [0.0, 0.0, 1.0])
        up = np.cross(right, self._view.forward)
        for halo, place, strength in halos:
            towards = self._view.eye - place
            centre = place + towards * min(_GLARE_TOWARDS_EYE_M / max(float(np.linalg.norm(towards)), 0.1), 0.5)
            for i in (0, 1, 2, 0, 2, 3):
                x, y = _CORNERS[i]
                rows.append(_glare_row(centre + halo.radius * (x * right + y * up), (x, y), (*halo.colour, strength)))
        self._blend(rows, moderngl.ONE)

    def finish(self) -> RgbImage:
        """The picture, (H, W, 3) uint8."""
        raw = np.frombuffer(self._frame.read(components=3), np.uint8)
        large = raw.reshape(self.height * _SUPERSAMPLING, self.width * _SUPERSAMPLING, 3)[::-1]
        return np.asarray(cv2.resize(large, (self.width, self.height), interpolation=cv2.INTER_AREA), np.uint8)

    def _blend(self, rows: list[list[float]], onto: int) -> None:
        if not rows:
            return
        buffer = self._gl.buffer(np.array(rows, np.float32))
        array = self._gl.vertex_array(self._glare, [(buffer, "3f 2f 4f", "in_position", "in_corner", "in_colour")])
        self._gl.enable(moderngl.BLEND)
        self._gl.blend_func = moderngl.SRC_ALPHA, onto
        array.render(moderngl.TRIANGLES)
        self._gl.disable(moderngl.BLEND)
        array.release()
        buffer.release()


_CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))


def _glare_row(place: Floats, corner: tuple[float, float], colour: tuple[float, ...]) -> list[float]:
    return [*place.tolist(), *corner, *colour]


def _columns(matrix: Floats) -> bytes:
    """As OpenGL stores a matrix."""
    return np.ascontiguousarray(matrix.T, np.float32).tobytes()
