"""`rsd_planner train-aarl`: a distilled draft goes on to learn which of its guesses matter to the path."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from rich.console import Console
from torch import Tensor

from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftConfig, DraftKind
from rsd_planner.draft.dflash import DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Network
from rsd_planner.draft.load import DraftFiles, read_draft
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.errors import ParameterError
from rsd_planner.evaluation.files import write_whole
from rsd_planner.planner import PlannerSettings, target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt
from rsd_planner.training.aarl_card import write_card
from rsd_planner.training.aarl_curves import draw_curves
from rsd_planner.training.aarl_objective import AarlObjective, Options
from rsd_planner.training.block_policy import BlockPolicy
from rsd_planner.training.cache import Cache, target_fingerprint
from rsd_planner.training.counterfactuals import Counterfactuals
from rsd_planner.training.design import vocabulary_maps
from rsd_planner.training.dflash_objective import DFlashObjective
from rsd_planner.training.eagle3_objective import Eagle3Objective
from rsd_planner.training.frames import BagOptions, open_frames
from rsd_planner.training.run import LOG_EVERY, Progress, Schedule, train
from rsd_planner.training.samples import Batch, Samples
from rsd_planner.training.teacher import Teacher
from rsd_planner.training.train_draft import (
    DTYPES,
    DraftTrainee,
    Request,
    accelerator_for,
    fill,
    validation_prompts,
    validation_source,
)
from rsd_planner.training.validation import measure

PUBLISHED_RATES = {DraftKind.DFLASH: 1e-6, DraftKind.EAGLE3: 1e-5}


class Objective(str, Enum):
    """What the draft learns from."""

    AARL = "aarl"  # actions and text
    TOKEN = "token"  # the same with an action weight of 0
    DISTILL = "distill"  # what it was distilled with, gone on with


@dataclass(frozen=True)
class AarlRequest:
    """What to train further, how, and where to write it."""

    target: Path
    draft: Path  # a draft directory
    data: Path  # a folder of the demo world, or a recording
    out: Path
    objective: Objective = Objective.AARL
    options: Options = field(default_factory=Options)
    validation: Path | None = None  # None: `data`, if that is a folder of the demo world
    cache: Path | None = None  # None: in `out`
    cache_gb: float = 4.0
    frames: int | None = None
    validation_frames: int = 64
    steps: int = 500
    batch: int = 4  # frames per step, all processes together
    rate: float | None = None  # None: as published, 1e-6 for DFlash, 1e-5 for EAGLE-3
    seed: int = 0
    validations: int = 10
    max_tokens: int = 256
    device: str = "cpu"
    dtype: str = "float32"  # of the target
    bags: BagOptions = field(default_factory=BagOptions)

    def __post_init__(self) -> None:
        """Raises ParameterError for a value outside its range."""
        options = self.options
        for name, value in (("candidates", options.candidates), ("draws", options.draws), ("blocks", options.blocks)):
            least = 2 if name == "candidates" else 1
            if value < least:
                raise ParameterError(f"--{name} is {value}, expected {least} or more")
        for name in ("action_weight", "text_weight", "kl_weight"):
            if not 0 <= getattr(options, name) < np.inf:
                raise ParameterError(f"--{name.replace('_', '-')} is {getattr(options, name)}, expected 0 or more")
        if self.objective is Objective.AARL and not options.action_weight:
            raise ParameterError("--action-weight is 0, expected more; --objective token is RL without actions")
        PlannerSettings(device=self.device, dtype=self.dtype)

    def as_training(self, config: DraftConfig) -> Request:
        """The request that trains such a draft; raises ParameterError for numbers outside their range."""
        return Request(
            self.target,
            config.kind,
            config.rope,
            self.data,
            self.out,
            validation=self.validation,
            cache=self.cache,
            cache_gb=self.cache_gb,
            frames=self.frames,
            validation_frames=self.validation_frames,
            steps=self.steps,
            batch=self.batch,
            rate=PUBLISHED_RATES[config.kind] if self.rate is None else self.rate,
            seed=self.seed,
            layers=config.shape.layers,
            block_size=config.block_size or 2,
            anchors=2 * self.options.blocks,  # as many blocks as RL draws
            validations=self.validations,
            max_tokens=self.max_tokens,
            device=self.device,
            dtype=self.dtype,
            bags=self.bags,
        )


class AarlTrainee(DraftTrainee):
    """A draft in `AarlObjective`; see `run.Trainee`."""

    def __init__(self, *arguments: Any, cache: Cache, judge: Counterfactuals, own: Mapping[str, Any]) -> None:
        """
        Args:
            arguments: Those of `DraftTrainee`.
            own: What else makes the result what it is.
        """
        super().__init__(*arguments)
        self._source, self._judge, self._own = cache.source, judge, own
        self._numbers = np.concatenate([cache.tokens(number).frames for number in range(cache.chunks)])
        self._probe: Batch | None = None

    def recipe(self) -> Mapping[str, Any]:
        """See `run.Trainee`."""
        return {**super().recipe(), **self._own}

    def batch(self, step: int, part: int, parts: int) -> tuple[Any, ...]:
        """See `run.Trainee`."""
        batch, seed = super().batch(step, part, parts)
        scenes = self._judge.scenes([self._source.observation(int(self._numbers[i])) for i in batch.samples])
        return batch, scenes, seed, self._watched(step)

    def _watched(self, step: int) -> Batch | None:
        """The same frames whenever a step is logged."""
        if (step + 1) % LOG_EVERY and step + 1 != self._request.steps:
            return None
        if self._probe is None:
            first = self._samples.epoch(self._request.batch, 0, 0)[0]
            self._probe = self._samples.batch(first)
        return self._probe


def train_aarl(request: AarlRequest, console: Console) -> Progress:
    """Fill the cache, measure the draft as it is, train it further, keep the best by L of the real loop.

    Returns:
        How far it came: Ctrl-C stops it at any stage, and the same call goes on.

    Raises:
        PlannerError: Target, draft, data, cache or an earlier run in `out` is not usable.
    """
    accelerator = accelerator_for(request.device)
    target = AlpamayoTarget.load(request.target, device=str(accelerator.device), dtype=DTYPES[request.dtype])
    files = read_draft(request.draft, target_parts(target))
    config = replace(files.config, target_layers=files.config.target_layers and target_parts(target).layers)
    asked = request.as_training(config)
    if asked.batch < accelerator.num_processes:
        raise ParameterError(f"--batch is {asked.batch}, expected a frame for each of the processes")
    shown = console if accelerator.is_main_process else Console(quiet=True)
    fingerprint, teacher = target_fingerprint(request.target), Teacher(target)
    cache = Cache(
        request.cache or request.out / "cache",
        open_frames(request.data, Split.TRAIN, request.bags),
        teacher,
        fingerprint,
        max_tokens=request.max_tokens,
        gigabytes=request.cache_gb,
        limit=request.frames,
    )
    held_out = validation_source(asked)
    if not fill(cache, config.taps, accelerator, shown):
        return Progress()
    samples = Samples(cache, config.taps, resident=accelerator.device.type != "cpu")
    prompts = validation_prompts(target, held_out, request.validation_frames)
    facts = {
        "target": fingerprint,
        "data": [cache.source.fingerprint, cache.frames],
        "validation_data": held_out.fingerprint,
    }
    trainee = _trainee(request, asked, config, files, samples, cache, target, prompts, facts)
    every = -(-asked.steps // asked.validations)
    schedule = Schedule(asked.steps, asked.rate, every, warm_up=min(100, asked.steps // 10), seed=asked.seed)
    request.out.mkdir(parents=True, exist_ok=True)
    before = _before(request, target, prompts, accelerator, shown)
    progress = train(trainee, schedule, request.out, accelerator, shown)
    if accelerator.is_main_process and progress.best:
        draw_curves(request.out / "run" / "log.jsonl", before, request.out / "curves.png")
        write_card(request, config, asked.rate, before, progress, request.out / "MODEL_CARD.md")
        shown.print(f"wrote {request.out}", markup=False, highlight=False, soft_wrap=True)
    return progress


def _trainee(
    request: AarlRequest,
    asked: Request,
    config: DraftConfig,
    files: DraftFiles,
    samples: Samples,
    cache: Cache,
    target: AlpamayoTarget,
    prompts: Sequence[Prompt],
    facts: Mapping[str, Any],
) -> DraftTrainee:
    parts = target_parts(target)
    fixed = vocabulary_maps(files.token_ids, target.vocab_size)
    own = {"objective": request.objective.value, "initial": _digest(files.tensors)}
    learner = objective_of(files, parts, blocks=asked.anchors)
    if request.objective is Objective.DISTILL:
        return DraftTrainee(asked, config, learner, samples, fixed, target, prompts, {**facts, **own})
    options = request.options if request.objective is Objective.AARL else replace(request.options, action_weight=0.0)
    judge = Counterfactuals(cache.teacher)
    frozen = objective_of(files, parts, blocks=asked.anchors).requires_grad_(False).eval()
    policies = [BlockPolicy(one, parts, files.token_ids) for one in (learner, frozen)]
    module = AarlObjective(policies[0], policies[1], judge, options)
    own |= {"options": json.loads(json.dumps(asdict(options)))}
    arguments = (asked, config, module, samples, fixed, target, prompts, facts)
    return AarlTrainee(*arguments, cache=cache, judge=judge, own=own)


def objective_of(files: DraftFiles, parts: TargetParts, *, blocks: int) -> DFlashObjective | Eagle3Objective:
    """A draft that was read, in float32, inside the objective that it is distilled with.

    Args:
        blocks: DFlash: block starts per frame and step.
    """
    config = files.config
    network: DFlashNetwork | Eagle3Network
    objective: DFlashObjective | Eagle3Objective
    if config.kind is DraftKind.DFLASH:
        network = DFlashNetwork(config.shape)
        sizes = {"block_size": config.block_size, "mask_token": config.mask_token}
        objective = DFlashObjective(network, files.rotary, parts, **sizes, anchors=blocks)
    else:
        own_head = "lm_head.weight" in files.tensors
        network = Eagle3Network(config.shape, config.draft_vocabulary if own_head else None)
        objective = Eagle3Objective(network, files.rotary, parts, token_ids=files.token_ids)
    network.load_state_dict({name: files.tensors[name].float() for name in network.state_dict()})
    network.to(parts.device)
    return objective


def _before(
    request: AarlRequest, target: AlpamayoTarget, prompts: Sequence[Prompt], accelerator: Accelerator, console: Console
) -> dict[str, float]:
    """What the draft is worth on the validation frames as it is; measured once."""
    path = request.out / "run" / "before.json"
    if accelerator.is_main_process and not path.exists():
        console.print("measuring the draft as it is", highlight=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = measure(request.draft, target, prompts, request.max_tokens).as_json()
        write_whole(path, json.dumps(figures) + "\n")
    accelerator.wait_for_everyone()
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Recognises the draft that a run began with."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
