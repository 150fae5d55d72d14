"""The prompt, laid out as the model was trained on it: images, ego history, instruction, an opened reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rsd_planner.target.config import AlpamayoConfig, Variant
from rsd_planner.target.vocabulary import Vocabulary

_SYSTEM = "You are a driving assistant that generates safe and accurate actions."
_INSTRUCTION = "output the chain-of-thought reasoning of the driving process, then output the future trajectory."
_CAMERA_NAMES = {
    0: "Front left camera",
    1: "Front camera",
    2: "Front right camera",
    3: "Rear left camera",
    4: "Rear camera",
    5: "Rear right camera",
    6: "Front telephoto camera",
}


def prompt_text(
    variant: Variant, image_tokens: Mapping[int, Sequence[int]], history_length: int, route: str | None
) -> str:
    """The chat text up to and including `<|cot_start|>`.

    Args:
        variant: R1 shows bare images; 1.5 names each camera and numbers its frames, and takes a route.
        image_tokens: Camera id -> number of tokens of each of its images, oldest first.
        history_length: Number of history placeholders.
        route: Route text, 1.5 only.
    """
    images = "".join(_camera_text(variant, camera, image_tokens[camera]) for camera in sorted(image_tokens))
    history = f"<|traj_history_start|>{'<|traj_history|>' * history_length}<|traj_history_end|>"
    route_text = f"<|route_start|>{route}<|route_end|>" if route else ""
    return (
        f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n"
        f"<|im_start|>user\n{images}{history}{route_text}{_INSTRUCTION}<|im_end|>\n"
        "<|im_start|>assistant\n<|cot_start|>"
    )


def _camera_text(variant: Variant, camera: int, token_counts: Sequence[int]) -> str:
    images = [f"<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>" for count in token_counts]
    if variant is Variant.R1:
        return "".join(images)
    return f"{_CAMERA_NAMES[camera]}: " + "".join(f"frame {i} {image}" for i, image in enumerate(images))


def fuse_history(
    token_ids: Sequence[int], positions: NDArray[np.float64], config: AlpamayoConfig, vocabulary: Vocabulary
) -> NDArray[np.int64]:
    """Write the ego history over its placeholders.

    Args:
        token_ids: The prompt, placeholders in place.
        positions: (16, 3) m in `ego_t0`.

    Returns:
        (L,) the prompt as the model reads it.
    """
    ids = np.asarray(token_ids, np.int64)
    ids[ids == vocabulary.history_placeholder] = config.history.encode(positions)
    return ids
