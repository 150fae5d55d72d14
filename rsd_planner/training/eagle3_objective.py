"""EAGLE-3's objective: the training-time test, in which the layer goes on from its own output as when it is served."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rsd_planner.draft.eagle3 import DEPTH, Eagle3Network
from rsd_planner.draft.rotary import Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.training.packing import ChainStore, leading
from rsd_planner.training.samples import Batch

_FADING = 0.8  # weight of a step against the one before it


class Eagle3Objective(nn.Module):
    """Sum over the steps i of 0.8^i times the cross-entropy to the target's distribution.

    Chain a starts where reasoning token a is known (0 is the prefill's) and a + 1 is asked for. At step i it is fed
    with the target's token a + i and its own last output, and asked for token a + i + 1.
    """

    def __init__(
        self, network: Eagle3Network, rotary: Rotary, target: TargetParts, *, token_ids: Tensor | None
    ) -> None:
        """
        Args:
            token_ids: (draft vocabulary,) its tokens in the target's vocabulary; None where they are the same.
        """
        super().__init__()
        self.network = network
        self._rotary, self._target = rotary, target
        ids = torch.arange(target.vocab_size, device=target.device) if token_ids is None else token_ids
        said = (ids < target.forbidden.start) | (ids >= target.forbidden.stop)
        self._said, self._ids = said.nonzero()[:, 0], ids[said]  # rows of the draft's lm_head, and what they mean

    def forward(self, batch: Batch, seed: int) -> dict[str, Tensor]:  # noqa: ARG002
        """`loss`; `accepted`: mean number of leading steps that are right, fed with the target's tokens."""
        teacher = self._teacher(batch)  # (B, R, allowed)
        best = teacher.argmax(dim=-1)
        losses, rights, chains = [], [], teacher.shape[1] - 1
        asked = torch.arange(1, chains + 1, device=best.device) < batch.reasoning_lengths[:, None]  # (B, chains) step 0
        for i, hidden in enumerate(self.chains(batch)):
            count = hidden.shape[1]
            counted = asked[:, i:]
            logits = self.logits(hidden)[..., self._said]
            entropy = -(teacher[:, i + 1 :] * logits.log_softmax(dim=-1)).sum(dim=-1)  # (B, count)
            losses.append(_FADING**i * (entropy * counted).sum() / counted.sum().clamp(min=1))
            right = (logits.argmax(dim=-1) == best[:, i + 1 :]) & counted
            rights.append(torch.nn.functional.pad(right, (0, chains - count)))
        accepted = (leading(torch.stack(rights, dim=-1)) * asked).sum() / asked.sum().clamp(min=1)
        return {"loss": torch.stack(losses).sum(), "accepted": accepted}

    def chains(self, batch: Batch) -> list[Tensor]:
        """Per step (B, chains, hidden) before the final norm; every step has one chain less than the one before."""
        first, rows = batch.prompt_length - 1, batch.features.shape[1]
        self._rotary.begin(batch.positions)
        store = ChainStore()
        embedded = self._target.embedding(batch.tokens[:, 1:]).to(batch.features.dtype)
        features = self.network.fc(batch.features)
        self.network.read(embedded[:, :first], features[:, :first], self._rotary.rows(0, first), store)
        steps = [features[:, first:-1]]
        for i in range(min(DEPTH, rows - 1 - first)):
            count = rows - 1 - first - i
            rotation = self._rotary.rows(first + i, count)
            following = embedded[:, first + i : first + i + count]
            mask = self._mask(first, rows - 1, i, count, embedded.device)
            steps.append(self.network(following, steps[-1][:, :count], rotation, store, mask))
        return steps[1:]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) before the final norm -> (..., draft vocabulary) float32."""
        normed = self.network.norm(hidden)
        if self.network.lm_head is not None:
            logits: Tensor = self.network.lm_head(normed).float()
            return logits
        return self._target.lm_head(normed.to(self._target.dtype)).float()

    def _mask(self, first: int, rows: int, step: int, count: int, device: torch.device) -> Tensor:
        """(count, rows + step * count): the sequence up to where the chain starts, and the chain's own later rows."""
        start = first + torch.arange(count, device=device)
        before = torch.arange(rows, device=device) <= start[:, None]
        own = torch.eye(count, dtype=torch.bool, device=device)
        return torch.cat([before, *[own] * step], dim=-1)

    @torch.no_grad()
    def _teacher(self, batch: Batch) -> Tensor:
        """(B, R, allowed) the target's distribution over what the draft may say."""
        logits = self._target.lm_head(batch.final.to(self._target.dtype)).float()
        return logits[..., self._ids].softmax(dim=-1)
