"""How far a long run is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LINE_EVERY_S = 20.0


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Yields a function that is told how many of `total` are done, and what there is to say of it."""
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task(what, total=total, note="")
            yield lambda done, note: bar.update(task, completed=done, note=note)
        return
    printed = time.monotonic()

    def line(done: int, note: str) -> None:
        nonlocal printed
        if time.monotonic() - printed > _LINE_EVERY_S or done == total:
            printed = time.monotonic()
            console.print(f"{what}: {done} of {total} {note}".rstrip(), highlight=False, soft_wrap=True, markup=False)

    yield line
