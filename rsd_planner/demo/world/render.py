"""Pictures of a drive: any camera, any time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.world import bodies
from rsd_planner.demo.world.actors import Spot, Track
from rsd_planner.demo.world.bodies import Halo
from rsd_planner.demo.world.cameras import Camera
from rsd_planner.demo.world.canvas import Canvas, View, view_from
from rsd_planner.demo.world.drive import Drive
from rsd_planner.demo.world.layout import SIZE_M, Body, Phase
from rsd_planner.demo.world.looks import CLOTHES, PAINT, Look
from rsd_planner.demo.world.mesh import Mesh
from rsd_planner.demo.world.road import SIGNAL_M
from rsd_planner.demo.world.scenery import build_scenery
from rsd_planner.demo.world.splits import Weather
from rsd_planner.scene.observation import STEP_NS, RgbImage

Floats = NDArray[np.float64]
Placed = tuple[float, float, float]  # world x, y, yaw

_AHEAD_M, _BEHIND_M = 240.0, 70.0
_ACTOR_REACH_M = 140.0
_NOISE = 2.0  # standard deviation of the sensor, grey levels
_RAIN_STREAKS = 60


class Scene:
    """A drive made ready to be photographed; release it when done."""

    def __init__(self, canvas: Canvas, drive: Drive, look: Look) -> None:
        self._canvas, self._drive, self._look = canvas, drive, look
        self._meshes: dict[Any, tuple[Any, list[Halo]]] = {}
        self._chunks = [
            (chunk.s, canvas.upload(chunk.flat), canvas.upload(chunk.standing))
            for chunk in build_scenery(drive.layout, look)
        ]
        self._grass = canvas.upload(_plane(look))

    def release(self) -> None:
        """Free the graphics memory."""
        for _, flat, standing in self._chunks:
            self._canvas.free(flat)
            self._canvas.free(standing)
        for mesh, _ in self._meshes.values():
            self._canvas.free(mesh)
        self._canvas.free(self._grass)

    def picture(self, stamp_ns: int, camera: Camera) -> RgbImage:
        """What a camera sees at a time of the drive, (H, W, 3) uint8.

        Args:
            stamp_ns: Any time within the drive.
            camera: Its size must be the canvas's.
        """
        view = view_from(self._drive.path.pose(stamp_ns), camera)
        tick = stamp_ns / STEP_NS
        station = float(np.interp(tick, np.arange(len(self._drive.stations)), self._drive.stations))
        chunks = [chunk for chunk in self._chunks if -_BEHIND_M < chunk[0] - station < _AHEAD_M]
        actors = list(self._actors(tick, station))
        canvas = self._canvas
        canvas.begin(view, self._look)
        canvas.draw(self._grass, _placement((float(view.eye[0]), float(view.eye[1]), 0.0)))
        for _, flat, _ in chunks:
            canvas.draw(flat)
        canvas.shadows([_footprint(place, size) for _, _, place, size in actors])
        canvas.solid(True)
        for _, _, standing in chunks:
            canvas.draw(standing)
        glare: list[tuple[Halo, Floats, float]] = []
        for mesh, halos, place, _ in actors:
            canvas.draw(mesh, _placement(place))
            glare += [lit for halo in halos if (lit := self._lit(halo, place, view)) is not None]
        canvas.halos(glare)
        canvas.solid(False)
        return self._developed(canvas.finish(), stamp_ns, camera)

    def _actors(self, tick: float, station: float) -> Iterator[tuple[Any, list[Halo], Placed, tuple[float, float]]]:
        """Mesh, halos, place and footprint of everything that is near."""
        drive, look = self._drive, self._look
        clothes = CLOTHES[look.palette]
        for plan in drive.layout.parked:
            if abs(plan.s - station) < _ACTOR_REACH_M:
                yield (
                    *self._vehicle(plan.body, plan.colour, False, driving=False),
                    self._place(plan.s, plan.l, plan.heading),
                    SIZE_M[plan.body][:2],
                )
        for track, spot in self._near(drive.vehicles, tick, station):
            yield (
                *self._vehicle(track.body, track.colour, spot.braking, driving=True),
                self._place(spot.s, spot.l, spot.yaw),
                SIZE_M[track.body][:2],
            )
        for track, spot in self._near(drive.walkers, tick, station):
            step = round(spot.stride / 0.1) % 15
            key: tuple[Any, ...] = (Body.PEDESTRIAN, track.colour, step, spot.present)
            mesh = self._mesh(
                key, lambda t=track, p=spot, k=step: (bodies.pedestrian(clothes[t.colour], k * 0.1, p.present), [])
            )
            yield *mesh, self._place(spot.s, spot.l, spot.yaw), (0.8, 0.7)
        for track, spot in self._near(drive.cyclists, tick, station):
            step = round(spot.stride / 0.2) % 12
            key = (Body.CYCLIST, track.colour, step)
            mesh = self._mesh(key, lambda t=track, k=step: bodies.cyclist(clothes[t.colour], k * 0.2))
            yield *mesh, self._place(spot.s, spot.l, spot.yaw), (2.0, 0.7)
        for signal, phases in zip(drive.layout.signals, drive.phases, strict=True):
            if abs(signal.stop - station) < _ACTOR_REACH_M:
                road = drive.layout.road
                pole = road.right_kerb - 0.9
                arm = road.lane_centre - pole
                phase: Phase = phases[round(tick)]
                mesh = self._mesh((arm, phase), lambda a=arm, p=phase: bodies.signal(a, p))
                yield *mesh, self._place(signal.stop + SIGNAL_M, pole, 0.0), (0.5, 0.5)

    def _vehicle(self, body: Body, colour: int, braking: bool, driving: bool) -> tuple[Any, list[Halo]]:
        paint, dark = PAINT[self._look.palette][colour], self._look.headlamps
        key = (body, colour, braking, driving)
        return self._mesh(key, lambda: bodies.vehicle(body, paint, braking, driving, dark))

    def _mesh(self, key: Any, build: Any) -> tuple[Any, list[Halo]]:
        if key not in self._meshes:
            mesh, halos = build()
            self._meshes[key] = self._canvas.upload(mesh.vertices()), halos
        return self._meshes[key]

    @staticmethod
    def _near(tracks: tuple[Track, ...], tick: float, station: float) -> Iterator[tuple[Track, Spot]]:
        """Spots between ticks; lamps and legs as at the nearest."""
        low = int(tick)
        share = tick - low
        for track in tracks:
            first = track.spots[low]
            if abs(first.s - station) > _ACTOR_REACH_M:
                continue
            if share:
                second = track.spots[low + 1]
                s, lateral = (a + share * (b - a) for a, b in ((first.s, second.s), (first.l, second.l)))
                nearest = second if share > 0.5 else first
                first = Spot(s, lateral, nearest.yaw, nearest.speed, nearest.braking, nearest.stride, nearest.present)
            yield track, first

    def _place(self, s: float, l: float, yaw: float) -> Placed:  # noqa: E741
        road = self._drive.layout.road
        x, y = road.point(s, l)
        return float(x), float(y), float(road.heading(s)) + yaw

    def _lit(self, halo: Halo, place: Placed, view: View) -> tuple[Halo, Floats, float] | None:
        at = (_placement(place) @ np.array([*halo.at, 1.0]))[:3]
        ray = view.eye - at
        distance = float(np.linalg.norm(ray))
        shines = place[2] + halo.faces
        towards = float((ray[0] * np.cos(shines) + ray[1] * np.sin(shines)) / max(distance, 0.1))
        if towards <= 0.05:
            return None
        return halo, at, float(np.sqrt(towards) * np.exp(-0.5 * self._look.fog_per_m * distance)) * 0.9

    def _developed(self, image: RgbImage, stamp_ns: int, camera: Camera) -> RgbImage:
        """Exposure, rain and sensor noise; the same for the same time."""
        rng = np.random.default_rng([self._look.seed, stamp_ns // 1_000_000, camera.camera_id])
        picture = image.astype(np.float32) * self._look.gain
        if self._look.weather is Weather.RAIN:
            picture = _rained(picture, rng)
        picture += rng.normal(0.0, _NOISE, picture.shape).astype(np.float32)
        return np.asarray(np.clip(picture + 0.5, 0, 255), np.uint8)


def _plane(look: Look) -> NDArray[np.float32]:
    mesh, far = Mesh(), 380.0
    mesh.quads([[(-far, -far, 0.0), (far, -far, 0.0), (far, far, 0.0), (-far, far, 0.0)]], look.grass)
    return mesh.vertices()


def _placement(place: Placed) -> Floats:
    x, y, yaw = place
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin, 0.0, x], [sin, cos, 0.0, y], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])


def _footprint(place: Placed, size: tuple[float, float]) -> Floats:
    half = np.array([(-0.62, -0.68), (0.62, -0.68), (0.62, 0.68), (-0.62, 0.68)]) * size
    corners = np.column_stack([half, np.zeros(4), np.ones(4)])
    return np.asarray((corners @ _placement(place).T)[:, :3])


def _rained(picture: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    height, width = picture.shape[:2]
    streaks = np.zeros((height, width), np.float32)
    for _ in range(_RAIN_STREAKS):
        x, y = rng.uniform(0, width), rng.uniform(-0.1 * height, height)
        length = height * float(rng.uniform(0.05, 0.12))
        end = (round(x + length * 0.15), round(y + length))
        cv2.line(streaks, (round(x), round(y)), end, float(rng.uniform(0.05, 0.14)), 1, cv2.LINE_AA)
    return picture + (190.0 - picture) * streaks[..., None]
