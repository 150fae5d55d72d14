"""Medians of repeated runs, by CUDA events where there are any; and CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

WARM_UP = 3
REPEATS = 20
LEAST_REPEATS = 5
_LIMIT_S = 2.0  # of the repeats of one measurement


class LeftOutError(Exception):
    """A measurement that makes no sense here, such as a CUDA graph without a CUDA device."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds per run."""

    median: float
    low: float  # 10th and 90th percentile
    high: float
    repeats: int


def measure(act: Callable[[], object], device: torch.device, *, inner: int = 1) -> Timing:
    """Time an action, started on an idle device each time, as the first of a tick is.

    Args:
        inner: How often `act` does what is asked about; the times are divided by it.
    """
    for _ in range(WARM_UP):
        act()
    synchronize(device)
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < LEAST_REPEATS or (len(times) < REPEATS and time.perf_counter() - started < _LIMIT_S):
        times.append(_once(act, device) / inner)
    low, median, high = (float(value) for value in np.percentile(times, (10, 50, 90)))
    return Timing(median, low, high, len(times))


def _once(act: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        act()
        return (time.perf_counter() - started) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    act()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end))


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Program:
    """A pass of static shapes: reads and writes buffers that stay where they are; captured, or run as it is."""

    def __init__(self, act: Callable[[], Any], device: torch.device) -> None:
        self._act, self._device = act, device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._output: Any = None

    def __call__(self) -> Any:
        """Run it; what it returns is valid until it runs again."""
        if self._graph is None:
            return self._act()
        self._graph.replay()
        return self._output

    def capture(self) -> Program:
        """Make a CUDA graph of it.

        Raises:
            LeftOutError: There is no CUDA device.
        """
        if self._device.type != "cuda":
            raise LeftOutError("no CUDA device")
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):  # kernels are loaded and workspaces made before the capture
                self._act()
        torch.cuda.current_stream(self._device).wait_stream(side)
        torch.cuda.synchronize(self._device)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            with torch.cuda.graph(graph):
                output = self._act()
        finally:
            torch.cuda.set_stream(stream)  # a capture that fails leaves its own stream current
        self._graph, self._output = graph, output
        return self
