"""The passes of the table: the least work of each, the planner's own code for it, and the same over static buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rsd_planner.decoding.protocols import Prefill
from rsd_planner.draft.dflash import DFlashDraft
from rsd_planner.draft.eagle3 import Eagle3Draft
from rsd_planner.gpu_check.floors import Work
from rsd_planner.gpu_check.models import DraftModels, TargetModels
from rsd_planner.gpu_check.scene import encode_one, prompt_of
from rsd_planner.gpu_check.shapes import DFLASH_BLOCK, DRAFT_ROWS, FLOW_STEPS, IMAGES, NEW_IMAGES, STEPS, CheckShape
from rsd_planner.gpu_check.target_passes import Kernels
from rsd_planner.gpu_check.weights import greedy

_TOKEN = 7  # any word


@dataclass(frozen=True)
class Pass:
    """One row of the table."""

    work: Work
    eager: Callable[[], object]
    static: Callable[[Kernels], object]
    tokens: int = 1  # whose attention over the cache is chosen for


def step_name(tokens: int) -> str:
    return f"step of {tokens}"


def encode_name(images: int) -> str:
    return f"encode {images} images"


def flow_name(steps: int) -> str:
    return f"{steps} flow steps"


PREFILL = "prefill"
TARGET_PASSES = (
    *(encode_name(count) for count in (IMAGES, NEW_IMAGES)),
    PREFILL,
    *(step_name(count) for count in STEPS),
    *(flow_name(count) for count in FLOW_STEPS),
)


def proposal_name(draft: str) -> str:
    return f"{draft} proposal"


def reading_name(draft: str) -> str:
    return f"{draft} reads the prompt"


DRAFT_PASSES = tuple(name(draft) for draft in ("dflash", "eagle3") for name in (proposal_name, reading_name))


class EagerTarget:
    """The planner's target on one scene, rewound to the same past."""

    def __init__(self, shape: CheckShape, models: TargetModels) -> None:
        self._shape, self._models = shape, models
        self._grid = torch.tensor([shape.grid])
        self._noise = torch.randn(64, 2)
        self._read: Prefill | None = None

    def encode(self, images: int) -> None:
        """One image after the other."""
        for patches in self._models.scene.patches[:images]:
            encode_one(self._models.network, patches, self._grid)

    def prefill(self) -> Prefill:
        """Read the prompt; the images are encoded once for all."""
        self._read = self._models.target.prefill(self._prompt)
        return self._read

    @property
    def read(self) -> Prefill:
        """What the prefill said."""
        return self._read or self.prefill()

    def rewind(self) -> None:
        """Make the cache hold the past at which passes are measured."""
        target, past = self._models.target, self._shape.past
        if target.cache.length < past:
            self.prefill()
        target.rollback(target.cache.length - past)

    def step(self, tokens: int) -> None:
        self._models.target.verify([_TOKEN] * tokens)
        self._models.target.rollback(tokens)

    def flow(self, steps: int) -> None:
        self._models.target.sample_actions(self._noise, steps)

    @property
    def _prompt(self) -> Any:
        if not hasattr(self, "_images"):
            self._images = encode_one(self._models.network, self._models.scene.patches[0], self._grid)
        return prompt_of(self._models.scene, [self._images] * IMAGES)


class EagerDraft:
    """One of the planner's drafts behind the prompt."""

    def __init__(self, shape: CheckShape, draft: DFlashDraft | Eagle3Draft, target: EagerTarget, taps: int) -> None:
        self._draft, self._target = draft, target
        self._choice = greedy(shape)
        self._width = taps * shape.dflash.hidden

    def propose(self) -> None:
        """Read what a verify pass has left, propose as much as the draft can."""
        draft, features = self._draft, self._features
        if draft.cache.length == 0:
            read = self._target.read
            draft.open(self._choice)
            draft.begin(features, read.token_ids, read.positions)
            draft.extend(features[:0], [_TOKEN])
            draft.propose(1)
        draft.extend(features[:DRAFT_ROWS], [_TOKEN] * DRAFT_ROWS)
        draft.propose(draft.longest)
        draft.cache.rollback(DRAFT_ROWS)

    @torch.inference_mode()
    def prompt(self) -> None:
        """Read the prompt's features."""
        draft, features = self._draft, self._features
        draft.cache.clear()
        draft.cache.reserve(len(features))
        draft.read(features, torch.full((len(features),), _TOKEN, device=features.device))

    @property
    def _features(self) -> Tensor:
        features = self._target.read.features
        assert features is not None
        return features[:, : self._width]


def target_passes(shape: CheckShape, models: TargetModels, eager: EagerTarget) -> Iterator[tuple[str, Pass]]:
    """Named as in TARGET_PASSES."""
    static, accounts, past = models.passes, models.accounts, shape.past
    for images in (IMAGES, NEW_IMAGES):
        work = accounts.encode(images)
        yield encode_name(images), Pass(work, partial(eager.encode, images), partial(static.encode, images))
    yield PREFILL, Pass(accounts.prefill(), eager.prefill, static.prefill)
    for count in STEPS:
        work = accounts.step(count, past)
        yield step_name(count), Pass(work, partial(eager.step, count), partial(static.step, count), count)
    for steps in FLOW_STEPS:
        work = accounts.flow(steps, past)
        yield flow_name(steps), Pass(work, partial(eager.flow, steps), partial(static.flow, steps), STEPS[-1])


def draft_passes(
    shape: CheckShape, models: TargetModels, drafts: DraftModels, eager: EagerTarget
) -> Iterator[tuple[str, Pass]]:
    """Named as in DRAFT_PASSES."""
    accounts, past = models.accounts, shape.past
    block, chain = drafts.drafts.dflash, drafts.drafts.eagle3
    own = EagerDraft(shape, block, eager, shape.dflash.taps)
    static = drafts.dflash
    work = accounts.dflash(block.network, past)
    yield proposal_name("dflash"), Pass(work, own.propose, static.propose, DFLASH_BLOCK)
    yield reading_name("dflash"), Pass(accounts.dflash_prompt(block.network), own.prompt, static.prompt)
    own = EagerDraft(shape, chain, eager, shape.eagle3.taps)
    yield (
        proposal_name("eagle3"),
        Pass(accounts.eagle3(chain.network, past), own.propose, drafts.eagle3.propose),
    )
    yield (
        reading_name("eagle3"),
        Pass(accounts.eagle3_prompt(chain.network), own.prompt, drafts.eagle3.prompt),
    )
