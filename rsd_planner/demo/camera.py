"""A pinhole camera on the vehicle: projection, rays to the ground, and polygons drawn into its image."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from rsd_planner.scene.observation import Pose

Floats = NDArray[np.float64]

NEAR_M = 0.3
_SUBPIXEL_BITS = 4
_AXES = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])  # camera (right, down, forward) to vehicle


@dataclass(frozen=True)
class Camera:
    """Intrinsics and mounting. The vehicle frame is x forward, y left, z up, on the ground below the rear axle."""

    camera_id: int
    name: str
    width: int  # px
    height: int  # px
    focal: float  # px
    position: tuple[float, float, float]  # m, in the vehicle frame
    yaw: float  # rad, positive to the left
    pitch: float = 0.0  # rad, positive looks down

    def scaled(self, factor: int) -> Camera:
        """The same view with `factor` times as many pixels per side."""
        return Camera(
            self.camera_id,
            self.name,
            self.width * factor,
            self.height * factor,
            self.focal * factor,
            self.position,
            self.yaw,
            self.pitch,
        )


class View:
    """A camera at one pose of the vehicle, over an image to draw on."""

    def __init__(self, camera: Camera, vehicle: Pose, image: NDArray[np.uint8]) -> None:
        cos_y, sin_y, cos_p, sin_p = np.cos(camera.yaw), np.sin(camera.yaw), np.cos(camera.pitch), np.sin(camera.pitch)
        yaw = np.array([[cos_y, -sin_y, 0.0], [sin_y, cos_y, 0.0], [0.0, 0.0, 1.0]])
        pitch = np.array([[cos_p, 0.0, sin_p], [0.0, 1.0, 0.0], [-sin_p, 0.0, cos_p]])
        self._camera = camera
        self._to_world = vehicle.rotation @ yaw @ pitch @ _AXES
        self.origin = vehicle.position + vehicle.rotation @ np.array(camera.position)
        self.image = image

    def to_camera(self, points: Floats) -> Floats:
        """World points (N, 3) in the camera's axes: right, down, forward."""
        in_camera: Floats = (points - self.origin) @ self._to_world
        return in_camera

    def pixels(self, in_camera: Floats) -> Floats:
        """(N, 2) px of points in front of the camera, given in its axes."""
        camera = self._camera
        centre = np.array([(camera.width - 1) / 2, (camera.height - 1) / 2])
        pixels: Floats = in_camera[:, :2] / in_camera[:, 2:] * camera.focal + centre
        return pixels

    def ground(self) -> tuple[Floats, Floats]:
        """Where each pixel's ray meets the ground: (H, W, 2) m in the world, (H, W) m away; inf in the sky."""
        camera = self._camera
        u = (np.arange(camera.width) - (camera.width - 1) / 2) / camera.focal
        v = (np.arange(camera.height) - (camera.height - 1) / 2) / camera.focal
        directions = np.stack([*np.meshgrid(u, v), np.ones((camera.height, camera.width))], axis=-1) @ self._to_world.T
        down = -directions[..., 2]
        scale = np.where(down > 1e-6, self.origin[2] / np.maximum(down, 1e-6), np.inf)
        with np.errstate(invalid="ignore"):
            points = self.origin[:2] + directions[..., :2] * scale[..., None]
        return points, scale * np.linalg.norm(directions, axis=-1)

    def polygon(self, points: Floats, colour: Floats) -> None:
        """Fill the polygon of world points (N, 3) with an RGB colour in 0..255."""
        visible = _clip_near(self.to_camera(points))
        if len(visible) < 3:
            return
        limit = 8 * max(self._camera.width, self._camera.height)
        corners = np.clip(self.pixels(visible), -limit, limit)
        fixed = np.round(corners * (1 << _SUBPIXEL_BITS)).astype(np.int32)
        cv2.fillPoly(self.image, [fixed], colour.tolist(), lineType=cv2.LINE_AA, shift=_SUBPIXEL_BITS)


def _clip_near(points: Floats) -> Floats:
    """The part of a polygon (N, 3) in camera axes that lies beyond the near plane."""
    depth = points[:, 2] - NEAR_M
    kept: list[Floats] = []
    for i in range(len(points)):
        j = (i + 1) % len(points)
        if depth[i] > 0:
            kept.append(points[i])
        if (depth[i] > 0) != (depth[j] > 0):
            kept.append(points[i] + (points[j] - points[i]) * (depth[i] / (depth[i] - depth[j])))
    return np.array(kept).reshape(-1, 3)
