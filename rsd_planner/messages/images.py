"""sensor_msgs/CompressedImage and Image as RGB arrays. What cannot be decoded whole is refused, never guessed."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rsd_planner.errors import ImageError
from rsd_planner.scene.observation import RgbImage

JPEG_START, JPEG_SCAN, JPEG_END = b"\xff\xd8\xff", b"\xff\xda", b"\xff\xd9"
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"

RAW_ENCODINGS = {  # encoding -> bytes per pixel, conversion to RGB
    "rgb8": (3, None),
    "bgr8": (3, cv2.COLOR_BGR2RGB),
    "rgba8": (4, cv2.COLOR_RGBA2RGB),
    "bgra8": (4, cv2.COLOR_BGRA2RGB),
    "mono8": (1, cv2.COLOR_GRAY2RGB),
}


def decode_image(message: Any) -> RgbImage:
    """Decode an image message, of rclpy or of rosbags, told apart by its fields.

    Args:
        message: sensor_msgs/CompressedImage holding a JPEG or PNG, or sensor_msgs/Image in rgb8, bgr8, rgba8, bgra8
            or mono8.

    Returns:
        (H, W, 3) uint8 RGB, contiguous and independent of the message.

    Raises:
        ImageError: Neither of these; truncated; or `step`, `width`, `height` and `data` disagree.
    """
    if hasattr(message, "encoding"):
        return _decode_raw(message)
    if hasattr(message, "format"):
        return _decode_compressed(message)
    raise ImageError(f"{type(message).__name__} is no image, expected sensor_msgs/CompressedImage or sensor_msgs/Image")


def _decode_compressed(message: Any) -> RgbImage:
    data = _bytes(message)
    head = data[:16].tobytes()
    if head.startswith(JPEG_START):
        name, whole = "JPEG", _jpeg_is_whole(data.tobytes())
    elif head.startswith(PNG_START):
        name, whole = "PNG", PNG_END in data[-64:].tobytes()
    else:
        found = f"{len(data)} bytes beginning with {head[:4].hex(' ')}" if len(data) else "no data"
        raise ImageError(f"compressed image (format {message.format!r}) has {found}, expected a JPEG or PNG")
    if not whole:
        raise ImageError(f"{name} of {len(data)} bytes ends early, expected its end marker")
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    except cv2.error as error:
        raise ImageError(f"{name} of {len(data)} bytes cannot be decoded: {error.err}") from error
    if image is None:
        raise ImageError(f"{name} of {len(data)} bytes cannot be decoded, expected a valid file")
    rgb: RgbImage = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return rgb


def _jpeg_is_whole(data: bytes) -> bool:
    """Whether the end marker comes after the picture data began. The thumbnail in a header has an end marker too."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        if data[position : position + 2] == JPEG_SCAN:
            return data.rfind(JPEG_END, position) != -1
        fill = data[position + 1] == 0xFF  # a marker may be preceded by any number of these
        position += 1 if fill else 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return False


def _decode_raw(message: Any) -> RgbImage:
    encoding, height, width, step = message.encoding, int(message.height), int(message.width), int(message.step)
    if encoding not in RAW_ENCODINGS:
        raise ImageError(f"image encoding is {encoding!r}, expected one of {', '.join(RAW_ENCODINGS)}")
    channels, to_rgb = RAW_ENCODINGS[encoding]
    if height <= 0 or width <= 0:
        raise ImageError(f"image is {width}x{height} pixels, expected at least one")
    row_bytes = width * channels
    if step < row_bytes:
        raise ImageError(f"image step is {step} bytes, expected at least {row_bytes} for {width} pixels of {encoding}")
    data = _bytes(message)
    if len(data) != step * height:
        raise ImageError(f"image has {len(data)} bytes of data, expected {step * height}: {height} rows of step {step}")
    pixels = data.reshape(height, step)[:, :row_bytes].reshape(height, width, channels)
    rgb: RgbImage = pixels.copy() if to_rgb is None else cv2.cvtColor(pixels, to_rgb)
    return rgb


def _bytes(message: Any) -> NDArray[np.uint8]:
    return np.frombuffer(message.data, dtype=np.uint8)
