"""How much a reasoning says; apart from the rest, so that the command line starts quickly."""

from __future__ import annotations

from enum import Enum


class Reasoning(str, Enum):
    """What comes before the sentence that decides."""

    SHORT = "short"  # nothing
    LONG_200 = "long-200"  # a description; at least 200 tokens in all
    LONG_500 = "long-500"
