"""Pictures of the drive, painted from far to near: sky, hills, ground, road, trees, posts, cars.

Everything is drawn at three times the size and averaged down; the random numbers have a fixed seed, so a picture
depends on the camera and the time only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.camera import Camera, Floats, View
from rsd_planner.demo.drive import (
    DASH_M,
    DASH_PERIOD_M,
    LANE_WIDTH_M,
    MARKING_HALF_WIDTH_M,
    ROAD_END_M,
    ROAD_START_M,
    Drive,
)
from rsd_planner.demo.scenery import HAZE, WHITE, hazed, paint_car, paint_post, paint_tree, plant_tree
from rsd_planner.scene.observation import RgbImage

SUPERSAMPLING = 3
SKY = np.array([104.0, 148.0, 200.0])
GRASS = np.array([92.0, 116.0, 58.0])
GRAVEL = np.array([132.0, 124.0, 108.0])
ASPHALT = np.array([82.0, 83.0, 86.0])
RED, SILVER = np.array([150.0, 40.0, 36.0]), np.array([196.0, 200.0, 206.0])
VIEW_RANGE_M = 260.0
TEXTURE_CELL_M, TEXTURE_RANGE_M = 0.05, 35.0


class Painter:
    """Renders a Drive."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        rng = np.random.default_rng(7)
        self._texture = _ground_texture(rng)
        self._trees = [plant_tree(drive.road, rng) for _ in range(230)]
        self._posts = [(s, side * (LANE_WIDTH_M + 1.1)) for s in np.arange(-40.0, 400.0, 25.0) for side in (1, -1)]
        self._hills = rng.uniform(0, 2 * np.pi, 6)

    def render(self, camera: Camera, time_s: float) -> RgbImage:
        """(height, width, 3) uint8 RGB: what `camera` sees `time_s` seconds after the start."""
        large = camera.scaled(SUPERSAMPLING)
        view = View(large, self._drive.ego.at(time_s).pose, np.zeros((large.height, large.width, 3), np.uint8))
        self._paint_sky(view, large)
        self._paint_ground(view)
        self._paint_objects(view, time_s)
        image: RgbImage = cv2.resize(view.image, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
        return image

    def _paint_sky(self, view: View, camera: Camera) -> None:
        horizon = camera.height / 2 - camera.focal * np.tan(camera.pitch)
        height = np.clip((horizon - np.arange(camera.height)) / (0.75 * camera.focal), 0, 1)[:, None] ** 0.7
        view.image[:] = (HAZE + (SKY - HAZE) * height)[:, None, :].astype(np.uint8)
        for layer, (size, tint) in enumerate(((0.060, 0.72), (0.035, 0.52))):
            azimuth = np.linspace(-np.pi, np.pi, 361)
            a, b, c = self._hills[3 * layer : 3 * layer + 3]
            rise = size * (0.55 + 0.25 * np.sin(3 * azimuth + a) + 0.15 * np.sin(8 * azimuth + b))
            rise += size * 0.05 * np.sin(21 * azimuth + c)
            ridge = view.origin + 1000 * np.stack([np.cos(azimuth), np.sin(azimuth), rise], axis=-1)
            colour = tint * HAZE + (1 - tint) * np.array([70.0, 96.0, 84.0])
            for k in range(360):
                foot = ridge[[k + 1, k]] - [0.0, 0.0, 200.0]
                view.polygon(np.concatenate([ridge[k : k + 2], foot]), colour)

    def _paint_ground(self, view: View) -> None:
        points, distance = view.ground()
        below = np.isfinite(distance)
        first_row = int(np.argmax(below[:, 0]))
        points, distance = points[first_row:].astype(np.float32), distance[first_row:, :, None]
        ground = view.image[first_row:]
        ground[:] = GRASS.astype(np.uint8)
        self._paint_road(view)
        cells = len(self._texture)
        at = np.mod(points / TEXTURE_CELL_M, cells)
        noise = cv2.remap(self._texture, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        coarse = np.mod(points / (9 * TEXTURE_CELL_M), cells)
        noise += cv2.remap(self._texture, coarse[..., 0], coarse[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)
        greenness = (ground[..., 1].astype(np.float32) - ground[..., 2]) / 58.0
        strength = (0.05 + 0.11 * np.clip(greenness, 0, 1))[..., None] * np.exp(-distance / TEXTURE_RANGE_M)
        shaded = ground * (1 + strength * noise[..., None])
        ground[:] = np.clip(hazed(shaded, distance), 0, 255).astype(np.uint8)

    def _paint_road(self, view: View) -> None:
        road, edge = self._drive.road, LANE_WIDTH_M
        s = np.arange(ROAD_START_M, ROAD_END_M, 1.0)

        def strip(s: Floats, right: float, left: float, colour: Floats) -> None:
            view.polygon(np.concatenate([road.points(s, left), road.points(s, right)[::-1]]), colour)

        strip(s, -edge - 1.4, edge + 1.4, GRAVEL)
        strip(s, -edge - 0.35, edge + 0.35, ASPHALT)
        for side in (-1, 1):
            strip(s, side * edge - MARKING_HALF_WIDTH_M, side * edge + MARKING_HALF_WIDTH_M, WHITE)
        for start in np.arange(ROAD_START_M, ROAD_END_M, DASH_PERIOD_M):
            dash = np.linspace(start, start + DASH_M, 5)
            strip(dash, -MARKING_HALF_WIDTH_M, MARKING_HALF_WIDTH_M, WHITE)

    def _paint_objects(self, view: View, time_s: float) -> None:
        road, lead, oncoming = self._drive.road, self._drive.lead, self._drive.oncoming
        objects: list[tuple[Floats, Callable[[float], None]]] = []
        objects += [(tree.foot, partial(paint_tree, view, tree)) for tree in self._trees]
        objects += [(foot, partial(paint_post, view, foot)) for foot in (road.points(*at)[0] for at in self._posts)]
        for car, colour in ((lead, RED), (oncoming, SILVER)):
            motion = car.at(time_s)
            brakes = car.at(time_s + 0.2).speed < motion.speed - 0.05
            objects.append((motion.pose.position, partial(paint_car, view, motion, colour, brakes)))
        distances = [float(np.linalg.norm(position - view.origin)) for position, _ in objects]
        for i in np.argsort(distances)[::-1]:
            if 1.0 < distances[i] < VIEW_RANGE_M:
                objects[i][1](distances[i])


def _ground_texture(rng: np.random.Generator) -> NDArray[np.float32]:
    """(512, 512) zero-mean unit-variance noise that tiles."""
    noise = rng.standard_normal((512, 512)).astype(np.float32)
    texture = np.zeros_like(noise)
    for sigma in (1.0, 3.0, 9.0):
        padded = np.pad(np.roll(noise, int(17 * sigma), (0, 1)), 32, mode="wrap")
        smooth = cv2.GaussianBlur(padded, (0, 0), sigma)[32:-32, 32:-32]
        texture += smooth / smooth.std()
    texture /= texture.std()
    return texture
