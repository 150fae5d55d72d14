"""The target over whole batches: what it says greedily, and its hidden states where drafts read them.

The planner reads one prompt and decodes it token by token. Here prompts of one layout, which have equal lengths, go
through together; a test holds the tokens equal to the planner's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rsd_planner.errors import ImageError
from rsd_planner.scene.observation import Frame, Observation
from rsd_planner.target.alpamayo import AlpamayoTarget, PromptLayout
from rsd_planner.target.images import Patches
from rsd_planner.target.kv_cache import for_layers
from rsd_planner.target.prompt import fuse_history

_TOKENS_AT_ONCE = {"cpu": 8192, "cuda": 16384}  # of all prompts in one pass: keeps its memory bounded


@dataclass(frozen=True)
class Prompts:
    """Prompts of one layout."""

    numbers: list[int]  # which of the observations they are
    token_ids: Tensor  # (B, L) on the target's device, ego history fused in
    layout: PromptLayout
    vision: list[Tensor]  # embeddings and DeepStack levels, each (B, image tokens, hidden)


@dataclass(frozen=True)
class Rows:
    """What drafts learn from. Row i is of token i of prompt and reasoning; the last token is never read."""

    hidden: Mapping[int, Tensor]  # target layer -> (B, L + R - 1, hidden), as a Step's features have them
    final: Tensor  # (B, R, hidden): what the target's lm_head reads to say reasoning token i


class _BatchKV:
    """Keys and values of a batch, in buffers that are written in place."""

    def __init__(self, batch: int, capacity: int, config: Any, like: Tensor) -> None:
        shape = (config.num_hidden_layers, 2, batch, config.num_key_value_heads, capacity, config.head_dim)
        self._rows = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.length = 0

    def update(self, key: Tensor, value: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        end = self.length + key.shape[2]
        rows = self._rows[layer]
        rows[0, :, :, self.length : end] = key
        rows[1, :, :, self.length : end] = value
        return rows[0, :, :, :end], rows[1, :, :, :end]


class Teacher:
    """A loaded target, asked about many frames at once."""

    def __init__(self, target: AlpamayoTarget) -> None:
        self.target = target
        self._network, self._words = target.network, target.vocabulary
        self.device = self._network.vlm.lm_head.weight.device
        self.dtype = self._network.vlm.lm_head.weight.dtype
        self._layouts: dict[tuple[object, ...], PromptLayout] = {}

    @torch.inference_mode()
    def prompts(self, observations: Sequence[Observation]) -> tuple[list[Prompts], dict[int, str]]:
        """Observations grouped by layout, and those that cannot be used with the reason: an image that is broken."""
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            cut = list(pool.map(self._patches, observations))
        refused = {i: str(found) for i, found in enumerate(cut) if isinstance(found, ImageError)}
        groups: dict[tuple[object, ...], list[int]] = {}
        for i, (observation, found) in enumerate(zip(observations, cut, strict=True)):
            if not isinstance(found, ImageError):
                grids = tuple(tuple(patches.grid[0].tolist()) for patches in found)
                groups.setdefault((tuple(sorted(observation.cameras)), grids, observation.route), []).append(i)
        batches = []
        for key, members in groups.items():
            if key not in self._layouts:
                self._layouts[key] = self.target.prompt(observations[members[0]]).layout
            layout = self._layouts[key]
            room = max(1, _TOKENS_AT_ONCE[self.device.type] // len(layout.token_ids))
            for begin in range(0, len(members), room):
                numbers = members[begin : begin + room]
                patches = [cut[i] for i in numbers]
                batches.append(self._batch(numbers, [observations[i] for i in numbers], patches, layout))
        return batches, refused

    @torch.inference_mode()
    def greedy(self, prompts: Prompts, max_tokens: int, layers: Sequence[int]) -> tuple[list[list[int]], Rows]:
        """What the target says, closing tokens included: at most `max_tokens` of its own choice, nothing forced.

        Returns:
            Tokens per prompt, and rows that reach to the longest of them; what lies behind a shorter one is of no use.
        """
        batch, length = prompts.token_ids.shape
        kv = _BatchKV(batch, length + max_tokens, self._network.text.config, prompts.vision[0])
        embedded = self._embedded(prompts, prompts.token_ids)
        hidden, tapped = self._pass(embedded, prompts.layout.positions, kv, layers, prompts)
        final = self._network.text.norm(hidden[:, -1:])
        finals, rows = [final], {layer: [tapped[layer]] for layer in layers}
        said = [self._best(final)]
        open_rows = said[0] != self._words.future_start
        while bool(open_rows.any()) and len(said) < max_tokens:
            embedded = self._network.text.embed_tokens(said[-1])[:, None]
            positions = (torch.full((3, 1, 1), kv.length) + prompts.layout.rope_delta).to(self.device)
            hidden, tapped = self._pass(embedded, positions, kv, layers)
            final = self._network.text.norm(hidden)
            finals.append(final)
            for layer in layers:
                rows[layer].append(tapped[layer])
            said.append(self._best(final))
            open_rows &= said[-1] != self._words.future_start
        tokens = [self._own(row) for row in torch.stack(said, dim=1).tolist()]
        joined = {layer: torch.cat(parts, dim=1) for layer, parts in rows.items()}
        return tokens, Rows(joined, torch.cat(finals, dim=1))

    @torch.inference_mode()
    def read(self, prompts: Prompts, reasoning: Tensor, layers: Sequence[int]) -> Rows:
        """The rows of reasonings that are known, in one pass.

        Args:
            reasoning: (B, R), padded on the right with any token.
        """
        length, read = prompts.token_ids.shape[1], reasoning.shape[1] - 1
        ids = torch.cat([prompts.token_ids, reasoning[:, :read].to(self.device)], dim=1)
        after = torch.arange(length, length + read, device=self.device).expand(3, 1, -1) + prompts.layout.rope_delta
        positions = torch.cat([prompts.layout.positions, after], dim=-1)
        hidden, tapped = self._pass(self._embedded(prompts, ids), positions, None, layers, prompts)
        return Rows(tapped, self._network.text.norm(hidden[:, length - 1 :]))

    def _patches(self, observation: Observation) -> list[Patches] | ImageError:
        try:
            return [self.target.patches(frame) for frame in _frames(observation)]
        except ImageError as error:
            return error

    def _batch(
        self, numbers: list[int], observations: Sequence[Observation], patches: Sequence[Any], layout: PromptLayout
    ) -> Prompts:
        flat = [image for images in patches for image in images]
        values = torch.cat([image.values for image in flat]).to(self.device, self.dtype)
        out = self._network.vision(values, grid_thw=torch.cat([image.grid for image in flat]).to(self.device))
        levels = (out.pooler_output, *out.deepstack_features)
        vision = [level.reshape(len(numbers), -1, level.shape[-1]) for level in levels]
        ids, config = layout.token_ids.tolist(), self.target.config
        fused = [fuse_history(ids, seen.history.positions, config, self._words) for seen in observations]
        token_ids = torch.stack([torch.from_numpy(row) for row in fused]).to(self.device)
        return Prompts(numbers, token_ids, layout, vision)

    def _embedded(self, prompts: Prompts, token_ids: Tensor) -> Tensor:
        embedded: Tensor = self._network.text.embed_tokens(token_ids)
        embedded[:, prompts.layout.image_index] = prompts.vision[0]
        return embedded

    def _pass(
        self,
        embedded: Tensor,
        positions: Tensor,
        kv: _BatchKV | None,
        layers: Sequence[int],
        prompts: Prompts | None = None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Hidden states before the final norm, and those at the taps. With a cache: a prompt, or one token each."""
        hidden, tapped = embedded, {}
        rotary = self._network.text.rotary_emb(hidden, positions)
        deepstack = prompts.vision[1:] if prompts else []
        cache = for_layers(kv) if kv else {}
        for i, layer in enumerate(self._network.text.layers):
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None, **cache)
            if prompts and i < len(deepstack):
                hidden[:, prompts.layout.image_index] += deepstack[i]
            if i in layers:
                tapped[i] = hidden
        if kv:
            kv.length += embedded.shape[1]
        return hidden, tapped

    def _best(self, final: Tensor) -> Tensor:
        """(B,) the likeliest token that may be said, of (B, 1, hidden)."""
        logits = self._network.logits(final[:, 0])
        logits[:, self._words.bins.start : self._words.bins.stop] = -torch.inf
        return logits.argmax(dim=-1)

    def _own(self, tokens: list[int]) -> list[int]:
        """Up to the stop token."""
        stop = self._words.future_start
        return tokens[: tokens.index(stop) + 1] if stop in tokens else tokens


def _frames(observation: Observation) -> list[Frame]:
    return [frame for camera in sorted(observation.cameras) for frame in observation.cameras[camera]]
