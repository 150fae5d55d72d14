from __future__ import annotations

import itertools

from rsd_planner.evaluation.ticks import Ticks

MS = 1_000_000


def planned(stamps_ms: list[int], stride: int) -> list[int]:
    """Which frames are planned when every one of them could be."""
    ticks = Ticks(stride)
    result = []
    for stamp in stamps_ms:
        ticks.reference_frame(stamp * MS)
        if ticks.reached(stamp * MS):
            result.append(stamp)
    return result


def test_every_frame_of_a_10_hz_camera() -> None:
    assert planned([0, 100, 195, 307, 398], 1) == [0, 100, 195, 307, 398]


def test_stride() -> None:
    assert planned(list(range(0, 1000, 100)), 3) == [0, 300, 600, 900]


def test_a_faster_camera_is_planned_ten_times_a_second() -> None:
    frames = [round(n * 1000 / 30) for n in range(300)]
    result = planned(frames, 1)
    assert len(result) == 101  # one for each slot around 0.0, 0.1, ... 10.0 s
    assert all(90 <= b - a <= 110 for a, b in itertools.pairwise(result[1:]))


def test_ticks_passed_over_are_skipped_with_their_own_reason() -> None:
    ticks = Ticks(1)
    ticks.reference_frame(0)
    ticks.explain("no_odometry", "none yet")
    ticks.reference_frame(100 * MS)
    ticks.explain("odometry_gap", "a hole")
    ticks.reference_frame(200 * MS)
    ticks.explain("history_not_covered", "too short")
    assert not ticks.skipped
    assert ticks.reached(200 * MS)
    assert ticks.skipped == {"no_odometry": 1, "odometry_gap": 1}
    assert ticks.examples["odometry_gap"] == "a hole"
    assert not ticks.reached(200 * MS)


def test_a_tick_stays_pending_until_its_time_is_reached() -> None:
    ticks = Ticks(1)
    ticks.reference_frame(0)
    ticks.reference_frame(100 * MS)
    assert ticks.reached(0)
    assert ticks.oldest_pending_ns == 100 * MS
    assert ticks.reached(133 * MS)
    assert not ticks.skipped


def test_restart_skips_what_is_pending_and_anchors_anew() -> None:
    ticks = Ticks(5)
    ticks.reference_frame(900 * MS)
    ticks.explain("no_odometry", "")
    ticks.restart()
    assert ticks.skipped == {"no_odometry": 1}
    ticks.reference_frame(30 * MS)
    assert ticks.reached(30 * MS)
