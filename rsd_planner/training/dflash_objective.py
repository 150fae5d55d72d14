"""DFlash's objective: blocks at random anchors, packed into one forward, each blind to what comes after its anchor."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rsd_planner.draft.dflash import DFlashNetwork
from rsd_planner.draft.rotary import Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.training.packing import BlockStore, leading
from rsd_planner.training.samples import Batch

_DECAY = ((2, 8, 10, 16), (1, 4, 5, 7))  # block size -> how slowly the weight of a place falls (published: 8, 10, 16)


class DFlashObjective(nn.Module):
    """Cross-entropy to the target's own tokens, weighted exp(-(k - 1) / decay) at place k of a block.

    An anchor is the place of a committed token; its block is that token and mask tokens, its context the target's
    hidden states of all tokens before it. Places behind the end of the reasoning are not asked about; the blocks that
    reach beyond it are kept.
    """

    def __init__(
        self,
        network: DFlashNetwork,
        rotary: Rotary,
        target: TargetParts,
        *,
        block_size: int,
        mask_token: int,
        anchors: int,
    ) -> None:
        """
        Args:
            anchors: Blocks per frame and step, drawn anew each time.
        """
        super().__init__()
        self.network = network
        self._rotary, self._target = rotary, target
        self._block_size, self._mask_token, self._anchors = block_size, mask_token, anchors
        decay = float(np.interp(block_size, *_DECAY))
        self._weights = torch.exp(-torch.arange(block_size - 1, device=target.device) / decay)

    def forward(self, batch: Batch, seed: int) -> dict[str, Tensor]:
        """`loss`; `accepted`: mean number of leading places that are right, the context given (not the served figure).

        Args:
            seed: Of the anchors.
        """
        anchors, usable = self._draw(batch, seed)
        hidden = self.hidden(batch, anchors)[:, :, 1:]
        places = anchors[:, :, None] + torch.arange(1, self._block_size, device=anchors.device)  # (B, A, block - 1)
        asked = usable[:, :, None] & (places < batch.reasoning_lengths[:, None, None])
        labels = _tokens_at(batch, places)
        logits = self.logits(hidden[asked])
        weights = self._weights.expand(asked.shape)[asked]
        losses = functional.cross_entropy(logits, labels[asked], reduction="none")
        right = torch.zeros_like(asked)
        right[asked] = logits.argmax(dim=-1) == labels[asked]
        accepted = (leading(right) * usable).sum() / usable.sum().clamp(min=1)
        return {"loss": (losses * weights).sum() / weights.sum().clamp(min=1e-6), "accepted": accepted}

    def hidden(self, batch: Batch, anchors: Tensor) -> Tensor:
        """(B, A, block, hidden) after the final norm, as the served draft has them.

        Args:
            anchors: (B, A) numbers of reasoning tokens: 0 is the first one.
        """
        count, rows, size = anchors.shape[1], batch.features.shape[1], self._block_size
        self._rotary.begin(batch.positions)
        store = BlockStore()
        self.network.read(batch.features, self._rotary.rows(0, rows), store)
        within = torch.arange(size, device=anchors.device)
        places = (batch.prompt_length + anchors[:, :, None] + within).flatten(1)  # (B, A * block) in the sequence
        cos, sin = self._rotary.rows(0, rows + size)
        block = torch.full((len(anchors), count, size), self._mask_token, device=anchors.device)
        block[:, :, 0] = _tokens_at(batch, anchors)
        embedded = self._target.embedding(block.flatten(1)).to(batch.features.dtype)
        rotation = (cos[places][:, None], sin[places][:, None])
        hidden: Tensor = self.network(embedded, rotation, store, self._mask(batch, anchors, rows))
        return hidden.view(len(anchors), count, size, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., vocab) float32; what is never said has no chance."""
        logits = self._target.lm_head(hidden.to(self._target.dtype)).float()
        barred = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
        barred[self._target.forbidden.start : self._target.forbidden.stop] = True
        return logits.masked_fill(barred, -torch.inf)

    def _mask(self, batch: Batch, anchors: Tensor, rows: int) -> Tensor:
        """(B, 1, A * block, rows + A * block): the context before the anchor, and the own block."""
        count, size = anchors.shape[1], self._block_size
        before = torch.arange(rows, device=anchors.device) < batch.prompt_length + anchors[:, :, None]  # (B, A, rows)
        same = torch.eye(count, dtype=torch.bool, device=anchors.device)
        same = same.repeat_interleave(size, dim=0).repeat_interleave(size, dim=1)
        context = before.repeat_interleave(size, dim=1)
        return torch.cat([context, same.expand(len(anchors), -1, -1)], dim=-1)[:, None]

    def _draw(self, batch: Batch, seed: int) -> tuple[Tensor, Tensor]:
        """(B, A) anchors without repetition, and which of them are any; a frame may have fewer."""
        possible = batch.reasoning_lengths.cpu() - 1  # the last token has nothing after it
        longest = max(int(possible.max()), 1)
        chance = torch.rand(len(possible), longest, generator=torch.Generator().manual_seed(seed))
        chance[torch.arange(longest) >= possible[:, None]] = -1.0
        drawn, anchors = chance.topk(min(self._anchors, longest), dim=1)
        return anchors.to(batch.tokens.device), (drawn >= 0).to(batch.tokens.device)


def _tokens_at(batch: Batch, places: Tensor) -> Tensor:
    """Reasoning tokens by number, (B, ...); any token behind the end."""
    known = (batch.prompt_length + places).clamp(max=batch.tokens.shape[1] - 1)
    return batch.tokens.gather(1, known.flatten(1)).view_as(places)
