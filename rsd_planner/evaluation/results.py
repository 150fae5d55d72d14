"""What an evaluation keeps in memory: one record per plan, a few pictures, and what happened to each recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rsd_planner.evaluation.metrics import Displacements, RecordedTrack, constant_velocity, displacements
from rsd_planner.evaluation.topics import Inputs
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan import Plan, StageTimes
from rsd_planner.planner import PlannerSettings
from rsd_planner.scene.observation import Observation, Pose, RgbImage

PICTURES = 12
PICTURE_WIDTH = 480


@dataclass(frozen=True)
class PlanRecord:
    """One plan, reduced to what is counted and drawn."""

    bag: str
    stamp_ns: int  # t0
    sequence: int
    reasoning: str
    finish_reason: str
    tokens: int
    reasoning_tokens: int  # of them, those before the closing ones
    routine_tokens: int  # of these, the guessed and accepted ones
    lossy: bool  # the reasoning may not be the model's own
    tolerated_tokens: int  # of it, those that are not
    prefill_committed: int  # tokens committed by the prefill
    tokens_per_pass: tuple[int, ...]  # committed by each verify pass
    positions: NDArray[np.float64]  # (64, 3) m, frame of t0
    speeds: NDArray[np.float64]  # (64,) m/s
    v0: float  # m/s
    stage_times: StageTimes
    frames_encoded: int
    frames_reused: int
    withheld: str | None  # why the node would not publish it
    history: NDArray[np.float64]  # (16, 3) m, frame of t0
    pose_t0: Pose
    track: RecordedTrack

    @classmethod
    def of(
        cls, bag: str, plan: Plan, observation: Observation, track: RecordedTrack, withheld: str | None
    ) -> PlanRecord:
        return cls(
            bag=bag,
            stamp_ns=plan.stamp_ns,
            sequence=plan.sequence,
            reasoning=plan.reasoning,
            finish_reason=plan.finish_reason.value,
            tokens=len(plan.token_ids),
            reasoning_tokens=plan.speculation.reasoning_tokens,
            routine_tokens=round(plan.routine_share * plan.speculation.reasoning_tokens),
            lossy=plan.lossy,
            tolerated_tokens=len(plan.speculation.tolerated),
            prefill_committed=plan.speculation.prefill_committed,
            tokens_per_pass=plan.tokens_per_pass,
            positions=plan.positions,
            speeds=plan.speeds,
            v0=plan.v0,
            stage_times=plan.stage_times,
            frames_encoded=plan.frames_encoded,
            frames_reused=plan.frames_reused,
            withheld=withheld,
            history=observation.history.positions,
            pose_t0=observation.history.pose_t0,
            track=track,
        )

    def future(self) -> NDArray[np.float64]:
        """(n, 3) m: what the vehicle did, as far as it is recorded."""
        return self.track.future(self.stamp_ns, self.pose_t0)

    def errors(self) -> tuple[Displacements, Displacements]:
        """Distances to the recorded future: of the plan, and of constant velocity."""
        future = self.future()
        return displacements(self.positions, future), displacements(constant_velocity(self.v0), future)

    def as_json(self) -> dict[str, Any]:
        """A line of plans.jsonl."""
        return {
            "bag": self.bag,
            "stamp_ns": self.stamp_ns,
            "sequence": self.sequence,
            "reasoning": self.reasoning,
            "finish_reason": self.finish_reason,
            "withheld": self.withheld,
            "tokens": self.tokens,
            "routine_tokens": self.routine_tokens,
            "prefill_committed": self.prefill_committed,
            **({"tolerated_tokens": self.tolerated_tokens} if self.lossy else {}),
            "tokens_per_pass": self.tokens_per_pass,
            "v0": round(self.v0, 4),
            "positions": self.positions.round(4).tolist(),
            "speeds": self.speeds.round(4).tolist(),
            "stage_times_ms": {name: round(ms, 3) for name, ms in asdict(self.stage_times).items()},
            "frames_encoded": self.frames_encoded,
            "frames_reused": self.frames_reused,
        }


@dataclass(frozen=True)
class Picture:
    """A plan that is shown, with what the cameras saw at t0."""

    record: PlanRecord
    jpegs: Mapping[int, bytes]  # camera id -> JPEG


class Pictures:
    """A few plans spread evenly over an evaluation whose length is not known beforehand."""

    def __init__(self) -> None:
        self.kept: list[Picture] = []
        self._offered = 0
        self._every = 1

    def offer(self, record: PlanRecord, observation: Observation) -> None:
        """Keeps every n-th plan; n doubles whenever there are too many."""
        if self._offered % self._every == 0:
            jpegs = {camera_id: thumbnail(frames[-1].image) for camera_id, frames in observation.cameras.items()}
            self.kept.append(Picture(record, jpegs))
            if len(self.kept) > PICTURES:
                self.kept = self.kept[::2]
                self._every *= 2
        self._offered += 1


def thumbnail(image: RgbImage) -> bytes:
    """A JPEG of at most PICTURE_WIDTH pixels across."""
    height, width = image.shape[:2]
    if width > PICTURE_WIDTH:
        size = (PICTURE_WIDTH, max(1, round(height * PICTURE_WIDTH / width)))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 82])
    return bytes(jpeg)


@dataclass
class BagResult:
    """What happened to one recording."""

    name: str
    path: Path
    inputs: Inputs
    duration_s: float
    ticks_expected: int  # from its duration; the true number is known at its end
    recording: Path
    plans: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    skip_examples: dict[str, str] = field(default_factory=dict)
    odometry_refused: int = 0
    odometry_refused_example: str = ""
    tracks: list[RecordedTrack] = field(default_factory=list)

    @property
    def ticks_done(self) -> int:
        return self.plans + self.skipped.total()


@dataclass
class Evaluation:
    """All results, complete or as far as they got."""

    model: ModelInfo
    planner: PlannerSettings
    stride: int
    bags: list[BagResult] = field(default_factory=list)
    records: list[PlanRecord] = field(default_factory=list)
    pictures: Pictures = field(default_factory=Pictures)
    stopped: str | None = None  # why it ended early

    @property
    def ticks_done(self) -> int:
        return sum(bag.ticks_done for bag in self.bags)

    @property
    def ticks_expected(self) -> int:
        return max(self.ticks_done, sum(bag.ticks_expected for bag in self.bags))

    def by_bag(self) -> Iterator[tuple[BagResult, list[PlanRecord]]]:
        """Each recording with its plans."""
        begin = 0
        for bag in self.bags:
            yield bag, self.records[begin : begin + bag.plans]
            begin += bag.plans

    @property
    def skipped(self) -> Counter[str]:
        return sum((bag.skipped for bag in self.bags), Counter())
