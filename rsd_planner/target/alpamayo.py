"""The deliberative reasoner in PyTorch: encode images, prefill, verify, sample actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rsd_planner.decoding.protocols import Prefill, Step
from rsd_planner.errors import ImageError, ModelOutputError
from rsd_planner.scene.observation import Frame, Observation
from rsd_planner.target.checkpoint import ModelDirectory, load_weights
from rsd_planner.target.config import FRAMES_PER_CAMERA, AlpamayoConfig, read_config
from rsd_planner.target.images import ImagePatcher, Patches, typical_size
from rsd_planner.target.kv_cache import KVCache, for_layers
from rsd_planner.target.layout import store_by_columns
from rsd_planner.target.network import AlpamayoNetwork, build_network, read_vlm_config
from rsd_planner.target.prompt import fuse_history, prompt_text
from rsd_planner.target.short_pass import ShortPass
from rsd_planner.target.uploads import upload
from rsd_planner.target.vocabulary import Vocabulary, load_vocabulary


@dataclass(frozen=True)
class VisionFeatures:
    """One image as the text model reads it."""

    embeddings: Tensor  # (tokens, hidden)
    deepstack: tuple[Tensor, ...]  # per level (tokens, hidden), added after text layers 0, 1, 2
    grid: tuple[int, int, int]  # patches: 1, height, width


@dataclass(frozen=True)
class PromptLayout:
    """All of a prompt that does not change from tick to tick."""

    token_ids: Tensor  # (L,) history placeholders still in place
    positions: Tensor  # (3, 1, L) rotary positions: time, height, width
    rope_delta: int  # position of token i after the prompt is i + rope_delta on all axes
    image_index: Tensor  # (image tokens,) where the images are


@dataclass(frozen=True)
class Prompt:
    """What the target reads before it reasons."""

    token_ids: Tensor  # (L,) ego history fused in
    layout: PromptLayout
    images: tuple[VisionFeatures, ...]  # in prompt order


@dataclass(frozen=True)
class Parts:
    """A model directory but for its weights."""

    checkpoint: Path
    config: AlpamayoConfig
    network: AlpamayoNetwork  # vision, text and expert still without memory
    vocabulary: Vocabulary
    patcher: ImagePatcher


def read_parts(path: Path) -> Parts:
    """Read all of a model directory but its weights; raises as `AlpamayoTarget.load`."""
    directory = ModelDirectory.find(path)
    config = read_config(directory.checkpoint)
    processor = directory.processor(config)
    vlm_config = read_vlm_config(config, processor)
    vocabulary = load_vocabulary(config, processor)
    patcher = ImagePatcher(config, processor)
    patcher.require(vlm_config.vision_config)
    return Parts(directory.checkpoint, config, build_network(config, vlm_config, processor), vocabulary, patcher)


class AlpamayoTarget:
    """One loaded checkpoint and its KV cache. Owned by one thread; every method runs under inference mode."""

    def __init__(
        self,
        config: AlpamayoConfig,
        network: AlpamayoNetwork,
        vocabulary: Vocabulary,
        patcher: ImagePatcher,
        taps: Sequence[int] = (),
    ) -> None:
        self.config, self.network, self.vocabulary = config, network, vocabulary
        self._patcher = patcher
        self.taps = tuple(taps)
        weight = network.text.embed_tokens.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.cache = self._new_cache()
        store_by_columns(network.text, network.expert, network.vlm.lm_head)
        self._short = ShortPass(network.text)
        self._short_expert = ShortPass(network.expert)
        self.scaling = network.action_space.scaling()
        self._rope_delta = 0
        self._features: WeakKeyDictionary[Frame, VisionFeatures] = WeakKeyDictionary()
        self._layout = lru_cache(maxsize=8)(self._build_layout)

    @classmethod
    def load(cls, path: Path, *, device: str, dtype: torch.dtype, taps: Sequence[int] = ()) -> AlpamayoTarget:
        """Load a model directory.

        Args:
            path: A folder with `target/` (or `checkpoint/`) and `processor/`.
            taps: Text layers, ascending, whose outputs (after the DeepStack add) every Step carries.

        Raises:
            CheckpointError: A part is missing, damaged or does not fit the others.
            UnsupportedModelError: Alpamayo 2 or an unknown model.
        """
        parts = read_parts(path)
        load_weights(parts.network, parts.checkpoint, dtype=dtype, device=torch.device(device))
        return cls(parts.config, parts.network, parts.vocabulary, parts.patcher, taps)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def longest_prompt(self) -> int:
        """Tokens of a prompt without route that shows all trained cameras in the largest images."""
        vision = self.network.vision.config
        per_image = self.config.max_pixels // (vision.patch_size * vision.spatial_merge_size) ** 2
        counts = {camera: [per_image] * FRAMES_PER_CAMERA for camera in self.config.cameras}
        return len(self.vocabulary.encode(prompt_text(self.config.variant, counts, self.config.history_length, None)))

    @property
    def typical_image(self) -> tuple[int, int]:
        """Height and width of an image that is not resized: within the pixel limits, as near to 9:5 as they allow."""
        vision = self.network.vision.config
        return typical_size(self.config, vision.patch_size * vision.spatial_merge_size)

    def has_features(self, frame: Frame) -> bool:
        return frame in self._features

    def patches(self, frame: Frame) -> Patches:
        """The pixels of one image as the vision tower takes them.

        Raises:
            ImageError: The image cannot be decoded or resized.
        """
        try:
            return self._patcher(frame.image)
        except ImageError as error:
            frame.undecodable = True
            raise ImageError(f"frame at {frame.stamp_ns} ns: {error}") from error

    @torch.inference_mode()
    def encode(self, frame: Frame) -> VisionFeatures:
        """Vision features of one image; computed once and kept for as long as the frame lives."""
        features = self._features.get(frame)
        if features is None:
            features = self._features[frame] = self._see(self.patches(frame))
        return features

    def prompt(self, observation: Observation) -> Prompt:
        """The prompt of one observation: images, ego history, route."""
        images = {c: tuple(self.encode(f) for f in observation.cameras[c]) for c in sorted(observation.cameras)}
        grids = tuple((camera, tuple(f.grid for f in features)) for camera, features in images.items())
        layout = self._layout(grids, observation.route)
        ids = fuse_history(layout.token_ids.tolist(), observation.history.positions, self.config, self.vocabulary)
        return Prompt(torch.from_numpy(ids), layout, tuple(f for features in images.values() for f in features))

    @torch.inference_mode()
    def prefill(self, prompt: Prompt, proposal: Sequence[int] = ()) -> Prefill:
        """Read a prompt from scratch; see `decoding.protocols.Target`."""
        layout = prompt.layout
        self._rope_delta = layout.rope_delta
        self.cache.clear()
        ids = torch.cat([prompt.token_ids, torch.tensor(proposal, dtype=torch.int64)])
        embedded = self.network.text.embed_tokens(upload(ids, self.device))[None]  # (1, T, hidden)
        embedded[0, layout.image_index] = torch.cat([image.embeddings for image in prompt.images])
        positions = torch.cat([layout.positions, self._positions_after(len(prompt.token_ids), len(proposal))], dim=-1)
        deepstack = [torch.cat(level) for level in zip(*(image.deepstack for image in prompt.images), strict=True)]
        step = self._forward(embedded, positions, len(proposal) + 1, deepstack, layout.image_index)
        return Prefill(step.logits, step.features, prompt.token_ids, layout.positions[:, 0])

    @torch.inference_mode()
    def verify(self, tokens: Sequence[int]) -> Step:
        """Read tokens behind what was read before; see `decoding.protocols.Target`."""
        ids = upload(torch.tensor(tokens, dtype=torch.int64), self.device)
        embedded = self.network.text.embed_tokens(ids)[None]
        return self._forward(embedded, self._positions_after(self.cache.length, len(tokens)), len(tokens))

    def rollback(self, count: int) -> None:
        """Forget the last `count` tokens."""
        self.cache.rollback(count)

    @torch.inference_mode()
    def velocity(self, actions: Tensor, time: float) -> Tensor:
        """The flow's velocity at (64, 2) noisy actions and flow time in [0, 1]; float32.

        The cache must end with `<|traj_future_start|>`; it keeps its length.
        """
        self.cache.reserve(len(actions))
        moment = torch.full((1,), time, dtype=torch.float32, device=self.device)
        embedded = self.network.action_in_proj(upload(actions, self.device)[None], moment).to(self.dtype)
        positions = self._positions_after(self.cache.length, len(actions))
        *_, hidden = self._short_expert.outputs(embedded[0], positions, self.cache, causal=False)
        velocity: Tensor = self.network.action_out_proj(self.network.expert.norm(hidden))
        return velocity.float()

    @torch.inference_mode()
    def sample_actions(self, noise: Tensor, steps: int | None = None) -> Tensor:
        """Flow matching by Euler steps from noise (time 0) to actions (time 1).

        Args:
            noise: (64, 2) float32 standard normal.
            steps: Number of Euler steps; None for the checkpoint's own.

        Returns:
            (64, 2) float32 normalised actions, on the CPU.

        Raises:
            ModelOutputError: An action is not finite.
        """
        count = steps or self.config.flow_steps
        actions = upload(noise, self.device)
        for i in range(count):
            actions = actions + self.velocity(actions, i / count) / count
        actions = actions.cpu()
        if not torch.isfinite(actions).all():
            raise ModelOutputError("the action expert's output is not finite")
        return actions

    def synchronize(self) -> None:
        """Wait for the device, so that a stage's time is its own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def forget(self) -> None:
        """Drop all vision features and the content of the KV cache."""
        self.cache.clear()
        self._features.clear()

    def close(self) -> None:
        """Release network and cache."""
        self.forget()
        del self.network, self.cache, self._short, self._short_expert

    def _new_cache(self) -> KVCache:
        text = self.network.text.config
        return KVCache(
            text.num_hidden_layers, text.num_key_value_heads, text.head_dim, dtype=self.dtype, device=self.device
        )

    def _see(self, patches: Patches) -> VisionFeatures:
        """One image through the vision tower."""
        values = upload(patches.values, self.device).to(self.dtype)
        out = self.network.vision(values, grid_thw=patches.grid.to(self.device))
        return VisionFeatures(out.pooler_output, tuple(out.deepstack_features), patches.size)

    def _forward(
        self,
        embedded: Tensor,
        positions: Tensor,
        asked: int,
        deepstack: Sequence[Tensor] = (),
        image_index: Tensor | None = None,
    ) -> Step:
        """One pass of the text model over new tokens, which become part of the cache.

        Args:
            embedded: (1, T, hidden).
            positions: (3, 1, T).
            asked: Logits are computed for this many of the last tokens.
        """
        count = embedded.shape[1]
        self.cache.reserve(count)
        if deepstack:
            outputs = self._long_pass(embedded, positions, deepstack, image_index)
        else:
            outputs = self._short.outputs(embedded[0], positions, self.cache)
        hidden, tapped = embedded[0], []
        for i, hidden in enumerate(outputs):
            if i in self.taps:
                tapped.append(hidden)
        self.cache.commit(count)
        logits = self.network.logits(self.network.text.norm(hidden[-asked:]))
        return Step(logits, torch.cat(tapped, dim=-1) if tapped else None)

    def _long_pass(
        self, hidden: Tensor, positions: Tensor, deepstack: Sequence[Tensor], image_index: Tensor | None
    ) -> Iterator[Tensor]:
        """The output of each text layer, (T, hidden), for a prompt: nothing was read before it."""
        rotary = self.network.text.rotary_emb(hidden, positions)
        for i, layer in enumerate(self.network.text.layers):
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None, **for_layers(self.cache))
            if i < len(deepstack):
                hidden[0, image_index] += deepstack[i]
            yield hidden[0]

    def _positions_after(self, read: int, count: int) -> Tensor:
        """(3, 1, count) rotary positions of the tokens that follow `read` tokens."""
        return (torch.arange(read, read + count, device=self.device) + self._rope_delta).expand(3, 1, -1)

    def _build_layout(
        self, grids: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...], route: str | None
    ) -> PromptLayout:
        merged = self.network.vision.spatial_merge_size**2
        counts: Mapping[int, list[int]] = {c: [t * h * w // merged for t, h, w in images] for c, images in grids}
        text = prompt_text(self.config.variant, counts, self.config.history_length, route)
        ids = torch.tensor(self.vocabulary.encode(text))
        is_image = ids == self.vocabulary.image_pad
        grid_thw = torch.tensor([grid for _, images in grids for grid in images])
        model: Any = self.network.vlm.model
        positions, delta = model.get_rope_index(ids[None], is_image[None].int(), image_grid_thw=grid_thw)
        image_index = is_image.nonzero()[:, 0]
        return PromptLayout(ids, positions.to(self.device), int(delta), image_index.to(self.device))
