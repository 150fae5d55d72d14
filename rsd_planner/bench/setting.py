"""On what and how a measurement was made: machine, threads, versions, command, seed."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import rsd_planner
from rsd_planner.planner import PlannerSettings

_CPU_INFO = Path("/proc/cpuinfo")


def describe(model: Path, settings: PlannerSettings) -> dict[str, Any]:
    """The entries of a result file that say where it comes from."""
    return {
        "model": str(model),
        "settings": asdict(settings),
        "command": shlex.join(["rsd_planner", *sys.argv[1:]]),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "gpu": torch.cuda.get_device_name() if settings.device.startswith("cuda") else None,
            "load": [round(load, 2) for load in os.getloadavg()],
            "system": platform.platform(),
        },
        "threads": torch.get_num_threads(),
        "versions": {
            "rsd_planner": rsd_planner.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers", "numpy")},
        },
    }


def _cpu() -> str:
    """The processor's name as Linux knows it."""
    lines = _CPU_INFO.read_text(encoding="utf-8").splitlines() if _CPU_INFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
