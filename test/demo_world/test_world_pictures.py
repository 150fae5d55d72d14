"""Pictures, samples, dataset, pairs: what a model is trained and tested on."""

import itertools
from pathlib import Path

import cv2
import numpy as np
import pytest

from rsd_planner.demo.world.cameras import FRONT, HEIGHT, WIDTH, make_camera
from rsd_planner.demo.world.canvas import Canvas, RenderError
from rsd_planner.demo.world.contact_sheet import sheet
from rsd_planner.demo.world.dataset import CAUSES, DatasetError, load_split, write_split
from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.facts import CauseKind, visible_cause
from rsd_planner.demo.world.looks import make_look
from rsd_planner.demo.world.pairs import pairs_by_history, pairs_by_image
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.render import Scene
from rsd_planner.demo.world.samples import Camerawork, choose_ticks, drive_samples
from rsd_planner.demo.world.splits import SEEDS, Event, Split
from rsd_planner.scene.observation import STEP_NS, RgbImage

try:
    CANVAS = Canvas(WIDTH, HEIGHT)
except RenderError as error:
    pytest.skip(f"pictures cannot be rendered: {error}", allow_module_level=True)


def picture(drive: Drive, seed: int, tick: int) -> RgbImage:
    scene = Scene(CANVAS, drive, make_look(Split.TRAIN, seed))
    image = scene.picture(tick * STEP_NS, make_camera(FRONT))
    scene.release()
    return image


def first_tick(event: Event, kind: CauseKind, near: float, far: float) -> tuple[Drive, int, int]:
    for seed in range(40, 80):
        drive = run_drive(make_layout(Split.TRAIN, seed, [event]))
        for tick in drive.ticks:
            cause = visible_cause(drive, tick)
            if cause.kind is kind and near <= cause.distance <= far:
                return drive, seed, tick
    raise AssertionError(f"no {kind}")


def strong(image: RgbImage, channel: int) -> int:
    """Pixels in which a colour outshines the other two."""
    others = np.delete(image.astype(int), channel, axis=2).max(axis=2)
    return int((image[:, :, channel].astype(int) - others > 60).sum())


def test_pictures_have_the_models_size_and_repeat() -> None:
    drive = run_drive(make_layout(Split.TRAIN, 40, [Event.CLEAR]))
    first, second = picture(drive, 40, 30), picture(drive, 40, 30)
    assert first.shape == (96, 224, 3)
    assert WIDTH % 32 == HEIGHT % 32 == 0
    assert np.array_equal(first, second)
    assert first.std() > 20


@pytest.mark.parametrize(("kind", "channel"), [(CauseKind.LIGHT_RED, 0), (CauseKind.LIGHT_GREEN, 1)])
def test_a_traffic_light_shows_its_colour(kind: CauseKind, channel: int) -> None:
    drive, seed, tick = first_tick(Event.LIGHT, kind, 5, 12)
    upper = picture(drive, seed, tick)[: HEIGHT // 2, WIDTH // 4 : WIDTH * 3 // 4]
    assert strong(upper, channel) >= 8


def test_every_camera_of_the_rig_sees_something_else() -> None:
    drive = run_drive(make_layout(Split.TRAIN, 41, [Event.CLEAR]))
    scene = Scene(CANVAS, drive, make_look(Split.TRAIN, 41))
    images = [scene.picture(30 * STEP_NS, make_camera(camera)) for camera in (0, 1, 2, 6)]
    scene.release()
    for one, other in itertools.combinations(images, 2):
        assert np.abs(one.astype(int) - other).mean() > 5
    with pytest.raises(ValueError, match="camera 3"):
        make_camera(3)


def test_ticks_of_a_drive_are_apart_and_whole() -> None:
    drive = run_drive(make_layout(Split.TRAIN, 42))
    ticks = choose_ticks(drive, 42)
    assert len(ticks) == 8
    assert min(np.diff(ticks)) >= 3
    assert set(ticks) <= set(drive.ticks)


def test_a_dataset_is_written_once_and_read_as_rendered(tmp_path: Path) -> None:
    shards = list(write_split(tmp_path, Split.VAL, drives=2))
    assert [path.name for path in shards] == ["shard-00000.npz"]
    assert list(write_split(tmp_path, Split.VAL, drives=2)) == []

    data = load_split(tmp_path, Split.VAL)
    seed = SEEDS[Split.VAL][0]
    expected = list(drive_samples(seed, Camerawork()))
    assert len(data) >= 2 * len(expected) - 8
    for index, sample in enumerate(expected):
        row = data[index]
        assert (row["seed"], row["tick"], row["text"]) == (seed, sample.tick, sample.text)
        assert CAUSES[row["cause"]] is sample.facts.cause.kind
        assert np.abs(row["images"].astype(int) - sample.images).mean() < 2.5  # JPEG
        assert np.allclose(row["future"], sample.future, atol=1e-4)
        assert tuple(row["deliberative"][: len(sample.deliberative)]) == sample.deliberative
        assert (row["deliberative"][len(sample.deliberative) :] == -1).all()


def test_a_folder_of_other_samples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    (tmp_path / "val/about.json").write_text('{"world": 0}')
    with pytest.raises(DatasetError, match=r"about.json: found .*expected"):
        list(write_split(tmp_path, Split.VAL, drives=1))
    with pytest.raises(DatasetError, match="no shard"):
        load_split(tmp_path, Split.TEST)


def test_pairs_by_image_share_the_history_and_differ_in_the_cause() -> None:
    for first, second in itertools.islice(pairs_by_image(Split.TEST), 3):
        assert np.array_equal(first.history.positions, second.history.positions)
        assert first.cause is not second.cause
        assert np.abs(first.images.astype(int) - second.images).max() > 30


def test_pairs_by_history_share_the_images_and_differ_in_the_action() -> None:
    for first, second in itertools.islice(pairs_by_history(Split.TEST), 3):
        assert first.images is second.images
        assert first.facts.cause == second.facts.cause
        assert first.action != second.action
        assert np.allclose(second.history.positions[-1], 0.0)


def test_a_contact_sheet_runs_from_near_to_far() -> None:
    samples = list(drive_samples(SEEDS[Split.TEST][5], Camerawork()))
    pages = sheet(samples)
    cell_height, cell_width = 230, 448
    assert pages.shape == (2 * cell_height, 4 * cell_width, 3)
    nearest = min(samples, key=lambda sample: sample.facts.cause.distance)
    shown = cv2.resize(pages[:192, :cell_width], (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    assert np.abs(shown.astype(int) - nearest.images[0, -1]).mean() < 8
