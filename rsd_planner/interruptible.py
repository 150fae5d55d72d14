"""Ctrl-C in a command: one line, and an exit code of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

EXIT_INTERRUPTED = 130


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C has an exit code of its own: typer's would be 1, which is check-target's verdict."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None
