"""`rsd_planner train-draft`: from a target and data to a draft directory with model card and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from rich.console import Console
from torch import Tensor

from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftConfig, DraftKind
from rsd_planner.draft.rotary import Rope
from rsd_planner.errors import ImageError, ParameterError
from rsd_planner.evaluation.interrupt import on_interrupt
from rsd_planner.planner import PlannerSettings, target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt
from rsd_planner.training.cache import Cache, target_fingerprint
from rsd_planner.training.card import write_card
from rsd_planner.training.curves import draw_curves
from rsd_planner.training.design import (
    design,
    likeliest_tokens,
    new_objective,
    published,
    taps_of,
    vocabulary_maps,
    write_draft,
)
from rsd_planner.training.dflash_objective import DFlashObjective
from rsd_planner.training.eagle3_objective import Eagle3Objective
from rsd_planner.training.frames import BagOptions, FrameSource, open_frames, spread
from rsd_planner.training.progress import counting
from rsd_planner.training.run import ECHO_S, Progress, Schedule, train
from rsd_planner.training.samples import Samples
from rsd_planner.training.teacher import Teacher
from rsd_planner.training.validation import Acceptance, measure

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Request:
    """What to train, on what, and where to write it."""

    target: Path
    kind: DraftKind
    rope: Rope
    data: Path  # a folder of the demo world, or a recording
    out: Path
    validation: Path | None = None  # None: `data`, if that is a folder of the demo world
    cache: Path | None = None  # None: in `out`
    cache_gb: float = 4.0  # of hidden states
    frames: int | None = None  # the first so many; None for all
    validation_frames: int = 64
    steps: int = 700
    batch: int = 16  # frames per step, all processes together
    rate: float = 2e-3
    seed: int = 0
    layers: int = 2  # DFlash
    block_size: int = 16  # DFlash
    anchors: int = 8  # DFlash: blocks per frame and step
    intermediate: int | None = None  # None: the target's
    draft_vocabulary: int = 32_000  # EAGLE-3: tokens at most; 0: the target's whole vocabulary
    validations: int = 5
    max_tokens: int = 256  # of a reasoning
    device: str = "cpu"
    dtype: str = "float32"  # of the target
    bags: BagOptions = field(default_factory=BagOptions)

    def __post_init__(self) -> None:
        """Raises ParameterError for a value outside its range."""
        least = {"validation_frames": 1, "steps": 1, "batch": 1, "layers": 1, "block_size": 2, "anchors": 1}
        least |= {"validations": 1, "max_tokens": 1, "draft_vocabulary": 0, "seed": 0, "cache_gb": 0}
        least |= {"frames": 1} if self.frames is not None else {}
        for name, bound in least.items():
            if not getattr(self, name) >= bound:
                flag = name.replace("_", "-")
                raise ParameterError(f"--{flag} is {getattr(self, name)}, expected {bound} or more")
        if not 0 < self.rate < 1:
            raise ParameterError(f"--rate is {self.rate}, expected more than 0 and less than 1")
        if 0 < self.draft_vocabulary < 2:
            raise ParameterError(f"--draft-vocabulary is {self.draft_vocabulary}, expected room for the closing tokens")
        PlannerSettings(device=self.device, dtype=self.dtype)


class DraftTrainee:
    """A draft with its objective, fed from a cache, validated on prompts; see `run.Trainee`."""

    def __init__(
        self,
        request: Request,
        config: DraftConfig,
        objective: DFlashObjective | Eagle3Objective,
        samples: Samples,
        fixed: Mapping[str, Tensor],
        target: AlpamayoTarget,
        prompts: Sequence[Prompt],
        facts: Mapping[str, Any],
    ) -> None:
        """
        Args:
            fixed: Tensors of the draft that are not trained.
            prompts: To validate on.
            facts: Of target and data, for the recipe.
        """
        self.module = objective
        self._request, self._config, self._samples, self._fixed = request, config, samples, fixed
        self._target, self._prompts, self._facts = target, prompts, facts
        self._epoch = (-1, [np.zeros(0, np.int64)])

    def recipe(self) -> Mapping[str, Any]:
        """See `run.Trainee`."""
        numbers = {"batch": self._request.batch, "anchors": self._request.anchors}
        return {**self._facts, **numbers, "draft": published(self._config), "validation_frames": len(self._prompts)}

    def batch(self, step: int, part: int, parts: int) -> tuple[Any, ...]:
        """See `run.Trainee`."""
        request = self._request
        if self._epoch[0] < 0:
            self._epoch = (0, self._samples.epoch(request.batch, request.seed, 0))
        number, place = divmod(step, len(self._epoch[1]))
        if self._epoch[0] != number:
            self._epoch = (number, self._samples.epoch(request.batch, request.seed, number))
        chosen = self._epoch[1][place][part::parts]
        seed = np.random.SeedSequence([request.seed, step, part]).generate_state(1)
        return self._samples.batch(chosen), int(seed[0])

    def export(self, weights: Mapping[str, Tensor], directory: Path) -> None:
        """See `run.Trainee`."""
        named = {name.removeprefix("network."): tensor for name, tensor in weights.items()}
        write_draft(directory, self._config, {**named, **self._fixed})

    def validate(self, directory: Path, part: int, parts: int) -> Acceptance:
        """See `run.Trainee`."""
        return measure(directory, self._target, self._prompts[part::parts], self._request.max_tokens)


def train_draft(request: Request, console: Console) -> Progress:
    """Fill the cache, train, keep the best, write MODEL_CARD.md and curves.png.

    Returns:
        How far it came: Ctrl-C stops it at any stage, and the same call goes on.

    Raises:
        PlannerError: Target, data, cache or an earlier run in `out` is not usable.
    """
    accelerator = accelerator_for(request.device)
    shown = console if accelerator.is_main_process else Console(quiet=True)
    target = AlpamayoTarget.load(request.target, device=str(accelerator.device), dtype=DTYPES[request.dtype])
    fingerprint = target_fingerprint(request.target)
    source = open_frames(request.data, Split.TRAIN, request.bags)
    held_out = validation_source(request)
    folder = request.cache or request.out / "cache"
    cache = Cache(
        folder,
        source,
        Teacher(target),
        fingerprint,
        max_tokens=request.max_tokens,
        gigabytes=request.cache_gb,
        limit=request.frames,
    )
    taps = taps_of(request.kind, target.network.text.config.num_hidden_layers)
    if not fill(cache, taps, accelerator, shown):
        return Progress()
    samples = Samples(cache, taps, resident=accelerator.device.type != "cpu")
    if cut := sum(len(reasoning) >= request.max_tokens for reasoning in samples.reasonings):
        of = f"{cut} of {len(samples.reasonings)} reasonings end at --max-tokens {request.max_tokens}"
        shown.print(f"{of}: the draft will not know how they go on", highlight=False, soft_wrap=True)
    if request.batch < accelerator.num_processes:
        raise ParameterError(f"--batch is {request.batch}, expected a frame for each of the processes")
    trainee = _trainee(
        request, target, samples, held_out, {"target": fingerprint, "data": [source.fingerprint, cache.frames]}
    )
    every = -(-request.steps // request.validations)
    schedule = Schedule(request.steps, request.rate, every, warm_up=min(100, request.steps // 10), seed=request.seed)
    request.out.mkdir(parents=True, exist_ok=True)
    progress = train(trainee, schedule, request.out, accelerator, shown)
    if accelerator.is_main_process and progress.best:
        draw_curves(request.out / "run" / "log.jsonl", request.out / "curves.png")
        write_card(request, samples, progress, request.out / "MODEL_CARD.md")
        said = "wrote" if progress.finished else "stopped; the same call goes on in"
        shown.print(f"{said} {request.out}", markup=False, highlight=False, soft_wrap=True)
    return progress


def fill(cache: Cache, layers: Sequence[int], accelerator: Accelerator, console: Console) -> bool:
    """Every process does its share of the missing chunks.

    Returns:
        Whether the cache is complete; it is not if somebody asked to stop.
    """
    part, parts = accelerator.process_index, accelerator.num_processes
    chunks = range(part, cache.chunks, parts)
    with (
        on_interrupt(console, "chunk of frames", ECHO_S) as interrupt,
        counting(console, f"what the target says ({cache.source.name})", len(chunks)) as show,
    ):
        done = 0

        def count() -> bool:
            nonlocal done
            done += 1
            show(done, "chunks")
            return interrupt.requested

        cache.fill(chunks, layers, count)
        accelerator.wait_for_everyone()
    return cache.complete() and not interrupt.requested


def validation_prompts(target: AlpamayoTarget, source: FrameSource, count: int) -> list[Prompt]:
    """Prompts of `count` frames spread over a source, without those whose images are broken."""
    prompts = []
    for number in spread(source, count):
        try:
            prompts.append(target.prompt(source.observation(number)))
        except ImageError:
            continue
    if not prompts:
        raise ParameterError(f"--val: no frame of {source.name} can be used")
    return prompts


def accelerator_for(name: str) -> Accelerator:
    """This process among those that train together, on a device as PyTorch names it."""
    device = torch.device(name)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return Accelerator(cpu=device.type == "cpu")


def validation_source(request: Request) -> FrameSource:
    """Frames that are not trained on; raises ParameterError if none are named and there is no split val."""
    if request.validation is not None:
        return open_frames(request.validation, Split.VAL, request.bags)
    if (request.data / Split.VAL.value / "about.json").is_file():
        return open_frames(request.data, Split.VAL, request.bags)
    raise ParameterError(f"--val is missing: {request.data} is no folder of the demo world with a split val in it")


def _trainee(
    request: Request, target: AlpamayoTarget, samples: Samples, held_out: FrameSource, facts: Mapping[str, Any]
) -> DraftTrainee:
    parts = target_parts(target)
    token_ids = None
    if request.kind is DraftKind.EAGLE3:
        token_ids = likeliest_tokens(samples.reasonings, request.draft_vocabulary, parts)
    config = design(
        request.kind,
        request.rope,
        target,
        layers=request.layers,
        intermediate=request.intermediate,
        block_size=request.block_size,
        draft_vocabulary=target.vocab_size if token_ids is None else len(token_ids),
    )
    objective = new_objective(config, parts, token_ids, anchors=request.anchors, seed=request.seed)
    prompts = validation_prompts(target, held_out, request.validation_frames)
    fixed = vocabulary_maps(token_ids, target.vocab_size)
    facts = {**facts, "validation_data": held_out.fingerprint}
    return DraftTrainee(request, config, objective, samples, fixed, target, prompts, facts)
