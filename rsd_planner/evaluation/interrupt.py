"""Ctrl-C as a request: the plan under way is finished, results stay whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console


class Interrupt:
    """Whether somebody asked to stop."""

    requested = False


@contextmanager
def on_interrupt(console: Console) -> Iterator[Interrupt]:
    """The first Ctrl-C sets `requested`, the second one raises KeyboardInterrupt at once."""
    interrupt = Interrupt()
    previous = signal.getsignal(signal.SIGINT)

    def request(_number: int, _frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print("stopping after this plan; Ctrl-C again to stop at once")

    signal.signal(signal.SIGINT, request)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
