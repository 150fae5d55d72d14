"""Which camera frames belong to an instant: rolling buffers of frames, looked up by time and never by count."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from rsd_planner.errors import ImageError, ObservationError
from rsd_planner.scene.observation import STEP_NS, Frame, RgbImage
from rsd_planner.scene.skip import Skip, SkipReason
from rsd_planner.scene.time_jump import jumps_back

FRAMES_PER_CAMERA = 4
TOLERANCE_NS = 50_000_000
KEPT_NS = 1_500_000_000  # the 0.35 s looked at, and over 1 s for cameras and odometry to lag behind each other


class CameraWindow:
    """Frames of the last 1.5 s of every camera, at any rate, in any order of arrival.

    A second frame with the same stamp is ignored. A frame that turned out to be undecodable is as good as absent.
    Instants handed out name the same Frame objects for as long as those are in the window.
    """

    def __init__(self, camera_ids: Sequence[int], decode: Callable[[Any], RgbImage]) -> None:
        """Make room for some cameras.

        Args:
            camera_ids: Standard ids; the lowest is the reference camera.
            decode: Turns a payload into (H, W, 3) uint8 RGB; called when a selected frame is first looked at.

        Raises:
            ObservationError: No camera, or one camera twice.
        """
        if not camera_ids or len(set(camera_ids)) != len(camera_ids):
            raise ObservationError(f"camera ids are {list(camera_ids)}, expected at least one and each only once")
        self._decode = decode
        self._frames: dict[int, list[Frame]] = {camera_id: [] for camera_id in sorted(camera_ids)}  # oldest first

    def add(self, camera_id: int, stamp_ns: int, payload: Any) -> bool:
        """Append a frame, undecoded; a stamp that jumps back in time empties the window, all cameras, first.

        Returns:
            Whether time jumped back.

        Raises:
            ObservationError: Not one of the configured cameras.
        """
        if camera_id not in self._frames:
            raise ObservationError(f"image of camera {camera_id}, expected one of the cameras {list(self._frames)}")
        frames = self._frames[camera_id]
        jumped = jumps_back(stamp_ns, frames[-1].stamp_ns if frames else None)
        if jumped:
            self.clear()
        index = bisect_left(frames, stamp_ns, key=_stamp)
        if index < len(frames) and frames[index].stamp_ns == stamp_ns:
            return jumped
        frames.insert(index, Frame(stamp_ns, payload, naming_decoder(self._decode, camera_id, stamp_ns)))
        del frames[: bisect_left(frames, frames[-1].stamp_ns - KEPT_NS, key=_stamp)]
        return jumped

    def clear(self) -> None:
        """Forget every frame."""
        for frames in self._frames.values():
            frames.clear()

    def newest_t0(self, odometry_ns: int) -> int | Skip:
        """Stamp of the newest reference frame that every other camera and odometry can answer for.

        Args:
            odometry_ns: How far odometry reaches, ns.

        Returns:
            t0 in ns, or the reason why no frame qualifies.
        """
        silent = [camera_id for camera_id, frames in self._frames.items() if not frames]
        if silent:
            return Skip(SkipReason.NO_IMAGES, f"no image received from camera {', '.join(map(str, silent))}")
        in_sync = self._stamps_in_sync()
        newest = next(in_sync, None)
        if newest is None:
            return self._out_of_sync()
        if newest <= odometry_ns:
            return newest
        reached = next((stamp_ns for stamp_ns in in_sync if stamp_ns <= odometry_ns), None)
        if reached is None:
            detail = (
                f"newest odometry is {(newest - odometry_ns) / 1e9:.3f} s older than the newest images in sync, "
                f"expected at most {(newest - self._reference[0].stamp_ns) / 1e9:.3f} s: older images are not kept"
            )
            return Skip(SkipReason.ODOMETRY_BEHIND, detail)
        return reached

    def at(self, t0_ns: int) -> Mapping[int, tuple[Frame, ...]] | Skip:
        """Per camera the frames nearest to t0-0.3 s .. t0, within 50 ms each, no frame twice.

        Returns:
            Camera id -> 4 frames, oldest first; or which camera lacks a frame, and when.
        """
        cameras: dict[int, tuple[Frame, ...]] = {}
        for camera_id in self._frames:
            selected: list[Frame] = []
            for k in range(FRAMES_PER_CAMERA):
                before_ns = selected[-1].stamp_ns if selected else None
                frame = self._nearest(camera_id, t0_ns - k * STEP_NS, before_ns)
                if frame is None:
                    return self._missing(camera_id, t0_ns, k)
                selected.append(frame)
            cameras[camera_id] = tuple(reversed(selected))
        return cameras

    def _nearest(self, camera_id: int, instant_ns: int, before_ns: int | None = None) -> Frame | None:
        """The decodable frame nearest to an instant within 50 ms, the older of two; only stamps below `before_ns`."""
        frames = self._frames[camera_id]
        first = bisect_left(frames, instant_ns - TOLERANCE_NS, key=_stamp)
        end = bisect_left(frames, instant_ns + TOLERANCE_NS + 1, key=_stamp)
        usable = [f for f in frames[first:end] if not f.undecodable and (before_ns is None or f.stamp_ns < before_ns)]
        return min(usable, key=lambda frame: abs(frame.stamp_ns - instant_ns), default=None)

    def _stamps_in_sync(self) -> Iterator[int]:
        """Stamps of the reference frames for which every other camera has a frame within 50 ms, newest first.

        A camera whose next frame will be nearer is waited for: above 10 Hz the one before is within 50 ms as well.
        """
        others = list(self._frames)[1:]
        reaches_ns = min((self._reach_ns(other) for other in others), default=None)
        for frame in reversed(self._reference):
            waits = reaches_ns is not None and frame.stamp_ns > reaches_ns
            if not waits and not frame.undecodable and all(self._nearest(other, frame.stamp_ns) for other in others):
                yield frame.stamp_ns

    def _reach_ns(self, camera_id: int) -> int:
        """The instant up to which no frame that is still to come is nearer than those that are there."""
        stamps = [frame.stamp_ns for frame in self._frames[camera_id]]
        gaps = [later - earlier for earlier, later in pairwise(stamps)]
        return stamps[-1] + (round(median(gaps)) // 2 if gaps else TOLERANCE_NS)

    def _out_of_sync(self) -> Skip:
        reference, *others = self._frames
        newest_ns = self._reference[-1].stamp_ns
        offsets = [
            f"newest frame of camera {other} is {(self._frames[other][-1].stamp_ns - newest_ns) / 1e9:+.3f} s off"
            for other in others
        ]
        broken = sum(frame.undecodable for frames in self._frames.values() for frame in frames)
        detail = "; ".join(
            [
                f"no frame of camera {reference} has one of every camera within {TOLERANCE_NS // 1_000_000} ms",
                *offsets,
                *([f"{broken} frames could not be decoded"] if broken else []),
            ]
        )
        return Skip(SkipReason.CAMERAS_OUT_OF_SYNC, detail)

    def _missing(self, camera_id: int, t0_ns: int, k: int) -> Skip:
        found = sum(self._nearest(camera_id, t0_ns - j * STEP_NS) is not None for j in range(FRAMES_PER_CAMERA))
        detail = (
            f"camera {camera_id}: no frame within {TOLERANCE_NS // 1_000_000} ms of t0-{k * STEP_NS / 1e9:.1f} s, "
            f"t0 = {t0_ns} ns: found {found} of the {FRAMES_PER_CAMERA} expected frames"
        )
        return Skip(SkipReason.MISSING_FRAMES, detail)

    @property
    def _reference(self) -> list[Frame]:
        return next(iter(self._frames.values()))


def naming_decoder(decode: Callable[[Any], RgbImage], camera_id: int, stamp_ns: int) -> Callable[[Any], RgbImage]:
    """`decode` for one frame: what it cannot decode is named with camera and stamp."""

    def decode_named(payload: Any) -> RgbImage:
        try:
            return decode(payload)
        except ImageError as error:
            raise ImageError(f"camera {camera_id}, frame at {stamp_ns} ns: {error}") from error

    return decode_named


def _stamp(frame: Frame) -> int:
    return frame.stamp_ns
