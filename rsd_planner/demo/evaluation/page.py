"""scenes.html: twelve scenes of the test split as the model saw them, what it said, and where it would have gone."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import cv2
import numpy as np

from rsd_planner.demo.evaluation.ask import Answer
from rsd_planner.demo.evaluation.figures import Judged, Numbers, is_event, path_errors
from rsd_planner.demo.world.dataset import Dataset
from rsd_planner.evaluation import plots, theme
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.page import document
from rsd_planner.scene.observation import RgbImage

EVEN, WRONG, FAR = 7, 3, 2  # scenes: evenly spaced; with a wrong cause; with the largest error
_PICTURE_SCALE = 3


@dataclass(frozen=True)
class Shown:
    """A scene and why it is shown."""

    index: int
    why: str


def choose(answers: Sequence[Answer], errors: Sequence[float]) -> list[Shown]:
    """Twelve scenes by a rule that knows nothing of how they look.

    Args:
        errors: ADE of each answer, m.
    """
    wrong = [i for i, answer in enumerate(answers) if not Judged.of(answer).right]
    groups = (
        ("evenly spaced through the split", list(range(len(answers))), EVEN),
        (f"evenly spaced among the {len(wrong)} with a wrong cause", wrong, WRONG),
        ("largest error of the path", sorted(range(len(answers)), key=lambda i: -errors[i])[: 3 * FAR], FAR),
    )
    shown: list[Shown] = []
    for why, candidates, count in groups:
        left = [i for i in candidates if i not in {entry.index for entry in shown}]
        picked = left[:count] if why.startswith("largest") else _spread(left, count)
        shown += [Shown(i, why) for i in picked]
    return shown


def write_page(
    path: Path,
    numbers: Numbers,
    answers: Sequence[Answer],
    data: Dataset,
    by_split: Mapping[str, tuple[Sequence[Answer], Dataset]],
) -> None:
    """Write the page; it needs no other file and no network.

    Args:
        answers: Of the test split's first samples.
        by_split: Answers and samples whose error growth is drawn.
    """
    errors = [float(ours.mean()) for ours, _ in path_errors(answers, data)]
    with theme.style():
        cards = "".join(
            _card(entry, answers[entry.index], data, errors[entry.index]) for entry in choose(answers, errors)
        )
        growth = "".join(_growth(name, *of) for name, of in by_split.items())
        write_whole(path, document("Demo model · scenes", _header(numbers) + _tiles(numbers) + _scenes(cards) + growth))


def _spread(items: Sequence[int], count: int) -> list[int]:
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[i] for i in np.unique(places)]


def _header(numbers: Numbers) -> str:
    model = numbers["model"]
    facts = f"{model['parameters'] / 1e6:.1f} M parameters, weights {model['sha256'][:12]}"
    return (
        f"<header><h1>The demo model, scene by scene</h1><p>{escape(facts)}. Synthetic scenes of splits it was not "
        "trained on, greedy reasoning, fp32.</p></header>"
    )


def _tiles(numbers: Numbers) -> str:
    tiles = []
    for split, name in (("test", "test"), ("off_shelf", "off-shelf")):
        own = numbers["splits"][split]
        ade = own["ade"]["events"]["horizons"]["6.4"]
        tiles.append((f"right cause, {name}", f"{own['cause']:.0%}", f"image-only classifier {own['ceiling']:.0%}"))
        tiles.append((f"right action, {name}", f"{own['action']:.0%}", f"whole sentence {own['exact_sentence']:.0%}"))
        if ade["plan"] is not None:
            note = f"constant velocity {ade['constant_velocity']:.2f} m"
            tiles.append((f"ADE at 6.4 s, events, {name}", f"{ade['plan']:.2f} m", note))
    cells = "".join(
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(note)}</small></div>'
        for name, value, note in tiles
    )
    return f'<section class="tiles">{cells}</section>'


def _scenes(cards: str) -> str:
    return (
        f"<section><h2>Twelve test scenes</h2><p>Chosen by rule: {EVEN} evenly spaced through the split, {WRONG} "
        f"evenly spaced among those with a wrong cause, the {FAR} whose path is farthest off.</p>{cards}</section>"
    )


def _card(shown: Shown, answer: Answer, data: Dataset, error: float) -> str:
    judged = Judged.of(answer)
    columns = data.columns
    path = np.zeros((len(answer.path), 3))
    path[:, :2] = answer.path
    future = columns["future"][shown.index].astype(np.float64)
    view = plots.top_view_of(columns["history"][shown.index].astype(np.float64), path, future, answer.v0)
    picture = _data_url(data.images(shown.index)[0, -1])
    verdict = "as it is" if judged.exact else "right cause" if judged.right else "wrong cause"
    facts = (
        f"seed {answer.seed}, tick {answer.tick}",
        f"v0 = {answer.v0:.1f} m/s",
        f"ADE over 6.4 s {error:.2f} m",
        f"{answer.tokens} tokens",
        shown.why,
    )
    truth = "" if judged.exact else f"<p>The scene's own sentence: {escape(answer.truth)}</p>"
    return (
        f'<article><div class="scene"><figure><img alt="front camera at t0" src="{picture}"><figcaption>{verdict}'
        f"</figcaption></figure>{view}</div><blockquote>{escape(answer.text)}</blockquote>{truth}"
        f'<p class="facts">{"".join(f"<span>{escape(fact)}</span>" for fact in facts)}</p></article>'
    )


def _growth(name: str, answers: Sequence[Answer], data: Dataset) -> str:
    both = path_errors(answers, data)
    events = [pair for pair, answer in zip(both, answers, strict=True) if is_event(answer)]
    if not events:
        return ""
    figures = "".join(f"<figure>{plots.error_growth(errors)}</figure>" for errors in (both, events))
    return (
        f"<section><h2>Paths, {escape(name)}</h2><p>Left all {len(both)} scenes, right the {len(events)} in which "
        f'something is ahead that the ego has to react to.</p><div class="figures">{figures}</div></section>'
    )


def _data_url(image: RgbImage) -> str:
    height, width = image.shape[:2]
    size = (width * _PICTURE_SCALE, height * _PICTURE_SCALE)
    large = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)
    _, jpeg = cv2.imencode(".jpg", cv2.cvtColor(large, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 85])
    return f"data:image/jpeg;base64,{base64.b64encode(bytes(jpeg)).decode()}"
