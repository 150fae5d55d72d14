"""MODEL_CARD.md of a draft that was trained further: from what, how, and what it gained."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rsd_planner.draft.config import DraftConfig
from rsd_planner.evaluation.files import write_whole
from rsd_planner.training.run import Progress

if TYPE_CHECKING:
    from rsd_planner.training.aarl import AarlRequest

_MEANT = {
    "aarl": "reinforcement learning with the actions of the flow-matching head in the reward",
    "token": "reinforcement learning from matching tokens alone",
    "distill": "distillation, gone on with for as many steps",
}
_FIGURES = (
    ("accepted length L, tokens committed per verify pass", "accepted_length", ".3f"),
    ("the same, mean over frames", "accepted_length_mean_of_frames", ".3f"),
    ("ceiling: L of a draft that is always right", "ceiling", ".3f"),
    ("routine share of the reasoning tokens", "routine_share", ".1%"),
    ("verify passes per frame", "passes_per_frame", ".3f"),
)


def command(request: AarlRequest, rate: float) -> str:
    """The command line that makes this draft."""
    options = request.options
    flags: dict[str, object] = {
        "target": request.target,
        "draft": request.draft,
        "data": request.data,
        "val": request.validation,
        "out": request.out,
        "objective": request.objective.value,
        "cache": request.cache,
        "cache-gb": request.cache_gb,
        "frames": request.frames,
        "val-frames": request.validation_frames,
        "steps": request.steps,
        "batch": request.batch,
        "rate": rate,
        "seed": request.seed,
        "blocks": options.blocks,
        "validations": request.validations,
        "max-tokens": request.max_tokens,
        "stride": request.bags.stride,
        "odometry": request.bags.odometry,
        "device": request.device,
        "dtype": request.dtype,
    }
    if request.objective.value != "distill":
        flags |= {"anchor": options.anchor.value, "advantage": options.advantage.value}
        flags |= {"candidates": options.candidates, "text-weight": options.text_weight, "kl-weight": options.kl_weight}
    if request.objective.value == "aarl":
        flags |= {"reward": options.metric.value, "draws": options.draws, "action-weight": options.action_weight}
    words = [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]
    words += [f"--camera={number}={topic}" for number, topic in (request.bags.cameras or {}).items()]
    return shlex.join(["rsd_planner", "train-aarl", *words])


def write_card(
    request: AarlRequest, config: DraftConfig, rate: float, before: Mapping[str, float], progress: Progress, out: Path
) -> None:
    """Write the card of the best draft of a run.

    Args:
        before: Figures of the draft that the run began with.
    """
    state = "" if progress.finished else f"\n**Stopped at step {progress.step} of {request.steps}.**\n"
    rows = "\n".join(
        f"| {words} | {before[name]:{form}} | {progress.best[name]:{form}} |" for words, name, form in _FIGURES
    )
    text = f"""# {config.kind.value} draft, {config.rope.value} rope, {request.objective.value}
{state}
The draft `{request.draft}` after {_MEANT[request.objective.value]}. It proposes for `{request.target}`; what is said
stays the target's.

```sh
{command(request, rate)}
```

The best of the validations, at step {progress.best_step}, on {progress.best["frames"]} frames of
`{request.validation or request.data}` with the real decoding loop, greedy, no memory. Being the best of
{request.validations}, it flatters: compare drafts on frames that chose neither.

| figure | before | after |
|---|---|---|
{rows}

![curves](curves.png)
"""
    write_whole(out, text)
