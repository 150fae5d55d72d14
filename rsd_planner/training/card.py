"""MODEL_CARD.md of a trained draft: how it was made, from what, and what it is worth."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rsd_planner.evaluation.files import write_whole
from rsd_planner.training.run import Progress
from rsd_planner.training.samples import Samples

if TYPE_CHECKING:
    from rsd_planner.training.train_draft import Request


def command(request: Request) -> str:
    """The command line that makes this draft."""
    flags: dict[str, object] = {
        "target": request.target,
        "draft": request.kind.name.lower(),
        "rope": request.rope.value,
        "data": request.data,
        "val": request.validation,
        "out": request.out,
        "cache": request.cache,
        "cache-gb": request.cache_gb,
        "frames": request.frames,
        "val-frames": request.validation_frames,
        "steps": request.steps,
        "batch": request.batch,
        "rate": request.rate,
        "seed": request.seed,
        "intermediate": request.intermediate,
        "validations": request.validations,
        "max-tokens": request.max_tokens,
        "stride": request.bags.stride,
        "odometry": request.bags.odometry,
        "device": request.device,
        "dtype": request.dtype,
    }
    if request.kind.name == "DFLASH":
        flags |= {"layers": request.layers, "block-size": request.block_size, "anchors": request.anchors}
    else:
        flags["draft-vocabulary"] = request.draft_vocabulary
    words = [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]
    words += [f"--camera={number}={topic}" for number, topic in (request.bags.cameras or {}).items()]
    return shlex.join(["rsd_planner", "train-draft", *words])


def write_card(request: Request, samples: Samples, progress: Progress, out: Path) -> None:
    """Write the card of the best draft of a run."""
    best, said = progress.best, sum(len(reasoning) for reasoning in samples.reasonings)
    state = "" if progress.finished else f"\n**Stopped at step {progress.step} of {request.steps}.**\n"
    refused = f", {len(samples.refused)} more with broken images left out" if samples.refused else ""
    text = f"""# {request.kind.value} draft, {request.rope.value} rope
{state}
A routine reasoner for `{request.target}`. It proposes; what is said stays the target's.

```sh
{command(request)}
```

- Trained on {len(samples)} frames of `{request.data}`{refused}: {said} tokens that the target says of them, greedily,
  in {request.dtype}. Trained for {progress.seconds / 60:.1f} minutes of steps; validation comes on top.
- The best of the validations, at step {progress.best_step}, on {best["frames"]} frames of
  `{request.validation or request.data}` with the real decoding loop, greedy, no memory:

| figure | value |
|---|---|
| accepted length L, tokens committed per verify pass | {best["accepted_length"]:.2f} |
| the same, mean over frames | {best["accepted_length_mean_of_frames"]:.2f} |
| ceiling: L of a draft that is always right | {best["ceiling"]:.2f} |
| routine share of the reasoning tokens | {best["routine_share"]:.1%} |
| verify passes per frame | {best["passes_per_frame"]:.2f} |

![loss and accepted length](curves.png)
"""
    write_whole(out, text)
