"""Cached frames as training batches: shuffled, of one layout each, padded, with the target's hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from rsd_planner.errors import TrainingError
from rsd_planner.target.checkpoint import open_weights
from rsd_planner.training.cache import CHUNK, FINAL, Cache, padded


@dataclass(frozen=True)
class Batch:
    """Frames of one layout, on the device that trains."""

    samples: NDArray[np.int64]  # (B,) their numbers
    tokens: Tensor  # (B, L + R) prompt with its ego history and reasoning, padded with 0 on the right
    reasoning_lengths: Tensor  # (B,)
    prompt_length: int  # L
    positions: Tensor  # (3, L) the target's rotary positions
    features: Tensor  # (B, L + R - 1, taps * hidden) float32: row i is of token i
    final: Tensor  # (B, R, hidden) float32: what the target's lm_head read to say reasoning token i


class Samples:
    """All frames of a filled cache."""

    def __init__(self, cache: Cache, layers: Sequence[int], *, resident: bool = False) -> None:
        """
        Args:
            layers: Target layers whose hidden states make the features, in this order.
            resident: Keep the cached hidden states in the device's memory, if all of them are cached.

        Raises:
            TrainingError: The cache has no usable frame, or is damaged.
        """
        self._cache, self._layers = cache, tuple(layers)
        chunks = [cache.tokens(number) for number in range(cache.chunks)]
        self.prompts = [prompt for chunk in chunks for prompt in chunk.prompts]
        self.reasonings = [reasoning for chunk in chunks for reasoning in chunk.reasonings]
        if not self.prompts:
            raise TrainingError(f"{cache.folder}: none of {cache.frames} frames can be used, expected at least one")
        self.ids = [str(name) for chunk in chunks for name in chunk.ids]
        self.refused = {name: why for chunk in chunks for name, why in chunk.refused.items()}
        self._frames = np.concatenate([chunk.frames for chunk in chunks])
        self._usable = self._frames < cache.frames  # the last chunk may hold more than is asked for
        said = np.array([len(reasoning) for reasoning in self.reasonings], np.int64)
        self._counts = {False: np.concatenate([chunk.rows for chunk in chunks]), True: said}  # by whether it is FINAL
        self._first = {final: np.cumsum(counts) - counts for final, counts in self._counts.items()}
        self._positions: list[NDArray[np.int64]] = []
        self._layout = self._number_layouts([(c.positions, c.layouts) for c in chunks])
        self._files: dict[tuple[int, int | str], Any] = {}
        self._resident = self._load() if resident else {}

    def __len__(self) -> int:
        return int(self._usable.sum())

    def epoch(self, size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """Batches of `size` sample numbers, each of one layout, in random order; incomplete ones are left out."""
        chance = np.random.default_rng([seed, epoch])
        batches = []
        for layout in range(len(self._positions)):
            members = chance.permutation(np.flatnonzero((self._layout == layout) & self._usable))
            batches += list(members[: len(members) // size * size].reshape(-1, size))
        if not batches:
            raise TrainingError(f"{self._cache.folder}: {len(self)} usable frames make no batch of {size}")
        return [batches[i] for i in chance.permutation(len(batches))]

    def batch(self, chosen: NDArray[np.int64]) -> Batch:
        """The batch of some samples of one layout."""
        device = self._cache.teacher.device
        reasoning = padded([torch.from_numpy(self.reasonings[i].astype(np.int64)) for i in chosen])
        prompts = torch.from_numpy(np.stack([self.prompts[i] for i in chosen]).astype(np.int64))
        features, final = self._hidden(chosen, reasoning)
        return Batch(
            samples=chosen,
            tokens=torch.cat([prompts, reasoning], dim=1).to(device),
            reasoning_lengths=torch.tensor([len(self.reasonings[i]) for i in chosen], device=device),
            prompt_length=prompts.shape[1],
            positions=torch.from_numpy(self._positions[self._layout[chosen[0]]]).to(device),
            features=features.to(device, torch.float32),
            final=final.to(device, torch.float32),
        )

    def _number_layouts(self, found: Sequence[tuple[Any, Any]]) -> NDArray[np.int64]:
        known: dict[bytes, int] = {}
        numbers = []
        for positions, layouts in found:
            for layout in layouts:
                place = positions[layout]
                if place.tobytes() not in known:
                    known[place.tobytes()] = len(self._positions)
                    self._positions.append(place)
                numbers.append(known[place.tobytes()])
        return np.array(numbers, np.int64)

    @property
    def _kinds(self) -> tuple[int | str, ...]:
        return (*self._layers, FINAL)

    def _load(self) -> dict[int | str, Tensor]:
        """All hidden states of each kind on the device, (rows, hidden); nothing if some are not cached."""
        device = self._cache.teacher.device
        paths = {kind: [self._cache.hidden_path(n, kind) for n in range(self._cache.chunks)] for kind in self._kinds}
        if not all(path.exists() for of_kind in paths.values() for path in of_kind):
            return {}
        return {kind: torch.cat([load_file(path)["hidden"].to(device) for path in of]) for kind, of in paths.items()}

    def _place(self, samples: NDArray[np.int64] | int, kind: int | str) -> tuple[Any, Any]:
        """First row and number of rows of some samples among all of this kind."""
        return self._first[kind == FINAL][samples], self._counts[kind == FINAL][samples]

    def _hidden(self, chosen: NDArray[np.int64], reasoning: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L + R - 1, taps * hidden) and (B, R, hidden); behind the end of a frame anything finite."""
        if self._resident:
            found = [self._gathered(chosen, kind) for kind in self._kinds]
            return torch.cat(found[:-1], dim=-1), found[-1]
        rows: dict[int, list[Tensor]] = {}
        missing = []
        for place, sample in enumerate(chosen.tolist()):
            stored = [self._stored(sample, kind) for kind in self._kinds]
            if all(tensor is not None for tensor in stored):
                rows[place] = [tensor for tensor in stored if tensor is not None]
            else:
                missing.append(place)
        if missing:
            rows |= self._recomputed(chosen, missing, reasoning)
        features = [torch.cat(rows[place][:-1], dim=-1) for place in range(len(chosen))]
        return padded(features), padded([rows[place][-1] for place in range(len(chosen))])

    def _gathered(self, chosen: NDArray[np.int64], kind: int | str) -> Tensor:
        first, counts = self._place(chosen, kind)
        index = torch.from_numpy(first[:, None] + np.arange(counts.max()))
        stored = self._resident[kind]
        return stored[index.clamp(max=len(stored) - 1).to(stored.device)]

    def _stored(self, sample: int, kind: int | str) -> Tensor | None:
        chunk = int(self._frames[sample]) // CHUNK
        if (chunk, kind) not in self._files:
            path = self._cache.hidden_path(chunk, kind)
            file: Any = open_weights(path) if path.exists() else None
            self._files[chunk, kind] = file and file.get_slice("hidden")
        stored = self._files[chunk, kind]
        if stored is None:
            return None
        first, count = self._place(sample, kind)
        before, _ = self._place(int(np.searchsorted(self._frames, chunk * CHUNK)), kind)
        rows: Tensor = stored[int(first - before) : int(first - before + count)]
        return rows

    def _recomputed(
        self, chosen: NDArray[np.int64], places: Sequence[int], reasoning: Tensor
    ) -> dict[int, list[Tensor]]:
        source, teacher = self._cache.source, self._cache.teacher
        batches, _ = teacher.prompts([source.observation(int(self._frames[chosen[place]])) for place in places])
        rows = {}
        for prompts in batches:
            members = [places[i] for i in prompts.numbers]
            found = teacher.read(prompts, reasoning[members], self._layers)
            for b, place in enumerate(members):
                said = len(self.reasonings[chosen[place]])
                read = prompts.token_ids.shape[1] + said - 1
                kept = [found.hidden[layer][b, :read].cpu() for layer in self._layers]
                rows[place] = [*kept, found.final[b, :said].cpu()]
        return rows
