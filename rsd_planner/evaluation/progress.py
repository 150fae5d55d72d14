"""How far an evaluation is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as rich_progress
from rich.console import Console

LINES_PER_BAG = 10


class Progress(Protocol):
    """Told about one recording after the other."""

    def start(self, name: str, duration_s: float) -> None: ...

    def at(self, seconds: float, plans: int, skipped: int) -> None: ...


class _Bar:
    def __init__(self, bar: rich_progress.Progress) -> None:
        self._bar = bar
        self._task: rich_progress.TaskID | None = None

    def start(self, name: str, duration_s: float) -> None:
        self._task = self._bar.add_task(name, total=duration_s, counts="")

    def at(self, seconds: float, plans: int, skipped: int) -> None:
        assert self._task is not None
        self._bar.update(self._task, completed=seconds, counts=f"{plans} planned, {skipped} skipped")


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._name, self._duration_s, self._printed = "", 0.0, 0

    def start(self, name: str, duration_s: float) -> None:
        self._name, self._duration_s, self._printed = name, duration_s, 0

    def at(self, seconds: float, plans: int, skipped: int) -> None:
        part = int(LINES_PER_BAG * seconds / self._duration_s) if self._duration_s > 0 else LINES_PER_BAG
        if part > self._printed:
            self._printed = part
            self._console.print(
                f"{self._name}: {seconds:.1f} of {self._duration_s:.1f} s, {plans} planned, {skipped} skipped",
                highlight=False,
                soft_wrap=True,
            )


@contextmanager
def progress_of(console: Console) -> Iterator[Progress]:
    """Progress on this console."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.completed:.1f}/{task.total:.1f} s"),
        rich_progress.TextColumn("{task.fields[counts]}"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console) as bar:
        yield _Bar(bar)
