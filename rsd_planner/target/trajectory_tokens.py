"""Ego history as tokens: 16 positions become 48 bins of their differences (public DeltaTrajectoryTokenizer)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class HistoryTokenizer:
    """Bins of the step from one history pose to the next, per axis."""

    bin_start: int  # token id of bin 0
    num_bins: int
    low: tuple[float, float, float]  # m
    high: tuple[float, float, float]  # m

    def encode(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Token ids of an ego history, step-major.

        A zero row goes in front, so the first difference is the oldest position itself (usually clamped). Float32 as in
        the public code: a bin edge must fall on the same side.

        Args:
            positions: (16, 3) m in `ego_t0`.

        Returns:
            (48,) token ids.
        """
        xyz = np.asarray(positions, np.float32)
        deltas = np.diff(xyz, axis=0, prepend=np.zeros((1, 3), np.float32))
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        bins = np.rint((deltas - low) / (high - low) * np.float32(self.num_bins - 1))
        return np.clip(bins, 0, self.num_bins - 1).astype(np.int64).reshape(-1) + self.bin_start
