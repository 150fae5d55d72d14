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
    since_s = 0.0  # when, by the monotonic clock


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
    previous = signal.getsignal(signal.SIGINT)

    def request(_number: int, _frame: FrameType | None) -> None:
        if interrupt.requested:
            if time.monotonic() - interrupt.since_s >= echo_s:
                raise KeyboardInterrupt
            return
        interrupt.requested, interrupt.since_s = True, time.monotonic()
        console.print(f"stopping after this {under_way}; Ctrl-C again to stop at once")

    signal.signal(signal.SIGINT, request)
    if _under_way:
        _hand_on(_under_way[-1], interrupt)
    _under_way.append(interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
        _under_way.pop()
        if _under_way:
            _hand_on(interrupt, _under_way[-1])


def _hand_on(asked: Interrupt, other: Interrupt) -> None:
    if asked.requested and not other.requested:
        other.since_s, other.requested = asked.since_s, True
