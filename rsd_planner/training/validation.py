"""What a draft is worth, by the definition: the real decoding loop on frames it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.decoding.verify_length import LONGEST, VerifyLength
from rsd_planner.draft.load import load_draft
from rsd_planner.plan import TokenOrigin
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt


@dataclass(frozen=True)
class Acceptance:
    """Sums over frames; of several shares of the frames they add up."""

    frames: int = 0
    tokens: int = 0  # committed by verify passes
    passes: int = 0
    frame_means: float = 0.0  # sum of the frames' own tokens per pass
    no_pass: int = 0  # frames whose prefill said it all: counted apart
    perfect_passes: int = 0  # those a draft that is always right would need
    routine: int = 0
    reasoning: int = 0  # tokens before the closing ones

    @property
    def accepted_length(self) -> float:
        """L: tokens committed per verify pass, the target's own included."""
        return self.tokens / max(self.passes, 1)

    @property
    def mean_of_frames(self) -> float:
        """L as the mean over frames."""
        return self.frame_means / max(self.frames - self.no_pass, 1)

    @property
    def ceiling(self) -> float:
        """L of a perfect draft of the same depth on these lengths."""
        return self.tokens / max(self.perfect_passes, 1)

    @property
    def routine_share(self) -> float:
        """Drafted-and-accepted reasoning tokens / reasoning tokens."""
        return self.routine / max(self.reasoning, 1)

    def as_json(self) -> dict[str, float]:
        """The figures under the names that the results use."""
        return {
            "accepted_length": round(self.accepted_length, 4),
            "accepted_length_mean_of_frames": round(self.mean_of_frames, 4),
            "ceiling": round(self.ceiling, 4),
            "routine_share": round(self.routine_share, 4),
            "passes_per_frame": round(self.passes / max(self.frames, 1), 4),
            "frames": self.frames,
            "frames_without_pass": self.no_pass,
        }


def measure(directory: Path, target: AlpamayoTarget, prompts: Sequence[Prompt], max_tokens: int) -> Acceptance:
    """Decode every prompt greedily with the draft in `directory`, its whole length verified in each pass, no memory.

    Raises:
        DraftError: It does not fit the target.
    """
    draft, config = load_draft(directory, target_parts(target))
    words = target.vocabulary
    closing = Closing(words.cot_end, words.future_start, words.bins)
    taps, target.taps = target.taps, config.taps
    try:
        found = [
            decode(
                target,
                prompt,
                closing,
                sampling=Sampling(),
                max_tokens=max_tokens,
                generator=torch.Generator(),
                drafts=[draft],
                verify_length=VerifyLength(min(draft.longest, LONGEST)),
            )
            for prompt in prompts
        ]
    finally:
        target.taps = taps
    return acceptance(found, min(draft.longest, LONGEST))


def acceptance(reasonings: Sequence[Reasoning], depth: int) -> Acceptance:
    """Count what was committed how.

    Args:
        depth: Drafted tokens per pass.
    """
    with_pass = [r for r in reasonings if r.tokens_per_pass]
    committed = [sum(r.tokens_per_pass) for r in with_pass]
    return Acceptance(
        frames=len(reasonings),
        tokens=sum(committed),
        passes=sum(len(r.tokens_per_pass) for r in with_pass),
        frame_means=sum(n / len(r.tokens_per_pass) for n, r in zip(committed, with_pass, strict=True)),
        no_pass=len(reasonings) - len(with_pass),
        perfect_passes=sum(-(-n // (depth + 1)) for n in committed),
        routine=sum(
            origin is TokenOrigin.ROUTINE for r in reasonings for origin in r.origins[: r.speculation.reasoning_tokens]
        ),
        reasoning=sum(r.speculation.reasoning_tokens for r in reasonings),
    )
