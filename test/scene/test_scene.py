"""Images and odometry together: which t0, which reason, and what a time jump does."""

from __future__ import annotations

import numpy as np
import pytest

from rsd_planner.errors import ObservationError
from rsd_planner.scene.observation import Observation, RgbImage
from rsd_planner.scene.scene import Scene, Skip, SkipReason

MS = 1_000_000
START = 1_722_000_000_000_000_000


def decode(payload: object) -> RgbImage:
    assert isinstance(payload, int)
    return np.full((4, 6, 3), payload % 256, np.uint8)


def drive(scene: Scene, first_ms: int, last_ms: int, cameras: tuple[int, ...] = (0, 1)) -> None:
    """Cameras at 10 Hz, odometry at 50 Hz on the same clock, 10 m/s straight along y of the odometry frame."""
    quarter_turn = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))
    for ms in range(first_ms, last_ms + 1, 20):
        scene.add_odometry(START + ms * MS, (5.0, ms / 100, 1.0), quarter_turn)
        if ms % 100 == 0:
            for camera_id in cameras:
                scene.add_image(camera_id, START + ms * MS + camera_id * 3 * MS, ms)


def observed(scene: Scene, route: str | None = None) -> Observation:
    answer = scene.observe(route)
    assert isinstance(answer, Observation), answer
    return answer


def reason(scene: Scene) -> SkipReason:
    answer = scene.observe()
    assert isinstance(answer, Skip), answer
    return answer.reason


def test_an_observation_is_made_at_the_newest_reference_frame() -> None:
    scene = Scene([1, 0], decode)
    drive(scene, 0, 2060)
    observation = observed(scene, "turn left")
    assert observation.stamp_ns == START + 2000 * MS
    assert list(observation.cameras) == [0, 1]
    assert [frame.stamp_ns for frame in observation.cameras[1]] == [START + ms * MS for ms in (1703, 1803, 1903, 2003)]
    assert observation.cameras[0][3].image[0, 0, 0] == 2000 % 256
    assert observation.route == "turn left"
    np.testing.assert_allclose(observation.history.positions[:, 0], np.arange(-15, 1) * 1.0, atol=1e-9)
    np.testing.assert_allclose(observation.history.pose_t0.position, [5.0, 20.0, 1.0], atol=1e-9)


def test_consecutive_observations_share_their_frames() -> None:
    scene = Scene([0, 1], decode)
    drive(scene, 0, 2000)
    scene.add_odometry(START + 2010 * MS, (5.0, 20.1, 1.0), (0.0, 0.0, 0.0, 1.0))
    first = observed(scene)
    drive(scene, 2020, 2100)
    second = observed(scene)
    assert second.stamp_ns == first.stamp_ns + 100 * MS
    for camera_id in (0, 1):
        old, new = first.cameras[camera_id], second.cameras[camera_id]
        assert all(a is b for a, b in zip(old[1:], new[:-1], strict=True))


def test_the_same_t0_is_answered_until_there_is_a_newer_one() -> None:
    scene = Scene([0], decode)
    drive(scene, 0, 2000, (0,))
    first = observed(scene).stamp_ns
    drive(scene, 2020, 2080, (0,))
    assert observed(scene).stamp_ns == first


def test_each_reason_is_named() -> None:
    scene = Scene([0, 1], decode)
    assert reason(scene) is SkipReason.NO_ODOMETRY
    scene.add_odometry(START, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    assert reason(scene) is SkipReason.NO_IMAGES
    scene.add_image(0, START + 500 * MS, 0)
    scene.add_image(1, START + 900 * MS, 0)
    assert reason(scene) is SkipReason.CAMERAS_OUT_OF_SYNC
    scene.add_image(1, START + 500 * MS, 0)
    assert reason(scene) is SkipReason.ODOMETRY_BEHIND
    scene.add_odometry(START + 500 * MS, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    assert reason(scene) is SkipReason.MISSING_FRAMES
    for ms in (200, 300, 400):
        scene.add_image(0, START + ms * MS, 0)
        scene.add_image(1, START + ms * MS, 0)
    assert reason(scene) is SkipReason.HISTORY_NOT_COVERED
    scene.add_odometry(START - 1000 * MS + 500 * MS, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    drive(scene, 520, 1700)
    scene.add_odometry(START + 2100 * MS, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    for ms in (1800, 1900, 2000, 2100):
        scene.add_image(0, START + ms * MS, 0)
        scene.add_image(1, START + ms * MS, 0)
    assert reason(scene) is SkipReason.ODOMETRY_GAP


def test_the_odometry_gap_allowed_is_the_callers() -> None:
    scene = Scene([0], decode, max_odometry_gap_s=0.5)
    for ms in range(0, 2401, 400):
        scene.add_odometry(START + ms * MS, (ms / 100, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    for ms in range(1700, 2001, 100):
        scene.add_image(0, START + ms * MS, 0)
    np.testing.assert_allclose(observed(scene).history.positions[:, 0], np.arange(-15, 1), atol=1e-9)


@pytest.mark.parametrize("stream", ["image", "odometry"])
def test_a_backward_jump_on_any_stream_forgets_everything(stream: str) -> None:
    scene = Scene([0, 1], decode)
    drive(scene, 0, 2000)
    assert scene.resets == 0
    if stream == "image":
        scene.add_image(1, START + 1000 * MS, 0)  # 1.003 s behind the newest of this camera
    else:
        scene.add_odometry(START + 999 * MS, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    assert scene.resets == 1
    assert reason(scene) in (SkipReason.NO_IMAGES, SkipReason.NO_ODOMETRY)


def test_a_looping_bag_plans_again_after_each_turn() -> None:
    scene = Scene([0, 1], decode)
    for turn in range(3):
        drive(scene, 0, 2000)
        assert scene.resets == turn
        scene.add_odometry(START + 2010 * MS, (5.0, 20.1, 1.0), (0.0, 0.0, 0.0, 1.0))
        assert observed(scene).stamp_ns == START + 2000 * MS


def test_clear_forgets_and_is_counted() -> None:
    scene = Scene([0], decode)
    drive(scene, 0, 2000, (0,))
    scene.clear()
    assert scene.resets == 1
    assert reason(scene) is SkipReason.NO_ODOMETRY


def test_a_refused_pose_from_the_past_resets_nothing() -> None:
    scene = Scene([0], decode)
    drive(scene, 0, 2000, (0,))
    with pytest.raises(ObservationError, match="orientation"):
        scene.add_odometry(START, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0))
    assert scene.resets == 0
