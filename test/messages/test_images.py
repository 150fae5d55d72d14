"""Image messages decode to the right pixels, or are refused by name."""

from __future__ import annotations

import array
from typing import Any

import cv2
import numpy as np
import pytest
from message_kinds import message_kind, store
from numpy.typing import NDArray
from rosbags.typesys import Stores

from rsd_planner.errors import ImageError
from rsd_planner.messages.images import decode_image

TYPES = store(Stores.ROS2_HUMBLE).types
TIME, HEADER = TYPES["builtin_interfaces/msg/Time"], TYPES["std_msgs/msg/Header"]
COMPRESSED, RAW = TYPES["sensor_msgs/msg/CompressedImage"], TYPES["sensor_msgs/msg/Image"]

COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [10, 120, 200]], np.uint8)
PICTURE = np.repeat(np.repeat(COLOURS[None], 32, axis=0), 16, axis=1)  # (32, 80, 3) RGB: bars of saturated colours


def header() -> Any:
    return HEADER(stamp=TIME(sec=1, nanosec=2), frame_id="camera")


def compressed(data: bytes, name: str = "jpeg") -> Any:
    return COMPRESSED(header=header(), format=name, data=np.frombuffer(data, np.uint8))


def encoded(extension: str, rgb: NDArray[np.uint8] = PICTURE, *options: int) -> bytes:
    done, data = cv2.imencode(extension, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), options)
    assert done
    return bytes(data)


def raw(encoding: str, pixels: NDArray[np.uint8], padding: int = 0, **changes: Any) -> Any:
    height, width = pixels.shape[:2]
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (0, padding)), constant_values=77)
    fields = {"height": height, "width": width, "encoding": encoding, "is_bigendian": 0, "step": rows.shape[1]}
    return RAW(header=header(), **{**fields, "data": rows.reshape(-1), **changes})


def assert_refused(message: Any, words: str) -> None:
    with pytest.raises(ImageError, match=words):
        decode_image(message)


@pytest.mark.parametrize("declared", ["jpeg", "rgb8; jpeg compressed bgr8", "png", ""])
def test_jpeg_is_told_by_its_content_and_red_stays_red(declared: str) -> None:
    image = decode_image(compressed(encoded(".jpg", PICTURE, cv2.IMWRITE_JPEG_QUALITY, 95), declared))
    assert image.dtype == np.uint8
    assert image.shape == (32, 80, 3)
    assert image.flags["C_CONTIGUOUS"]
    np.testing.assert_allclose(image[16, 8::16].astype(int), COLOURS, atol=6)


@pytest.mark.parametrize("declared", ["png", "bgr8; png compressed bgr8", "jpeg"])
def test_png_is_exact(declared: str) -> None:
    np.testing.assert_array_equal(decode_image(compressed(encoded(".png"), declared)), PICTURE)


def test_grey_jpeg_becomes_three_equal_channels() -> None:
    done, data = cv2.imencode(".jpg", np.full((16, 16), 90, np.uint8))
    assert done
    image = decode_image(compressed(bytes(data)))
    assert image.shape == (16, 16, 3)
    assert (image == image[..., :1]).all()


@pytest.mark.parametrize("extension", [".jpg", ".png"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9, 0.99])
def test_truncated_pictures_are_refused(extension: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (120, 160, 3)).astype(np.uint8)
    data = encoded(extension, noise)
    assert_refused(
        compressed(data[: int(len(data) * share)]), f"{len(data[: int(len(data) * share)])} bytes ends early"
    )


def test_a_jpeg_without_its_last_byte_is_refused() -> None:
    assert_refused(compressed(encoded(".jpg")[:-1]), "ends early")


def test_padding_after_the_end_of_a_jpeg_is_harmless() -> None:
    assert decode_image(compressed(encoded(".jpg") + bytes(13))).shape == (32, 80, 3)


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_picture() -> None:
    data = encoded(".jpg")
    thumbnail = b"Exif\0\0" + encoded(".jpg", PICTURE[:8, :8])
    segment = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    whole = data[:2] + segment + data[2:]
    assert decode_image(compressed(whole)).shape == (32, 80, 3)
    assert_refused(compressed(whole[:-40]), "ends early")


def test_progressive_jpeg() -> None:
    data = encoded(".jpg", PICTURE, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    assert decode_image(compressed(data)).shape == (32, 80, 3)
    assert_refused(compressed(data[: len(data) // 2]), "ends early")


def test_what_is_neither_jpeg_nor_png_is_refused() -> None:
    assert_refused(compressed(b"RIFF....WEBP", "webp"), r"format 'webp'.*beginning with 52 49 46 46, expected a JPEG")
    assert_refused(compressed(b""), "no data")


def test_a_header_without_a_picture_is_refused() -> None:
    assert_refused(compressed(b"\xff\xd8\xff\xda\x00\x04ab\xff\xd9"), "cannot be decoded")


@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.parametrize(
    ("encoding", "order"), [("rgb8", [0, 1, 2]), ("bgr8", [2, 1, 0]), ("rgba8", [0, 1, 2, 0]), ("bgra8", [2, 1, 0, 0])]
)
def test_raw_colours(encoding: str, order: list[int], padding: int) -> None:
    image = decode_image(raw(encoding, PICTURE[..., order], padding))
    np.testing.assert_array_equal(image, PICTURE)
    assert image.flags["C_CONTIGUOUS"]
    assert image.flags["WRITEABLE"]


def test_mono8_becomes_three_equal_channels() -> None:
    grey = np.arange(35, dtype=np.uint8).reshape(5, 7)
    np.testing.assert_array_equal(decode_image(raw("mono8", grey, padding=1)), np.stack([grey] * 3, axis=-1))


def test_uneven_widths_have_no_yuv422() -> None:
    assert_refused(raw("yuv422", np.zeros((4, 7, 2), np.uint8)), "7 pixels wide, expected a multiple of 2 for yuv422")


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize("bigendian", [0, 1])
def test_mono16_keeps_its_whole_range_in_either_byte_order(bigendian: int, padding: int) -> None:
    values = np.array([[0, 1, 256, 257 * 7], [65535, 65535 - 128, 32768, 257 * 200]])
    pixels = values.astype(">u2" if bigendian else "<u2").view(np.uint8).reshape(2, 8)
    image = decode_image(raw("mono16", pixels, padding, width=4, is_bigendian=bigendian))
    np.testing.assert_array_equal(image, np.stack([[[0, 0, 1, 7], [255, 255, 128, 200]]] * 3, axis=-1))


def yuv(rgb: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Y, U, V of BT.601 in the limited range that video uses, (H, W, 3)."""
    red, green, blue = np.moveaxis(rgb / 255.0, -1, 0)
    y = 16 + 65.481 * red + 128.553 * green + 24.966 * blue
    u = 128 - 37.797 * red - 74.203 * green + 112.0 * blue
    v = 128 + 112.0 * red - 93.786 * green - 18.214 * blue
    return np.stack([y, u, v], axis=-1)


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(
    ("encoding", "order"), [("yuv422", "uyvy"), ("uyvy", "uyvy"), ("yuv422_yuy2", "yuyv"), ("yuyv", "yuyv")]
)
def test_yuv422_colours(encoding: str, order: str, padding: int) -> None:
    y, u, v = np.moveaxis(yuv(PICTURE), -1, 0)
    luma = iter((y[:, ::2], y[:, 1::2]))
    parts = [{"u": u[:, ::2], "v": v[:, ::2]}[letter] if letter != "y" else next(luma) for letter in order]
    pixels = np.stack(parts, axis=-1).round().astype(np.uint8).reshape(32, 80, 2)
    image = decode_image(raw(encoding, pixels, padding))
    np.testing.assert_allclose(image.astype(int), PICTURE, atol=3)


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize(("bits", "bigendian"), [(8, 0), (16, 0), (16, 1)])
@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
def test_bayer_colours(pattern: str, bits: int, bigendian: int, padding: int) -> None:
    mosaic = np.empty((32, 80), np.uint8)
    for place, letter in enumerate(pattern):
        row, column = divmod(place, 2)
        mosaic[row::2, column::2] = PICTURE[row::2, column::2, "rgb".index(letter)]
    pixels = mosaic
    if bits == 16:
        pixels = (mosaic.astype(np.uint16) * 257).astype(">u2" if bigendian else "<u2").view(np.uint8)
    message = raw(f"bayer_{pattern}{bits}", pixels.reshape(32, -1), padding, width=80, is_bigendian=bigendian)
    image = decode_image(message)
    assert image.shape == (32, 80, 3)
    np.testing.assert_array_equal(image[16, 8::16], COLOURS)  # in the middle of each bar


def test_bayer_pictures_too_small_for_their_neighbours_are_dark_and_no_crash() -> None:
    assert decode_image(raw("bayer_rggb8", np.full((1, 1), 9, np.uint8))).shape == (1, 1, 3)


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8"])
def test_a_decoded_image_does_not_change_with_its_message(encoding: str) -> None:
    message = raw(encoding, PICTURE.copy())
    image = decode_image(message)
    before = image.copy()
    message.data[:] = 0
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (raw("32FC1", PICTURE), "encoding is '32FC1', expected one of rgb8, bgr8, rgba8, bgra8, mono8"),
        (raw("rgb8", PICTURE, step=239), "step is 239 bytes, expected at least 240"),
        (raw("rgba8", PICTURE), "step is 240 bytes, expected at least 320"),
        (raw("rgb8", PICTURE, height=33), "7680 bytes of data, expected 7920: 33 rows of step 240"),
        (raw("rgb8", PICTURE, data=PICTURE.reshape(-1)[:-1]), "7679 bytes of data, expected 7680"),
        (raw("rgb8", PICTURE, width=0), "0x32 pixels"),
        (raw("rgb8", PICTURE, height=0, data=np.empty(0, np.uint8)), "80x0 pixels"),
        (header(), "Header is no image"),
    ],
)
def test_raw_images_that_contradict_themselves_are_refused(message: Any, words: str) -> None:
    assert_refused(message, words)


def test_messages_of_rclpy_decode_alike() -> None:
    types, received = message_kind("rclpy")
    data = encoded(".png")
    message = types["sensor_msgs/msg/CompressedImage"](format="png", data=array.array("B", data))
    np.testing.assert_array_equal(decode_image(received(message)), PICTURE)
    message = types["sensor_msgs/msg/Image"](
        height=32, width=80, encoding="bgr8", step=240, data=array.array("B", PICTURE[..., ::-1].tobytes())
    )
    np.testing.assert_array_equal(decode_image(received(message)), PICTURE)
