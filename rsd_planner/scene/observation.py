"""The planner's input at one instant t0. Time is integer nanoseconds, lengths are metres."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

HISTORY_STEPS = 16
STEP_NS = 100_000_000

RgbImage = NDArray[np.uint8]  # (H, W, 3)


class Frame:
    """One camera image, decoded on first use and only once.

    Identity is the object itself: whatever is computed from a frame (vision features) is kept for as long as the
    frame stays in the window, and no longer.
    """

    def __init__(self, stamp_ns: int, payload: Any, decode: Callable[[Any], RgbImage]) -> None:
        self.stamp_ns = stamp_ns
        self.undecodable = False  # set once decoding has failed; the scene then does without this frame
        self.payload = payload  # as it arrived; None once decoded
        self._decode = decode

    @classmethod
    def from_image(cls, stamp_ns: int, image: RgbImage) -> Frame:
        """A frame that is already (H, W, 3) uint8 RGB."""
        return cls(stamp_ns, image, lambda decoded: decoded)

    @cached_property
    def image(self) -> RgbImage:
        """(H, W, 3) uint8 RGB.

        Raises:
            ImageError: The payload cannot be decoded; raised again at every use.
        """
        try:
            image = self._decode(self.payload)
        except Exception:
            self.undecodable = True
            raise
        self.payload = None
        return image


@dataclass(frozen=True)
class Pose:
    """A pose of the vehicle in the odometry frame."""

    position: NDArray[np.float64]  # (3,) m
    rotation: NDArray[np.float64]  # (3, 3), vehicle to odometry


@dataclass(frozen=True)
class EgoHistory:
    """16 poses, 0.1 s apart, oldest first, in the full 3-D frame of the last (`ego_t0`): x forward, y left, z up."""

    positions: NDArray[np.float64]  # (16, 3) m; last = 0
    rotations: NDArray[np.float64]  # (16, 3, 3); last = identity
    pose_t0: Pose  # the vehicle at t0 in the odometry frame


@dataclass(frozen=True)
class Observation:
    """All that one plan is made from."""

    stamp_ns: int  # t0
    cameras: Mapping[int, tuple[Frame, ...]]  # camera id -> frames, oldest first (t0-0.3 s .. t0)
    history: EgoHistory
    route: str | None = None
