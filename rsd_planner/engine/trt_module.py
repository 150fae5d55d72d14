"""TensorRT-RTX or TensorRT: which one is here, what it says, and the few names in which they differ."""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

from rsd_planner.errors import EngineError

MODULES = ("tensorrt_rtx", "tensorrt")  # the first compiles ahead of time, without a GPU


def load_module(name: str = "") -> Any:
    """A TensorRT Python module.

    Args:
        name: One of `MODULES`; "" for the first of them that is installed.

    Raises:
        EngineError: It is not installed.
    """
    missing = []
    for candidate in [name] if name else MODULES:
        try:
            return importlib.import_module(candidate)
        except ImportError as error:
            missing.append(str(error))
    raise EngineError(
        f"TensorRT is not installed ({'; '.join(missing)}); TensorRT-RTX is in requirements-engines.txt, TensorRT "
        "comes with JetPack, DRIVE OS or NVIDIA's packages"
    )


class Log:
    """What TensorRT has said since the last `clear`. One per process: TensorRT keeps the first logger it is given."""

    def __init__(self, trt: Any) -> None:
        self.lines: list[str] = []
        severity = trt.ILogger.Severity
        shown = {severity.INTERNAL_ERROR, severity.ERROR}
        lines = self.lines

        class Collector(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity in shown:
                    lines.append(" ".join(message.split()))

        self.logger = Collector()

    def clear(self) -> None:
        self.lines.clear()

    def summary(self) -> str:
        """The errors in one line, but for complaints that there is no GPU, which a build can do without."""
        telling = [line for line in self.lines if "cudaError 35" not in line]
        return "; ".join(dict.fromkeys(telling)) or "TensorRT gave no reason"


@functools.cache
def log_of(trt: Any) -> Log:
    """The process's log of this module."""
    return Log(trt)


def capabilities(trt: Any) -> dict[str, Any]:
    """Name -> compute capability that this module can compile for ahead of time; none for full TensorRT."""
    named = getattr(trt, "ComputeCapability", None)
    members = {} if named is None else named.__members__
    return {name.lower(): value for name, value in members.items() if name.startswith("SM")}


def device_capability() -> str:
    """Compute capability of the first GPU, such as "sm89".

    Raises:
        EngineError: There is no GPU, or no driver for it.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise EngineError("no CUDA driver on this machine (libcuda.so.1): engines run on NVIDIA GPUs only") from None
    device, numbers = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    major, minor = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetAttribute(ctypes.byref(numbers[0]), major, device)
        or driver.cuDeviceGetAttribute(ctypes.byref(numbers[1]), minor, device)
    )
    if failed:
        raise EngineError(f"no usable NVIDIA GPU on this machine (CUDA error {failed}): engines run on one only")
    return f"sm{numbers[0].value}{numbers[1].value}"
