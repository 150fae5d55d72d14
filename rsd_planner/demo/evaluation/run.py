"""Asks the model everything there is to ask, in several processes, and keeps every answer on disk as it comes."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from rsd_planner.demo.evaluation.ask import Answer, answer, start_process
from rsd_planner.demo.evaluation.tasks import Kind, Part, Task
from rsd_planner.demo.progress import Progress
from rsd_planner.demo.world.dataset import WORLD_VERSION
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import ParameterError, PlannerError
from rsd_planner.evaluation.files import write_whole
from rsd_planner.target.checkpoint import ModelDirectory

Answers = dict[tuple[Kind, Split], list[list[Answer]]]  # per task; a pair is a task of two


class EvaluationError(PlannerError):
    """An evaluation that could not be finished."""


@dataclass(frozen=True)
class Asked:
    """Who is asked, and how."""

    model: Path
    data: Path
    workers: int
    max_tokens: int


def ask_all(asked: Asked, parts: list[Part], out: Path, console: Console) -> Answers:
    """The answers to all parts; those already in `out` are not asked for again.

    Raises:
        ParameterError: `out` holds answers of another model.
        CheckpointError: The model cannot be loaded.
        EvaluationError: A process was killed.
    """
    folder = out / "answers"
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder / "about.json", asked)
    found: Answers = {}
    context = get_context("spawn")  # a graphics context does not survive a fork
    setup = (asked.model, asked.data, asked.max_tokens)
    with ProcessPoolExecutor(asked.workers, context, start_process, setup) as pool, Progress(console) as progress:
        try:
            for part in parts:
                found[part.kind, part.split] = list(
                    _ask(part, folder / f"{part.name}.jsonl", pool, asked.workers, progress)
                )
        except BrokenProcessPool:
            raise EvaluationError("a process of the evaluation was ended from outside; run the same again") from None
        except BaseException:
            for child in active_children():  # their answers under way are asked for again another time
                child.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return found


def weights_hash(model: Path) -> str:
    """SHA-256 of the checkpoint's weights, shard after shard."""
    digest = hashlib.sha256()
    for path in sorted(ModelDirectory.find(model).checkpoint.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _claim(path: Path, asked: Asked) -> None:
    about = {"weights": weights_hash(asked.model), "world": WORLD_VERSION, "max_tokens": asked.max_tokens}
    if path.exists() and json.loads(path.read_text()) != about:
        raise ParameterError(f"--out: {path.parent} holds answers of another model or world; choose another directory")
    write_whole(path, json.dumps(about) + "\n")


def _ask(part: Part, path: Path, pool: ProcessPoolExecutor, workers: int, progress: Progress) -> Iterator[list[Answer]]:
    """Answers of one part, in the order of its tasks, each on disk before it is given."""
    done = _read(path)
    wanted = part.size if part.is_pairs else sum(1 for _ in part.tasks())
    progress.start(part.name, wanted)
    given = 0
    with path.open("a", encoding="utf-8") as lines:
        for task, answers in _in_order(part.tasks(), done, pool, 2 * workers):
            if task.key not in done:
                lines.write(json.dumps({"key": task.key, "answers": [asdict(one) for one in answers]}) + "\n")
                lines.flush()
            if answers:
                yield answers
                given += 1
                progress.at(given)
            if given == wanted:
                return


def _in_order(
    tasks: Iterator[Task], done: dict[str, list[Answer]], pool: ProcessPoolExecutor, window: int
) -> Iterator[tuple[Task, list[Answer]]]:
    """Tasks with their answers, at most `window` of them under way."""
    waiting: deque[tuple[Task, Future[list[Answer]] | None]] = deque()
    try:
        while True:
            for task in islice(tasks, window - len(waiting)):
                waiting.append((task, None if task.key in done else pool.submit(answer, task)))
            if not waiting:
                return
            task, future = waiting.popleft()
            yield task, done[task.key] if future is None else future.result()
    finally:
        for _, future in waiting:
            if future is not None:
                future.cancel()


def _read(path: Path) -> dict[str, list[Answer]]:
    """Answers by task; a last line that was cut short does not count."""
    if not path.exists():
        return {}
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    write_whole(path, "".join(whole))
    entries: list[dict[str, Any]] = [json.loads(line) for line in whole]
    return {entry["key"]: [Answer(**one) for one in entry["answers"]] for entry in entries}
