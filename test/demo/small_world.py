"""A rendered world of a few drives, and an untrained model for it."""

from __future__ import annotations

from pathlib import Path

from rsd_planner.demo.trainer.blank import new_network, save_weights, write_model_directory
from rsd_planner.demo.world.dataset import write_split
from rsd_planner.demo.world.splits import Split

TRAIN_DRIVES = 5


def render_world(folder: Path) -> Path:
    """All splits, the training split large enough for one batch of the ceiling classifier."""
    for split in Split:
        list(write_split(folder, split, TRAIN_DRIVES if split is Split.TRAIN else 1))
    return folder


def untrained_model(folder: Path) -> Path:
    """A model directory with random weights."""
    write_model_directory(folder)
    _, network = new_network(folder, seed=0)
    save_weights(network, folder)
    return folder
