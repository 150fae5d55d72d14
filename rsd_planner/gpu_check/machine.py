"""The machine and the versions a measurement belongs to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

_PACKAGES = ("torch", "transformers")


def describe(shape: str, device: torch.device) -> dict[str, Any]:
    """Names and versions, for the record."""
    facts: dict[str, Any] = {"shape": shape, "device": _name(device)}
    if device.type == "cuda":
        facts["CUDA"] = torch.version.cuda
        facts["GPU memory"] = f"{torch.cuda.get_device_properties(device).total_memory / 1e9:.0f} GB"
    else:
        facts["threads"] = torch.get_num_threads()
    facts["cores"] = len(os.sched_getaffinity(0))
    facts["Python"] = platform.python_version()
    return facts | {name: _version(name) for name in _PACKAGES}


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
