"""sensor_msgs/CompressedImage and Image as RGB arrays. What cannot be decoded whole is refused, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rsd_planner.errors import ImageError
from rsd_planner.messages.ros_cv_bridge import ros_cv_bridge
from rsd_planner.scene.observation import RgbImage

JPEG_START, JPEG_SCAN, JPEG_END = b"\xff\xd8\xff", b"\xff\xda", b"\xff\xd9"
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


@dataclass(frozen=True)
class RawEncoding:
    """How the pixels of a raw image are stored."""

    channels: int
    to_rgb: int | None  # OpenCV's conversion from 8 bits per channel; None = it is RGB
    channel_bytes: int = 1
    width_multiple: int = 1  # of this many pixels, whose colours are stored together


RAW_ENCODINGS = {  # 16 bits per channel are reduced to 8; all of their range counts
    "rgb8": RawEncoding(3, None),
    "bgr8": RawEncoding(3, cv2.COLOR_BGR2RGB),
    "rgba8": RawEncoding(4, cv2.COLOR_RGBA2RGB),
    "bgra8": RawEncoding(4, cv2.COLOR_BGRA2RGB),
    "mono8": RawEncoding(1, cv2.COLOR_GRAY2RGB),
    "mono16": RawEncoding(1, cv2.COLOR_GRAY2RGB, 2),
    "yuv422": RawEncoding(2, cv2.COLOR_YUV2RGB_UYVY, 1, 2),
    "uyvy": RawEncoding(2, cv2.COLOR_YUV2RGB_UYVY, 1, 2),  # the name of yuv422 since ROS 2 Iron
    "yuv422_yuy2": RawEncoding(2, cv2.COLOR_YUV2RGB_YUY2, 1, 2),
    "yuyv": RawEncoding(2, cv2.COLOR_YUV2RGB_YUY2, 1, 2),  # the name of yuv422_yuy2 since ROS 2 Iron
    # OpenCV names a pattern by the second and third pixel of its second row: BG is rggb.
    "bayer_rggb8": RawEncoding(1, cv2.COLOR_BayerBG2RGB),
    "bayer_bggr8": RawEncoding(1, cv2.COLOR_BayerRG2RGB),
    "bayer_gbrg8": RawEncoding(1, cv2.COLOR_BayerGR2RGB),
    "bayer_grbg8": RawEncoding(1, cv2.COLOR_BayerGB2RGB),
    "bayer_rggb16": RawEncoding(1, cv2.COLOR_BayerBG2RGB, 2),
    "bayer_bggr16": RawEncoding(1, cv2.COLOR_BayerRG2RGB, 2),
    "bayer_gbrg16": RawEncoding(1, cv2.COLOR_BayerGR2RGB, 2),
    "bayer_grbg16": RawEncoding(1, cv2.COLOR_BayerGB2RGB, 2),
}


def decode_image(message: Any) -> RgbImage:
    """Decode an image message, of rclpy or of rosbags, told apart by its fields.

    Args:
        message: sensor_msgs/CompressedImage holding a JPEG or PNG, or sensor_msgs/Image in one of `RAW_ENCODINGS`;
            in any other one that ROS 2's cv_bridge knows, where a ROS installation has that.

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
    name, height, width, step = message.encoding, int(message.height), int(message.width), int(message.step)
    bridge, encoding = ros_cv_bridge(), RAW_ENCODINGS.get(name)
    if encoding is None and bridge is None:
        raise ImageError(f"image encoding is {name!r}, expected one of {', '.join(RAW_ENCODINGS)}")
    if height <= 0 or width <= 0:
        raise ImageError(f"image is {width}x{height} pixels, expected at least one")
    row_bytes = width * encoding.channels * encoding.channel_bytes if encoding else step
    if step < row_bytes:
        raise ImageError(f"image step is {step} bytes, expected at least {row_bytes} for {width} pixels of {name}")
    data = _bytes(message)
    if len(data) != step * height:
        raise ImageError(f"image has {len(data)} bytes of data, expected {step * height}: {height} rows of step {step}")
    if bridge is not None and step == row_bytes:  # padding of less than a pixel would make it shear the picture
        try:
            return bridge(message)
        except ImageError:
            if encoding is None:
                raise
    assert encoding is not None
    if width % encoding.width_multiple:
        raise ImageError(f"image is {width} pixels wide, expected a multiple of {encoding.width_multiple} for {name}")
    pixels = data.reshape(height, step)[:, :row_bytes]
    if encoding.channel_bytes == 2:
        wide = np.ascontiguousarray(pixels).view(">u2" if message.is_bigendian else "<u2")
        pixels = ((wide.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 becomes 255
    return _to_rgb(pixels.reshape(height, width, encoding.channels), name, encoding)


def _to_rgb(pixels: NDArray[np.uint8], name: str, encoding: RawEncoding) -> RgbImage:
    if encoding.to_rgb is None:
        return pixels.copy()
    try:
        rgb: RgbImage = cv2.cvtColor(pixels, encoding.to_rgb)
    except cv2.error as error:
        raise ImageError(f"image of {pixels.shape[1]}x{pixels.shape[0]} in {name}: {error.err}") from error
    return rgb


def _bytes(message: Any) -> NDArray[np.uint8]:
    return np.frombuffer(message.data, dtype=np.uint8)
