"""Both draft families as one thing: a distribution over words at every place of the blocks they propose."""

from __future__ import annotations

import torch
from torch import Tensor

from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.training.dflash_objective import DFlashObjective
from rsd_planner.training.eagle3_objective import Eagle3Objective
from rsd_planner.training.samples import Batch


class BlockPolicy:
    """What a draft says behind a block start, the last committed token of a reasoning (0 is the first one).

    Place k of a block is the (k + 1)-th token behind its start. DFlash says all places at once; EAGLE-3 says each of
    them with the target's own tokens before it, as in the training-time test.
    """

    def __init__(
        self, objective: DFlashObjective | Eagle3Objective, target: TargetParts, token_ids: Tensor | None
    ) -> None:
        """
        Args:
            token_ids: (draft vocabulary,) in the target's vocabulary; None where they are the same.
        """
        self.objective = objective
        ids = torch.arange(target.vocab_size, device=target.device) if token_ids is None else token_ids
        said = (ids < target.forbidden.start) | (ids >= target.forbidden.stop)
        self._rows = said.nonzero()[:, 0]
        self.words = ids[said]  # (words,) what the draft can say, in the target's vocabulary
        self._column = torch.full((target.vocab_size,), -1, device=target.device)
        self._column[self.words] = torch.arange(len(self.words), device=target.device)

    def logits(self, batch: Batch, starts: Tensor) -> Tensor:
        """(B, A, depth, words) float32 behind (B, A) block starts."""
        if isinstance(self.objective, DFlashObjective):
            return self.objective.logits(self.objective.hidden(batch, starts)[:, :, 1:])[..., self._rows]
        steps = []
        for hidden in self.objective.chains(batch):  # later steps have fewer chains: what is clamped is not asked for
            rows = starts.clamp(max=hidden.shape[1] - 1)
            steps.append(hidden.gather(1, rows[..., None].expand(-1, -1, hidden.shape[-1])))
        return self.objective.logits(torch.stack(steps, dim=2))[..., self._rows]

    @staticmethod
    def places(starts: Tensor, depth: int) -> Tensor:
        """(B, A, depth) numbers of the reasoning tokens that blocks are about."""
        return starts[:, :, None] + torch.arange(1, depth + 1, device=starts.device)

    def labels(self, batch: Batch, starts: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The target's own words at (B, A, depth), -1 where the draft has none for it; and which places there are."""
        places = self.places(starts, depth)
        known = (batch.prompt_length + places).clamp(max=batch.tokens.shape[1] - 1)
        tokens = batch.tokens.gather(1, known.flatten(1)).view_as(places)
        return self._column[tokens], places < batch.reasoning_lengths[:, None, None]


def all_starts(batch: Batch) -> tuple[Tensor, Tensor]:
    """(B, A) every block start, and which of them a reasoning has: the last token has nothing behind it."""
    longest = max(int(batch.reasoning_lengths.max()) - 1, 1)
    starts = torch.arange(longest, device=batch.tokens.device).expand(len(batch.tokens), -1)
    return starts, starts < batch.reasoning_lengths[:, None] - 1


def drawn_starts(wanted: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(B, A) random block starts without repetition, at most `count` of those wanted; and which of them are wanted.

    Args:
        wanted: (B, starts), True where a block may be drawn.
    """
    chance = torch.rand(wanted.shape, generator=generator).to(wanted.device)
    drawn = chance.masked_fill(~wanted, -1.0).topk(min(count, wanted.shape[1]), dim=1).indices
    return drawn, wanted.gather(1, drawn)
