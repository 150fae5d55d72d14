"""The stages of training: `see` teaches the vision tower what is there, `drive` teaches reasoning and actions,
`weather` lets the tower see the same in any weather, `polish` goes on with `drive` in small batches, `lengthen` teaches
a trained model to describe the scene before it decides.

A stage can be stopped at any time and goes on from its last saved state; the same seed and data give the same batches.
Every step appends a line to `log.jsonl`.
"""

from __future__ import annotations

import copy
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rsd_planner.demo.trainer.batches import Tokens, epoch_order, make_batch
from rsd_planner.demo.trainer.forward import encode_images, flow_loss, read_text, reasoning_loss
from rsd_planner.demo.trainer.weather import varied
from rsd_planner.demo.world.dataset import CAUSES, Dataset
from rsd_planner.demo.world.facts import DISTANCES_M
from rsd_planner.demo.world.lengths import Reasoning
from rsd_planner.demo.world.pictures import Pictures, exposed
from rsd_planner.demo.world.samples import FRAMES
from rsd_planner.errors import PlannerError
from rsd_planner.target.alpamayo import AlpamayoTarget

SAVE_EVERY_S = 120.0
IGNORED = -100  # an answer that is not asked for
FLOW_DRAWS = 2
OTHER_SHARE = 0.4  # of `polish`'s samples, with another history
SIGHT_WEIGHT = 0.2  # of each question, while the network learns to drive
CLIP = 1.0
SIDES, BODIES = ("", "left", "right"), ("", "car", "van", "truck", "pedestrian", "cyclist")


class TrainingStateError(PlannerError):
    """A saved state that another recipe made."""


@dataclass(frozen=True)
class Recipe:
    """Numbers of one stage."""

    steps: int
    batch: int
    rate: float  # peak learning rate
    warm_up: int = 200  # steps
    floor: float = 0.02  # of the peak, at the end
    decay: float = 0.05
    seed: int = 0
    samples: int = 1_000_000  # the first so many of the split; all of a smaller one
    reasoning: str = Reasoning.SHORT.value

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine down to the floor."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        share = (step - self.warm_up) / max(self.steps - self.warm_up, 1)
        return self.rate * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2)


SEE = Recipe(steps=6000, batch=64, rate=1.5e-3, samples=40_000)
DRIVE = Recipe(steps=764, batch=80, rate=1.5e-3, samples=24_000)
WEATHER = Recipe(steps=2400, batch=64, rate=6e-4, warm_up=100, samples=40_000)
POLISH = Recipe(steps=1000, batch=16, rate=5e-4, warm_up=100, samples=40_000)
LENGTHEN = Recipe(steps=240, batch=8, rate=5e-4, warm_up=30, samples=8000)


class SightHeads(nn.Module):
    """What `see` asks about a picture, from the mean of its tokens; thrown away afterwards."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.answers = {"cause": len(CAUSES), "distance": len(DISTANCES_M), "side": 3, "body": len(BODIES), "flag": 2}
        self.heads = nn.ModuleDict({name: nn.Linear(2 * hidden, count) for name, count in self.answers.items()})

    def forward(self, levels: list[Tensor]) -> dict[str, Tensor]:
        pooled = torch.cat([level.mean(dim=1) for level in levels], dim=-1)
        return {name: head(pooled) for name, head in self.heads.items()}


def sight_answers(data: Dataset, chosen: Any) -> dict[str, Tensor]:
    """The right answers for some samples; -100 where a question makes no sense."""
    columns = {name: data.columns[name][chosen] for name in ("cause", "distance", "side", "body", "flag")}
    known = {float(d): i for i, d in enumerate(DISTANCES_M)}
    return {
        "cause": torch.from_numpy(columns["cause"].astype("int64")),
        "distance": torch.tensor([known.get(float(d), IGNORED) for d in columns["distance"]]),
        "side": torch.tensor([SIDES.index(str(side)) for side in columns["side"]]),
        "body": torch.tensor([BODIES.index(str(b)) if str(b) in BODIES else IGNORED for b in columns["body"]]),
        "flag": torch.from_numpy(columns["flag"].astype("int64")),
    }


def train_see(target: AlpamayoTarget, data: Dataset, out: Path, recipe: Recipe) -> None:
    """Teach the vision tower to tell the cause, its distance, side and kind from single frames."""
    torch.manual_seed(recipe.seed)
    device = _device(target)
    heads = SightHeads(target.network.text.config.hidden_size).to(device)
    trained = nn.ModuleDict({"vision": target.network.vision, "heads": heads})
    pictures = Pictures(data, device)

    def loss_of(chosen: Any, step: int) -> dict[str, Tensor]:
        images = exposed(pictures(chosen)[:, -1:], _rng(recipe, step))
        return _sight_losses(heads, encode_images(target.network.vision, images), data, chosen)

    _run("see", trained, loss_of, min(len(data), recipe.samples), out, recipe)


def train_drive(target: AlpamayoTarget, data: Dataset, out: Path, recipe: Recipe) -> None:
    """Teach the whole network to reason and to drive, in all weathers; the newest frames are still asked about."""
    _train_whole("drive", target, data, out, recipe, 0.0)


def train_weather(target: AlpamayoTarget, data: Dataset, out: Path, recipe: Recipe) -> None:
    """Teach the vision tower to make of a picture in any weather what it made of it as it is, before this stage.

    What reads the tower stays as it is, so both must agree: the loss is the tower's distance to its former self, as a
    share of the features' own size, beside the questions of `see`.
    """
    torch.manual_seed(recipe.seed)
    device, vision = _device(target), target.network.vision
    heads = SightHeads(target.network.text.config.hidden_size).to(device)
    pictures = Pictures(data, device)
    former = copy.deepcopy(vision).requires_grad_(False)

    def loss_of(chosen: Any, step: int) -> dict[str, Tensor]:
        images = pictures(chosen)[:, -1:]
        with torch.no_grad():
            wanted = encode_images(former, images)
        found = encode_images(vision, varied(images, _rng(recipe, step)))
        apart = [(a - b).square().mean() / b.square().mean() for a, b in zip(found, wanted, strict=True)]
        sight = sum(_sight_losses(heads, found, data, chosen).values(), torch.zeros((), device=device))
        return {"changed": torch.stack(apart).sum(), "sight": SIGHT_WEIGHT * sight}

    trained = nn.ModuleDict({"vision": vision, "heads": heads})
    _run("weather", trained, loss_of, min(len(data), recipe.samples), out, recipe)


def train_polish(target: AlpamayoTarget, data: Dataset, out: Path, recipe: Recipe) -> None:
    """Go on with what `drive` began, in steps of few samples, some of them with another history than they had.

    Args:
        data: With the columns of `other_histories.py`.
    """
    _train_whole("polish", target, data, out, recipe, OTHER_SHARE)


def train_lengthen(target: AlpamayoTarget, data: Dataset, out: Path, recipe: Recipe) -> None:
    """Teach a trained network the long reasonings of `data`.

    Args:
        data: With the texts of `long_texts.py`.
    """
    _train_whole("lengthen", target, data, out, recipe, 0.0)


def _train_whole(
    stage: str, target: AlpamayoTarget, data: Dataset, out: Path, recipe: Recipe, other_share: float
) -> None:
    torch.manual_seed(recipe.seed)
    device = _device(target)
    tokens, pictures = Tokens(target, data), Pictures(data, device)
    heads = SightHeads(target.network.text.config.hidden_size).to(device)
    noise = torch.Generator()

    def loss_of(chosen: Any, step: int) -> dict[str, Tensor]:
        noise.manual_seed(recipe.seed * 1_000_003 + step)
        rng = _rng(recipe, step)
        batch = make_batch(data, tokens, tokens.some_other(chosen, other_share, rng), device)
        vision = encode_images(target.network.vision, varied(pictures(chosen), rng))
        text = read_text(target.network, tokens.layout, batch.token_ids, vision)
        newest = [level[:, -level.shape[1] // FRAMES :] for level in vision]
        sight = sum(_sight_losses(heads, newest, data, chosen).values(), torch.zeros((), device=device))
        return {
            "reasoning": reasoning_loss(text, batch.reasoning, batch.weights),
            "flow": flow_loss(target.network, text, batch.lengths, batch.actions, batch.driven, FLOW_DRAWS, noise),
            "sight": SIGHT_WEIGHT * sight,
        }

    trained = nn.ModuleDict({"network": target.network, "heads": heads})
    _run(stage, trained, loss_of, min(len(data), recipe.samples), out, recipe)


def _sight_losses(heads: SightHeads, levels: list[Tensor], data: Dataset, chosen: Any) -> dict[str, Tensor]:
    found = heads(levels)
    answers = {name: answer.to(levels[0].device) for name, answer in sight_answers(data, chosen).items()}
    return {name: functional.cross_entropy(found[name], answers[name], ignore_index=IGNORED) for name in found}


def _device(target: AlpamayoTarget) -> torch.device:
    return next(target.network.parameters()).device


def _rng(recipe: Recipe, step: int) -> np.random.Generator:
    return np.random.default_rng([recipe.seed, step, 1])


def _run(
    stage: str,
    trained: nn.Module,
    loss_of: Callable[[Any, int], dict[str, Tensor]],
    count: int,
    out: Path,
    recipe: Recipe,
) -> None:
    """Steps from the last saved state to the end, saved every two minutes and when interrupted."""
    warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")  # autocast's norms: meant so
    optimizer = torch.optim.AdamW(trained.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=recipe.decay)
    path = out / f"{stage}.pt"
    step = _restore(path, trained, optimizer, recipe)
    trained.train()
    saved = time.monotonic()
    try:
        with (out / "log.jsonl").open("a", encoding="utf-8") as log:
            for chosen in _batches(count, recipe, step):
                for group in optimizer.param_groups:
                    group["lr"] = recipe.rate_at(step)
                started = time.monotonic()
                with torch.autocast("cpu", torch.bfloat16, enabled=torch.cpu._is_avx512_bf16_supported()):
                    losses = loss_of(chosen, step)
                optimizer.zero_grad(set_to_none=True)
                torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
                norm = nn.utils.clip_grad_norm_(trained.parameters(), CLIP)
                optimizer.step()
                step += 1
                values = {name: round(float(value.detach()), 5) for name, value in losses.items()}
                line = {"stage": stage, "step": step, **values, "norm": round(float(norm), 4)}
                log.write(json.dumps({**line, "seconds": round(time.monotonic() - started, 3)}) + "\n")
                log.flush()
                if time.monotonic() - saved > SAVE_EVERY_S:
                    _save(path, trained, optimizer, recipe, step)
                    saved = time.monotonic()
    finally:
        trained.eval()
        _save(path, trained, optimizer, recipe, step)


def _batches(count: int, recipe: Recipe, first: int) -> Iterator[Any]:
    per_epoch = count // recipe.batch
    for epoch in range(first // per_epoch, -(-recipe.steps // per_epoch)):
        order = epoch_order(count, recipe.batch, recipe.seed, epoch)
        begin, end = max(first - epoch * per_epoch, 0), min(recipe.steps - epoch * per_epoch, per_epoch)
        yield from order[begin:end]


def _save(path: Path, trained: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> None:
    state = {"step": step, "recipe": asdict(recipe), "model": trained.state_dict(), "optimizer": optimizer.state_dict()}
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    temporary.rename(path)


def _restore(path: Path, trained: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    if state["recipe"] != asdict(recipe):
        raise TrainingStateError(f"{path}: made with {state['recipe']}, expected {asdict(recipe)}: use another folder")
    trained.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
