"""Every parameter of the node: declared with description and range, read into one frozen, validated object."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from rsd_planner.errors import ParameterError
from rsd_planner.worker.wire import LoadRequest


@dataclass(frozen=True)
class Specification:
    """How one parameter is declared."""

    default: Any
    description: str
    range: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()

    def descriptor(self) -> ParameterDescriptor:
        """The ROS descriptor; tools such as rqt show it and rclpy enforces the range."""
        descriptor = ParameterDescriptor(description=self.description)
        if self.choices:
            descriptor.additional_constraints = f"one of: {', '.join(self.choices)}"
        if self.range is not None and isinstance(self.default, float):
            low, high = self.range
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high, step=0.0)]
        elif self.range is not None:
            low, high = (int(bound) for bound in self.range)
            descriptor.integer_range = [IntegerRange(from_value=low, to_value=high, step=1)]
        return descriptor

    @property
    def expected(self) -> str:
        """The accepted values, in words."""
        kind = f"[{type(self.default[0]).__name__}, ...]" if isinstance(self.default, list) else _type_name(self)
        if self.range is not None:
            return f"{kind} from {self.range[0]:.10g} to {self.range[1]:.10g}"
        return f"{kind}, one of {', '.join(self.choices)}" if self.choices else kind


SPECIFICATIONS: Mapping[str, Specification] = {
    "model": Specification("", "Model directory: a folder with checkpoint/ (or target/) and processor/."),
    "device": Specification("cpu", "Where the model runs, as PyTorch names it: cpu, cuda, cuda:0."),
    "dtype": Specification(
        "float32",
        "Precision of the model's weights with backend pytorch; graphs and engines have one of their own.",
        choices=("float32", "bfloat16"),
    ),
    "backend": Specification(
        "auto",
        "What computes the model: PyTorch, ONNX Runtime (CPU, graphs of `rsd_planner export`) or TensorRT (engines of "
        "`rsd_planner build-engine`); auto is ONNX Runtime on a CPU where there are graphs, PyTorch elsewhere.",
        choices=("auto", "pytorch", "onnxruntime", "tensorrt"),
    ),
    "engine": Specification(
        "", "Directory of the graphs or engines; empty = onnx/ or engines/ in the model directory."
    ),
    "allow_fallback": Specification(
        False,
        "Whether PyTorch runs the model, with a warning, where graphs or engines cannot be used; refused otherwise.",
    ),
    "temperature": Specification(0.0, "Sampling temperature of the reasoning; 0 = greedy.", (0.0, 2.0)),
    "top_p": Specification(1.0, "Nucleus kept when sampling (temperature > 0).", (0.01, 1.0)),
    "max_reasoning_tokens": Specification(256, "Longest reasoning; it is closed there and still acted on.", (1, 4096)),
    "reasoning_deadline": Specification(
        0.0,
        "The reasoning is closed this long after planning began, and its path still comes, s; 0 = never.",
        (0.0, 60.0),
    ),
    "memory_ticks": Specification(
        10, "Earlier reasonings that the next one is guessed from, without changing it; 0 = none.", (0, 1000)
    ),
    "verify_length": Specification(
        0, "Guessed tokens that the model verifies in one pass; 0 = as many as is fastest at the moment.", (0, 15)
    ),
    "allow_plain_decoding": Specification(
        False, "Whether to run without the model directory's draft/ if that cannot be used; refused otherwise."
    ),
    "accept": Specification(
        "exact",
        "Which guessed tokens stand: those that are the model's own, or (LOSSY) also those of a kind that was measured "
        "to move the path by less than `path_tolerance`; see `rsd_planner measure-path-changes`.",
        choices=("exact", "action_tolerant"),
    ),
    "path_tolerance": Specification(
        0.1, "With `accept: action_tolerant`: bound on what a kind of token moves the path, m.", (0.001, 10.0)
    ),
    "seed": Specification(
        0,
        "Seed of sampling and of the flow noise; with t0 it fixes a plan whose reasoning is not sampled.",
        (0, 2**31 - 1),
    ),
    "cameras": Specification(
        ["front_left", "front", "front_right", "front_tele"],
        "Camera names; each is subscribed to as ~/input/image_<name>.",
    ),
    "camera_ids": Specification(
        [0, 1, 2, 6],
        "What each of `cameras` is to the model: 0 front left, 1 front, 2 front right, 3 rear left, 4 rear, "
        "5 rear right, 6 front telephoto. The lowest is the reference camera: its stamps are the t0 of plans.",
    ),
    "image_transport": Specification(
        "compressed",
        "Type of the image topics: sensor_msgs/CompressedImage or sensor_msgs/Image.",
        choices=("compressed", "raw"),
    ),
    "output_frame": Specification(
        "odom",
        "Frame of path and markers: that of the odometry (its header.frame_id), or the vehicle's own at t0 "
        "(its child_frame_id, base_link if that is empty).",
        choices=("odom", "base_link"),
    ),
    "publish_trajectory": Specification(
        False, "Whether the plan also goes out as autoware_planning_msgs/Trajectory, which must be installed then."
    ),
    "max_odometry_gap": Specification(0.2, "Longest hole in the odometry that is interpolated, s.", (0.01, 1.0)),
    "max_input_age": Specification(
        1.0, "An observation whose t0 is further than this from the node's clock is not planned on, s.", (0.05, 60.0)
    ),
    "worker": Specification(
        "process",
        "Where the model runs: in a process of its own, or in a thread of the node's for debugging.",
        choices=("process", "thread"),
    ),
    "model_python": Specification(
        "",
        "Python interpreter of the worker process, with PyTorch and what else is in requirements.txt; empty = the "
        "node's own.",
    ),
    "autostart": Specification(False, "Configure and activate by itself at start-up, without a lifecycle manager."),
}


@dataclass(frozen=True)
class NodeParameters:
    """The validated values. Field names are parameter names, except that cameras carry their ids."""

    model: Path
    device: str
    dtype: str
    backend: str
    engine: str
    allow_fallback: bool
    temperature: float
    top_p: float
    max_reasoning_tokens: int
    reasoning_deadline: float  # s, 0 = never
    memory_ticks: int
    verify_length: int  # 0 = as many as is fastest
    allow_plain_decoding: bool
    accept: str
    path_tolerance: float  # m
    seed: int
    cameras: Mapping[str, int]  # name -> standard id, reference camera first
    image_transport: str
    output_frame: str
    publish_trajectory: bool
    max_odometry_gap: float  # s
    max_input_age: float  # s
    worker: str
    model_python: str

    @property
    def reference_camera(self) -> str:
        """Name of the camera whose stamps become t0."""
        return next(iter(self.cameras))

    @property
    def load_request(self) -> LoadRequest:
        """What the worker is to load."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings["reasoning_deadline_s"] = self.reasoning_deadline or None
        settings["path_tolerance_m"] = self.path_tolerance
        settings["verify_length"] = self.verify_length or None
        return LoadRequest(self.model, settings, tuple(self.cameras.values()))


_SETTINGS = (  # those the planner has under the same name
    "device",
    "dtype",
    "backend",
    "engine",
    "allow_fallback",
    "temperature",
    "top_p",
    "max_reasoning_tokens",
    "memory_ticks",
    "allow_plain_decoding",
    "accept",
    "seed",
)


class ParameterServer:
    """Declares the node's parameters and reads them.

    A value of the wrong type or out of range never stops the node from starting: it is reported by `read()`, that is
    when the node is configured, until the parameter is set to something acceptable.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rejected: dict[str, ParameterError] = {}
        for name, specification in SPECIFICATIONS.items():
            self._declare(name, specification)

    def _declare(self, name: str, specification: Specification) -> None:
        # Declared twice: first with any type, to get hold of what a file or the command line gives, then as it is.
        anything = ParameterDescriptor(dynamic_typing=True)
        value = self._node.declare_parameter(name, specification.default, anything).value
        self._node.undeclare_parameter(name)
        if isinstance(specification.default, float) and type(value) is int:
            value = float(value)  # `temperature: 1` means 1.0
        expected_type = Parameter.Type.from_parameter_value(specification.default)
        try:
            if Parameter.Type.from_parameter_value(value) != expected_type:
                raise InvalidParameterTypeException(Parameter(name, value=value), expected_type.name)
            self._node.declare_parameter(name, value, specification.descriptor(), ignore_override=True)
        except (InvalidParameterTypeException, InvalidParameterValueException):
            found = [] if value is None else value  # an empty list in YAML arrives without a type
            self._rejected[name] = _error(name, found, specification.expected)
            self._node.declare_parameter(name, specification.default, specification.descriptor(), ignore_override=True)

    @property
    def rejected(self) -> list[ParameterError]:
        """What was given and cannot be accepted."""
        return list(self._rejected.values())

    def accepted(self, names: list[str]) -> None:
        """Note that parameters have been set anew, so that an earlier rejection no longer counts."""
        for name in names:
            self._rejected.pop(name, None)

    def unknown_overrides(self) -> list[str]:
        """A sentence for every given parameter that has no effect, with the closest name that would.

        Complete once subscriptions exist: they are what QoS overrides refer to.
        """
        known = list(self._node.get_parameters_by_prefix(""))
        sentences = []
        for name in self._node._parameter_overrides:  # rclpy has no public way to list what was given
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                sentences.append(f"parameter '{name}' is not known and has no effect{hint}")
        return sentences

    def read(self) -> NodeParameters:
        """The values as they stand.

        Raises:
            ParameterError: The first unacceptable one, by name, with what was found and what was expected.
        """
        for error in self.rejected:
            raise error
        values = {name: self._node.get_parameter(name).value for name in SPECIFICATIONS}
        for name, specification in SPECIFICATIONS.items():
            if specification.choices and values[name] not in specification.choices:
                raise _error(name, values[name], specification.expected)
        return NodeParameters(
            model=_model_directory(values["model"]),
            cameras=_cameras(values["cameras"], values["camera_ids"]),
            **{name: values[name] for name in _AS_DECLARED},
        )


_AS_DECLARED = (
    "device",
    "dtype",
    "backend",
    "engine",
    "allow_fallback",
    "temperature",
    "top_p",
    "max_reasoning_tokens",
    "reasoning_deadline",
    "memory_ticks",
    "verify_length",
    "allow_plain_decoding",
    "accept",
    "path_tolerance",
    "seed",
    "image_transport",
    "output_frame",
    "publish_trajectory",
    "max_odometry_gap",
    "max_input_age",
    "worker",
    "model_python",
)


def _type_name(specification: Specification) -> str:
    return {float: "number", int: "integer", str: "text", bool: "true or false"}[type(specification.default)]


def _error(name: str, found: object, expected: str) -> ParameterError:
    return ParameterError(f"parameter '{name}': found {found!r}, expected {expected}")


def _model_directory(model: str) -> Path:
    path = Path(model).expanduser()
    if not model or not path.is_dir():
        raise _error("model", model, "an existing model directory")
    return path


def _cameras(names: list[str], ids: list[int]) -> dict[str, int]:
    for name in names:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise _error("cameras", name, "names of lower-case letters, digits and _ (they become topic names)")
    if not names or len(set(names)) != len(names):
        raise _error("cameras", list(names), "at least one name and each only once")
    if len(ids) != len(names) or len(set(ids)) != len(ids):
        raise _error("camera_ids", list(ids), f"a different id for each of the {len(names)} `cameras` {list(names)}")
    outside = [camera_id for camera_id in ids if not 0 <= camera_id <= 6]
    if outside:
        raise _error("camera_ids", outside[0], "ids from 0 to 6")
    return dict(sorted(zip(names, ids, strict=True), key=lambda camera: camera[1]))
