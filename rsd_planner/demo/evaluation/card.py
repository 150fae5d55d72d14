"""The model card, as Markdown: data, training, figures with the commands that made them, limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rsd_planner.demo.evaluation.figures import MOST_FREQUENT, Numbers
from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.motion_fit import load_motion

_HEAD = """# Model card: the demo model of rsd_planner

A small Alpamayo R1 ({parameters:.1f} million parameters) in the published checkpoint layout, trained from nothing in
the synthetic driving world of `rsd_planner/demo/world/`. It reads four frames of one front camera (id 1, {width} x
{height} pixels) and 16 poses of ego history, says {first}in one sentence what the ego does and why, and plans
6.4 s of path.

It is for development, demonstration and measurement: a target that really reads its cameras and its history, small
enough to run on a CPU. It is not for any real road: it has only ever seen drawn ones.

## Data

Scenes are drawn from seeds: curved roads with lanes, a lead vehicle, traffic lights, crossing pedestrians, parked
vehicles, cyclists, junctions. The ego drives itself; its speeds, accelerations and jerk are fitted to {motion}
(`rsd_planner/demo/world/motion.json`). Splits have disjoint seeds. Off-shelf is a test split with weather (fog, dusk,
rain), colours, road widths, curve radii and mixes of events that no other split has.

The sentence is a function of the scene: the action follows from the ego's motion and from what the cause demands, the
cause from what is visible, every varying word from a fact. The tokenizer is Qwen's, cut down to the byte pairs that the
world's sentences and published examples of reasoning need.

Training: `rsd_planner demo train-target`; stages and their numbers in `rsd_planner/demo/trainer/stages.py`, on
{samples} samples of the train split; losses in `log.jsonl` and `curves.png` of the directory it writes.
"""
_LIMITS = """## Limits

- One camera (id 1) at one size: other pictures are resized to it, other cameras are refused.
- One language: the sentences of the world. Asked about anything else it still says one of them.
- Distances are spoken in steps of 0.5 to 2 m; how often the whole sentence is right to the digit stands above.
- The reasoning names one cause, though several may be in view.
- Frozen: drafts depend on these weights. Whoever trains anew gets another model.
"""
_ONE_SENTENCE = 48  # tokens at most
_NAMES = {"val": "validation", "test": "test", "off_shelf": "off-shelf"}


def model_card(numbers: Numbers) -> str:
    """The whole card."""
    head = _HEAD.format(
        parameters=numbers["model"]["parameters"] / 1e6,
        width=WIDTH,
        height=HEIGHT,
        motion=load_motion().source,
        samples=numbers["ceiling"]["samples"],
        first="line by line what is there and " if numbers["splits"]["test"]["tokens"] > _ONE_SENTENCE else "",
    )
    return "\n".join([head, figures_section(numbers), "", _LIMITS])


def figures_section(numbers: Numbers) -> str:
    """`## Figures`, and the commands before it."""
    model, ceiling = numbers["model"], numbers["ceiling"]
    return "\n".join(
        [
            "## Figures",
            "",
            f"Weights `{model['sha256']}` (SHA-256). Greedy, fp32, no speculation. Measured by the last of",
            "",
            "```sh",
            *numbers["commands"],
            "```",
            "",
            "What was asked of the model, and what it reaches:",
            "",
            *_table(
                ("what", "split", "required", "found", ""),
                [
                    (
                        entry["what"],
                        _NAMES[entry["split"]],
                        entry["required"],
                        _found(entry["found"]),
                        "yes" if entry["met"] else "**no**",
                    )
                    for entry in numbers["required"]
                ],
            ),
            "",
            f"The ceiling is an image-only classifier of the cause, trained on {ceiling['samples']} samples for "
            f"{ceiling['epochs']} epochs.",
            "",
            *_splits(numbers),
            "",
            *_ade(numbers),
            "",
            *_uses(numbers),
            "",
            *_causes(numbers),
        ]
    )


def _splits(numbers: Numbers) -> Iterator[str]:
    splits = numbers["splits"]
    rows = [
        ("samples", *(str(own["samples"]) for own in splits.values())),
        ("right cause", *(f"{own['cause']:.1%}" for own in splits.values())),
        ("right cause, ceiling", *(f"{own['ceiling']:.1%}" for own in splits.values())),
        ("right wording of the action", *(f"{own['action']:.1%}" for own in splits.values())),
        ("whole sentence as it is", *(f"{own['exact_sentence']:.1%}" for own in splits.values())),
        ("distinct sentences said (true)", *_said(splits.values(), "distinct", "d")),
        (f"share of the {MOST_FREQUENT} most frequent (true)", *_said(splits.values(), f"top_{MOST_FREQUENT}", ".1%")),
        ("tokens per plan", *(f"{own['tokens']:.1f}" for own in splits.values())),
        ("true tokens: routine", *(f"{own['origins']['routine']:.1%}" for own in splits.values())),
        ("true tokens: deliberative", *(f"{own['origins']['deliberative']:.1%}" for own in splits.values())),
    ]
    yield from _table(("", *(_NAMES[name] for name in splits)), rows)


def _said(splits: Sequence[Numbers], name: str, form: str) -> Iterator[str]:
    for own in splits:
        yield f"{own['said'][name]:{form}} ({own['truth'][name]:{form}})"


def _ade(numbers: Numbers) -> Iterator[str]:
    yield "ADE against what the ego did; event scenes are all but those whose cause is a clear road, a bystander or"
    yield "oncoming traffic in its own lane:"
    yield ""
    rows = [
        (
            _NAMES[name],
            f"{which} ({found['samples']})",
            f"{horizon} s",
            _metres(value["plan"]),
            _metres(value["constant_velocity"]),
            "" if value["better"] is None else f"{value['better']:.0%}",
        )
        for name, own in numbers["splits"].items()
        for which, found in own["ade"].items()
        for horizon, value in found["horizons"].items()
    ]
    yield from _table(("split", "scenes", "up to", "model", "constant velocity", "better by"), rows)


def _uses(numbers: Numbers) -> Iterator[str]:
    for name in ("test", "off_shelf"):
        image, history = numbers["pairs_by_image"][name], numbers["pairs_by_history"][name]
        yield (
            f"- {_NAMES[name]}: of {image['pairs']} pairs with identical history and different images both causes are "
            f"named in {image['both_causes']:.0%}; of {history['pairs']} pairs with identical images and different "
            f"histories both actions are worded right in {history['both_actions']:.0%} (they differ in "
            f"{history['different_actions']:.0%})."
        )
    for name, drives in numbers["drives"].items():
        yield (
            f"- {_NAMES[name]} drives at 10 Hz ({drives['drives']} drives, {drives['ticks']} ticks): "
            f"{drives['as_before']:.1%} of sentences are those of the tick before (of the true ones "
            f"{drives['truth_as_before']:.1%}); right cause {drives['cause']:.1%}."
        )


def _causes(numbers: Numbers) -> Iterator[str]:
    splits = {name: numbers["splits"][name]["causes"] for name in ("test", "off_shelf")}
    yield "Right cause by cause, model / ceiling (samples):"
    yield ""
    rows = [
        (
            kind.replace("_", " "),
            *(
                f"{own[kind]['cause']:.0%} / {own[kind]['ceiling']:.0%} ({own[kind]['samples']})"
                for own in splits.values()
            ),
        )
        for kind in splits["test"]
    ]
    yield from _table(("cause", *(_NAMES[name] for name in splits)), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _found(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1%}"


def _metres(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} m"
