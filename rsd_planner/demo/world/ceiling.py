"""The ceiling: how well a small image-only network names the cause from the same pictures.

Run `python -m rsd_planner.demo.world.ceiling DATA` for the accuracy per split and class and the confusion matrices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.dataset import CAUSES, Dataset, DatasetError, load_split
from rsd_planner.demo.world.pictures import Pictures, exposed
from rsd_planner.demo.world.splits import Split
from rsd_planner.errors import one_line

_BATCH = 32
_USED = [0, -1]  # of the four frames
_WIDTHS = (24, 48, 72, 96)
_PEAK_RATE = 2e-3


class CauseNet(nn.Module):
    """Four strided stages over the oldest and the newest frame; place in the picture is kept to the end."""

    def __init__(self) -> None:
        super().__init__()
        before = _WIDTHS[0]
        stages: list[nn.Module] = [_convolution(3 * len(_USED), before, stride=2)]
        for width in _WIDTHS[1:]:
            stages += [_convolution(before, width, stride=2), _Residual(width)]
            before = width
        self.stages = nn.Sequential(*stages, nn.Conv2d(before, 48, 1))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.LazyLinear(128), nn.ReLU(), nn.Dropout(0.3))
        self.cause = nn.Linear(128, len(CAUSES))
        self.distance = nn.Linear(128, 1)  # log of metres: how well the spoken distance can be known

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 6, H, W) in -1..1 to (B, causes) logits and (B,) log distance."""
        features = self.head(self.stages(images))
        return self.cause(features), self.distance(features)[:, 0]


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = _convolution(width, width, stride=1)

    def forward(self, values: Tensor) -> Tensor:
        result: Tensor = values + self.inner(values)
        return result


def _convolution(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())


def _answers(data: Dataset, indices: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    causes = torch.from_numpy(data.columns["cause"][indices].astype(np.int64))
    return causes.to(device), torch.from_numpy(data.columns["distance"][indices].astype(np.float32)).to(device)


def _values(images: Tensor) -> Tensor:
    """(B, 2, H, W, 3) uint8 to (B, 6, H, W) in -1..1."""
    pixels = images.permute(0, 1, 4, 2, 3).flatten(1, 2).float() / 127.5 - 1.0
    return pixels.contiguous(memory_format=torch.channels_last)


def train(data: Dataset, epochs: int, seed: int = 0, device: str = "cpu") -> CauseNet:
    """Fit to a dataset; one line per epoch on stdout.

    Raises:
        DatasetError: It has less than a batch of samples.
    """
    if len(data) < _BATCH:
        raise DatasetError(f"{len(data)} samples to train the classifier on, expected at least {_BATCH}")
    torch.manual_seed(seed)
    place = torch.device(device)
    rng, network, pictures = np.random.default_rng(seed), CauseNet(), Pictures(data, place)
    network(torch.zeros(2, 3 * len(_USED), HEIGHT, WIDTH))
    network.to(place).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps = epochs * (len(data) // _BATCH)
    optimiser = torch.optim.AdamW(network.parameters(), lr=_PEAK_RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _PEAK_RATE, total_steps=steps)
    for epoch in range(epochs):
        total = 0.0
        order = rng.permutation(len(data))[: len(data) // _BATCH * _BATCH]
        for indices in order.reshape(-1, _BATCH):
            causes, distances = _answers(data, indices, place)
            logits, log_distance = network(_values(exposed(pictures(indices)[:, _USED], rng)))
            known = distances > 0
            loss = nn.functional.cross_entropy(logits, causes, label_smoothing=0.05)
            if known.any():
                loss = loss + nn.functional.smooth_l1_loss(log_distance[known], distances[known].log())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        typer.echo(f"epoch {epoch + 1}/{epochs}: loss {total / max(len(order) // _BATCH, 1):.3f}")
    return network.eval()


def save(network: CauseNet, path: Path, samples: int, epochs: int) -> None:
    """Write the weights, and how they were trained."""
    weights = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    save_file(weights, path, metadata={"samples": str(samples), "epochs": str(epochs)})


def load(path: Path) -> tuple[CauseNet, dict[str, str]]:
    """A saved classifier, and how it was trained.

    Raises:
        DatasetError: The file holds something else.
    """
    network = CauseNet()
    network(torch.zeros(1, 3 * len(_USED), HEIGHT, WIDTH))  # gives the lazy layer its shape
    try:
        with safe_open(path, framework="pt") as file:
            about = dict(file.metadata() or {})
            network.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, RuntimeError) as error:
        raise DatasetError(f"{path}: no classifier of causes ({one_line(error)}); delete it to train anew") from None
    return network.eval(), about


@torch.no_grad()
def evaluate(network: CauseNet, data: Dataset) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Confusion matrix (true, named), and the relative error of every known distance."""
    place = next(network.parameters()).device
    pictures = Pictures(data, place)
    confusion = np.zeros((len(CAUSES), len(CAUSES)), np.int64)
    errors: list[float] = []
    for start in range(0, len(data), _BATCH):
        indices = np.arange(start, min(start + _BATCH, len(data)))
        causes, distances = _answers(data, indices, place)
        logits, log_distance = network(_values(pictures(indices)[:, _USED]))
        np.add.at(confusion, (causes.cpu().numpy(), logits.argmax(1).cpu().numpy()), 1)
        known = distances > 0
        errors += (log_distance[known].exp() / distances[known] - 1).tolist()
    return confusion, np.array(errors)


def report(name: str, confusion: NDArray[np.int64], errors: NDArray[np.float64]) -> str:
    """Accuracy, accuracy per class, confusion matrix as text."""
    total = confusion.sum(axis=1)
    lines = [f"{name}: accuracy {np.trace(confusion) / total.sum():.3f} of {total.sum()}"]
    lines.append(
        f"  distance error: median {np.median(np.abs(errors)):.3f}, 80 % below {np.quantile(np.abs(errors), 0.8):.3f}"
    )
    lines.append("  " + " " * 20 + " ".join(f"{cause.value[:6]:>6}" for cause in CAUSES))
    for index, cause in enumerate(CAUSES):
        share = confusion[index, index] / max(total[index], 1)
        row = " ".join(f"{count:6d}" for count in confusion[index])
        lines.append(f"  {cause.value:<13}{share:6.2f} {row}")
    return "\n".join(lines)


def main(
    data: Path,
    epochs: Annotated[int, typer.Option()] = 5,
    limit: Annotated[int | None, typer.Option(help="training samples at most")] = None,
    threads: Annotated[int, typer.Option()] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N")] = "cpu",
) -> None:
    """Train on DATA's train split and report every other split there."""
    torch.set_num_threads(threads)
    network = train(load_split(data, Split.TRAIN, limit), epochs, device=device)
    for split in (Split.VAL, Split.TEST, Split.OFF_SHELF):
        try:
            found = load_split(data, split)
        except DatasetError:
            continue
        typer.echo(report(split.value, *evaluate(network, found)))


if __name__ == "__main__":
    typer.run(main)
