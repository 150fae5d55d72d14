"""Real recordings, real planner: the golden checkpoint. A circle of 100 m radius at 10 m/s is the drive."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bag_writing import FRONT, START_NS, Drive, circle, storage_file, write
from golden_cases import R1
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from rich.console import Console
from rosbags.highlevel import AnyReader

from rsd_planner.errors import BagError, ObservationError, ParameterError
from rsd_planner.evaluation.evaluate import Request, evaluate
from rsd_planner.evaluation.report import render
from rsd_planner.evaluation.results import PICTURES, Evaluation
from rsd_planner.evaluation.summary import summarize
from rsd_planner.planner import PlannerSettings

CARND = Path(__file__).parents[3] / "shared" / "data" / "carnd_highway"
MAX_TOKENS = 12  # the golden model rambles about what it was not trained on
TWO_CAMERAS = {0: "/camera/cross_left/image/compressed", 1: FRONT}


def run(bags: list[Path], out: Path, stride: int = 5, seed: int = 0, **more: Any) -> Evaluation:
    settings = PlannerSettings(seed=seed, max_reasoning_tokens=MAX_TOKENS)
    request = Request(bags, R1, out, settings, stride=stride, **more)
    return evaluate(request, Console(file=StringIO()))


def plans_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "plans.jsonl").read_text().splitlines()]


def summary_of(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return result


def without_times(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key not in ("stage_times_ms", "bag")}


@pytest.fixture(scope="module")
def circle_bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("bags") / "circle", Drive(seconds=4.0, cameras=TWO_CAMERAS))


@pytest.fixture(scope="module")
def circle_out(circle_bag: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("circle_out")
    run([circle_bag], out, stride=2)
    return out


def test_one_line_per_plan(circle_out: Path) -> None:
    plans = plans_of(circle_out)
    assert [plan["stamp_ns"] for plan in plans] == [START_NS + n * 100_000_000 for n in range(16, 41, 2)]
    assert np.diff([plan["sequence"] for plan in plans]).tolist() == [1] * (len(plans) - 1)
    for plan in plans:
        assert plan["bag"] == "circle"
        assert np.shape(plan["positions"]) == (64, 3)
        assert np.shape(plan["speeds"]) == (64,)
        assert np.isfinite(plan["positions"]).all()
        assert plan["v0"] == pytest.approx(10.0, abs=0.05)
        assert plan["finish_reason"] in ("stop", "empty", "max_tokens", "missing_stop")
        assert plan["tokens"] > 0
        assert set(plan["stage_times_ms"]) == {"decode_images", "encode", "prefill", "decode", "action"}


def test_errors_against_the_true_circle(circle_out: Path) -> None:
    """Recomputed from plans.jsonl with the circle itself: in the frame of t0 it is the same circle at every t0."""
    plans = plans_of(circle_out)
    truth = np.array([circle(0.1 * step)[:2] for step in range(1, 65)])
    first, second, third = summary_of(circle_out)["errors"]
    scored = [plan for plan in plans if plan["stamp_ns"] <= START_NS + 3_000_000_000]
    off = np.array([np.linalg.norm(np.array(plan["positions"])[:10, :2] - truth[:10], axis=1) for plan in scored])
    assert first["plans"] == len(scored) == 8
    assert first["plan"]["ade_m"] == pytest.approx(off.mean(), abs=1e-3)
    assert first["plan"]["fde_m"] == pytest.approx(off[:, 9].mean(), abs=1e-3)
    straight = np.stack([np.arange(1, 11) * 1.0, np.zeros(10)], axis=1)
    baseline = np.linalg.norm(straight - truth[:10], axis=1)
    assert first["constant_velocity"]["ade_m"] == pytest.approx(baseline.mean(), abs=0.05)
    assert first["constant_velocity"]["fde_m"] == pytest.approx(baseline[9], abs=0.05)
    assert (second["plans"], third["plans"]) == (0, 0)
    assert second["plan"] == {"ade_m": None, "fde_m": None}


def test_every_tick_is_planned_or_skipped_with_a_reason(circle_out: Path) -> None:
    summary = summary_of(circle_out)
    assert summary["ticks"] == {"done": 21, "expected": 21}
    assert summary["plans"] == 13
    assert sum(summary["skipped"].values()) == 8
    assert set(summary["skipped"]) == {"missing_frames", "history_not_covered"}
    assert set(summary["bags"][0]["skip_examples"]) == set(summary["skipped"])


def test_summary_tells_model_speed_and_reuse(circle_out: Path) -> None:
    summary, plans = summary_of(circle_out), plans_of(circle_out)
    assert set(summary["latency_ms"]) == {"decode_images", "encode", "prefill", "decode", "action", "total"}
    decode = [plan["stage_times_ms"]["decode"] for plan in plans]
    assert summary["latency_ms"]["decode"]["p50"] == pytest.approx(np.percentile(decode, 50), abs=1e-2)
    assert summary["latency_ms"]["decode"]["p99"] == pytest.approx(np.percentile(decode, 99), abs=1e-2)
    assert summary["tokens"]["total"] == sum(plan["tokens"] for plan in plans)
    passes = [count for plan in plans for count in plan["tokens_per_pass"]]
    assert all(plan["prefill_committed"] + sum(plan["tokens_per_pass"]) <= plan["tokens"] for plan in plans)
    assert summary["settings"]["verify_length"] == 15
    guessed = summary["speculation"]
    assert guessed == summary["bags"][0]["speculation"]
    assert guessed["accepted_length"] == pytest.approx(sum(passes) / len(passes))
    assert guessed["passes_per_frame"] == pytest.approx(len(passes) / len(plans))
    assert guessed["frames_without_pass"] == sum(not plan["tokens_per_pass"] for plan in plans)
    assert 0.5 < guessed["routine_share"] <= 1  # it says the same thing all along
    # Every 0.2 s half of the 2 x 4 frames are new; all of them are at the first plan.
    assert summary["vision_features"] == {"encoded": 8 + 12 * 4, "reused": 12 * 4, "hit_rate": pytest.approx(48 / 104)}
    assert "nearly random" in summary["model"]["notice"]
    assert any("nearly random" in warning for warning in summary["warnings"])
    assert any("trained with 2, 6 as well" in warning for warning in summary["warnings"])
    assert not any("estimated" in warning for warning in summary["warnings"])
    assert summary["settings"]["seed"] == 0
    assert summary["settings"]["stride"] == 2


def test_the_recording_has_the_inputs_unchanged_and_the_plans_beside_them(circle_bag: Path, circle_out: Path) -> None:
    with AnyReader([circle_bag]) as source, AnyReader([circle_out / "circle_plans"]) as copy:
        inputs = [(c.topic, log_ns, raw) for c, log_ns, raw in source.messages()]
        copied = [(c.topic, log_ns, raw) for c, log_ns, raw in copy.messages()]
        names = {connection.topic for connection in source.connections}
        assert sorted(item for item in copied if item[0] in names) == sorted(inputs)
        counts = {c.topic: c.msgcount for c in copy.connections if c.topic not in names}
    published = sum(plan["withheld"] is None for plan in plans_of(circle_out))
    assert counts == dict.fromkeys(
        (f"/rsd_planner/output/{name}" for name in ("path", "reasoning_text", "markers")), published
    )


def test_the_recording_opens_with_the_mcap_package(circle_out: Path) -> None:
    plans = [plan for plan in plans_of(circle_out) if plan["withheld"] is None]
    with storage_file(circle_out / "circle_plans").open("rb") as file:
        messages = list(make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages())
    assert all(message.schema is not None and message.schema.encoding == "ros2msg" for message in messages)
    paths, texts, markers = (
        [message for message in messages if message.channel.topic == f"/rsd_planner/output/{name}"]
        for name in ("path", "reasoning_text", "markers")
    )
    assert [text.decoded_message.data for text in texts] == [plan["reasoning"] for plan in plans]
    assert len(markers) == len(paths) == len(plans)
    for plan, message in zip(plans, paths, strict=True):
        path = message.decoded_message
        assert path.header.frame_id == "odom"
        assert path.header.stamp.sec * 10**9 + path.header.stamp.nanosec == plan["stamp_ns"]
        assert message.message.log_time == plan["stamp_ns"]  # its odometry and images are recorded at once here
        seconds = (plan["stamp_ns"] - START_NS) * 1e-9
        x, y, yaw = circle(seconds)
        last = np.array(plan["positions"])[-1]
        placed = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]) @ last[:2] + (x, y)
        end = path.poses[-1].pose.position
        np.testing.assert_allclose((end.x, end.y), placed, atol=1e-3)


def test_the_page_shows_it_all_and_needs_nothing_else(circle_out: Path) -> None:
    page = (circle_out / "index.html").read_text()
    plans = plans_of(circle_out)
    assert "nearly random" in page
    cards = page.count("<article>")
    assert min(len(plans), PICTURES) // 2 <= cards <= PICTURES
    assert page.count("data:image/jpeg;base64,") == 2 * cards
    assert page.count("<svg") == cards + 5  # errors: 2, latency: 2, map
    assert plans[0]["reasoning"] in page
    assert "history not covered" in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|"http://www.w3.org/[^"]*"', "", page)
    assert len(page) < 5_000_000


def test_withheld_plans_are_counted_and_shown_and_text_stays_text(tmp_path: Path) -> None:
    result = run([write(tmp_path / "short", Drive(seconds=2.1))], tmp_path / "out", stride=10)
    record = replace(
        result.records[0], withheld="reverse: the path runs 3.00 m backwards", reasoning="<b>go & stop</b>"
    )
    result.records[0] = record
    result.pictures.kept[0] = replace(result.pictures.kept[0], record=record)
    summary = summarize(result)
    assert summary["withheld"] == {"reverse": 1}
    assert any("1 of 1 plans would be withheld by the node: 1 reverse" in warning for warning in summary["warnings"])
    page = render(result)
    assert "The node would withhold it: reverse" in page
    assert "&lt;b&gt;go &amp; stop&lt;/b&gt;" in page
    assert "<b>go" not in page


def test_seed_decides(circle_bag: Path, circle_out: Path, tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    run([circle_bag], same, stride=2)
    run([circle_bag], other, stride=20, seed=1)
    first = plans_of(circle_out)
    assert [without_times(plan) for plan in plans_of(same)] == [without_times(plan) for plan in first]
    by_stamp = {plan["stamp_ns"]: plan for plan in first}
    changed = plans_of(other)
    assert changed
    for plan in changed:
        assert plan["positions"] != by_stamp[plan["stamp_ns"]]["positions"]


def test_all_kinds_of_recordings_give_the_same_plans(circle_bag: Path, tmp_path: Path) -> None:
    drive = Drive(seconds=4.0, cameras=TWO_CAMERAS)
    bags = [circle_bag, write(tmp_path / "lite", drive, "sqlite3"), write(tmp_path / "one", drive, "rosbag1")]
    run(bags, tmp_path / "out", stride=10)
    plans = plans_of(tmp_path / "out")
    mcap, sqlite, rosbag1 = ([without_times(plan) for plan in plans if plan["bag"] == bag.stem] for bag in bags)
    for a, b, c in zip(mcap, sqlite, rosbag1, strict=True):
        a["sequence"] = b["sequence"] = c["sequence"]
        assert a == b == c
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == [
        "circle_plans",
        "lite_plans",
        "one_plans",
    ]
    with AnyReader([tmp_path / "out" / "one_plans"]) as reader:  # ROS 1 in, ROS 2 out
        assert {c.topic: c.msgcount for c in reader.connections}[FRONT] == 41


def test_evaluating_again_replaces_the_recording_and_nothing_else(tmp_path: Path) -> None:
    bag = write(tmp_path / "short", Drive(seconds=2.1))
    out = tmp_path / "out"
    run([bag], out, stride=10)
    run([bag], out, stride=10)
    with AnyReader([out / "short_plans"]) as reader:
        assert reader.message_count > 0
    (out / "short_plans" / "thesis.tex").write_text("years of work")
    with pytest.raises(ParameterError, match=r"thesis\.tex"):
        run([bag], out, stride=10)
    assert (out / "short_plans" / "thesis.tex").exists()


def test_a_recording_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    bag = write(tmp_path / "drive", Drive(seconds=2.1))
    earlier = write(tmp_path / "drive_plans", Drive(seconds=2.1))
    kept = storage_file(earlier).read_bytes()
    with pytest.raises(ParameterError, match="drive_plans would be replaced while it is read"):
        run([bag, earlier], tmp_path)
    assert storage_file(earlier).read_bytes() == kept


def test_an_undecodable_image_costs_its_ticks_only(tmp_path: Path) -> None:
    bag = write(tmp_path / "broken", Drive(seconds=3.0, broken_images=(20,)))
    run([bag], tmp_path / "out", stride=1)
    summary = summary_of(tmp_path / "out")
    assert summary["skipped"]["undecodable_image"] == 1
    stamps = {round((plan["stamp_ns"] - START_NS) * 1e-8) for plan in plans_of(tmp_path / "out")}
    assert stamps == {*range(15, 20), *range(24, 31)}  # 21 to 23 lack the frame as well
    assert any("ends early" in warning for warning in summary["warnings"])


def test_a_gap_in_the_odometry_skips_until_the_history_is_whole_again(tmp_path: Path) -> None:
    bag = write(tmp_path / "gap", Drive(seconds=4.5, no_odometry_between=(1.8, 2.2)))
    run([bag], tmp_path / "out", stride=1)
    stamps = {round((plan["stamp_ns"] - START_NS) * 1e-8) for plan in plans_of(tmp_path / "out")}
    assert stamps == {*range(15, 19), *range(37, 46)}
    assert summary_of(tmp_path / "out")["skipped"]["odometry_gap"] > 10


def test_a_recording_that_loops_is_two_drives(tmp_path: Path) -> None:
    bag = write(tmp_path / "loop", Drive(seconds=2.0, laps=2))
    result = run([bag], tmp_path / "out", stride=1)
    first, second = (plans_of(tmp_path / "out")[:6], plans_of(tmp_path / "out")[6:])
    assert [plan["stamp_ns"] for plan in first] == [plan["stamp_ns"] for plan in second]
    assert [plan["positions"] for plan in first] == [plan["positions"] for plan in second]
    assert len(result.bags[0].tracks) == 2
    assert all(len(record.future()) <= 5 for record in result.records)


def test_odometry_that_is_just_constant_velocity_is_called_estimated(tmp_path: Path) -> None:
    bag = write(tmp_path / "straight", Drive(seconds=5.5, pose=lambda seconds: (20.0 * seconds, 0.0, 0.0)))
    run([bag], tmp_path / "out", stride=2)
    assert any("looks estimated" in warning for warning in summary_of(tmp_path / "out")["warnings"])


def test_a_recording_too_short_for_a_plan_says_why(tmp_path: Path) -> None:
    bag = write(tmp_path / "short", Drive(seconds=1.0))
    with pytest.raises(BagError, match=r"no plan could be made; .*history_not_covered \(odometry reaches back"):
        run([bag], tmp_path / "out")
    assert summary_of(tmp_path / "out")["plans"] == 0
    assert "history not covered" in (tmp_path / "out" / "index.html").read_text()


def test_damage_in_the_middle_keeps_what_came_before(tmp_path: Path) -> None:
    bag = write(tmp_path / "damaged", Drive(seconds=3.0), "sqlite3")
    with closing(sqlite3.connect(storage_file(bag))) as database, database:
        database.execute(
            "UPDATE messages SET data = x'00010000FFFFFFFF' WHERE timestamp >= ?", (START_NS + 2_300_000_000,)
        )
    with pytest.raises(BagError, match="damaged: cannot be read"):
        run([bag], tmp_path / "out")
    summary = summary_of(tmp_path / "out")
    assert summary["plans"] == len(plans_of(tmp_path / "out")) > 0
    assert summary["stopped"].startswith("stopped after")


def test_whatever_stops_it_what_came_before_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bag_writing.START_NS", (2**31 - 5) * 10**9)  # paths reach beyond what a stamp can hold
    bag = write(tmp_path / "2038", Drive(seconds=2.1))
    with pytest.raises(ObservationError, match="32-bit seconds"):
        run([bag], tmp_path / "out", stride=20)
    assert "32-bit seconds" in summary_of(tmp_path / "out")["stopped"]
    assert len(plans_of(tmp_path / "out")) == 1


def test_cameras_the_model_does_not_know(tmp_path: Path) -> None:
    rear = {1: FRONT, 4: "/camera/rear/image"}
    bag = write(tmp_path / "rear", Drive(seconds=2.1, cameras=rear))
    result = run([bag], tmp_path / "out", stride=10)
    assert dict(result.bags[0].inputs.cameras) == {1: FRONT}
    assert result.bags[0].inputs.unused_images == ("/camera/rear/image",)
    with pytest.raises(ParameterError, match=r"camera 4=/camera/rear/image: .* trained for cameras 0, 1, 2, 6"):
        run([bag], tmp_path / "out", cameras=rear)


@pytest.mark.skipif(not CARND.is_dir(), reason=f"{CARND} is not there: the real recording is kept beside the project")
def test_the_real_recording(tmp_path: Path) -> None:
    run([CARND], tmp_path, stride=10)
    plans, summary = plans_of(tmp_path), summary_of(tmp_path)
    assert len(plans) == 7
    assert summary["bags"][0]["cameras"] == {"1": FRONT}
    assert plans[0]["v0"] == pytest.approx(30.4, abs=0.1)
    assert any("looks estimated" in warning for warning in summary["warnings"]) == (summary["errors"][1]["plans"] >= 5)
    with AnyReader([tmp_path / "carnd_highway_plans"]) as reader:
        assert {c.topic: c.msgcount for c in reader.connections}[FRONT] == 89
