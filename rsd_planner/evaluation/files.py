"""Files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes UTF-8 text; a reader never sees half of it, whenever the process ends.

    A byte of a file name that is no UTF-8 is written as its escape, which JSON reads back.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
