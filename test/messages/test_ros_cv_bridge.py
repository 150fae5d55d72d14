"""Which cv_bridge counts. The real one is in no wheel: what a ROS installation lays out is laid out here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_images import PICTURE, raw

from rsd_planner.errors import ImageError
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.ros_cv_bridge import MARKER, ros_cv_bridge

MODULE = """
import numpy as np

class CvBridge:
    def imgmsg_to_cv2(self, message, desired_encoding):
        if message.encoding in ("nv99", "uyvy"):
            raise RuntimeError("unknown to me")
        return np.full((message.height, message.width, 3), 42, np.uint8)
"""
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a cv_bridge, as a ROS installation does unless told otherwise."""

    def make(module: str = MODULE, *, marked: bool = True, apart: bool = False) -> Path:
        prefix, packages = tmp_path / "ros", tmp_path / ("pypi" if apart else "ros") / "lib" / "site-packages"
        (packages / "cv_bridge").mkdir(parents=True)
        (packages / "cv_bridge" / "__init__.py").write_text(module)
        if marked:
            (prefix / MARKER).parent.mkdir(parents=True)
            (prefix / MARKER).touch()
        monkeypatch.setenv("AMENT_PREFIX_PATH", str(prefix))
        monkeypatch.syspath_prepend(str(packages))
        ros_cv_bridge.cache_clear()
        return prefix

    yield make
    sys.modules.pop("cv_bridge", None)
    ros_cv_bridge.cache_clear()


def test_that_of_a_ros_installation_is_used(install: Install) -> None:
    install()
    assert (decode_image(raw("bgr8", PICTURE)) == 42).all()
    assert (decode_image(raw("nv21", PICTURE)) == 42).all()  # which ours does not know


def test_padded_rows_stay_with_our_decoder(install: Install) -> None:
    install()
    np.testing.assert_array_equal(decode_image(raw("rgb8", PICTURE, padding=1)), PICTURE)


def test_what_it_cannot_decode_is_an_image_error(install: Install) -> None:
    install()
    with pytest.raises(ImageError, match="cv_bridge cannot turn encoding 'nv99' into rgb8: unknown to me"):
        decode_image(raw("nv99", PICTURE))


def test_what_only_ours_can_decode_is_decoded_by_ours(install: Install) -> None:
    install()
    grey = np.full((2, 4, 2), 128, np.uint8)
    assert decode_image(raw("uyvy", grey)).shape == (2, 4, 3)


def test_the_sizes_are_checked_before_it_is_asked(install: Install) -> None:
    install()
    with pytest.raises(ImageError, match="expected 7920"):
        decode_image(raw("nv21", PICTURE, height=33))


def test_that_of_pypi_is_ros_1s_and_left_alone(install: Install) -> None:
    install(marked=False)
    assert ros_cv_bridge() is None
    np.testing.assert_array_equal(decode_image(raw("rgb8", PICTURE)), PICTURE)


def test_that_of_pypi_is_left_alone_beside_an_installation_with_its_own(install: Install) -> None:
    install(apart=True)
    assert ros_cv_bridge() is None


def test_one_that_cannot_be_imported_is_left_alone(install: Install) -> None:
    install("raise ImportError('numpy.core.multiarray failed to import')")
    assert ros_cv_bridge() is None
