"""Action-aware RL of a draft: GRPO where it differs from the target, held to the frozen draft where it agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rsd_planner.training.aarl_reward import (
    Advantage,
    Anchor,
    Metric,
    action_errors,
    advantages,
    anchored,
    divergence,
    path_errors,
    rewards,
    text_shares,
)
from rsd_planner.training.block_policy import BlockPolicy, all_starts, drawn_starts
from rsd_planner.training.counterfactuals import Counterfactuals, Scene
from rsd_planner.training.samples import Batch

WAYPOINTS, ACTION_DIMS = 64, 2


@dataclass(frozen=True)
class Options:
    """Numbers of the objective."""

    anchor: Anchor = Anchor.STATIC
    advantage: Advantage = Advantage.CENTRED
    metric: Metric = Metric.MSE
    action_weight: float = 1.0  # 0: token-only
    text_weight: float = 0.5
    kl_weight: float = 0.02
    candidates: int = 8  # K
    draws: int = 2  # of the flow noise
    blocks: int = 2  # per frame and step: block starts where the draft differs, and as many anywhere


@dataclass(frozen=True)
class _Group:
    """Candidates at one block start."""

    frame: int
    places: Tensor  # (changed,) numbers of reasoning tokens
    own: Tensor  # (changed,) the target's tokens there
    said: Tensor  # (K, changed) the candidates'
    log_chance: Tensor  # (K,) mean over the changed tokens of log pi


class AarlObjective(nn.Module):
    """-advantage * log pi of sampled candidates + kl_weight * KL to the frozen draft at the anchors.

    Candidates come from block starts where the draft differs from the target, anchors also from as many block starts
    anywhere. At a block start, the changed tokens are those where the draft's argmax is not the target's token, the
    stop token apart. A candidate has them sampled from the draft at temperature 1 and all others as the target has.
    """

    def __init__(self, draft: BlockPolicy, frozen: BlockPolicy, judge: Counterfactuals, options: Options) -> None:
        super().__init__()
        self.network = draft.objective.network
        self._policies = (draft, frozen)  # in a tuple: the frozen one is no part of this module
        self._judge, self._options = judge, options

    def forward(self, batch: Batch, scenes: Sequence[Scene], seed: int, probe: Batch | None) -> dict[str, Tensor]:
        """`loss` and what there is to watch.

        Args:
            scenes: The frames of the batch.
            seed: Of block starts, candidates and flow noise.
            probe: Frames to count agreement on, over all their block starts; None in most steps.
        """
        draft, frozen = self._policies
        generator = torch.Generator().manual_seed(seed)
        starts, usable, judged = self._starts(batch, generator)
        logits = draft.logits(batch, starts)
        with torch.no_grad():
            frozen_logits = frozen.logits(batch, starts)
        labels, there = draft.labels(batch, starts, logits.shape[2])
        there = there & usable[:, :, None]
        agrees = (logits.argmax(dim=-1) == labels) & there
        frozen_agrees = (frozen_logits.argmax(dim=-1) == labels) & there
        drift = divergence(logits, frozen_logits)  # (B, A, depth)
        anchors = anchored(self._options.anchor, frozen_agrees, agrees)
        pull = _mean(drift, anchors)
        differs, changeable = there & ~agrees, _before_stop(batch, draft.places(starts, logits.shape[2]))
        groups = self._candidates(batch, starts, logits, differs & judged & changeable, generator)
        gain, watched = self._reinforced(batch, scenes, groups, generator)
        unused = 0.0 * logits.sum()  # every process has a gradient for every weight, whatever its share holds
        loss = self._options.kl_weight * pull - gain + unused
        anywhere = there & ~judged
        flipped = (differs & anywhere).sum() / anywhere.sum().clamp(min=1)
        found = {"loss": loss, "kl": _mean(drift, frozen_agrees), "flipped": flipped, **watched}
        if probe is not None:
            found |= self._count(probe)
        return found

    def _starts(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """(B, A) block starts, which of them are any, and (A, 1) which are drawn for their candidates."""
        draft, count = self._policies[0], self._options.blocks
        starts, usable = all_starts(batch)
        with torch.no_grad():
            logits = draft.logits(batch, starts)
        labels, there = draft.labels(batch, starts, logits.shape[2])
        there &= _before_stop(batch, draft.places(starts, logits.shape[2]))
        differs = ((logits.argmax(dim=-1) != labels) & there).any(dim=2) & usable
        drawn = [drawn_starts(wanted, count, generator) for wanted in (differs, usable)]
        judged = torch.arange(2 * drawn[0][0].shape[1], device=starts.device) < drawn[0][0].shape[1]
        return torch.cat([d[0] for d in drawn], dim=1), torch.cat([d[1] for d in drawn], dim=1), judged[:, None]

    def _candidates(
        self, batch: Batch, starts: Tensor, logits: Tensor, differs: Tensor, generator: torch.Generator
    ) -> list[_Group]:
        groups = []
        for frame, block in differs.any(dim=2).nonzero().tolist():
            within = differs[frame, block].nonzero()[:, 0]
            places = starts[frame, block] + 1 + within
            log_chances = logits[frame, block, within].log_softmax(dim=-1)  # (changed, words)
            chances = log_chances.detach().exp().cpu()
            drawn = torch.multinomial(chances, self._options.candidates, replacement=True, generator=generator)
            drawn = drawn.to(logits.device)  # (changed, K)
            own = batch.tokens[frame, batch.prompt_length + places]
            said = self._policies[0].words[drawn].T
            groups.append(_Group(frame, places, own, said, log_chances.gather(1, drawn).mean(dim=0)))
        return groups

    def _reinforced(
        self, batch: Batch, scenes: Sequence[Scene], groups: Sequence[_Group], generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean over groups and candidates of advantage * log pi, to be made larger; and what there is to watch."""
        options, device = self._options, batch.tokens.device
        acting = options.action_weight > 0
        judged = self._judged(batch, scenes, groups, generator) if acting else [torch.zeros(0, 3)] * len(groups)
        gains, seen = [], []
        for group, errors in zip(groups, judged, strict=True):
            shares = text_shares(group.said, group.own).cpu()
            mse, metres = (errors[:, 0], errors[:, 1:].mean(dim=1)) if acting else (torch.zeros_like(shares),) * 2
            error = mse if options.metric is Metric.MSE else metres
            found = rewards(error, shares, options.action_weight, options.text_weight)
            gains.append((advantages(found, options.advantage).to(device) * group.log_chance).mean())
            values = {"reward": found, "matching": shares, "spread": (found - found.mean()).square()}
            if acting:
                values |= {"action_mse": mse, "ade_1s": errors[:, 1], "ade_6s": errors[:, 2]}
            seen.append({name: value.mean() for name, value in values.items()})
        names = ("reward", "matching", "spread", *(("action_mse", "ade_1s", "ade_6s") if acting else ()))
        zero = torch.zeros((), device=device)
        gain = torch.stack(gains).mean() if gains else zero
        return gain, {n: torch.stack([s[n] for s in seen]).mean().to(device) if seen else zero for n in names}

    def _judged(
        self, batch: Batch, scenes: Sequence[Scene], groups: Sequence[_Group], generator: torch.Generator
    ) -> list[Tensor]:
        """Per group (K, 3): action MSE, and displacement over 1 s and 6.4 s in m, against the target's own reasoning.

        All candidates of a frame go through one prefill and one expert run; those that are the same go once.
        """
        judged: dict[int, Tensor] = {}
        for frame in range(len(batch.tokens)):
            noise = torch.randn(self._options.draws, WAYPOINTS, ACTION_DIMS, generator=generator)
            members = [number for number, group in enumerate(groups) if group.frame == frame]
            if not members:
                continue
            length = int(batch.reasoning_lengths[frame])
            said = batch.tokens[frame, batch.prompt_length : batch.prompt_length + length].tolist()
            own = torch.tensor(self._judge.closed(said), device=batch.tokens.device)
            rows = [own[None]]
            for number in members:
                variants = own.repeat(len(groups[number].said), 1)
                variants[:, groups[number].places] = groups[number].said
                rows.append(variants)
            distinct, which = torch.unique(torch.cat(rows), dim=0, return_inverse=True)
            errors = self.errors(scenes[frame], distinct, int(which[0]), noise)[which[1:].cpu()]
            sizes = [len(groups[number].said) for number in members]
            judged |= dict(zip(members, torch.split(errors, sizes), strict=True))
        return [judged[number] for number in range(len(groups))]

    def errors(self, scene: Scene, reasonings: Tensor, own: int, noise: Tensor) -> Tensor:
        """(M, 3) of (M, R) reasonings against the one numbered `own`; see `_judged`."""
        actions = self._judge.actions(scene, reasonings, noise)
        metres = path_errors(actions, actions[own], scene.v0, self._judge.target.scaling)
        mse = action_errors(actions, actions[own]).tolist()
        return torch.cat([torch.tensor(mse)[:, None], torch.from_numpy(metres).float()], dim=1)

    @torch.no_grad()
    def _count(self, probe: Batch) -> dict[str, Tensor]:
        """Sizes of the two anchor sets over all places of the probe, and how many places have flipped."""
        draft, frozen = self._policies
        starts, usable = all_starts(probe)
        logits, before = draft.logits(probe, starts), frozen.logits(probe, starts)
        labels, there = draft.labels(probe, starts, logits.shape[2])
        there = there & usable[:, :, None]
        agrees, agreed = (logits.argmax(dim=-1) == labels) & there, (before.argmax(dim=-1) == labels) & there
        counts = {"places": there, "static_set": agreed, "policy_set": agrees, "left_set": agreed & ~agrees}
        return {name: mask.sum().float() for name, mask in counts.items()}


def _before_stop(batch: Batch, places: Tensor) -> Tensor:
    """Which of (B, A, depth) reasoning tokens come before the last one of their reasoning."""
    return places < batch.reasoning_lengths[:, None, None] - 1


def _mean(values: Tensor, where: Tensor) -> Tensor:
    """Mean over the places that are True; 0 where there are none."""
    return (values * where).sum() / where.sum().clamp(min=1)
