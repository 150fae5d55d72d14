"""Why there is nothing to plan from right now. A skip is an answer, not an error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SkipReason(str, Enum):
    """Named reasons, one per thing a user can put right."""

    NO_IMAGES = "no_images"  # a configured camera has not sent anything
    NO_ODOMETRY = "no_odometry"
    CAMERAS_OUT_OF_SYNC = "cameras_out_of_sync"  # no instant at which every camera has a frame
    ODOMETRY_BEHIND = "odometry_behind"  # odometry does not reach any such instant
    MISSING_FRAMES = "missing_frames"  # a frame of the past 0.3 s was never there
    HISTORY_NOT_COVERED = "history_not_covered"  # odometry does not go back 1.5 s
    ODOMETRY_GAP = "odometry_gap"  # odometry goes back 1.5 s, with a hole in it


@dataclass(frozen=True)
class Skip:
    """A refusal: the reason to count by, and a sentence naming what was found and what was expected."""

    reason: SkipReason
    detail: str
