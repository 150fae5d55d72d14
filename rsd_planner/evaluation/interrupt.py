"""Ctrl-C as a request: the plan or step under way is finished, results stay whole."""

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
def on_interrupt(console: Console, under_way: str = "plan") -> Iterator[Interrupt]:
    """The first Ctrl-C sets `requested`, the second one raises KeyboardInterrupt at once.

    Args:
        under_way: What is finished first, for the message.
    """
    interrupt = Interrupt()
    previous = signal.getsignal(signal.SIGINT)

    def request(_number: int, _frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print(f"stopping after this {under_way}; Ctrl-C again to stop at once")

    signal.signal(signal.SIGINT, request)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
