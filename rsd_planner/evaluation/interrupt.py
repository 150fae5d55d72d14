"""Ctrl-C as a request: the plan or step under way is finished, results stay whole."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console


class Interrupt:
    """Whether somebody asked to stop."""

    requested = False


_under_way: list[Interrupt] = []  # the innermost last


@contextmanager
def on_interrupt(console: Console, under_way: str = "plan", echo_s: float = 0.0) -> Iterator[Interrupt]:
    """The first Ctrl-C sets `requested`, the second one raises KeyboardInterrupt at once.

    One within another has been asked if that one was, and tells it if it is.

    Args:
        under_way: What is finished first, for the message.
        echo_s: A second one within this time is the first again: torchrun passes on what the terminal has sent already.
    """
    interrupt = Interrupt()
    interrupt.requested = any(outer.requested for outer in _under_way)
    previous = signal.getsignal(signal.SIGINT)
    first_s = time.monotonic()

    def request(_number: int, _frame: FrameType | None) -> None:
        nonlocal first_s
        if interrupt.requested:
            if time.monotonic() - first_s >= echo_s:
                raise KeyboardInterrupt
            return
        interrupt.requested, first_s = True, time.monotonic()
        console.print(f"stopping after this {under_way}; Ctrl-C again to stop at once")

    _under_way.append(interrupt)
    signal.signal(signal.SIGINT, request)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
        _under_way.pop()
        if _under_way:
            _under_way[-1].requested |= interrupt.requested
