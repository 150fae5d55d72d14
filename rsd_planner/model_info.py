"""What was loaded, for logs, diagnostics and reports. Known without PyTorch, as the node is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelInfo:
    """One loaded model."""

    name: str  # "Alpamayo R1"
    path: Path
    parameters: int
    device: str
    dtype: str  # of the weights, or the precision of exported graphs
    camera_ids: tuple[int, ...]  # the ids the model was trained for; an Observation carries any non-empty subset
    frames_per_camera: int
    takes_route: bool  # whether an Observation may carry a route text
    notice: str  # text of the model directory's NOTICE.txt, "" without one: show it wherever plans are shown
    draft: str = ""  # "EAGLE-3, flat"; "" without one
    backend: str = "PyTorch"  # what computes it, with its version
    backend_refused: str = ""  # why the backend asked for is not used, "" if it is
    draft_refused: str = ""  # why the model directory's draft is not used, "" if it is or there is none
