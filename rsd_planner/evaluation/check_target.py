"""Prove a loaded checkpoint against recorded behaviour of the public implementation (`rsd_planner check-target`).

A golden folder holds a model directory, cases.json and one case_N.npz per case: inputs, and what the public code made
of them at every stage in float32. What each array means is written in test/golden/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing
from rsd_planner.errors import CheckpointError, one_line
from rsd_planner.plan import WAYPOINTS
from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS, EgoHistory, Frame, Observation, Pose
from rsd_planner.target.action_expert import ACTION_DIMS
from rsd_planner.target.action_space import roll_out, solve_v0
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt
from rsd_planner.target.config import FRAMES_PER_CAMERA, TRAINED_CAMERAS, Fields, read_json

# Largest difference allowed per quantity; 0 stands for exact equality.
BOUNDS = {
    "prompt ids": 0.0,
    "prompt ids with history": 0.0,
    "pixel values": 2 / 255 + 1e-6,  # one grey level of another resampler, plus its float32 rounding
    "position ids": 0.0,
    "rope delta": 0.0,
    "prefill hidden states (relative)": 1e-4,
    "prefill logits (relative)": 1e-4,
    "greedy tokens": 0.0,
    "first flow velocity": 1e-4,
    "actions": 1e-3,
    "waypoints (m)": 1e-2,
    "waypoints from recorded actions (m)": 1e-5,
    "v0 (m/s)": 1e-4,
}
_MAX_TOKENS = 256
# What a case must hold: the kind of number, and the shape, where None is any length.
_ARRAYS: dict[str, tuple[type, tuple[int | None, ...]]] = {
    "image_cells": (np.uint8, (None, None, None, 3)),
    "camera_indices": (np.integer, (None,)),
    "ego_history_xyz": (np.floating, (HISTORY_STEPS, 3)),
    "ego_history_rot": (np.floating, (HISTORY_STEPS, 3, 3)),
    "noise": (np.float32, (WAYPOINTS, ACTION_DIMS)),
    "prompt_ids": (np.integer, (None,)),
    "fused_ids": (np.integer, (None,)),
    "position_ids": (np.integer, (3, None)),
    "rope_delta": (np.integer, (1,)),
    "pixel_values_head": (np.floating, (None, None)),
    "prefill_last_logits": (np.floating, (None,)),
    "prefill_last_hidden": (np.floating, (None, None)),
    "generated_ids": (np.integer, (None,)),
    "velocities": (np.floating, (None, WAYPOINTS, ACTION_DIMS)),
    "actions": (np.floating, (WAYPOINTS, ACTION_DIMS)),
    "pred_xyz": (np.floating, (WAYPOINTS, 3)),
    "v0": (np.floating, ()),
}
_INPUTS = ("ego_history_xyz", "ego_history_rot", "noise")

Differences = dict[str, float]


@dataclass(frozen=True)
class GoldenCase:
    """One recorded case and its inputs as an Observation."""

    recorded: Mapping[str, NDArray[Any]]
    observation: Observation

    @classmethod
    def read(cls, path: Path, route: str | None) -> GoldenCase:
        """Raises CheckpointError when the file is missing, damaged, or an array is missing or of another shape."""
        recorded = _read_arrays(path)
        cells, camera_ids = recorded["image_cells"], recorded["camera_indices"].tolist()
        if not set(camera_ids) <= set(TRAINED_CAMERAS):
            raise CheckpointError(f"{path}: camera_indices are {camera_ids}, expected some of {list(TRAINED_CAMERAS)}")
        if len(cells) != (count := FRAMES_PER_CAMERA * len(camera_ids)):
            raise CheckpointError(
                f"{path}: image_cells holds {len(cells)} images, expected {count}: {FRAMES_PER_CAMERA} per camera"
            )
        images = np.repeat(np.repeat(cells, 40, axis=1), 40, axis=2)
        frames = [
            Frame.from_image((i % FRAMES_PER_CAMERA - FRAMES_PER_CAMERA + 1) * STEP_NS, image)
            for i, image in enumerate(images)
        ]
        cameras = {
            camera_id: tuple(frames[i * FRAMES_PER_CAMERA : (i + 1) * FRAMES_PER_CAMERA])
            for i, camera_id in enumerate(camera_ids)
        }
        history = EgoHistory(
            recorded["ego_history_xyz"].astype(np.float64),
            recorded["ego_history_rot"].astype(np.float64),
            Pose(np.zeros(3), np.eye(3)),
        )
        return cls(recorded, Observation(0, cameras, history, route))


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of `_ARRAYS`, checked."""
    try:
        with np.load(path, allow_pickle=False) as file:
            recorded = {name: file[name] for name in _ARRAYS if name in file.files}
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except Exception as error:  # zipfile, zlib and NumPy each have their own for bytes that are no .npz
        raise CheckpointError(f"{path}: not a readable .npz file ({one_line(error)})") from None
    for name, (kind, shape) in _ARRAYS.items():
        if name not in recorded:
            raise CheckpointError(f"{path}: array {name} is missing")
        array = recorded[name]
        fits = array.ndim == len(shape) and all(n == m if m else n > 0 for n, m in zip(array.shape, shape, strict=True))
        if not fits or not np.issubdtype(array.dtype, kind):
            wanted = ", ".join(str(n) if n else "any" for n in shape)
            raise CheckpointError(
                f"{path}: array {name} is {array.dtype} of shape {array.shape}, expected {kind.__name__} of ({wanted})"
            )
        if name in _INPUTS and not np.isfinite(array).all():
            raise CheckpointError(f"{path}: array {name} holds a value that is not finite")
    return recorded


def compare(target: AlpamayoTarget, case: GoldenCase) -> Differences:
    """Largest difference per quantity of `BOUNDS`; the target must carry taps at all its text layers."""
    recorded, observation = case.recorded, case.observation
    prompt = target.prompt(observation)
    differences = {
        "prompt ids": _mismatch(prompt.layout.token_ids, recorded["prompt_ids"]),
        "prompt ids with history": _mismatch(prompt.token_ids, recorded["fused_ids"]),
        "position ids": _mismatch(prompt.layout.positions[:, 0], recorded["position_ids"]),
        "rope delta": _mismatch(torch.tensor([prompt.layout.rope_delta]), recorded["rope_delta"]),
        "pixel values": _pixel_difference(target, observation, recorded["pixel_values_head"]),
    }
    step = target.prefill(prompt)
    differences["prefill logits (relative)"] = _relative(step.logits[-1], recorded["prefill_last_logits"])
    differences["prefill hidden states (relative)"] = _hidden_difference(target, prompt, step.features, recorded)
    differences |= _compare_decoding(target, case, prompt)
    return differences


def _compare_decoding(target: AlpamayoTarget, case: GoldenCase, prompt: Prompt) -> Differences:
    recorded, history = case.recorded, case.observation.history
    words = target.vocabulary
    reasoning = decode(
        target,
        prompt,
        Closing(words.cot_end, words.future_start, words.bins),
        sampling=Sampling(),
        max_tokens=_MAX_TOKENS,
        generator=torch.Generator(),
    )
    said = recorded["generated_ids"].tolist()
    said = said[: said.index(words.future_start) + 1] if words.future_start in said else said
    noise = torch.from_numpy(recorded["noise"])
    velocity = target.velocity(noise, 0.0)
    actions = target.sample_actions(noise)
    v0 = solve_v0(history.positions, history.rotations)
    z = float(history.positions[-1, 2])
    path = roll_out(actions.numpy(), v0, target.scaling, z)
    replayed = roll_out(recorded["actions"], float(recorded["v0"]), target.scaling, z)
    return {
        "greedy tokens": _mismatch(torch.tensor(reasoning.token_ids), np.asarray(said)),
        "first flow velocity": _largest(velocity, recorded["velocities"][0]),
        "actions": _largest(actions, recorded["actions"]),
        "waypoints (m)": _largest(path.positions, recorded["pred_xyz"]),
        "waypoints from recorded actions (m)": _largest(replayed.positions, recorded["pred_xyz"]),
        "v0 (m/s)": abs(v0 - float(recorded["v0"])),
    }


def _pixel_difference(target: AlpamayoTarget, observation: Observation, head: NDArray[np.float32]) -> float:
    first = observation.cameras[min(observation.cameras)][0]
    return _largest(target.patches(first).values[: len(head)], head)


def _hidden_difference(
    target: AlpamayoTarget, prompt: Prompt, features: torch.Tensor | None, recorded: Mapping[str, NDArray[Any]]
) -> float:
    """Against the recorded residual stream at the last prompt token: embedding, then the output of each layer."""
    expected = recorded["prefill_last_hidden"]  # (layers + 1, hidden)
    if features is None:
        raise ValueError("the target has no taps")
    with torch.inference_mode():
        embedded = target.network.text.embed_tokens(prompt.token_ids[-1:].to(features.device))
    found = torch.cat([embedded, features[-1].reshape(-1, embedded.shape[1])])
    if found.shape != expected.shape:
        return math.inf
    return max(_relative(mine, theirs) for mine, theirs in zip(found, expected, strict=True))


def _mismatch(found: Any, expected: NDArray[Any]) -> float:
    """0 when equal in shape and in every element, otherwise the number of elements that differ (at least 1)."""
    mine = found.cpu().numpy()
    if mine.shape != expected.shape:
        return float(max(abs(mine.size - expected.size), 1))
    return float((mine != expected).sum())


def _largest(found: Any, expected: NDArray[Any]) -> float:
    mine = found.cpu().numpy() if isinstance(found, torch.Tensor) else found
    if mine.shape != expected.shape:
        return math.inf
    return float(np.abs(mine - expected).max())


def _relative(found: torch.Tensor, expected: NDArray[Any]) -> float:
    return _largest(found, expected) / float(np.abs(expected).max())


def check(directory: Path) -> dict[int, Differences]:
    """Differences per case of a golden folder, in float32 on the CPU.

    Raises:
        CheckpointError: The model or a case cannot be read.
    """
    path = directory / "cases.json"
    values = read_json(path)
    entries = values.get("cases") if isinstance(values, dict) else None
    if not isinstance(entries, list) or not entries:
        raise CheckpointError(f"{path}: field cases is {entries!r}, expected a list of cases")
    target = AlpamayoTarget.load(directory, device="cpu", dtype=torch.float32)
    target.taps = tuple(range(target.network.text.config.num_hidden_layers))
    differences = {}
    for entry in entries:
        number, route = _read_entry(path, entry)
        case = GoldenCase.read(directory / f"case_{number}.npz", route)
        differences[number] = compare(target, case)
    return differences


def _read_entry(path: Path, entry: Any) -> tuple[int, str | None]:
    """Number and route text of one of the cases that cases.json lists."""
    fields = Fields(path, entry, "cases[].")
    number, frames = fields.count("case", least=0), fields.count("frames_per_camera")
    if frames != FRAMES_PER_CAMERA:
        raise fields.unfit("frames_per_camera", frames, str(FRAMES_PER_CAMERA))
    return number, fields.get("nav_text", str) if fields.has("nav_text") else None


def passes(differences: Differences) -> bool:
    """Whether every quantity is within its bound; a difference that is not a number is not."""
    return all(differences[quantity] <= bound for quantity, bound in BOUNDS.items())


def run(directory: Path) -> bool:
    """Print the largest difference per quantity and case against its bound; True when all hold."""
    cases = check(directory)
    table = Table(title=Text(str(directory)), title_justify="left")
    table.add_column("quantity")
    table.add_column("bound", justify="right")
    for number in cases:
        table.add_column(f"case {number}", justify="right")
    for quantity, bound in BOUNDS.items():
        cells = [_cell(differences[quantity], bound) for differences in cases.values()]
        table.add_row(quantity, "exact" if bound == 0 else f"{bound:.1e}", *cells)
    console = Console()
    console.print(table)
    good = all(passes(differences) for differences in cases.values())
    console.print(
        "all within bounds" if good else "[bold red]out of bounds[/]: this loader does not reproduce the record"
    )
    return good


def _cell(value: float, bound: float) -> str:
    text = ("equal" if value == 0 else f"{value:.0f} differ") if bound == 0 else f"{value:.1e}"
    return text if value <= bound else f"[bold red]{text}[/]"
