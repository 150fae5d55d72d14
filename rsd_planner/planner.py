"""Planner: loads a model directory and turns an Observation into a Plan. No ROS in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rsd_planner.plan import Plan
from rsd_planner.scene.observation import Observation


@dataclass(frozen=True)
class PlannerSettings:
    """How a Planner decodes and samples. Defaults reproduce greedy decoding and the published ten flow steps."""

    device: str = "cpu"  # as torch names it: cpu, cuda, cuda:0
    dtype: str = "float32"  # float32 | bfloat16
    temperature: float = 0.0  # 0 = greedy
    top_p: float = 1.0
    max_reasoning_tokens: int = 256
    seed: int = 0  # of the flow noise and of sampling; with t0 it fixes a plan
    flow_steps: int | None = None  # None = the checkpoint's own number (exact)


@dataclass(frozen=True)
class ModelInfo:
    """What was loaded, for logs, diagnostics and reports."""

    name: str  # "Alpamayo R1"
    path: Path
    parameters: int
    device: str
    dtype: str
    camera_ids: tuple[int, ...]  # the ids the model was trained for; an Observation carries any non-empty subset
    frames_per_camera: int
    notice: str  # text of the model directory's NOTICE.txt, "" without one: show it wherever plans are shown


class Planner:
    """One model, ready to plan. Owned by one thread."""

    info: ModelInfo

    @classmethod
    def load(cls, model_dir: Path, settings: PlannerSettings | None = None) -> Planner: ...

    def plan(self, observation: Observation) -> Plan: ...

    def warm_up(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...
