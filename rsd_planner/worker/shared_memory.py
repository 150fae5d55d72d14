"""Image data on its way from node to worker: one nameless block of memory that both have mapped.

It belongs to no file system, so that nothing is left of it however the processes end, and it is not limited by the
size of /dev/shm, which is 64 MB in a container.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence

_GRANULE = 1 << 20


class SharedMemory:
    """Written by one end, read by the other; who may do so when is a matter of the messages between them."""

    def __init__(self, descriptor: int | None = None) -> None:
        """A new block; or another view of one, by a file descriptor that is closed with this object."""
        self.descriptor = _anonymous_file() if descriptor is None else descriptor
        self._map: mmap.mmap | None = None

    def write(self, parts: Sequence[memoryview]) -> list[int]:
        """Overwrite the block with these bytes, growing it as needed; where each part begins."""
        offsets, end = [], 0
        for part in parts:
            offsets.append(end)
            end += part.nbytes
        if end > os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, -(-end // _GRANULE) * _GRANULE)
        mapped = self._mapped(end)
        for offset, part in zip(offsets, parts, strict=True):
            mapped[offset : offset + part.nbytes] = part
        return offsets

    def read(self, offset: int, length: int) -> bytes:
        """A copy of a part."""
        return self._mapped(offset + length)[offset : offset + length]

    def close(self) -> None:
        """Unmap; the memory is free once both ends have done so."""
        if self._map is not None:
            self._map.close()
            self._map = None
        os.close(self.descriptor)

    def _mapped(self, end: int) -> mmap.mmap:
        if self._map is None or len(self._map) < end:
            if self._map is not None:
                self._map.close()
            self._map = mmap.mmap(self.descriptor, max(os.fstat(self.descriptor).st_size, 1))
        return self._map


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rsd_planner")
    else:  # a Python built for a C library older than the kernel
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _GRANULE)
    return descriptor
