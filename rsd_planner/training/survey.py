"""Frame by frame: what a draft's guesses are worth to the path, and what it costs to be lenient with them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from rsd_planner.decoding.acceptance import EXACT, Substitution
from rsd_planner.decoding.reasoning import Reasoning
from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.path_changes import FILE, read_path_changes
from rsd_planner.engine.manifest import sha256, target_fingerprint
from rsd_planner.errors import ImageError, ParameterError
from rsd_planner.evaluation.interrupt import on_interrupt
from rsd_planner.plan import TokenOrigin
from rsd_planner.planner import PlannerSettings
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.training.aarl_reward import action_errors, path_errors
from rsd_planner.training.counterfactuals import Counterfactuals, Scene
from rsd_planner.training.frames import BagOptions, open_frames, spread
from rsd_planner.training.guesses import Guesser
from rsd_planner.training.journal import Journal
from rsd_planner.training.progress import counting
from rsd_planner.training.teacher import Teacher
from rsd_planner.training.train_draft import DTYPES
from rsd_planner.training.validation import Acceptance, acceptance

_WAYPOINTS, _ACTION_DIMS = 64, 2


@dataclass(frozen=True)
class SurveyRequest:
    """What to measure, on what, and where to note it."""

    target: Path
    draft: Path
    data: Path  # a folder of the demo world, or a recording
    out: Path
    split: Split = Split.VAL
    frames: int = 32  # spread over the split
    draws: int = 2  # of the flow noise
    weighted: bool = True  # whether the weight of every token is measured, once per target and split
    weights: Path | None = None  # folder for them; None: `out`
    tolerance_m: float | None = None  # bound of the lossy mode, to be measured too; None: it is not
    max_tokens: int = 256
    device: str = "cpu"
    dtype: str = "float32"
    bags: BagOptions = field(default_factory=BagOptions)

    def __post_init__(self) -> None:
        """Raises ParameterError for a value outside its range."""
        for name in ("frames", "draws", "max_tokens"):
            if getattr(self, name) < 1:
                flag = name.replace("_", "-")
                raise ParameterError(f"--{flag} is {getattr(self, name)}, expected 1 or more")
        if self.tolerance_m is not None and not 0 < self.tolerance_m < np.inf:
            raise ParameterError(f"--tolerance is {self.tolerance_m}, expected more than 0")
        PlannerSettings(device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class Rejected:
    """A guess that the target rejected, and what it would have done to the path had it stood."""

    place: int
    own: int
    drafted: int
    action_mse: float
    ade_1s_m: float
    ade_6s_m: float
    variance_same: float | None = None  # of the action MSE over the draws; None: of one draw
    variance_independent: float | None = None  # the same, had each reasoning noise of its own


@dataclass(frozen=True)
class Lenient:
    """The same frame in the lossy mode."""

    acceptance: Acceptance
    decode_ms: float
    tolerated: int  # tokens the target would not have said
    changed: bool  # whether the reasoning is another one
    ade_1s_m: float  # of the path against the exact one, under the same noise
    ade_6s_m: float


@dataclass(frozen=True)
class FrameFound:
    """What was measured of one frame."""

    acceptance: Acceptance
    decode_ms: float
    rejected: tuple[Rejected, ...]
    weight: float | None  # sum over the reasoning's tokens of how far changing one moves the path, m
    weight_routine: float | None  # of it, the drafted and accepted tokens
    lenient: Lenient | None

    @classmethod
    def read(cls, line: dict[str, Any]) -> FrameFound:
        """From a line of a journal."""
        lenient = line["lenient"]
        return cls(
            Acceptance(**line["acceptance"]),
            line["decode_ms"],
            tuple(Rejected(**one) for one in line["rejected"]),
            line["weight"],
            line["weight_routine"],
            lenient and Lenient(**{**lenient, "acceptance": Acceptance(**lenient["acceptance"])}),
        )


def survey(request: SurveyRequest, console: Console) -> list[FrameFound] | None:
    """Measure frame by frame; what was measured before is not measured again.

    Returns:
        What was found, in the order of the frames; None if Ctrl-C came before the end.

    Raises:
        PlannerError: Target, draft, data or an earlier measurement is not usable.
    """
    run = _Survey(request)
    source, journal = run.source, run.journal
    numbers = spread(source, request.frames)
    with (
        on_interrupt(console, "frame") as interrupt,
        counting(console, f"frames of {source.name}", len(numbers)) as show,
    ):
        for done, number in enumerate(numbers, 1):
            name = source.id(number)
            if name not in journal.found:
                try:
                    journal.write(name, asdict(run.frame(number)))
                except ImageError as error:
                    journal.write(name, {"refused": str(error)})
            show(done, "")
            if interrupt.requested and done < len(numbers):
                return None
    lines = [journal.found[source.id(number)] for number in numbers]
    found = [FrameFound.read(line) for line in lines if "refused" not in line]
    if not found:
        raise ParameterError(f"--data: no frame of {source.name} can be used")
    return found


class _Survey:
    def __init__(self, request: SurveyRequest) -> None:
        self._request = request
        self._target = AlpamayoTarget.load(request.target, device=request.device, dtype=DTYPES[request.dtype])
        self._guesser = Guesser(self._target, request.draft, request.max_tokens)
        self._judge = Counterfactuals(Teacher(self._target))
        self.source = open_frames(request.data, request.split, request.bags)
        fingerprint = target_fingerprint(request.target)
        self._allowed: Container[Substitution] = EXACT
        table = None
        if request.tolerance_m is not None:
            self._allowed = read_path_changes(request.draft, fingerprint).below(request.tolerance_m)
            table = sha256([request.draft / FILE])
        common = {
            "target": fingerprint,
            "data": self.source.fingerprint,
            "draws": request.draws,
            "max_tokens": request.max_tokens,
            "dtype": request.dtype,
        }
        own = {
            "draft": sha256([request.draft / "config.json", request.draft / "model.safetensors"]),
            "weighted": request.weighted,
            "tolerance_m": request.tolerance_m,
            "path_changes": table,
        }
        self.journal = Journal(request.out / f"{self.source.name}.frames.jsonl", {**common, **own})
        if request.weighted:
            folder = request.weights or request.out
            self._weights = Journal(folder / f"{self.source.name}.weights.jsonl", common)

    def frame(self, number: int) -> FrameFound:
        """Raises ImageError: Its images are broken."""
        observation = self.source.observation(number)
        prompt = self._target.prompt(observation)
        exact = self._guesser.decode(prompt)
        rejections = self._guesser.rejections(exact)
        (scene,) = self._judge.scenes([observation])
        noise = self._noise(number)
        rows = [list(exact.token_ids) for _ in range(1 + len(rejections))]
        for row, rejection in zip(rows[1:], rejections, strict=True):
            row[rejection.place] = rejection.drafted
        actions, errors = self._errors(scene, torch.tensor(rows), noise)
        rejected = tuple(
            Rejected(
                r.place,
                r.own,
                r.drafted,
                *map(float, row),
                *(noise_variances(found, actions[0]) if self._request.draws > 1 else ()),
            )
            for r, row, found in zip(rejections, errors[1:], actions[1:], strict=True)
        )
        weight, routine = None, None
        if self._request.weighted:
            weights = self._weight(number, exact, scene, noise)
            accepted = [origin is TokenOrigin.ROUTINE for origin in exact.origins[: len(weights)]]
            weight, routine = float(weights.sum()), float(weights[accepted].sum())
        lenient = None
        if self._request.tolerance_m is not None:
            lenient = self._lenient(exact, self._guesser.decode(prompt, self._allowed), scene, noise)
        return FrameFound(acceptance([exact], self._guesser.depth), exact.decode_ms, rejected, weight, routine, lenient)

    def _weight(self, number: int, exact: Reasoning, scene: Scene, noise: torch.Tensor) -> NDArray[np.float64]:
        """(reasoning tokens,) m: what the target's second choice at each place does to the path over 6.4 s."""
        name, own = self.source.id(number), torch.tensor(exact.token_ids)
        known = self._weights.found.get(name)
        if known is None or known["tokens"] != own.tolist():
            places = exact.speculation.reasoning_tokens
            rows = own.repeat(1 + places, 1)
            others = self._judge.runners_up(scene, own)
            rows[torch.arange(1, 1 + places), torch.arange(places)] = others[:places]
            _, errors = self._errors(scene, rows, noise)
            known = {"tokens": own.tolist(), "weights": [round(float(metres), 6) for metres in errors[1:, 2]]}
            self._weights.write(name, known)
        return np.array(known["weights"])

    def _lenient(self, exact: Reasoning, lossy: Reasoning, scene: Scene, noise: torch.Tensor) -> Lenient:
        near = far = 0.0
        changed = lossy.token_ids != exact.token_ids
        if changed:
            own, _ = self._errors(scene, torch.tensor([exact.token_ids]), noise)
            other, _ = self._errors(scene, torch.tensor([lossy.token_ids]), noise)
            near, far = map(float, path_errors(other, own[0], scene.v0, self._target.scaling)[0])
        counted = acceptance([lossy], self._guesser.depth)
        return Lenient(counted, lossy.decode_ms, len(lossy.speculation.tolerated), changed, near, far)

    def _errors(
        self, scene: Scene, rows: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, NDArray[np.float64]]:
        """Actions of (M, R) reasonings, and (M, 3) their MSE, 1 s and 6.4 s displacement in m against the first."""
        actions = self._judge.actions(scene, rows, noise)
        mse = action_errors(actions, actions[0]).numpy()[:, None]
        return actions, np.hstack([mse, path_errors(actions, actions[0], scene.v0, self._target.scaling)])

    def _noise(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        return torch.randn(self._request.draws, _WAYPOINTS, _ACTION_DIMS, generator=generator)


def noise_variances(candidate: torch.Tensor, own: torch.Tensor) -> tuple[float, float]:
    """What the draw of the flow noise does to a reward: variance of the action MSE over (draws, 64, 2) actions.

    Returns:
        Each draw of the candidate beside the one of the target's own reasoning from the same noise, and beside another.
    """
    same, independent = ((candidate - own.roll(shift, dims=0)).square().mean(dim=(1, 2)) for shift in (0, 1))
    return float(same.var()), float(independent.var())


def total(counts: Sequence[Acceptance]) -> Acceptance:
    """Of frames, their sum."""
    sums: dict[str, Any] = {f.name: sum(getattr(one, f.name) for one in counts) for f in fields(Acceptance)}
    return Acceptance(**sums)
