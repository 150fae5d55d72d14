"""The vehicle's cameras, by Alpamayo's standard ids."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FRONT = 1
WIDTH, HEIGHT = 224, 96  # the front picture as the model takes it: multiples of 32


@dataclass(frozen=True)
class Camera:
    """A pinhole camera on the vehicle; vehicle frame: x forward, y left, z up, rear axle on the ground."""

    camera_id: int
    width: int  # px
    height: int  # px
    view: float  # rad, horizontal field of view
    horizon: float  # row of the horizon, as a share of the height
    yaw: float  # rad, positive looks left
    position: tuple[float, float, float]  # m

    @property
    def focal(self) -> float:
        """px."""
        return self.width / 2 / float(np.tan(self.view / 2))


def make_camera(camera_id: int, scale: int = 1) -> Camera:
    """A camera of the rig, `scale` times as many pixels per side as the model takes.

    Raises:
        ValueError: The rig has no such camera.
    """
    if camera_id not in _RIG:
        raise ValueError(f"camera {camera_id}: expected one of {sorted(_RIG)}")
    view, yaw, position = _RIG[camera_id]
    return Camera(
        camera_id, WIDTH * scale, HEIGHT * scale, float(np.deg2rad(view)), 0.45, float(np.deg2rad(yaw)), position
    )


_RIG = {
    0: (70.0, 55.0, (1.6, 0.5, 1.45)),
    FRONT: (50.0, 0.0, (1.6, 0.0, 1.45)),
    2: (70.0, -55.0, (1.6, -0.5, 1.45)),
    6: (24.0, 0.0, (1.6, 0.0, 1.45)),
}
