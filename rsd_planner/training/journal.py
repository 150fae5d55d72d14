"""One JSON line per frame, so that a measurement that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rsd_planner.errors import TrainingError


class Journal:
    """A file whose first line says what is measured, and whose others what was found, by name."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        """Raises TrainingError: The file holds another measurement."""
        self._path = path
        self.found: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._read(dict(recipe))
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(recipe) + "\n", encoding="utf-8")

    def write(self, name: str, line: Mapping[str, Any]) -> None:
        """Note what was found of one frame."""
        self.found[name] = dict(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": name, **line}) + "\n")

    def _read(self, recipe: dict[str, Any]) -> None:
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # the last line was being written when the process ended
            self._path.write_text(whole, encoding="utf-8")
        try:
            known, *lines = [json.loads(line) for line in whole.splitlines()] or [{}]
            self.found = {line.pop("id"): line for line in lines}
        except (ValueError, KeyError, AttributeError) as error:
            raise TrainingError(f"{self._path}: not readable ({error!r}); delete it, and it is written anew") from None
        if differing := sorted(name for name in {*known, *recipe} if known.get(name) != recipe.get(name)):
            name = differing[0]
            found, expected = known.get(name), recipe.get(name)
            raise TrainingError(f"{self._path}: {name} is {found}, expected {expected}: use another --out")
