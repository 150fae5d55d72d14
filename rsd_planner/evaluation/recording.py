"""Writes a rosbag2 (MCAP): the inputs as recorded, and the plans beside them, to be played into RViz or Foxglove."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rosbags.interfaces import Connection
from rosbags.rosbag2 import StoragePlugin, Writer

from rsd_planner.errors import ParameterError
from rsd_planner.evaluation.bag import BagMessage, ros2_types
from rsd_planner.messages.markers import PlanMarkers
from rsd_planner.messages.plans import PlanMessages
from rsd_planner.plan import Plan
from rsd_planner.scene.observation import EgoHistory

PATH_TOPIC = "/rsd_planner/output/path"
REASONING_TOPIC = "/rsd_planner/output/reasoning_text"
MARKERS_TOPIC = "/rsd_planner/output/markers"


class Recording:
    """An MCAP being written. Plans carry the topic names of the node."""

    def __init__(self, writer: Writer, marker_lifetime_ns: int) -> None:
        self._writer = writer
        self._types = ros2_types()
        self._messages = PlanMessages(self._types.types)
        self._markers = PlanMarkers(self._types.types)
        self._connections: dict[str, Connection] = {}
        self._marker_lifetime_ns = marker_lifetime_ns

    def copy(self, message: BagMessage) -> None:
        """Writes an input message as it was recorded."""
        self._write(message.topic, message.type, message.log_ns, message.cdr)

    def add(self, plan: Plan, history: EgoHistory, odometry_frame: str, log_ns: int) -> None:
        """Writes a plan: path, reasoning and markers, stamped t0 in the odometry frame.

        Args:
            plan: What was planned.
            history: The ego history it was planned from.
            odometry_frame: Frame id of the odometry messages.
            log_ns: When the last message it needed was recorded, as if planning took no time.
        """
        path = self._messages.path(plan, history.pose_t0, odometry_frame)
        text = self._messages.reasoning_text(plan.reasoning)
        markers = self._markers.of(plan, history, odometry_frame, self._marker_lifetime_ns)
        for topic, message in ((PATH_TOPIC, path), (REASONING_TOPIC, text), (MARKERS_TOPIC, markers)):
            type_name = message.__msgtype__
            self._write(topic, type_name, log_ns, self._types.serialize_cdr(message, type_name))

    def _write(self, topic: str, type_name: str, log_ns: int, cdr: bytes | memoryview) -> None:
        if topic not in self._connections:
            self._connections[topic] = self._writer.add_connection(topic, type_name, typestore=self._types)
        self._writer.write(self._connections[topic], log_ns, cdr)


@contextmanager
def new_recording(directory: Path, marker_lifetime_ns: int) -> Iterator[Recording]:
    """A recording in a new bag directory; that of an earlier evaluation is replaced.

    Raises:
        ParameterError: The directory holds something else.
    """
    _remove_earlier(directory)
    with Writer(directory, version=8, storage_plugin=StoragePlugin.MCAP) as writer:
        yield Recording(writer, marker_lifetime_ns)


def _remove_earlier(directory: Path) -> None:
    """Removes a bag directory of ours, and nothing that could be anything else."""
    if not directory.exists():
        return
    ours = {"metadata.yaml", f"{directory.name}.mcap"}
    found = {entry.name for entry in directory.iterdir()} if directory.is_dir() else {directory.name}
    if not directory.is_dir() or not found <= ours:
        others = ", ".join(sorted(found - ours))
        raise ParameterError(f"--out: {directory} holds {others}, which no evaluation wrote; choose another directory")
    for name in found:
        (directory / name).unlink()
    directory.rmdir()
