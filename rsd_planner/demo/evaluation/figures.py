"""The numbers: what share of causes, actions and sentences is right, and how far paths are off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rsd_planner.demo.evaluation.ask import Answer
from rsd_planner.demo.world.dataset import CAUSES, Dataset
from rsd_planner.demo.world.facts import CauseKind
from rsd_planner.demo.world.sentences import action_of, cause_of, decision_of
from rsd_planner.evaluation.metrics import Displacements, constant_velocity, displacements, horizon_errors

MOST_FREQUENT = 100
IDLE_CAUSES = (CauseKind.CLEAR, CauseKind.BYSTANDER, CauseKind.ONCOMING)  # nothing that the ego has to react to
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """One answer against the truth."""

    said: str  # the sentence that decides
    truth: str
    cause: str  # the true one
    named: str  # the cause said, "" if it is none of this world
    exact: bool
    action: bool  # the action's wording is right

    @classmethod
    def of(cls, answer: Answer) -> Judged:
        said = decision_of(answer.text)
        named = cause_of(said)
        return cls(
            said=said,
            truth=answer.truth,
            cause=answer.cause,
            named="" if named is None else named.value,
            exact=said == answer.truth,
            action=action_of(said) == action_of(answer.truth),
        )

    @property
    def right(self) -> bool:
        return self.named == self.cause


def split_figures(answers: Sequence[Answer], data: Dataset, ceiling: NDArray[np.int64]) -> Numbers:
    """Figures of a split.

    Args:
        answers: Of the split's first samples.
        ceiling: (causes, causes) true and named by the image-only classifier, on the same samples.
    """
    judged = [Judged.of(answer) for answer in answers]
    right, best = _share([one.right for one in judged]), float(np.trace(ceiling) / ceiling.sum())
    return {
        "samples": len(judged),
        "cause": right,
        "ceiling": best,
        "cause_of_ceiling": right / best if best else 0.0,
        "action": _share([one.action for one in judged]),
        "exact_sentence": _share([one.exact for one in judged]),
        "names_no_cause": _share([not one.named for one in judged]),
        "tokens": float(np.mean([answer.tokens for answer in answers])),
        "said": variety([one.said for one in judged]),
        "truth": variety([one.truth for one in judged]),
        "ade": ade(answers, data),
        "origins": origins(data, len(judged)),
        "causes": {
            kind.value: {
                "samples": int(ceiling[i].sum()),
                "cause": _share([one.right for one in judged if one.cause == kind.value]),
                "ceiling": _share_of(int(ceiling[i, i]), int(ceiling[i].sum())),
            }
            for i, kind in enumerate(CAUSES)
        },
    }


def variety(texts: Sequence[str]) -> Numbers:
    """How many different sentences, and how much of all the most frequent ones are."""
    counts = Counter(texts)
    most = sum(count for _, count in counts.most_common(MOST_FREQUENT))
    return {"distinct": len(counts), f"top_{MOST_FREQUENT}": most / len(texts)}


def path_errors(answers: Sequence[Answer], data: Dataset) -> list[tuple[Displacements, Displacements]]:
    """Distances to what the ego did, of each plan and of constant velocity; answers are of the first samples."""
    return [
        (
            displacements(np.array(answer.path), data.columns["future"][i]),
            displacements(constant_velocity(answer.v0), data.columns["future"][i]),
        )
        for i, answer in enumerate(answers)
    ]


def ade(answers: Sequence[Answer], data: Dataset) -> Numbers:
    """ADE at each horizon, plan and constant velocity, on all samples and on event scenes."""
    errors = path_errors(answers, data)
    events = [pair for pair, answer in zip(errors, answers, strict=True) if is_event(answer)]
    return {"all": _ade(errors), "events": _ade(events)}


def is_event(answer: Answer) -> bool:
    """Whether the cause is something that the ego has to react to."""
    return CauseKind(answer.cause) not in IDLE_CAUSES


def _ade(errors: Sequence[tuple[Displacements, Displacements]]) -> Numbers:
    plan = horizon_errors([ours for ours, _ in errors])
    velocity = horizon_errors([baseline for _, baseline in errors])
    return {
        "samples": len(errors),
        "horizons": {
            f"{ours.horizon_s:g}": {
                "plan": ours.ade_m,
                "constant_velocity": baseline.ade_m,
                "better": None if ours.ade_m is None or not baseline.ade_m else 1 - ours.ade_m / baseline.ade_m,
            }
            for ours, baseline in zip(plan, velocity, strict=True)
        },
    }


def origins(data: Dataset, count: int) -> Numbers:
    """Tokens of the true sentences that follow from history and text so far (routine), or take the image."""
    masks = data.columns["deliberative"][:count]
    said, deliberate = int((masks >= 0).sum()), int((masks == 1).sum())
    return {"tokens": said, "routine": 1 - deliberate / said, "deliberative": deliberate / said}


def drive_figures(tasks: Sequence[Sequence[Answer]]) -> Numbers:
    """Figures of consecutive ticks; tasks are parts of drives in order."""
    answers = [answer for task in tasks for answer in task]
    judged = [Judged.of(answer) for answer in answers]
    following = [
        (one, two)
        for (first, one), (second, two) in pairwise(zip(answers, judged, strict=True))
        if (second.seed, second.tick) == (first.seed, first.tick + 1)
    ]
    return {
        "drives": len({answer.seed for answer in answers}),
        "ticks": len(answers),
        "cause": _share([one.right for one in judged]),
        "as_before": _share([one.said == two.said for one, two in following]),
        "truth_as_before": _share([one.truth == two.truth for one, two in following]),
        "said": variety([one.said for one in judged]),
        "truth": variety([one.truth for one in judged]),
    }


def pairs_by_image_figures(pairs: Sequence[Sequence[Answer]]) -> Numbers:
    """One history, two scenes: whether the images decide."""
    judged = [(Judged.of(first), Judged.of(second)) for first, second in pairs]
    return {
        "pairs": len(judged),
        "both_causes": _share([one.right and two.right for one, two in judged]),
        "different_causes": _share([one.named != two.named for one, two in judged]),
    }


def pairs_by_history_figures(pairs: Sequence[Sequence[Answer]]) -> Numbers:
    """One scene, two histories: whether the history decides."""
    judged = [(Judged.of(first), Judged.of(second)) for first, second in pairs]
    return {
        "pairs": len(judged),
        "both_actions": _share([one.action and two.action for one, two in judged]),
        "different_actions": _share([action_of(one.said) != action_of(two.said) for one, two in judged]),
    }


@dataclass(frozen=True)
class Requirement:
    """One thing the model was meant to reach."""

    what: str
    split: str
    required: str
    found: float
    met: bool


def requirements(numbers: Numbers) -> list[Numbers]:
    """What was asked of the model, with what it reaches."""
    found: list[Requirement] = []
    for split in ("test", "off_shelf"):
        own = numbers["splits"][split]
        better = own["ade"]["events"]["horizons"]["6.4"]["better"] or 0.0
        for what, value, least in (
            ("cause named, of what the ceiling classifier names", own["cause_of_ceiling"], 0.9),
            ("pairs with one history: both causes named", numbers["pairs_by_image"][split]["both_causes"], 0.8),
            ("pairs with the same images: both actions right", numbers["pairs_by_history"][split]["both_actions"], 0.8),
            ("ADE at 6.4 s on event scenes, better than constant velocity by", better, 0.25),
        ):
            found.append(Requirement(what, split, f"at least {least:.0%}", value, value >= least))
    shelf, drives = numbers["splits"]["off_shelf"]["said"], numbers["drives"]["off_shelf"]
    top, again = shelf[f"top_{MOST_FREQUENT}"], drives["as_before"]
    found += [
        Requirement("distinct sentences", "off_shelf", "at least 150", shelf["distinct"], shelf["distinct"] >= 150),
        Requirement(f"share of the {MOST_FREQUENT} most frequent", "off_shelf", "at most 60%", top, top <= 0.6),
        Requirement("sentences as at the tick before, 10 Hz", "off_shelf", "at most 35%", again, again <= 0.35),
    ]
    return [asdict(entry) for entry in found]


def _share(flags: Sequence[bool]) -> float:
    return _share_of(sum(flags), len(flags))


def _share_of(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
