"""From the host to a GPU without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


def upload(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device; a GPU fetches it from pinned memory when its stream gets there."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
