"""Messages between node and worker: a JSON header and raw little-endian arrays over a stream socket.

Plain on purpose: the two ends may run different versions of Python and NumPy.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LENGTHS = struct.Struct("<II")  # of header and arrays, bytes


@dataclass(frozen=True)
class Message:
    """One message: what it is, JSON values, and arrays by name."""

    kind: str
    content: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Channel:
    """One end of the conversation. Sending and receiving may happen in different threads."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._stream.setblocking(True)

    def fileno(self) -> int:
        return self._stream.fileno()

    def send(self, message: Message) -> None:
        """Send a message whole.

        Raises:
            OSError: The other end is gone.
        """
        arrays = {name: np.ascontiguousarray(array) for name, array in message.arrays.items()}
        arrays = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}
        header = json.dumps(
            {
                "kind": message.kind,
                "content": message.content,
                "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()],
            }
        ).encode()
        body = b"".join(array.tobytes() for array in arrays.values())
        self._stream.sendall(_LENGTHS.pack(len(header), len(body)) + header + body)

    def receive(self) -> Message | None:
        """Wait for a message; None when the other end is gone."""
        lengths = self._read(_LENGTHS.size)
        if lengths is None:
            return None
        header_bytes, body_bytes = _LENGTHS.unpack(lengths)
        header, body = self._read(header_bytes), self._read(body_bytes)
        if header is None or body is None:
            return None
        said = json.loads(bytes(header))
        arrays, offset = {}, 0
        for name, dtype, shape in said["arrays"]:
            count = math.prod(shape)
            arrays[name] = np.frombuffer(body, dtype, count, offset).reshape(shape)
            offset += arrays[name].nbytes
        return Message(said["kind"], said["content"], arrays)

    def hang_up(self) -> None:
        """Both ends receive None from now on; this one still has to be closed."""
        with suppress(OSError):  # the other end was faster
            self._stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up and free the socket, which nobody may be using any more."""
        self.hang_up()
        self._stream.close()

    def _read(self, count: int) -> bytearray | None:
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            try:
                received = self._stream.recv_into(view[got:])
            except OSError:  # reset by a peer that was killed
                return None
            if received == 0:
                return None
            got += received
        return data
