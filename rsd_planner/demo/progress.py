"""How far long work is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from rich import progress as rich_progress
from rich.console import Console

_LINES_PER_PART = 10


class Progress:
    """Told about one part after the other; used as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[note]}"),
            rich_progress.TimeRemainingColumn(),
        )
        self._bar = rich_progress.Progress(*columns, console=console) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, name: str, total: int) -> None:
        """The next part: its name and how much there is of it."""
        self._name, self._total, self._printed = name, total, 0
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=total, note="")

    def at(self, done: int, note: str = "") -> None:
        """So much of the part is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
            return
        share = done * _LINES_PER_PART // max(self._total, 1)
        if share > self._printed:
            self._printed = share
            self._console.print(f"{self._name}: {done} of {self._total} {note}".rstrip(), highlight=False)
