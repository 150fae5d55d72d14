"""`rsd_planner reproduce`: every row of the paper's comparison, trained and measured in turn, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from rsd_planner.demo.world.splits import Split
from rsd_planner.draft.config import DraftKind
from rsd_planner.draft.rotary import Rope
from rsd_planner.engine.manifest import sha256, target_fingerprint
from rsd_planner.errors import ParameterError, TrainingError
from rsd_planner.evaluation.files import write_whole
from rsd_planner.training.aarl import AarlRequest, Objective, train_aarl
from rsd_planner.training.aarl_objective import Options
from rsd_planner.training.aarl_reward import Anchor
from rsd_planner.training.chains import OWN, Chain, ChainsRequest, check_targets, measure_chain, train_chain
from rsd_planner.training.frames import BagOptions, open_frames
from rsd_planner.training.reproduce_report import write_report
from rsd_planner.training.survey import SurveyRequest
from rsd_planner.training.train_draft import Request, train_draft
from rsd_planner.training.worth import measure_draft

DISTILLED = {"flat": Rope.FLAT, "mirrored": Rope.MIRRORED}
FURTHER = {
    "aarl_static": (Objective.AARL, Anchor.STATIC),
    "aarl_policy": (Objective.AARL, Anchor.POLICY),
    "token": (Objective.TOKEN, Anchor.STATIC),
    "distill": (Objective.DISTILL, Anchor.STATIC),
}


@dataclass(frozen=True)
class Recipe:
    """Numbers of all runs; a file of `--config` holds those that are to differ.

    A null for `frames` means all.
    """

    rows: tuple[str, ...] = (*DISTILLED, *FURTHER)
    splits: tuple[str, ...] = (Split.VAL.value, Split.TEST.value, Split.OFF_SHELF.value)
    dflash_seeds: int = 3
    eagle3_seeds: int = 1
    frames: int | None = None  # of split train; None: all
    steps: int = 500  # of a distillation
    batch: int = 16
    rate: float = 1e-3
    further_steps: int = 300  # of RL, and of the distillation gone on with
    further_batch: int = 4
    dflash_rate: float = 1e-5  # of these; published for DFlash 1e-6, for EAGLE-3 1e-5
    eagle3_rate: float = 1e-5
    candidates: int = 8
    draws: int = 1  # of the flow noise, in training
    blocks: int = 1
    validations: int = 5
    validation_frames: int = 64
    measured: int = 100  # frames per split
    max_tokens: int = 256  # of a reasoning
    weighted: bool = True  # whether the action-weighted acceptance is measured too
    noise_frames: int = 20  # on which it is measured what sharing the flow noise does to the reward; 0: it is not
    noise_draws: int = 8
    bench_frames: int = 50  # 0: no clock is looked at
    attention_frames: int = 50  # 0: nor where drafts look
    chain_frames: int = 2048  # of split train, for each target of --chain
    chain_steps: int = 400
    chain_batch: int = 4
    chain_max_tokens: int = 1024
    chain_measured: int = 20  # frames

    def __post_init__(self) -> None:
        """Raises ParameterError for a value that means nothing."""
        for name, known in (("rows", [*DISTILLED, *FURTHER]), ("splits", [split.value for split in Split])):
            for value in getattr(self, name):
                if value not in known:
                    raise ParameterError(f"--config: {name} holds {value!r}, expected some of {', '.join(known)}")
        none = ("dflash_seeds", "eagle3_seeds", "noise_frames", "bench_frames", "attention_frames")
        for name, value in asdict(self).items():
            if type(value) in (int, float) and not (value >= 0 if name in none else value > 0):
                expected = "0 or more" if name in none else "more than 0"
                raise ParameterError(f"--config: {name} is {value}, expected {expected}")
        if not self.dflash_seeds + self.eagle3_seeds:
            raise ParameterError("--config: dflash_seeds and eagle3_seeds are 0, expected a draft to train")
        if set(self.rows) & set(FURTHER) and "flat" not in self.rows:
            raise ParameterError(f"--config: rows are {list(self.rows)}, expected flat among them: others begin there")

    @classmethod
    def read(cls, path: Path | None) -> Recipe:
        """Of a JSON file; raises ParameterError for one that is none."""
        if path is None:
            return cls()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ParameterError(f"--config: {path} is not readable as JSON ({error})") from None
        if not isinstance(found, dict):
            raise ParameterError(f"--config: {path} holds {found!r}, expected an object")
        known = {f.name: f.default for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in found.items():
            if name not in known:
                raise ParameterError(f"--config: {path} holds {name}, expected some of {', '.join(known)}")
            values[name] = tuple(value) if isinstance(value, list) else value
            kind = int if known[name] is None else type(known[name])
            right = type(values[name]) is kind or (kind is float and type(value) is int)
            if not right and not (known[name] is None and value is None):
                like = "a whole number, or null for all" if known[name] is None else f"one like {known[name]!r}"
                raise ParameterError(f"--config: {path}: {name} is {value!r}, expected {like}")
        return cls(**values)


@dataclass(frozen=True)
class ReproduceRequest:
    """Where from and where to."""

    target: Path
    data: Path  # folder of the demo world's splits
    out: Path
    recipe: Recipe
    drafts: Path | None = None  # distilled ones that are there already, as `demo train-drafts` names them
    cache: Path | None = None  # None: in `out`
    cache_gb: float = 8.0
    device: str = "cpu"
    chains: tuple[Path, ...] = ()  # targets that reason at greater length


@dataclass(frozen=True)
class Run:
    """One draft of one row."""

    kind: DraftKind
    row: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind.name.lower()}_{self.row}_{self.seed}"


def runs(recipe: Recipe) -> Iterator[Run]:
    """The first seed of everything first."""
    seeds = {DraftKind.DFLASH: recipe.dflash_seeds, DraftKind.EAGLE3: recipe.eagle3_seeds}
    for seed, kind, row in product(range(max(seeds.values())), seeds, (*DISTILLED, *FURTHER)):
        if seed < seeds[kind] and row in recipe.rows:
            yield Run(kind, row, seed)


def reproduce(request: ReproduceRequest, console: Console) -> bool:
    """Train and measure what is missing; results.json and results.md are written anew after every draft.

    Returns:
        Whether all is there; it is not if Ctrl-C came before, and the same call goes on.

    Raises:
        PlannerError: Target, data, or what an earlier call left in `out` is not usable.
    """
    check_targets(request.chains)
    if request.chains and "flat" not in request.recipe.rows:
        raise ParameterError(f"--chain: rows are {list(request.recipe.rows)}, expected flat among them: it is measured")
    _claim(request)
    all_runs = list(runs(request.recipe))
    for number, run in enumerate(all_runs, 1):
        console.print(f"{run.name}: {number} of {len(all_runs)}", highlight=False)
        if not _trained(request, run, console) or not _measured(request, run, console):
            return False
        _report(request)
    first = [directory_of(request, run) for run in all_runs if run.seed == 0]
    whole = (
        _noised(request, console)
        and _clocked(request, first, console)
        and _attended(request, first, console)
        and _lengthened(request, console)
    )
    _report(request)
    return whole


def directory_of(request: ReproduceRequest, run: Run) -> Path:
    """Where a draft is, or will be."""
    if (
        run.row in DISTILLED
        and request.drafts is not None
        and (request.drafts / run.name / "run/result.json").is_file()
    ):
        return request.drafts / run.name
    return request.out / "drafts" / run.name


def _report(request: ReproduceRequest) -> None:
    chains = [OWN, *(target.resolve().name for target in request.chains)]
    write_report(request.out, request.recipe.rows, request.recipe.splits, chains)


def _claim(request: ReproduceRequest) -> None:
    """What stands in `out` is of this recipe, target, data and given drafts; raises PlannerError if it is not."""
    recipe = request.recipe
    if not (request.data / Split.TRAIN.value).is_dir():
        raise ParameterError(
            f"--data {request.data}: found no folder {Split.TRAIN.value} in it, expected splits of the demo world; "
            "rsd_planner demo render draws them"
        )
    if recipe.bench_frames or recipe.attention_frames or request.chains:
        open_frames(request.data, Split.OFF_SHELF, BagOptions())
    splits = dict.fromkeys((Split.TRAIN, *map(Split, recipe.splits)))
    claimed = {
        **json.loads(json.dumps(asdict(recipe))),
        "target": target_fingerprint(request.target),
        "data": {split.value: open_frames(request.data, split, BagOptions()).fingerprint for split in splits},
        "drafts": _given(request),
    }
    path = request.out / "recipe.json"
    if path.exists():
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise TrainingError(f"{path}: not readable as a JSON object ({error}): use another --out") from None
        if differing := sorted(name for name in claimed if found.get(name) != claimed[name]):
            name = differing[0]
            raise TrainingError(f"{path}: {name} is {found.get(name)}, expected {claimed[name]}: use another --out")
        return
    request.out.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(claimed, indent=1) + "\n")


def _given(request: ReproduceRequest) -> dict[str, str]:
    """Name -> hash of every draft of `--drafts` that is used."""
    if request.drafts is None:
        return {}
    names = [run.name for run in runs(request.recipe) if run.row in DISTILLED]
    used = [name for name in names if (request.drafts / name / "run" / "result.json").is_file()]
    if not used:
        raise ParameterError(f"--drafts {request.drafts}: found no finished one of {', '.join(names)}")
    return {name: sha256([request.drafts / name / "model.safetensors"]) for name in used}


def _trained(request: ReproduceRequest, run: Run, console: Console) -> bool:
    directory, recipe = directory_of(request, run), request.recipe
    if (directory / "run" / "result.json").is_file():
        return True
    common: dict[str, Any] = {
        "cache": request.cache or request.out / "cache",
        "cache_gb": request.cache_gb,
        "frames": recipe.frames,
        "validation_frames": recipe.validation_frames,
        "validations": recipe.validations,
        "seed": run.seed,
        "max_tokens": recipe.max_tokens,
        "device": request.device,
    }
    if run.row in DISTILLED:
        common |= {"steps": recipe.steps, "batch": recipe.batch, "rate": recipe.rate}
        distillation = Request(request.target, run.kind, DISTILLED[run.row], request.data, directory, **common)
        return train_draft(distillation, console).finished
    objective, anchor = FURTHER[run.row]
    further = AarlRequest(
        request.target,
        directory_of(request, Run(run.kind, "flat", run.seed)),
        request.data,
        directory,
        objective,
        Options(anchor=anchor, candidates=recipe.candidates, draws=recipe.draws, blocks=recipe.blocks),
        steps=recipe.further_steps,
        batch=recipe.further_batch,
        rate=recipe.dflash_rate if run.kind is DraftKind.DFLASH else recipe.eagle3_rate,
        **common,
    )
    return train_aarl(further, console).finished


def _measured(request: ReproduceRequest, run: Run, console: Console) -> bool:
    recipe, folder = request.recipe, request.out / "measured" / run.name
    for split in recipe.splits:
        if (folder / f"{split}.json").is_file():
            continue
        survey = SurveyRequest(
            request.target,
            directory_of(request, run),
            request.data,
            folder,
            Split(split),
            frames=recipe.measured,
            draws=recipe.draws,
            weighted=recipe.weighted,
            weights=request.out / "weights",
            max_tokens=recipe.max_tokens,
            device=request.device,
        )
        if measure_draft(survey, console) is None:
            return False
    return True


def _noised(request: ReproduceRequest, console: Console) -> bool:
    """What the draw of the flow noise does to the reward of the first flat draft's rejected guesses."""
    recipe, folder = request.recipe, request.out / "noise"
    if not recipe.noise_frames or "flat" not in recipe.rows or (folder / f"{recipe.splits[0]}.json").is_file():
        return True
    draft = next(directory_of(request, run) for run in runs(recipe) if run.row == "flat")
    survey = SurveyRequest(
        request.target,
        draft,
        request.data,
        folder,
        Split(recipe.splits[0]),
        frames=recipe.noise_frames,
        draws=recipe.noise_draws,
        weighted=False,
        max_tokens=recipe.max_tokens,
        device=request.device,
    )
    return measure_draft(survey, console) is not None


def _clocked(request: ReproduceRequest, drafts: Sequence[Path], console: Console) -> bool:
    """Times of all drafts on the same frames, in turn; whether they are there."""
    from rsd_planner.bench.run import Request as BenchRequest
    from rsd_planner.bench.run import bench
    from rsd_planner.planner import PlannerSettings

    path, frames = request.out / "bench" / "bench.json", request.recipe.bench_frames
    if not frames or (path.is_file() and not json.loads(path.read_text(encoding="utf-8"))["partial"]):
        return True
    settings = PlannerSettings(device=request.device, backend="pytorch", max_reasoning_tokens=request.recipe.max_tokens)
    return not bench(BenchRequest(request.target, drafts, frames, path.parent, settings, request.data), console).partial


def _attended(request: ReproduceRequest, drafts: Sequence[Path], console: Console) -> bool:
    from rsd_planner.bench.attention import AttentionRequest, attention
    from rsd_planner.planner import PlannerSettings

    path, frames = request.out / "attention" / "attention.json", request.recipe.attention_frames
    if frames and not path.is_file():
        settings = PlannerSettings(
            allow_plain_decoding=True,
            device=request.device,
            backend="pytorch",
            max_reasoning_tokens=request.recipe.max_tokens,
        )
        attention(
            AttentionRequest(request.target, drafts, request.data, Split.OFF_SHELF, frames, path.parent, settings),
            console,
        )
    return True


def _lengthened(request: ReproduceRequest, console: Console) -> bool:
    """Targets of longer reasoning, and beside them the one that all rows are of; whether all is there."""
    recipe = request.recipe
    chains = ChainsRequest(
        request.data,
        request.out / "chains",
        recipe.chain_frames,
        recipe.chain_steps,
        recipe.chain_batch,
        recipe.rate,
        recipe.chain_max_tokens,
        recipe.chain_measured,
        request.cache_gb,
        request.device,
    )
    own = [directory_of(request, run) for run in runs(recipe) if run.seed == 0 and run.row == "flat"]
    first = Chain(OWN, request.target, tuple(own))
    if request.chains and not measure_chain(chains, first, console):
        return False
    for target in request.chains:
        chain = train_chain(chains, target, console)
        if chain is None or not measure_chain(chains, chain, console):
            return False
    return True
