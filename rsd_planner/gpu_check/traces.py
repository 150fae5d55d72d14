"""Acceptance as recorded on real frames: how many tokens each verify pass committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rsd_planner.errors import ParameterError
from rsd_planner.gpu_check.shapes import DFLASH_BLOCK, EAGLE3_CHAIN
from rsd_planner.target.config import read_json

VERIFIED = {"dflash": DFLASH_BLOCK, "eagle3": EAGLE3_CHAIN + 1}  # tokens per verify pass


@dataclass(frozen=True)
class TracedFrame:
    """One tick's reasoning."""

    prefill_committed: int
    tokens_per_pass: Sequence[int]

    @property
    def tokens(self) -> int:
        return self.prefill_committed + sum(self.tokens_per_pass)


@dataclass(frozen=True)
class Trace:
    """The ticks of one way of decoding."""

    name: str
    draft: str  # dflash | eagle3
    frames: Sequence[TracedFrame]

    @property
    def accepted_length(self) -> float:
        """L: tokens per verify pass, over all passes."""
        passes = [count for frame in self.frames for count in frame.tokens_per_pass]
        return sum(passes) / max(len(passes), 1)


def read_traces(path: Path, longest: int) -> list[Trace]:
    """Read recorded acceptance.

    The file holds `{"traces": [{"name", "draft", "frames": [{"prefill_committed", "tokens_per_pass"}]}]}`.

    Args:
        longest: Tokens of a reasoning for which there is room.

    Raises:
        ParameterError: The file says something else.
        CheckpointError: It is missing or not JSON.
    """
    values = read_json(path)
    entries = values.get("traces") if isinstance(values, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ParameterError(f"--traces {path}: field traces is {entries!r}, expected a list of traces")
    return [_trace(path, entry, longest) for entry in entries]


def _trace(path: Path, entry: Any, longest: int) -> Trace:
    fields = entry if isinstance(entry, dict) else {}
    name, draft, frames = (fields.get(key) for key in ("name", "draft", "frames"))
    if not isinstance(name, str) or draft not in VERIFIED or not isinstance(frames, list) or not frames:
        raise ParameterError(
            f"--traces {path}: a trace has name {name!r}, draft {draft!r}, frames of type {type(frames).__name__}, "
            f"expected a name, one of {', '.join(VERIFIED)}, a list"
        )
    return Trace(name, draft, [_frame(path, name, frame, VERIFIED[draft], longest) for frame in frames])


def _frame(path: Path, name: str, values: Any, most: int, longest: int) -> TracedFrame:
    fields = values if isinstance(values, dict) else {}
    first, passes = fields.get("prefill_committed"), fields.get("tokens_per_pass")
    counts = passes if isinstance(passes, list) else [0]
    if not isinstance(first, int) or first < 1 or not all(isinstance(n, int) and 1 <= n <= most for n in counts):
        raise ParameterError(
            f"--traces {path}: a frame of {name} is {values!r}, expected prefill_committed of at least 1 and "
            f"tokens_per_pass, a list of numbers from 1 to {most}"
        )
    frame = TracedFrame(first, tuple(counts))
    if frame.tokens > longest:
        raise ParameterError(
            f"--traces {path}: a frame of {name} has {frame.tokens} tokens, expected at most {longest}"
        )
    return frame
