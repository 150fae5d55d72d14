"""index.html: one self-contained page that shows what was planned, how well and how fast."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rsd_planner.evaluation import plots, theme
from rsd_planner.evaluation.files import write_whole
from rsd_planner.evaluation.page import document
from rsd_planner.evaluation.results import BagResult, Evaluation, Picture, PlanRecord
from rsd_planner.evaluation.summary import summarize

FRONT = 1  # camera id
Numbers = dict[str, Any]


def write_page(result: Evaluation, path: Path) -> None:
    """Writes the page; it needs no other file and no network."""
    with theme.style():
        write_whole(path, render(result))


def render(result: Evaluation) -> str:
    """The page as HTML."""
    numbers = summarize(result)
    names = ", ".join(bag.name for bag in result.bags)
    sections = [
        _header(result, names),
        _warnings(numbers["warnings"]),
        _tiles(result, numbers),
        _plans(result.pictures.kept),
        _errors(result, numbers),
        _latency(result, numbers),
        *(_drive(bag, result) for bag in result.bags),
        _skipped(result),
        _details(numbers),
    ]
    return document(f"{names} · rsd_planner evaluation", "\n".join(sections))


def _header(result: Evaluation, names: str) -> str:
    model = result.model
    facts = (
        f"{model.name}, {model.parameters / 1e6:,.1f} M parameters, {model.dtype} on {model.device}, {model.backend}"
    )
    every = f"one plan every {0.1 * result.stride:g} s, seed {result.planner.seed}"
    return f"<header><h1>{escape(names)}</h1><p>Offline evaluation: {escape(facts)}; {every}</p></header>"


def _warnings(warnings: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _tiles(result: Evaluation, numbers: Numbers) -> str:
    longest = next((row for row in reversed(numbers["errors"]) if row["plans"]), None)
    total = numbers["latency_ms"].get("total")
    rate = numbers["vision_features"]["hit_rate"]
    tiles = [("plans", f"{numbers['plans']}", f"of {result.ticks_done} ticks")]
    if longest:
        baseline = f"constant velocity {_metres(longest['constant_velocity']['ade_m'])}"
        tiles.append((f"ADE at {longest['horizon_s']:g} s", _metres(longest["plan"]["ade_m"]), baseline))
        baseline = f"constant velocity {_metres(longest['constant_velocity']['fde_m'])}"
        tiles.append((f"FDE at {longest['horizon_s']:g} s", _metres(longest["plan"]["fde_m"]), baseline))
    if total:
        tiles.append(
            ("latency, median", f"{total['p50']:.0f} ms", f"p95 {total['p95']:.0f}, p99 {total['p99']:.0f} ms")
        )
        tiles.append(("tokens per plan", f"{numbers['tokens']['mean']:.1f}", f"at most {numbers['tokens']['max']}"))
        guessed = numbers["speculation"]
        passes = f"{guessed['passes_per_frame']:.1f} verify passes per plan"
        tiles.append(("reasoning guessed", f"{guessed['routine_share'] or 0:.0%}", passes))
    if rate is not None:
        tiles.append(("vision features reused", f"{rate:.0%}", "images not encoded again"))
    cells = "".join(
        f'<div class="tile"><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(note)}</small></div>'
        for name, value, note in tiles
    )
    return f'<section class="tiles">{cells}</section>'


def _plans(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    cards = "".join(map(_card, pictures))
    return f"<section><h2>Plans</h2><p>{len(pictures)}, spread evenly over the recording.</p>{cards}</section>"


def _card(picture: Picture) -> str:
    record = picture.record
    reasoning = escape(record.reasoning) or "<i>nothing was said</i>"
    held = f'<p class="withheld">The node would withhold it: {escape(record.withheld)}</p>' if record.withheld else ""
    facts = "".join(f"<span>{escape(fact)}</span>" for fact in _facts(record))
    return (
        f'<article><div class="scene">{_cameras(picture.jpegs)}{plots.top_view(record)}</div>'
        f'<blockquote>{reasoning}</blockquote>{held}<p class="facts">{facts}</p></article>'
    )


def _cameras(jpegs: Mapping[int, bytes]) -> str:
    """The frames at t0: the front camera large, the others in a row below."""
    large = FRONT if FRONT in jpegs else min(jpegs)
    images = "".join(
        f'<figure><img alt="camera {number} at t0" src="{_data_url(jpegs[number])}">'
        f"<figcaption>camera {number}</figcaption></figure>"
        for number in sorted(jpegs, key=lambda number: (number != large, number))
    )
    return f'<div class="cameras" style="--others:{max(1, len(jpegs) - 1)}">{images}</div>'


def _data_url(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def _facts(record: PlanRecord) -> Iterator[str]:
    first_ns = int(record.track.arrays()[0][0])
    yield f"t0 = {record.stamp_ns / 1e9:.2f} s, {(record.stamp_ns - first_ns) / 1e9:.1f} s into the drive"
    yield f"v0 = {record.v0:.1f} m/s"
    error, baseline = record.errors()
    if len(error):
        yield (
            f"{len(error) / 10:.1f} s of future recorded: ADE {_metres(error.mean())}, FDE {_metres(error[-1])}; "
            f"constant velocity {_metres(baseline.mean())}, {_metres(baseline[-1])}"
        )
    yield f"{record.tokens} tokens, {record.finish_reason}"
    yield f"{record.stage_times.total:.0f} ms"


def _errors(result: Evaluation, numbers: Numbers) -> str:
    rows = [
        (
            f"{row['horizon_s']:g} s",
            f"{row['plans']}",
            *(_metres(row[who][what]) for what in ("ade_m", "fde_m") for who in ("plan", "constant_velocity")),
        )
        for row in numbers["errors"]
    ]
    heads = ("horizon", "plans", "ADE plan", "ADE constant velocity", "FDE plan", "FDE constant velocity")
    reached = [row["horizon_s"] for row in numbers["errors"] if row["plans"]]
    figures = [plots.error_growth([record.errors() for record in result.records])] if reached else []
    figures += [
        plots.error_over_time(records, horizon)
        for _, records in result.by_bag()
        for horizon in reached[1:2] or reached
        if records
    ]
    return (
        "<section><h2>Errors</h2><p>Distance in the ground plane to where the vehicle then was, by its odometry. "
        "ADE: mean up to the horizon; FDE: at the horizon; both averaged over the plans that have that much recorded "
        f"future. Constant velocity keeps speed and heading of t0.</p>"
        f"{_table(heads, rows)}{_figures(figures)}</section>"
    )


def _latency(result: Evaluation, numbers: Numbers) -> str:
    if not result.records:
        return ""
    rows = [
        (stage.replace("_", " "), *(f"{values[name]:.1f}" for name in ("p50", "p95", "p99", "max")))
        for stage, values in numbers["latency_ms"].items()
    ]
    figures = [plots.latency_bars(result.records)]
    figures += [plots.latency_over_time(records) for _, records in result.by_bag() if records]
    heads = ("stage", "p50 (ms)", "p95 (ms)", "p99 (ms)", "max (ms)")
    return f"<section><h2>Latency</h2>{_table(heads, rows)}{_figures(figures)}</section>"


def _drive(bag: BagResult, result: Evaluation) -> str:
    tracks = [track for track in bag.tracks if track.newest_ns is not None]
    if not tracks:
        return ""
    shown = [picture.record for picture in result.pictures.kept if picture.record.track in tracks]
    topics = "".join(f"<li>camera {number}: {escape(topic)}</li>" for number, topic in bag.inputs.cameras.items())
    unused = "".join(f"<li>not used: {escape(topic)}</li>" for topic in bag.inputs.unused_images)
    return (
        f"<section><h2>{escape(bag.name)}</h2>{_figures([plots.drive_map(tracks, shown)], wide=True)}"
        f"<ul>{topics}{unused}<li>odometry: {escape(bag.inputs.odometry)}</li>"
        f"<li>recording with the plans, for RViz and Foxglove: {escape(bag.recording.name)}/</li></ul></section>"
    )


def _skipped(result: Evaluation) -> str:
    rows = [
        (bag.name, reason.replace("_", " "), f"{count}", bag.skip_examples[reason])
        for bag in result.bags
        for reason, count in bag.skipped.most_common()
    ]
    if not rows:
        return ""
    table = _table(("recording", "reason", "ticks", "the first one"), rows, words=True)
    return f"<section><h2>Skipped ticks</h2>{table}</section>"


def _details(numbers: Numbers) -> str:
    model = {key: value for key, value in numbers["model"].items() if key != "notice"}
    groups = {"model": model, "setting": numbers["settings"], "version": numbers["versions"]}
    rows = [(f"{group}: {key}", _words(value)) for group, values in groups.items() for key, value in values.items()]
    table = _table(("what", "value"), rows, words=True)
    return f"<section><details><summary>Settings and versions</summary>{table}</details></section>"


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _figures(svgs: Sequence[str], wide: bool = False) -> str:
    return f'<div class="figures{" wide" if wide else ""}">{"".join(f"<figure>{svg}</figure>" for svg in svgs)}</div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    kind = ' class="words"' if words else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _metres(value: float | None) -> str:
    return "no plan" if value is None else f"{value:.2f} m"
