"""What one target step costs by the number of tokens it reads: t(k), measured between the frames of a run."""

from __future__ import annotations

import time

import numpy as np

from rsd_planner.target.alpamayo import AlpamayoTarget

COUNTS = (1, 2, 4, 8, 16)


class StepTimes:
    """Times of verify passes behind the frame that was just decoded."""

    def __init__(self) -> None:
        self._ms: dict[int, list[float]] = {count: [] for count in COUNTS}

    def measure(self, target: AlpamayoTarget) -> None:
        """Time one pass of each length; the cache stays as it is."""
        for count, times in self._ms.items():
            target.synchronize()
            started = time.perf_counter()
            target.verify([0] * count)
            target.synchronize()
            times.append((time.perf_counter() - started) * 1e3)
            target.rollback(count)

    def medians(self) -> dict[int, float]:
        """Milliseconds by tokens read; empty before the first measurement."""
        return {count: float(np.median(times)) for count, times in self._ms.items() if times}

    def ms(self, count: int) -> float:
        """Milliseconds of a pass over `count` tokens, interpolated."""
        medians = self.medians()
        return float(np.interp(count, list(medians), list(medians.values())))
