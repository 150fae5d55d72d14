"""What the vehicle would do had the target said something else: one prefill and one expert run for all variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rsd_planner.scene.observation import Observation
from rsd_planner.target.action_space import solve_v0
from rsd_planner.target.alpamayo import AlpamayoTarget, PromptLayout
from rsd_planner.target.kv_cache import for_layers
from rsd_planner.training.teacher import Teacher
from rsd_planner.training.variant_kv import VariantKV


@dataclass(frozen=True)
class Scene:
    """One frame as the target reads it."""

    token_ids: Tensor  # (L,) on the target's device, ego history fused in
    layout: PromptLayout
    vision: tuple[Tensor, ...]  # embeddings and DeepStack levels, each (image tokens, hidden)
    v0: float  # m/s at t0


class Counterfactuals:
    """The flow-matching head over reasonings that differ from the target's own in some tokens."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher
        self.target: AlpamayoTarget = teacher.target
        self._network = self.target.network

    def scenes(self, observations: Sequence[Observation]) -> list[Scene]:
        """Frames whose images are known to be good, in their order."""
        batches, _ = self.teacher.prompts(observations)
        found: dict[int, Scene] = {}
        for prompts in batches:
            for row, number in enumerate(prompts.numbers):
                history = observations[number].history
                found[number] = Scene(
                    prompts.token_ids[row],
                    prompts.layout,
                    tuple(level[row] for level in prompts.vision),
                    solve_v0(history.positions, history.rotations),
                )
        return [found[number] for number in range(len(observations))]

    def closed(self, tokens: Sequence[int]) -> list[int]:
        """A reasoning with the closing tokens that the decoding loop would force."""
        words = self.target.vocabulary
        if tokens and tokens[-1] == words.future_start:
            return list(tokens)
        return [*tokens, *([] if words.cot_end in tokens else [words.cot_end]), words.future_start]

    @torch.inference_mode()
    def actions(self, scene: Scene, reasonings: Tensor, noise: Tensor) -> Tensor:
        """(M, draws, 64, 2) float32 normalised actions on the CPU, each draw under the same noise for all reasonings.

        Args:
            reasonings: (M, R) tokens after the prompt, `<|traj_future_start|>` the last.
            noise: (draws, 64, 2) standard normal.
        """
        network, count, draws = self._network, len(reasonings), len(noise)
        kv, _ = self._read(scene, reasonings)
        waypoints = noise.shape[1]
        kv = kv.spread(draws, room=waypoints)
        positions = self._positions(scene, kv.length, waypoints)
        flowing = noise.to(self.teacher.device).repeat(count, 1, 1)  # (M * draws, 64, 2)
        steps = self.target.config.flow_steps
        for i in range(steps):
            time = torch.full((len(flowing),), i / steps, device=flowing.device)
            embedded = network.action_in_proj(flowing, time).to(self.teacher.dtype)
            out = network.expert(embedded, positions, kv)
            flowing = flowing + network.action_out_proj(out).float() / steps
        return flowing.view(count, draws, *noise.shape[1:]).cpu()

    @torch.inference_mode()
    def runners_up(self, scene: Scene, reasoning: Tensor) -> Tensor:
        """(R,) what the target would have said instead at every place of its own (R,) reasoning; on the CPU."""
        _, hidden = self._read(scene, reasoning[None])
        logits = self._network.logits(hidden[0, :-1])
        bins = self.target.vocabulary.bins
        logits[:, bins.start : bins.stop] = -torch.inf
        logits.scatter_(1, reasoning.to(logits.device)[:, None], -torch.inf)
        return logits.argmax(dim=-1).cpu()

    def _read(self, scene: Scene, reasonings: Tensor) -> tuple[VariantKV, Tensor]:
        """Prompt and (M, R) reasonings read; (M, 1 + R, hidden) after the final norm, from the prompt's last token."""
        text: Any = self._network.text
        ids = reasonings.to(self.teacher.device)
        (count, read), length = ids.shape, len(scene.token_ids)
        prefix, last = self._prefill(scene)
        kv = prefix.spread(count, room=read)
        mask = torch.ones(read, length + read, dtype=torch.bool, device=ids.device).tril(diagonal=length)
        hidden = text.embed_tokens(ids)
        rotary = text.rotary_emb(hidden, self._positions(scene, length, read))
        for layer in text.layers:
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=mask[None, None], **for_layers(kv))
        kv.length += read
        return kv, text.norm(torch.cat([last.expand(count, -1, -1), hidden], dim=1))

    def _prefill(self, scene: Scene) -> tuple[VariantKV, Tensor]:
        """Keys and values of the prompt, and its last token's (1, 1, hidden) before the final norm."""
        text: Any = self._network.text
        embeddings, *deepstack = scene.vision
        index, length = scene.layout.image_index, len(scene.token_ids)
        hidden = text.embed_tokens(scene.token_ids)[None]
        hidden[:, index] = embeddings
        kv = VariantKV.empty(text.config, 1, length, like=hidden)
        rotary = text.rotary_emb(hidden, scene.layout.positions)
        for i, layer in enumerate(text.layers):
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None, **for_layers(kv))
            if i < len(deepstack):
                hidden[:, index] += deepstack[i]
        kv.length = length
        return kv, hidden[:, -1:]

    def _positions(self, scene: Scene, read: int, count: int) -> Tensor:
        """(3, 1, count) rotary positions of the tokens that follow `read` tokens."""
        places = torch.arange(read, read + count, device=self.teacher.device)
        return (places + scene.layout.rope_delta).expand(3, 1, -1)
