"""The reference pipeline: every image encoded at each tick, Hugging Face `generate`, then the flow's Euler steps."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList
from transformers.cache_utils import DynamicCache

from rsd_planner.bench.strategies import Tick
from rsd_planner.errors import ModelOutputError
from rsd_planner.plan import WAYPOINTS
from rsd_planner.planner import PlannerSettings
from rsd_planner.scene.observation import Frame, Observation
from rsd_planner.target.action_expert import ACTION_DIMS
from rsd_planner.target.action_space import roll_out, solve_v0
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.images import Patches
from rsd_planner.target.kv_cache import for_layers
from rsd_planner.target.prompt import fuse_history, prompt_text


class ReferencePipeline:
    """The public way of running the model: transformers' own forward, cache and generation, on the same weights."""

    name = "Hugging Face generate"
    depth, origin, backend = 0, "", "transformers"

    def __init__(self, target: AlpamayoTarget, settings: PlannerSettings) -> None:
        self._target, self._settings = target, settings
        words = target.vocabulary
        self._closing = (words.cot_end, words.future_start)
        self._masked = LogitsProcessorList([_Forbidden(words.bins)])
        weight = target.network.vlm.lm_head.weight
        self._device, self._dtype = weight.device, weight.dtype

    def run(self, observation: Observation) -> Tick:
        """See `Strategy`."""
        started = time.perf_counter()
        said, cache, watch = self.generate(observation)
        noise = torch.randn(WAYPOINTS, ACTION_DIMS, generator=torch.Generator().manual_seed(self._settings.seed))
        actions = self.sample_actions(noise, cache)
        if not torch.isfinite(actions).all():
            raise ModelOutputError("the action expert's output is not finite")
        history = observation.history
        v0 = solve_v0(history.positions, history.rotations)
        roll_out(actions.numpy(), v0, self._target.scaling, z=float(history.positions[-1, 2]))
        return Tick(
            token_ids=said,
            tokens_per_pass=(1,) * (len(said) - 1),
            prefill_committed=1,
            reasoning_tokens=next((i for i, token in enumerate(said) if token in self._closing), len(said)),
            routine_tokens=0,
            draft_ms=0.0,
            reasoning_ms=watch.reasoning_ms,
            tick_ms=(time.perf_counter() - started) * 1e3,
        )

    def keys_values(self) -> Tensor | None:
        """See `Strategy`. Its cache is transformers' own."""
        return None

    def forget(self) -> None:
        """See `Strategy`. It keeps nothing between ticks."""

    @torch.inference_mode()
    def generate(self, observation: Observation) -> tuple[tuple[int, ...], DynamicCache, _Watch]:
        """The committed tokens, the cache up to and including the stop token, and when the tokens came."""
        cameras = sorted(observation.cameras)
        frames = [Frame.from_image(f.stamp_ns, f.image) for camera in cameras for f in observation.cameras[camera]]
        patches = [self._target.patches(frame) for frame in frames]
        ids = self._prompt(observation, patches)
        stop, watch, cache = self._closing[1], _Watch(), DynamicCache(config=self._target.network.text.config)
        sequences = self._target.network.vlm.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == self._target.vocabulary.image_pad).int(),
            pixel_values=torch.cat([each.values for each in patches]).to(self._device, self._dtype),
            image_grid_thw=torch.cat([each.grid for each in patches]).to(self._device),
            **for_layers(cache),
            do_sample=False,
            max_new_tokens=self._settings.max_reasoning_tokens,
            eos_token_id=stop,
            pad_token_id=stop,
            logits_processor=self._masked,
            streamer=watch,
        )
        said = tuple(sequences[0, ids.shape[1] :].tolist())
        self._read(self._unread(said), cache)
        return said, cache, watch

    @torch.inference_mode()
    def sample_actions(self, noise: Tensor, cache: DynamicCache) -> Tensor:
        """As `AlpamayoTarget.sample_actions`, on transformers' cache, which is cropped after each step."""
        network, read = self._target.network, cache.get_seq_length()
        steps = self._settings.flow_steps or self._target.config.flow_steps
        positions = torch.arange(read, read + WAYPOINTS, device=self._device) + self._rope_delta
        actions = noise.to(self._device)
        for i in range(steps):
            moment = torch.full((1,), i / steps, dtype=torch.float32, device=self._device)
            embedded = network.action_in_proj(actions[None], moment).to(self._dtype)
            hidden = network.expert(embedded, positions.expand(3, 1, -1), cache)
            cache.crop(-WAYPOINTS)
            actions = actions + network.action_out_proj(hidden)[0].float() / steps
        return actions.cpu()

    @property
    def _rope_delta(self) -> int:
        return int(self._target.network.vlm.model.rope_deltas)

    def _prompt(self, observation: Observation, patches: list[Patches]) -> Tensor:
        """(1, L) the prompt as the model reads it."""
        config, words = self._target.config, self._target.vocabulary
        merged = self._target.network.vision.spatial_merge_size**2
        sizes = iter([int(each.grid.prod()) // merged for each in patches])
        cameras = observation.cameras
        counts = {camera: [next(sizes) for _ in cameras[camera]] for camera in sorted(cameras)}
        text = prompt_text(config.variant, counts, config.history_length, observation.route)
        ids = fuse_history(words.encode(text), observation.history.positions, config, words)
        return torch.from_numpy(ids)[None].to(self._device)

    def _unread(self, said: tuple[int, ...]) -> list[int]:
        """The last token, and the closing ones that the target did not say itself."""
        cot_end, stop = self._closing
        if said[-1] == stop:
            return [stop]
        return [said[-1], stop] if cot_end in said else [said[-1], cot_end, stop]

    def _read(self, tokens: list[int], cache: DynamicCache) -> None:
        ids = torch.tensor([tokens], device=self._device)
        self._target.network.vlm(input_ids=ids, **for_layers(cache), use_cache=True)


class _Forbidden:
    """Trajectory bins are never said."""

    def __init__(self, bins: range) -> None:
        self._bins = bins

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002
        masked = scores.clone()
        masked[:, self._bins.start : self._bins.stop] = -torch.inf
        return masked


class _Watch:
    """A streamer that notes when tokens come; the first `put` is the prompt."""

    def __init__(self) -> None:
        self._puts: list[float] = []

    def put(self, value: Any) -> None:  # noqa: ARG002
        self._puts.append(time.perf_counter())

    def end(self) -> None: ...

    @property
    def reasoning_ms(self) -> float:
        """From the first token, which the prefill gives, to the last."""
        return (self._puts[-1] - self._puts[1]) * 1e3
