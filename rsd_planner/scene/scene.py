"""The scene: everything received, and the observation that can be made of it now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from rsd_planner.scene.camera_window import CameraWindow
from rsd_planner.scene.observation import Observation, RgbImage
from rsd_planner.scene.skip import Skip, SkipReason
from rsd_planner.scene.trajectory_history import TrajectoryHistory

__all__ = ["Scene", "Skip", "SkipReason"]


class Scene:
    """Camera frames and odometry as they arrive. Not thread-safe; frames it hands out may be decoded elsewhere.

    Attributes:
        resets: How often everything was forgotten: by `clear()` or because time jumped back by more than 1 s on any
            stream. When it grows, whatever is under way belongs to a past that did not happen.
    """

    def __init__(
        self, camera_ids: Sequence[int], decode: Callable[[Any], RgbImage], *, max_odometry_gap_s: float = 0.2
    ) -> None:
        """Start empty.

        Args:
            camera_ids: Standard ids of the cameras to wait for; the lowest is the reference camera.
            decode: Turns an image payload into (H, W, 3) uint8 RGB, or raises ImageError.
            max_odometry_gap_s: The longest time between two poses that is still interpolated, s.

        Raises:
            ObservationError: No camera, or one camera twice.
        """
        self._cameras = CameraWindow(camera_ids, decode)
        self._trajectory = TrajectoryHistory(max_odometry_gap_s)
        self.resets = 0

    def add_image(self, camera_id: int, stamp_ns: int, payload: Any) -> None:
        """Append an image; it is decoded only once it is selected and looked at.

        Raises:
            ObservationError: Not one of the configured cameras.
        """
        if self._cameras.add(camera_id, stamp_ns, payload):
            self._trajectory.clear()
            self.resets += 1

    def add_odometry(self, stamp_ns: int, position: ArrayLike, quaternion_xyzw: ArrayLike) -> None:
        """Append a pose of the vehicle in the odometry frame.

        Args:
            stamp_ns: Time of the pose, ns.
            position: (3,) m.
            quaternion_xyzw: (4,), vehicle to odometry; normalised here.

        Raises:
            ObservationError: A value is not finite, or the quaternion is zero.
        """
        if self._trajectory.add(stamp_ns, position, quaternion_xyzw):
            self._cameras.clear()
            self.resets += 1

    def observe(self, route: str | None = None) -> Observation | Skip:
        """What can be seen at the newest possible t0, or why nothing can.

        The same t0 is answered again until a newer one is possible: compare `stamp_ns` with that of the last plan.

        Args:
            route: Navigation text to hand to the model.
        """
        odometry_ns = self._trajectory.newest_ns
        if odometry_ns is None:
            return Skip(SkipReason.NO_ODOMETRY, "no odometry received")
        t0_ns = self._cameras.newest_t0(odometry_ns)
        if isinstance(t0_ns, Skip):
            return t0_ns
        cameras = self._cameras.at(t0_ns)
        if isinstance(cameras, Skip):
            return cameras
        history = self._trajectory.at(t0_ns)
        if isinstance(history, Skip):
            return history
        return Observation(t0_ns, cameras, history, route)

    def clear(self) -> None:
        """Forget everything received."""
        self._cameras.clear()
        self._trajectory.clear()
        self.resets += 1
