"""What the target says of each frame, kept on disk as tokens, and its hidden states as far as there is room for them.

A folder per source. `tokens-00007.npz` holds the eighth 64 frames; `layer-05/00007.safetensors` what target layer 5
made of them, in bfloat16 (the range of float32: hidden states of large models overflow float16), `final/` what its
lm_head reads. A chunk is written whole or not at all, so a run that was stopped goes on with the next one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from rsd_planner.errors import TrainingError
from rsd_planner.target.checkpoint import ModelDirectory
from rsd_planner.training.frames import FrameSource
from rsd_planner.training.teacher import Teacher

CHUNK = 64  # frames
FINAL = "final"
VERSION = 1
_DTYPE = torch.bfloat16
_SLICES, _SLICE = 64, 1 << 20  # of a weight file, to recognise it by


@dataclass(frozen=True)
class ChunkTokens:
    """Frames of one chunk that the target could read, in the source's order."""

    frames: NDArray[np.int64]  # (n,) numbers in the source
    ids: NDArray[np.str_]  # (n,) what the data calls them
    prompts: list[NDArray[np.int32]]  # each (L,), ego history fused in
    reasonings: list[NDArray[np.int32]]  # each (R,), closing tokens included
    layouts: NDArray[np.int64]  # (n,) which of `positions`
    positions: list[NDArray[np.int64]]  # each (3, L), the target's rotary positions
    refused: dict[str, str]  # id -> why it is not here

    @property
    def rows(self) -> NDArray[np.int64]:
        """(n,) tokens of prompt and reasoning but the last, which is never read."""
        return np.array([len(p) + len(r) - 1 for p, r in zip(self.prompts, self.reasonings, strict=True)], np.int64)


class Cache:
    """The cache of one source for one target."""

    def __init__(
        self,
        folder: Path,
        source: FrameSource,
        teacher: Teacher,
        fingerprint: str,
        *,
        max_tokens: int,
        gigabytes: float,
        limit: int | None = None,
    ) -> None:
        """
        Args:
            fingerprint: Of the target, by `target_fingerprint`.
            max_tokens: Longest reasoning.
            gigabytes: Hidden states of the first chunks are kept up to this size, those of the others are recomputed.
            limit: Of the source, the first so many frames; a cache of fewer is gone on with.

        Raises:
            TrainingError: The folder holds what another target said, or of other data.
        """
        self.folder, self.source, self.teacher = folder / source.name, source, teacher
        self._max_tokens, self._bytes = max_tokens, gigabytes * 1e9
        self._about = {
            "version": VERSION,
            "target": fingerprint,
            "dtype": str(teacher.dtype).removeprefix("torch."),
            "data": source.fingerprint,
            "max_tokens": max_tokens,
        }
        self._claim()
        self._total = len(source)
        self.frames = self._total if limit is None else min(limit, self._total)

    @property
    def chunks(self) -> int:
        return -(-self.frames // CHUNK)

    def fill(self, chunks: Iterable[int], layers: Sequence[int], done: Callable[[], bool]) -> None:
        """Ask the target about the frames of some chunks that are not there yet.

        Args:
            layers: Whose hidden states are wanted.
            done: Called after each chunk; True stops.
        """
        for number in chunks:
            self._fill(number, layers)
            if done():
                return

    def complete(self) -> bool:
        """Whether all tokens are there."""
        return all(self._tokens_path(number).exists() for number in range(self.chunks))

    def tokens(self, number: int) -> ChunkTokens:
        """Raises TrainingError: The file is damaged."""
        path = self._tokens_path(number)
        try:
            with np.load(path) as file:
                stored = {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError) as error:
            raise TrainingError(f"{path}: not readable ({error}); delete it, and it is written anew") from None
        names = sorted(name for name in stored if name.startswith("positions_"))
        return ChunkTokens(
            stored["frames"],
            stored["ids"],
            _split(stored["prompts"], stored["prompt_lengths"]),
            _split(stored["reasonings"], stored["reasoning_lengths"]),
            stored["layouts"],
            [stored[name] for name in names],
            dict(zip(stored["refused_ids"].tolist(), stored["refused_why"].tolist(), strict=True)),
        )

    def hidden_path(self, number: int, layer: int | str) -> Path:
        """Of one layer's hidden states, or of what the lm_head reads."""
        folder = FINAL if layer == FINAL else f"layer-{layer:02d}"
        return self.folder / folder / f"{number:05d}.safetensors"

    def _tokens_path(self, number: int) -> Path:
        return self.folder / f"tokens-{number:05d}.npz"

    def _claim(self) -> None:
        """Make the folder ours, or find it to be."""
        path = self.folder / "about.json"
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if found != self._about:
                differing = {name: found.get(name) for name in self._about if found.get(name) != self._about[name]}
                expected = {name: self._about[name] for name in differing}
                raise TrainingError(f"{path}: found {differing}, expected {expected}: use another --cache or delete it")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")  # other processes may be at it
        part.write_text(json.dumps(self._about) + "\n", encoding="utf-8")
        part.replace(path)

    def _fill(self, number: int, layers: Sequence[int]) -> None:
        first = number * CHUNK
        numbers = list(range(first, min(first + CHUNK, self._total)))
        known = self.tokens(number) if self._tokens_path(number).exists() else None
        if known is not None and len(known.frames) + len(known.refused) < len(numbers):
            known = None  # the data has grown since
            for stale in self.folder.glob(f"*/{number:05d}.safetensors"):
                stale.unlink()
        wanted: list[int | str] = [FINAL, *layers]
        missing = [layer for layer in wanted if known is None or not self.hidden_path(number, layer).exists()]
        if known is not None:
            if not missing or not self._fits(number, known, len(layers)):
                return
            numbers = known.frames.tolist()
        asked = [layer for layer in missing if isinstance(layer, int)]
        found, hidden = self._ask(numbers, known, asked)
        if self._fits(number, found, len(layers)):
            for layer in missing:
                path = self.hidden_path(number, layer)
                path.parent.mkdir(exist_ok=True)
                part = path.with_suffix(f".{os.getpid()}.part")  # another process may be at the same chunk
                save_file({"hidden": torch.cat(hidden[layer])}, part)
                part.replace(path)
        if known is None:
            _write_tokens(self._tokens_path(number), found)

    def _fits(self, number: int, tokens: ChunkTokens, layers: int) -> bool:
        """Whether there is room for this chunk, if those before it were like it."""
        row: int = self.teacher.target.network.text.config.hidden_size * _DTYPE.itemsize
        rows = int(tokens.rows.sum()) * layers + sum(map(len, tokens.reasonings))
        return (number + 1) * rows * row <= self._bytes

    def _ask(
        self, numbers: list[int], known: ChunkTokens | None, layers: Sequence[int]
    ) -> tuple[ChunkTokens, dict[int | str, list[Tensor]]]:
        """Tokens of some frames, and per layer the rows of each frame."""
        batches, refused = self.teacher.prompts([self.source.observation(number) for number in numbers])
        said: dict[int, tuple[NDArray[np.int32], list[int], NDArray[np.int64]]] = {}
        rows: dict[int, dict[int | str, Tensor]] = {}
        for prompts in batches:
            if known is None:
                tokens, found = self.teacher.greedy(prompts, self._max_tokens, layers)
            else:
                tokens = [known.reasonings[i].tolist() for i in prompts.numbers]
                found = self.teacher.read(prompts, padded([torch.tensor(row) for row in tokens]), layers)
            positions = prompts.layout.positions[:, 0].cpu().numpy()
            for b, i in enumerate(prompts.numbers):
                said[i] = (prompts.token_ids[b].cpu().numpy().astype(np.int32), tokens[b], positions)
                read = prompts.token_ids.shape[1] + len(tokens[b]) - 1
                kept: dict[int | str, Tensor] = {layer: found.hidden[layer][b, :read] for layer in layers}
                kept[FINAL] = found.final[b, : len(tokens[b])]
                rows[i] = {layer: tensor.to(_DTYPE).cpu() for layer, tensor in kept.items()}
        order = sorted(said)
        kinds: list[int | str] = [*layers, FINAL]
        hidden = {kind: [rows[i][kind] for i in order] for kind in kinds}
        why = {self.source.id(numbers[i]): reason for i, reason in refused.items()}
        return _chunk([numbers[i] for i in order], [said[i] for i in order], self.source, why), hidden


def _split(flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    ends = np.cumsum(lengths)
    return [flat[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def padded(rows: Sequence[Tensor]) -> Tensor:
    """(B, longest), zeros on the right."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)


def _chunk(frames: list[int], said: Sequence[Any], source: FrameSource, refused: dict[str, str]) -> ChunkTokens:
    layouts: dict[bytes, int] = {}
    positions: list[NDArray[np.int64]] = []
    which = []
    for _, _, place in said:
        if place.tobytes() not in layouts:
            layouts[place.tobytes()] = len(positions)
            positions.append(place)
        which.append(layouts[place.tobytes()])
    return ChunkTokens(
        np.array(frames, np.int64),
        np.array([source.id(frame) for frame in frames], np.str_),
        [prompt for prompt, _, _ in said],
        [np.array(tokens, np.int32) for _, tokens, _ in said],
        np.array(which, np.int64),
        positions,
        refused,
    )


def _write_tokens(path: Path, chunk: ChunkTokens) -> None:
    nothing = [np.zeros(0, np.int32)]
    part = path.with_suffix(f".{os.getpid()}.part")
    arrays: dict[str, Any] = {
        "frames": chunk.frames,
        "ids": chunk.ids,
        "prompts": np.concatenate(chunk.prompts or nothing),
        "prompt_lengths": np.array([len(prompt) for prompt in chunk.prompts], np.int64),
        "reasonings": np.concatenate(chunk.reasonings or nothing),
        "reasoning_lengths": np.array([len(reasoning) for reasoning in chunk.reasonings], np.int64),
        "layouts": chunk.layouts,
        "refused_ids": np.array(list(chunk.refused), np.str_),
        "refused_why": np.array(list(chunk.refused.values()), np.str_),
    }
    arrays |= {f"positions_{i:03d}": positions for i, positions in enumerate(chunk.positions)}
    with part.open("wb") as file:
        np.savez(file, **arrays)
    part.replace(path)


def target_fingerprint(model: Path) -> str:
    """Recognises a target: its configs, and of each weight file size, header and 64 MB spread over it."""
    directory = ModelDirectory.find(model)
    digest = hashlib.sha256((directory.checkpoint / "config.json").read_bytes())
    for path in sorted(directory.checkpoint.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for begin in sorted({size * i // _SLICES for i in range(_SLICES)}):
                file.seek(begin)
                digest.update(file.read(_SLICE))
    return digest.hexdigest()[:16]
