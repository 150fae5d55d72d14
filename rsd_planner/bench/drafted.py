"""Strategies with a draft: n-gram, draft directories, exported graphs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from rsd_planner.bench.ngram import NAME, NgramDraft, training_texts
from rsd_planner.bench.strategies import PlannerStrategy, Strategy
from rsd_planner.draft.load import load_draft
from rsd_planner.engine.backends import Backend, BackendName, load_backend
from rsd_planner.errors import PlannerError
from rsd_planner.model_info import ModelInfo
from rsd_planner.planner import Planner, PlannerSettings, target_parts
from rsd_planner.target.checkpoint import ModelDirectory


def drafted(model: Path, directories: Sequence[Path], planner: Planner, settings: PlannerSettings) -> list[Strategy]:
    """A strategy per draft, named by what it is.

    Args:
        directories: None of them: those in the model directory, if it has any.

    Raises:
        CheckpointError: A draft cannot be loaded, or does not fit.
    """
    chosen = directories or ModelDirectory.find(model).drafts
    loaded = [(path, *load_draft(path, target_parts(planner.target))) for path in chosen]
    kinds = [f"{config.kind.value}, {config.rope.value}" for _, _, config in loaded]
    found: list[Strategy] = []
    for (path, draft, config), kind in zip(loaded, kinds, strict=True):
        name = kind if kinds.count(kind) == 1 else f"{kind} ({path.name})"
        name = f"memory + {name}" if settings.memory_ticks else name
        found.append(
            PlannerStrategy(
                name, planner.target, planner.info, settings, draft=draft, taps=config.taps, origin=str(path)
            )
        )
    return found


def ngram(data: Path, planner: Planner, settings: PlannerSettings, console: Console) -> list[Strategy]:
    """The draft that learned from the training texts; says so where there are none."""
    words = planner.target.vocabulary
    try:
        texts = training_texts(data)
    except PlannerError as error:
        console.print(f"no n-gram row: {error}", markup=False, highlight=False, soft_wrap=True)
        return []
    closing = [words.cot_end, words.future_start]
    ids = {text: [*words.encode(text), *closing] for text in set(texts)}
    draft = NgramDraft(ids[text] for text in texts)
    origin = f"{len(texts)} training texts"
    return [PlannerStrategy(NAME, planner.target, planner.info, settings, draft=draft, origin=origin)]


def load_engine(model: Path, engine: Path, info: ModelInfo, stack: ExitStack) -> tuple[Backend, ModelInfo]:
    """Exported graphs of the model, run by ONNX Runtime.

    Raises:
        CheckpointError: They are none, or of another model.
    """
    backend = load_backend(BackendName.ONNXRUNTIME, model, engine, device="cpu", dtype="float32")
    stack.callback(backend.target.close)
    return backend, replace(info, backend=backend.name, dtype=backend.dtype)


def on_engine(engine: tuple[Backend, ModelInfo], model: Path, settings: PlannerSettings) -> list[Strategy]:
    """The plain loop or the memory on exported graphs, and the model's own draft there."""
    backend, info = engine
    settings = replace(settings, backend=BackendName.ONNXRUNTIME.value)
    taps = backend.target.taps
    alone = "memory" if settings.memory_ticks else "plain loop"
    found: list[Strategy] = [PlannerStrategy(f"{alone}, ONNX", backend.target, info, settings, taps=taps)]
    own = ModelDirectory.find(model).draft
    if own is not None:
        draft, config = backend.load_draft(own, target_parts(backend.target))
        name = f"{config.kind.value}, {config.rope.value}, ONNX"
        name = f"memory + {name}" if settings.memory_ticks else name
        found.append(PlannerStrategy(name, backend.target, info, settings, draft=draft, taps=taps, origin=str(own)))
    return found
