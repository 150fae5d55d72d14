"""The dataset on disk: shards of samples, written once, resumed where they stopped.

Run `python -m rsd_planner.demo.world.dataset OUT --split train --drives 6000` (again, to go on after an interruption;
with `--workers 2` on two cores). Drive i of a split is the split's i-th seed; 64 drives make a shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from rsd_planner.demo.world.cameras import FRONT, HEIGHT, WIDTH
from rsd_planner.demo.world.facts import CauseKind, Motion
from rsd_planner.demo.world.samples import FRAMES, Camerawork, Sample, drive_samples
from rsd_planner.demo.world.sentences import action_of
from rsd_planner.demo.world.splits import SEEDS, Split
from rsd_planner.errors import PlannerError
from rsd_planner.scene.observation import RgbImage

WORLD_VERSION = 1  # grows whenever a seed no longer gives the same sample
DRIVES_PER_SHARD = 64
CAUSES = tuple(CauseKind)
MOTIONS = tuple(Motion)
_JPEG = [cv2.IMWRITE_JPEG_QUALITY, 95, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
_MAX_TOKENS = 48


class DatasetError(PlannerError):
    """A folder that is no dataset of this world."""


def write_split(
    folder: Path, split: Split, drives: int, cameras: Sequence[int] = (FRONT,), workers: int = 1
) -> Iterator[Path]:
    """Write what is missing of the first `drives` drives of a split; yields each shard as it is done.

    Raises:
        DatasetError: The folder holds samples of other cameras or of another version of the world.
    """
    target = folder / split.value
    target.mkdir(parents=True, exist_ok=True)
    _claim(target, split, cameras)
    seeds = SEEDS[split][:drives]
    jobs = []
    for number, start in enumerate(range(0, len(seeds), DRIVES_PER_SHARD)):
        path = target / f"shard-{number:05d}.npz"
        wanted = list(seeds[start : start + DRIVES_PER_SHARD])
        if not path.exists() or _drives_in(path) < len(wanted):
            jobs.append((path, wanted, tuple(cameras)))
    if workers == 1:
        yield from map(_write_shard, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_write_shard, jobs)


def _claim(target: Path, split: Split, cameras: Sequence[int]) -> None:
    about = {"world": WORLD_VERSION, "split": split.value, "cameras": sorted(cameras), "size": [HEIGHT, WIDTH]}
    path = target / "about.json"
    if path.exists() and json.loads(path.read_text()) != about:
        raise DatasetError(f"{path}: found {json.loads(path.read_text())}, expected {about}: write to another folder")
    path.write_text(json.dumps(about) + "\n")


def _drives_in(path: Path) -> int:
    with np.load(path) as shard:
        return int(shard["drives"])


def _write_shard(job: tuple[Path, list[int], tuple[int, ...]]) -> Path:
    path, seeds, cameras = job
    camerawork = Camerawork(cameras)
    samples = [_packed(sample) for seed in seeds for sample in drive_samples(seed, camerawork)]
    columns: dict[str, Any] = {
        name: np.array([sample[name] for sample in samples]) for name in samples[0] if name != "jpegs"
    }
    jpegs = [jpeg for sample in samples for jpeg in sample["jpegs"]]
    offsets = np.concatenate([[0], np.cumsum([len(jpeg) for jpeg in jpegs])])
    columns |= {"pixels": np.concatenate(jpegs), "offsets": offsets, "drives": np.array(len(seeds))}
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        np.savez(file, **columns)
    temporary.rename(path)
    return path


def _packed(sample: Sample) -> dict[str, Any]:
    mask = np.full(_MAX_TOKENS, -1, np.int8)
    mask[: len(sample.deliberative)] = sample.deliberative
    cause = sample.facts.cause
    frames = sample.images.reshape(-1, *sample.images.shape[2:])
    return {
        "jpegs": [encode_jpeg(frame) for frame in frames],
        "seed": sample.seed,
        "tick": sample.tick,
        "history": sample.history.astype(np.float32),
        "history_rotations": sample.history_rotations.astype(np.float32),
        "future": sample.future.astype(np.float32),
        "actions": sample.actions.astype(np.float32),
        "speed": np.float32(sample.speed),
        "text": sample.text,
        "deliberative": mask,
        "cause": CAUSES.index(cause.kind),
        "action": action_of(sample.text),
        "motion": MOTIONS.index(sample.facts.ego.motion),
        "distance": cause.distance,
        "side": cause.side or "",
        "body": cause.body.value if cause.body else "",
        "flag": int(cause.braking or cause.sharp or cause.moving or cause.lanes),
    }


def encode_jpeg(image: RgbImage) -> NDArray[np.uint8]:
    """(n,) bytes of an RGB image, as every sample is stored."""
    return np.asarray(cv2.imencode(".jpg", image[:, :, ::-1], _JPEG)[1], np.uint8)


@dataclass(frozen=True)
class Dataset:
    """A split in memory: one array per column, pictures still as JPEG. `dataset[i]` decodes them."""

    columns: dict[str, NDArray[Any]]
    pixels: list[NDArray[np.uint8]]  # per shard
    offsets: list[NDArray[np.int64]]
    shard: NDArray[np.int64]  # of each sample
    row: NDArray[np.int64]  # within its shard
    cameras: int

    def __len__(self) -> int:
        return len(self.shard)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample: `images` (cameras, 4, H, W, 3) uint8 RGB, and a row of every column."""
        row = {name: column[index] for name, column in self.columns.items()}
        return {**row, "images": self.images(index)}

    def images(self, index: int) -> NDArray[np.uint8]:
        """(cameras, 4, H, W, 3) uint8 RGB."""
        per_sample = self.cameras * FRAMES
        pixels, offsets = self.pixels[self.shard[index]], self.offsets[self.shard[index]]
        first = int(self.row[index]) * per_sample
        frames = np.empty((per_sample, HEIGHT, WIDTH, 3), np.uint8)
        for i in range(per_sample):
            decoded = cv2.imdecode(pixels[offsets[first + i] : offsets[first + i + 1]], cv2.IMREAD_COLOR_RGB)
            if decoded is None:
                raise DatasetError(f"sample {index}: frame {i} is no JPEG: delete its shard and write it again")
            frames[i] = decoded
        return frames.reshape(self.cameras, FRAMES, HEIGHT, WIDTH, 3)


def load_split(folder: Path, split: Split, limit: int | None = None) -> Dataset:
    """Read a split, or its first `limit` samples.

    Raises:
        DatasetError: No such split there.
    """
    target = folder / split.value
    paths = sorted(target.glob("shard-*.npz"))
    if not paths:
        raise DatasetError(f"{target}: no shard-*.npz there; rsd_planner demo render {folder} draws them")
    cameras = len(json.loads((target / "about.json").read_text())["cameras"])
    tables, pixels, offsets, count = [], [], [], 0
    for path in paths:
        with np.load(path) as shard:
            tables.append({name: shard[name] for name in shard.files if name not in ("pixels", "offsets", "drives")})
            pixels.append(shard["pixels"])
            offsets.append(shard["offsets"])
        count += len(tables[-1]["seed"])
        if limit is not None and count >= limit:
            break
    sizes = [len(table["seed"]) for table in tables]
    columns = {name: np.concatenate([table[name] for table in tables])[:limit] for name in tables[0]}
    shard_index = np.repeat(np.arange(len(sizes)), sizes)[:limit]
    rows = np.concatenate([np.arange(size) for size in sizes])[:limit]
    return Dataset(columns, pixels, offsets, shard_index, rows, cameras)


def main(
    folder: Path,
    split: Annotated[Split, typer.Option()] = Split.TRAIN,
    drives: Annotated[int, typer.Option(help="number of drives, about 8 samples each")] = 6000,
    workers: Annotated[int, typer.Option(help="processes")] = 1,
) -> None:
    """Write a split of the driving world into FOLDER, or go on where it stopped."""
    for path in write_split(folder, split, drives, workers=workers):
        typer.echo(str(path))


if __name__ == "__main__":
    typer.run(main)
