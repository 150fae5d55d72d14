"""Reading recordings: rosbag2 (sqlite3, MCAP) and rosbag1, one message at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader
from rosbags.interfaces import Connection
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from rsd_planner.errors import BagError, one_line
from rsd_planner.evaluation.topics import Topic

BAG_SUFFIXES = (".mcap", ".db3", ".bag")
EXPECTED = f"a rosbag2 directory (with metadata.yaml) or a {', '.join(BAG_SUFFIXES)} file"


def ros2_types() -> Typestore:
    """The ROS 2 messages read and written here; these are the same in every distribution since Humble."""
    return get_typestore(Stores.ROS2_HUMBLE)


@dataclass(frozen=True)
class BagMessage:
    """One recorded message."""

    topic: str
    type: str
    log_ns: int  # when it was recorded
    message: Any
    cdr: bytes | memoryview  # serialized for ROS 2


class Bag:
    """An open recording."""

    def __init__(self, path: Path, reader: AnyReader) -> None:
        self.path = path
        self.name = path.stem if path.is_file() else path.resolve().name
        self._reader = reader
        self._ros2 = ros2_types()
        self._connections: dict[str, list[Connection]] = defaultdict(list)
        for connection in reader.connections:
            self._connections[connection.topic].append(connection)
        self.start_ns: int = reader.start_time
        self.end_ns: int = reader.end_time

    @property
    def topics(self) -> list[Topic]:
        return [
            Topic(name, same[0].msgtype, sum(connection.msgcount for connection in same))
            for name, same in sorted(self._connections.items())
        ]

    @property
    def duration_s(self) -> float:
        return max(0, self.end_ns - self.start_ns) * 1e-9

    def messages(self, topics: Sequence[str]) -> Iterator[BagMessage]:
        """The messages of some topics in the order they were recorded.

        Raises:
            BagError: The recording is damaged from here on.
        """
        connections = [connection for topic in topics for connection in self._connections[topic]]
        stored = self._reader.messages(connections)
        while True:
            with _explained(self.path):
                item = next(stored, None)
                if item is None:
                    return
                connection, log_ns, raw = item
                message = self._reader.deserialize(raw, connection.msgtype)
                cdr = raw if self._reader.is2 else self._ros2.serialize_cdr(message, connection.msgtype)
            yield BagMessage(connection.topic, connection.msgtype, log_ns, message, cdr)


@contextmanager
def open_bag(path: Path) -> Iterator[Bag]:
    """Opens a recording given as directory or file.

    Raises:
        BagError: There is none, it is empty, damaged or no recording at all.
    """
    if not path.exists():
        raise BagError(f"{path}: does not exist; expected {EXPECTED}")
    if not path.is_dir() and not path.is_file():
        raise BagError(f"{path}: neither a file nor a directory; expected {EXPECTED}")
    if path.is_dir() and not (path / "metadata.yaml").is_file():
        raise BagError(
            f"{path}: a directory without metadata.yaml (`ros2 bag reindex` restores it); expected {EXPECTED}"
        )
    if path.is_file() and path.suffix not in BAG_SUFFIXES:
        raise BagError(f"{path}: not a recording by its name; expected {EXPECTED}")
    with _explained(path):
        reader = AnyReader([path], default_typestore=ros2_types())
        reader.open()
    try:
        if reader.message_count == 0:
            raise BagError(f"{path}: the recording is empty: no messages on {len(reader.connections)} topics")
        yield Bag(path, reader)
    finally:
        reader.close()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns whatever parsing a damaged file trips over into one message.

    rosbags parses bytes it cannot trust, so the exception can be nearly any: its own, EOFError, struct.error,
    apsw.CorruptError, zstd's, MemoryError for a length that is nonsense.
    """
    try:
        yield
    except OSError as error:
        raise BagError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error
    except Exception as error:
        text = one_line(error)
        if not type(error).__module__.startswith("rosbags"):
            text = f"it is damaged ({type(error).__name__}: {text})"
        if "end magic" in text:  # rosbags' words for an MCAP whose recorder never closed it
            text += " The file is truncated; `mcap recover` saves what it still holds."
        raise BagError(f"{path}: cannot be read: {text}") from error
