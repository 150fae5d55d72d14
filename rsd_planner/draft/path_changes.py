"""How far the path moves when a draft's token stands in the place of the target's: what the lossy mode goes by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rsd_planner.errors import DraftError

FILE = "path_changes.json"
FEWEST = 3  # measurements that a kind of token needs before it may be tolerated


@dataclass(frozen=True)
class PathChange:
    """Average displacement over 6.4 s that one kind of token made, m: the target's token and the drafted one."""

    own: int
    drafted: int
    count: int  # measurements
    mean_m: float
    worst_m: float


@dataclass(frozen=True)
class PathChanges:
    """All kinds that were measured, for one target."""

    target: str  # its fingerprint
    frames: int
    kinds: tuple[PathChange, ...]

    def below(self, bound_m: float) -> frozenset[tuple[int, int]]:
        """(the target's token, the drafted one) of those that never moved the path as far as the bound."""
        return frozenset(
            (kind.own, kind.drafted) for kind in self.kinds if kind.count >= FEWEST and kind.worst_m < bound_m
        )

    def write(self, directory: Path, texts: Mapping[int, str]) -> Path:
        """Put it into a draft directory.

        Args:
            texts: Of the tokens, for a reader.
        """
        kinds = [{**asdict(kind), "text": [texts[kind.own], texts[kind.drafted]]} for kind in self.kinds]
        path = directory / FILE
        part = path.with_suffix(".part")
        content = {"target": self.target, "frames": self.frames, "kinds": kinds}
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
        return path


def read_path_changes(directory: Path, target: str) -> PathChanges:
    """Read what was measured for a draft.

    Args:
        target: Fingerprint of the target it is to be used with.

    Raises:
        DraftError: Nothing usable is there, or it was measured with another target.
    """
    path = directory / FILE
    if not path.is_file():
        raise DraftError(f"{path} is missing, expected what `rsd_planner measure-path-changes` writes")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        kinds = tuple(
            PathChange(
                int(kind["own"]),
                int(kind["drafted"]),
                int(kind["count"]),
                float(kind["mean_m"]),
                float(kind["worst_m"]),
            )
            for kind in found["kinds"]
        )
        changes = PathChanges(str(found["target"]), int(found["frames"]), kinds)
    except (ValueError, KeyError, TypeError) as error:
        raise DraftError(f"{path}: not readable ({error!r}); expected what measure-path-changes writes") from None
    if changes.target != target:
        raise DraftError(f"{path}: measured with target {changes.target}, expected {target}: measure it anew")
    return changes
