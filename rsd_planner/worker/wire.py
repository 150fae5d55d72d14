"""Requests, observations, plans and errors as messages, and back."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rsd_planner import errors
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan import (
    FinishReason,
    Plan,
    ProposalOutcome,
    ReasoningPart,
    Speculation,
    StageTimes,
    TokenOrigin,
    TokenSource,
)
from rsd_planner.scene.observation import EgoHistory, Frame, Observation, Pose
from rsd_planner.worker.channel import Message

PROTOCOL = 1
PLAN_ARRAYS = ("positions", "rotations", "speeds")
PAYLOAD_FIELDS = ("format", "encoding", "height", "width", "step", "is_bigendian")  # of an image message, less its data


@dataclass(frozen=True)
class LoadRequest:
    """What the worker is to load."""

    model: Path
    settings: Mapping[str, Any]  # of PlannerSettings
    camera_ids: tuple[int, ...]  # those that will be used


class UnexpectedError(Exception):
    """An error in the worker that nobody foresaw; its traceback is all there is to explain it."""

    def __init__(self, summary: str, trace: str) -> None:
        super().__init__(summary)
        self.trace = trace


def load_message(request: LoadRequest) -> Message:
    return Message("load", {**asdict(request), "model": str(request.model)})


def read_load(message: Message) -> LoadRequest:
    said = message.content
    return LoadRequest(Path(said["model"]), said["settings"], tuple(said["camera_ids"]))


def loaded_message(info: ModelInfo) -> Message:
    return Message("loaded", {**asdict(info), "path": str(info.path)})


def read_loaded(message: Message) -> ModelInfo:
    said = dict(message.content)
    return ModelInfo(**{**said, "path": Path(said["path"]), "camera_ids": tuple(said["camera_ids"])})


def error_message(kind: str, error: Exception, undecodable: Iterable[int] = ()) -> Message:
    """`kind` is "failed" (to load) or "error" (while planning); `undecodable` are keys of frames."""
    foreseen = isinstance(error, errors.PlannerError)
    trace = "" if foreseen else "".join(traceback.format_exception(type(error), error, error.__traceback__))
    named = str(error) if foreseen else f"{type(error).__name__}: {error}"
    return Message(
        kind, {"type": type(error).__name__, "message": named, "trace": trace, "undecodable": list(undecodable)}
    )


def read_error(message: Message) -> Exception:
    said = message.content
    if said["trace"]:
        return UnexpectedError(said["message"], said["trace"])
    kind: type[Exception] = getattr(errors, said["type"], errors.PlannerError)
    return kind(said["message"])


def plan_message(plan: Plan, seconds: float) -> Message:
    said = {f.name: getattr(plan, f.name) for f in fields(plan) if f.name not in PLAN_ARRAYS}
    said["stage_times"] = asdict(plan.stage_times)
    said["speculation"] = asdict(plan.speculation)
    return Message("plan", {"plan": said, "seconds": seconds}, {name: getattr(plan, name) for name in PLAN_ARRAYS})


def read_plan(message: Message) -> Plan:
    said, speculation = dict(message.content["plan"]), dict(message.content["plan"]["speculation"])
    speculation["sources"] = tuple(source and TokenSource(source) for source in speculation["sources"])
    speculation["proposals"] = tuple(
        ProposalOutcome(**{**outcome, "source": TokenSource(outcome["source"])}) for outcome in speculation["proposals"]
    )
    speculation["tolerated"] = tuple(speculation["tolerated"])
    said.update(
        token_ids=tuple(said["token_ids"]),
        origins=tuple(TokenOrigin(origin) for origin in said["origins"]),
        finish_reason=FinishReason(said["finish_reason"]),
        stage_times=StageTimes(**said["stage_times"]),
        tokens_per_pass=tuple(said["tokens_per_pass"]),
        speculation=Speculation(**speculation),
        parts=tuple(ReasoningPart(text, TokenOrigin(origin)) for text, origin in said["parts"]),
    )
    said.update(message.arrays)
    return Plan(**said)


def payload_fields(payload: Any) -> dict[str, Any]:
    """What the decoder must know of an image message beside its data."""
    return {name: getattr(payload, name) for name in PAYLOAD_FIELDS if hasattr(payload, name)}


def payload_from(described: Mapping[str, Any], data: bytes) -> Any:
    """An image message for the decoder, as good as the one it was taken from."""
    return SimpleNamespace(**described, data=data)


def job_message(
    observation: Observation,
    generation: int,
    frame_keys: Mapping[int, list[int]],
    new_frames: Sequence[Mapping[str, Any]],
    forgotten: list[int],
) -> Message:
    """An observation to plan on.

    Args:
        observation: Its frames are named by their keys; those the worker has not seen travel in shared memory.
        generation: Grows when time jumps; what the planner kept from before is of no use then.
        frame_keys: Camera id -> keys of its frames, oldest first.
        new_frames: Key, camera, stamp, `payload_fields`, and where in shared memory the data lie.
        forgotten: Keys of frames that the node no longer has.
    """
    history = observation.history
    return Message(
        "plan",
        {
            "stamp_ns": observation.stamp_ns,
            "route": observation.route,
            "generation": generation,
            "cameras": [[camera_id, keys] for camera_id, keys in frame_keys.items()],
            "new_frames": list(new_frames),
            "forgotten": forgotten,
        },
        {
            "positions": history.positions,
            "rotations": history.rotations,
            "position_t0": history.pose_t0.position,
            "rotation_t0": history.pose_t0.rotation,
        },
    )


def read_job(message: Message, frame: Callable[[int], Frame]) -> Observation:
    said, arrays = message.content, message.arrays
    history = EgoHistory(
        np.array(arrays["positions"]),
        np.array(arrays["rotations"]),
        Pose(np.array(arrays["position_t0"]), np.array(arrays["rotation_t0"])),
    )
    cameras = {camera_id: tuple(frame(key) for key in keys) for camera_id, keys in said["cameras"]}
    return Observation(said["stamp_ns"], cameras, history, said["route"])
