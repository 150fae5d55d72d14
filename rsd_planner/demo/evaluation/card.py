"""The figures of a model card, as Markdown, with the commands that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rsd_planner.demo.evaluation.figures import MOST_FREQUENT, Numbers

_NAMES = {"val": "validation", "test": "test", "off_shelf": "off-shelf"}


def figures_section(numbers: Numbers) -> str:
    """`## Figures`, and the commands before it."""
    model, ceiling = numbers["model"], numbers["ceiling"]
    return "\n".join(
        [
            "## Figures",
            "",
            f"Weights `{model['sha256']}` (SHA-256). Greedy, fp32, no speculation. Made by",
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
