"""Frames are looked up by time: at every rate, whatever was lost, doubled or late."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from rsd_planner.errors import ImageError, ObservationError
from rsd_planner.scene.camera_window import CameraWindow
from rsd_planner.scene.observation import Frame, RgbImage
from rsd_planner.scene.skip import Skip, SkipReason

MS = 1_000_000
T0 = 1_722_000_000_123_456_789
FUTURE = T0 + 3_600_000 * MS  # odometry that is never the limit


class Decoder:
    """Counts what it decodes; a payload "broken" cannot be decoded."""

    def __init__(self) -> None:
        self.decoded: list[object] = []

    def __call__(self, payload: object) -> RgbImage:
        self.decoded.append(payload)
        if payload == "broken":
            raise ImageError("JPEG ends early")
        return np.zeros((2, 3, 3), np.uint8)


def window(*camera_ids: int) -> CameraWindow:
    return CameraWindow(camera_ids, Decoder())


def fill(cameras: CameraWindow, camera_id: int, offsets_ms: Iterable[float]) -> None:
    for offset in offsets_ms:
        cameras.add(camera_id, T0 + round(offset * MS), offset)


def offsets(frames: tuple[Frame, ...]) -> list[float]:
    return [(frame.stamp_ns - T0) / MS for frame in frames]


def frames_at(cameras: CameraWindow, t0_ns: int = T0) -> dict[int, tuple[Frame, ...]]:
    answer = cameras.at(t0_ns)
    assert not isinstance(answer, Skip), answer
    return dict(answer)


@pytest.mark.parametrize(
    ("rate_hz", "expected"),
    [(10, [-300, -200, -100, 0]), (20, [-300, -200, -100, 0]), (30, [-300, -200, -100, 0]), (36, None), (60, None)],
)
def test_frames_lie_on_the_grid_at_any_rate(rate_hz: int, expected: list[float] | None) -> None:
    cameras = window(1)
    fill(cameras, 1, [-k * 1000 / rate_hz for k in reversed(range(rate_hz))])
    found = offsets(frames_at(cameras)[1])
    if expected is not None:
        assert found == pytest.approx(expected, abs=1e-3)
    for slot, offset in zip([-300, -200, -100, 0], found, strict=True):
        assert abs(offset - slot) <= 500 / rate_hz + 1e-3  # nothing nearer was passed over


def test_an_irregular_camera_gives_its_nearest_frames() -> None:
    cameras = window(0)
    fill(cameras, 0, [-410, -333, -262, -230, -149, -97, -60, -41, 0])
    assert offsets(frames_at(cameras)[0]) == [-333, -230, -97, 0]


def test_every_camera_has_its_own_nearest_frames() -> None:
    cameras = window(2, 0, 6)
    fill(cameras, 0, [-300, -200, -100, 0])
    fill(cameras, 2, [-320, -220, -120, -20])
    fill(cameras, 6, [-255, -155, -55, 45])
    found = frames_at(cameras)
    assert list(found) == [0, 2, 6]
    assert offsets(found[2]) == [-320, -220, -120, -20]
    assert offsets(found[6]) == [-255, -155, -55, 45]


@pytest.mark.parametrize("newest", [-50, 50])
def test_a_frame_halfway_between_two_slots_serves_one_of_them(newest: int) -> None:
    cameras = window(0, 1)
    fill(cameras, 0, range(-500, 1, 100))
    fill(cameras, 1, range(-550, newest + 1, 100))
    found = frames_at(cameras)[1]
    assert offsets(found) == [-350, -250, -150, -50]  # equally near: the one that had been there at the time
    assert len({id(frame) for frame in found}) == 4


def test_fifty_milliseconds_are_near_enough_and_a_nanosecond_more_is_not() -> None:
    cameras = window(0, 1)
    fill(cameras, 0, [-300, -200, -100, 0])
    fill(cameras, 1, [-350, -250, -150, 50])
    assert offsets(frames_at(cameras)[1]) == [-350, -250, -150, 50]
    late = window(0, 1)
    fill(late, 0, [-300, -200, -100, 0])
    fill(late, 1, [-300, -200, -100])
    late.add(1, T0 + 50 * MS + 1, None)
    assert isinstance(late.at(T0), Skip)


def test_the_order_of_arrival_and_duplicates_change_nothing() -> None:
    cameras = window(1)
    fill(cameras, 1, [0, -200, -100, -300, -100, 0, -300, -200])
    assert offsets(frames_at(cameras)[1]) == [-300, -200, -100, 0]


def test_a_duplicate_stamp_keeps_the_frame_that_was_there() -> None:
    cameras = window(1)
    fill(cameras, 1, [-300, -200, -100, 0])
    before = frames_at(cameras)[1]
    fill(cameras, 1, [-300, -200, -100, 0])
    assert all(a is b for a, b in zip(before, frames_at(cameras)[1], strict=True))


def test_five_hertz_is_missing_frames_with_camera_and_slot_named() -> None:
    cameras = window(0, 3)
    fill(cameras, 0, range(-500, 1, 100))
    fill(cameras, 3, range(-600, 1, 200))
    answer = cameras.at(T0)
    assert isinstance(answer, Skip)
    assert answer.reason is SkipReason.MISSING_FRAMES
    assert "camera 3: no frame within 50 ms of t0-0.1 s" in answer.detail
    assert "found 2 of the 4 expected frames" in answer.detail


def test_t0_is_the_newest_reference_frame_that_all_others_answer() -> None:
    cameras = window(1, 0)
    fill(cameras, 0, [0, 100, 200, 300])
    fill(cameras, 1, [-90, 10, 110, 155])
    assert cameras.newest_t0(FUTURE) == T0 + 200 * MS
    fill(cameras, 1, [349])
    assert cameras.newest_t0(FUTURE) == T0 + 300 * MS


@pytest.mark.parametrize("rate", [20, 30])
def test_above_ten_hertz_the_frames_of_t0_itself_are_waited_for(rate: int) -> None:
    cameras, period = window(0, 1, 2), 1000 / rate
    for camera_id in (0, 1, 2):
        fill(cameras, camera_id, (k * period for k in range(10)))
    fill(cameras, 0, [10 * period])
    assert cameras.newest_t0(FUTURE) == T0 + round(9 * period * MS)
    fill(cameras, 1, [10 * period])
    assert cameras.newest_t0(FUTURE) == T0 + round(9 * period * MS)
    fill(cameras, 2, [10 * period])
    assert cameras.newest_t0(FUTURE) == T0 + round(10 * period * MS)
    fill(cameras, 0, [11 * period])
    fill(cameras, 1, [11 * period])
    fill(cameras, 2, [12 * period])  # one is lost
    assert cameras.newest_t0(FUTURE) == T0 + round(11 * period * MS)


def test_at_ten_hertz_a_camera_that_lags_is_not_waited_for() -> None:
    cameras = window(0, 1)
    fill(cameras, 0, range(0, 400, 100))
    fill(cameras, 1, range(-40, 300, 100))
    assert cameras.newest_t0(FUTURE) == T0 + 300 * MS


def test_t0_waits_for_odometry() -> None:
    cameras = window(1)
    fill(cameras, 1, [0, 33, 66, 100])
    assert cameras.newest_t0(T0 + 66 * MS) == T0 + 66 * MS
    assert cameras.newest_t0(T0 + 66 * MS - 1) == T0 + 33 * MS
    behind = cameras.newest_t0(T0 - 400 * MS)
    assert isinstance(behind, Skip)
    assert behind.reason is SkipReason.ODOMETRY_BEHIND
    assert "0.500 s" in behind.detail


def test_a_silent_camera_is_named() -> None:
    cameras = window(0, 1, 6)
    fill(cameras, 1, [0])
    answer = cameras.newest_t0(FUTURE)
    assert isinstance(answer, Skip)
    assert answer.reason is SkipReason.NO_IMAGES
    assert "0, 6" in answer.detail


def test_cameras_that_never_meet_are_out_of_sync() -> None:
    cameras = window(0, 1)
    fill(cameras, 0, range(0, 1000, 100))
    fill(cameras, 1, [-400])
    answer = cameras.newest_t0(FUTURE)
    assert isinstance(answer, Skip)
    assert answer.reason is SkipReason.CAMERAS_OUT_OF_SYNC
    assert "camera 1 is -1.300 s off" in answer.detail


def test_only_selected_frames_are_decoded_and_only_once() -> None:
    decoder = Decoder()
    cameras = CameraWindow([1], decoder)
    for offset in range(-990, 1, 33):
        cameras.add(1, T0 + offset * MS, offset)
    for _ in range(2):
        for frame in frames_at(cameras)[1]:
            assert frame.image.shape == (2, 3, 3)
    assert decoder.decoded == [-297, -198, -99, 0]


def test_frames_stay_the_same_objects_from_tick_to_tick() -> None:
    cameras = window(1)
    fill(cameras, 1, range(-300, 1, 100))
    first = frames_at(cameras)[1]
    fill(cameras, 1, [100])
    second = frames_at(cameras, T0 + 100 * MS)[1]
    assert all(a is b for a, b in zip(first[1:], second[:-1], strict=True))


def test_an_undecodable_frame_withholds_only_the_plans_that_need_it() -> None:
    cameras = window(1)
    withheld = []
    for tick in range(-3, 8):
        cameras.add(1, T0 + tick * 100 * MS, "broken" if tick == 2 else tick)
        t0_ns = cameras.newest_t0(FUTURE)
        assert isinstance(t0_ns, int)
        cameras_at_t0 = cameras.at(t0_ns)
        if isinstance(cameras_at_t0, Skip):
            assert tick < 0 or cameras_at_t0.reason is SkipReason.MISSING_FRAMES
            withheld.append(tick)
            continue
        try:
            _ = [frame.image for frame in cameras_at_t0[1]]
        except ImageError:
            withheld.append(tick)
    assert withheld == [-3, -2, -1, 2, 3, 4, 5]


def test_at_thirty_hertz_a_neighbour_stands_in_for_an_undecodable_frame() -> None:
    cameras = window(1)
    for offset in range(-330, 1, 33):
        cameras.add(1, T0 + offset * MS, "broken" if offset == -99 else offset)
    with pytest.raises(ImageError, match=f"camera 1, frame at {T0 - 99 * MS} ns: JPEG ends early"):
        _ = [frame.image for frame in frames_at(cameras)[1]]
    assert offsets(frames_at(cameras)[1]) == [-297, -198, -132, 0]


def test_a_frame_from_before_a_backward_jump_is_never_mixed_in() -> None:
    cameras = window(0, 1)
    for offset in range(0, 2001, 100):
        fill(cameras, 0, [offset])
        fill(cameras, 1, [offset])
    assert not cameras.add(0, T0 + 1000 * MS, "merely late, and there already")
    assert cameras.add(1, T0 + 1000 * MS - 1, "jumps")
    fill(cameras, 0, [1000])
    assert cameras.newest_t0(FUTURE) == T0 + 1000 * MS
    answer = cameras.at(T0 + 1000 * MS)
    assert isinstance(answer, Skip)
    assert answer.reason is SkipReason.MISSING_FRAMES


def test_memory_stays_bounded() -> None:
    cameras = window(1)
    fill(cameras, 1, range(0, 60_000, 33))
    assert len(cameras._frames[1]) <= 1500 // 33 + 1


@pytest.mark.parametrize("camera_ids", [[], [1, 1]])
def test_camera_ids_must_make_sense(camera_ids: list[int]) -> None:
    with pytest.raises(ObservationError, match="camera ids"):
        CameraWindow(camera_ids, Decoder())


def test_an_unknown_camera_is_refused() -> None:
    with pytest.raises(ObservationError, match=r"camera 5, expected one of the cameras \[0, 1\]"):
        window(0, 1).add(5, T0, None)
