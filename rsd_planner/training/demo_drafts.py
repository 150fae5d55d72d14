"""All drafts of the demo model: both families, both ropes, several seeds, trained side by side from one cache."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import active_children, get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import ParameterError, PlannerError
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.interrupt import Interrupt, on_interrupt
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.cache import Cache, target_fingerprint
from rsd_planner.training.design import taps_of
from rsd_planner.training.frames import open_frames
from rsd_planner.training.progress import counting
from rsd_planner.training.run import ECHO_S
from rsd_planner.training.teacher import Teacher
from rsd_planner.training.train_draft import DTYPES, Request, train_draft, validation_prompts
from rsd_planner.training.validation import measure

_stop: Event = get_context("spawn").Event()  # of this process: the parent's, in one of its pool

_SAVING_S = 60.0  # at most

SPLITS = (Split.VAL, Split.TEST, Split.OFF_SHELF)


@dataclass(frozen=True)
class DraftsRequest:
    """What all drafts have in common."""

    common: Request  # its family, rope, seed and `out` are filled in for each draft
    out: Path
    seeds: int = 3
    jobs: int = 2  # drafts at once
    measured: int = 100  # frames per split

    def __post_init__(self) -> None:
        """Raises ParameterError for a value outside its range."""
        for name in ("seeds", "jobs", "measured"):
            if getattr(self, name) < 1:
                raise ParameterError(f"--{name} is {getattr(self, name)}, expected 1 or more")

    def drafts(self) -> dict[str, Request]:
        """Name -> what to train, the first seed of everything first."""
        named = {}
        for seed, kind, rope in product(range(self.seeds), DraftKind, Rope):
            name = f"{kind.name.lower()}_{rope.value}_{seed}"
            named[name] = replace(self.common, kind=kind, rope=rope, seed=seed, out=self.out / name)
        return named


def train_drafts(request: DraftsRequest, console: Console) -> dict[str, Any] | None:
    """Train what is not trained yet and measure it; the summary goes to summary.json after every draft.

    Returns:
        The summary, None if Ctrl-C came before all were done.

    Raises:
        PlannerError: As `train_draft`.
    """
    for split in (Split.TRAIN, *SPLITS):
        open_frames(request.common.data, split, request.common.bags)  # before any process starts
    request.out.mkdir(parents=True, exist_ok=True)
    context = get_context("spawn")
    stop = context.Event()
    with (
        ProcessPoolExecutor(request.jobs, context, _told_by_parent, (stop,)) as pool,
        on_interrupt(console, "step of each draft") as interrupt,
    ):
        side_by_side = _Pool(pool, stop, interrupt, console)
        shares = [(request.common, part, request.jobs) for part in range(request.jobs)]
        if not all(side_by_side.results(_fill, shares, "shares of the cache")) or interrupt.requested:
            return None
        return _train_all(request, side_by_side, console)


def _train_all(request: DraftsRequest, pool: _Pool, console: Console) -> dict[str, Any] | None:
    drafts, path = request.drafts(), request.out / "summary.json"
    target = target_fingerprint(request.common.target)
    done = {name: found for name in drafts if (found := _measured(drafts[name], request.measured, target)) is not None}
    jobs = [(name, one, request.measured, request.jobs) for name, one in drafts.items() if name not in done]
    for name, figures in pool.results(_train, jobs, "drafts"):
        if figures is not None:
            done[name] = figures
            lengths = {split.value: figures["splits"][split.value]["accepted_length"] for split in SPLITS}
            console.print(f"{name}: L {lengths}", highlight=False, soft_wrap=True)
            write_whole(path, json.dumps(summary(done), indent=1) + "\n")
    if len(done) < len(drafts):
        return None
    write_whole(path, json.dumps(summary(done), indent=1) + "\n")
    return summary(done)


def summary(done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every draft's figures, and per family, rope and split mean and spread of L over the seeds."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for figures in done.values():
        groups.setdefault((figures["draft"], figures["rope"]), []).append(figures)
    rows = []
    for ((kind, rope), members), split in product(sorted(groups.items()), SPLITS):
        found = [figures["splits"][split.value] for figures in members]
        lengths = [entry["accepted_length"] for entry in found]
        rows.append(
            {
                "draft": kind,
                "rope": rope,
                "split": split.value,
                "seeds": len(lengths),
                "accepted_length": round(mean(lengths), 4),
                "spread": round(stdev(lengths), 4) if len(lengths) > 1 else None,  # standard deviation over the seeds
                "ceiling": found[0]["ceiling"],
                "routine_share": round(mean(entry["routine_share"] for entry in found), 4),
            }
        )
    return {"rows": rows, "drafts": dict(sorted(done.items()))}


def print_summary(found: Mapping[str, Any], console: Console) -> None:
    """The comparison as a table."""
    table = Table("draft", "rope", "split", "L", "over seeds", "ceiling", "routine share")
    for row in found["rows"]:
        spread = "" if row["spread"] is None else f"± {row['spread']:.3f} ({row['seeds']})"
        length, ceiling, share = f"{row['accepted_length']:.3f}", f"{row['ceiling']:.3f}", f"{row['routine_share']:.1%}"
        table.add_row(row["draft"], row["rope"], row["split"], length, spread, ceiling, share)
    console.print(table)


class _Pool:
    """Processes side by side. Ctrl-C is passed on to them: they save, and what has not begun stays undone."""

    def __init__(self, pool: ProcessPoolExecutor, stop: Event, interrupt: Interrupt, console: Console) -> None:
        self._pool, self._stop, self._interrupt, self._console = pool, stop, interrupt, console

    def results(self, work: Callable[..., Any], calls: Sequence[tuple[Any, ...]], what: str) -> Iterator[Any]:
        """Results of the calls as they come."""
        pending: set[Future[Any]] = {self._pool.submit(work, *call) for call in calls}
        done = 0
        with counting(self._console, what, len(calls)) as show, self._ended_at_once():
            while pending:
                finished, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
                if self._interrupt.requested:
                    pending = {future for future in pending if not future.cancel()}
                    self._pass_on()
                for future in finished:
                    try:
                        yield future.result()
                    except BrokenProcessPool:  # Ctrl-C while a process was starting
                        if not self._interrupt.requested:
                            raise
                    except PlannerError:  # told now, not after all the others
                        self._pool.shutdown(wait=False, cancel_futures=True)
                        self._pass_on()
                        raise
                done += len(finished)
                show(done, "")

    @contextmanager
    def _ended_at_once(self) -> Iterator[None]:
        """The second Ctrl-C does not wait for anybody."""
        try:
            yield
        except KeyboardInterrupt:
            for child in active_children():
                child.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)
            raise

    def _pass_on(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()  # for what the pool has handed out already and no process has begun
        for child in active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGINT)


def _told_by_parent(stop: Event) -> None:
    """In a new process: a terminal's Ctrl-C goes to the parent alone; without a parent it saves and ends."""
    global _stop
    _stop = stop
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_after, args=(os.getppid(),), name="parent watch", daemon=True).start()


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    _stop.set()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_SAVING_S)
    os._exit(1)


def _fill(request: Request, part: int, parts: int) -> bool:
    """One process's share of the cache that all drafts read; whether it is done."""
    _share_cores(parts)
    with on_interrupt(Console(quiet=True), echo_s=ECHO_S) as interrupt:
        if _stop.is_set():
            return False
        target = AlpamayoTarget.load(request.target, device=request.device, dtype=DTYPES[request.dtype])
        source = open_frames(request.data, Split.TRAIN, request.bags)
        cache = Cache(
            _cache_folder(request),
            source,
            Teacher(target),
            target_fingerprint(request.target),
            max_tokens=request.max_tokens,
            gigabytes=request.cache_gb,
            limit=request.frames,
        )
        layers = target.network.text.config.num_hidden_layers
        taps = sorted({tap for kind in DraftKind for tap in taps_of(kind, layers)})
        cache.fill(range(part, cache.chunks, parts), taps, lambda: interrupt.requested)
        return not interrupt.requested


def _train(name: str, request: Request, measured: int, jobs: int) -> tuple[str, dict[str, Any] | None]:
    """Train a draft and measure it; None if it was stopped."""
    _share_cores(jobs)
    with on_interrupt(Console(quiet=True), echo_s=ECHO_S) as interrupt:
        if _stop.is_set() or not train_draft(request, Console(quiet=True)).finished:
            return name, None
        return name, _measure(request, measured, interrupt)


def _measure(request: Request, count: int, interrupt: Interrupt) -> dict[str, Any] | None:
    target = AlpamayoTarget.load(request.target, device=request.device, dtype=DTYPES[request.dtype])
    splits = {}
    for split in SPLITS:
        if interrupt.requested:
            return None
        prompts = validation_prompts(target, open_frames(request.data, split, request.bags), count)
        splits[split.value] = measure(request.out, target, prompts, request.max_tokens).as_json()
    result = json.loads((request.out / "run" / "result.json").read_text(encoding="utf-8"))
    figures = {
        "draft": request.kind.name.lower(),
        "rope": request.rope.value,
        "seed": request.seed,
        "best_step": result["best_step"],
        "training_seconds": round(result["seconds"], 1),
        "bytes": (request.out / "model.safetensors").stat().st_size,
        "measured": count,
        "splits": splits,
        "made": _made(request, target_fingerprint(request.target)),
    }
    write_whole(request.out / "figures.json", json.dumps(figures, indent=1) + "\n")
    return figures


def _measured(request: Request, count: int, target: str) -> dict[str, Any] | None:
    """Figures that are there already, if the draft was made and measured as it is asked for now."""
    path = request.out / "figures.json"
    figures: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    same = figures is not None and figures["measured"] == count and figures.get("made") == _made(request, target)
    return figures if same else None


def _made(request: Request, target: str) -> dict[str, Any]:
    numbers = {name: getattr(request, name) for name in ("frames", "steps", "batch", "rate")}
    return {"target": target, **numbers}


def _share_cores(jobs: int) -> None:
    torch.set_num_threads(max(1, torch.get_num_threads() // jobs))


def _cache_folder(request: Request) -> Path:
    assert request.cache is not None
    return request.cache
