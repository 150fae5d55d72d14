"""Write docs/parameters.md, docs/topics.md and docs/diagnostics.md from the node's code.

    python scripts/write_reference.py

A test fails when a file is not what this writes, or when code and the meanings below name different things.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import rclpy
import yaml
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter

from rsd_planner.messages.images import RAW_ENCODINGS
from rsd_planner.ros import diagnostics
from rsd_planner.ros.inputs import Inputs
from rsd_planner.ros.message_types import MessageTypes
from rsd_planner.ros.parameters import SPECIFICATIONS, ParameterServer
from rsd_planner.ros.publishers import OUTPUT_QOS, OUTPUTS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GENERATED = "<!-- Written by scripts/write_reference.py: change the code, not this file. -->\n"

TOPICS = {
    "~/input/image_<camera>": "One for each of `cameras`, any rate from 10 Hz on. `sensor_msgs/msg/Image` with "
    "`image_transport: raw`.",
    "~/input/odometry": "Pose of the vehicle, 10 to 400 Hz. Its `header.frame_id` is the frame of the outputs.",
    "~/input/nav_text": "Route in words, optional. Alpamayo 1.5 only.",
    "~/output/path": "64 poses; pose k is stamped t0 + 0.1 (k + 1) s.",
    "~/output/reasoning": "Text, how it ended, tokens, latency; `complete: false` while it is being decoded. Only with "
    "`rsd_planner_msgs`.",
    "~/output/reasoning_text": "The text alone, also while it is being decoded.",
    "~/output/markers": "For viewers: namespaces `path`, `ego_history`, `reasoning`, `deliberative`, `notice`.",
    "~/output/trajectory": "The vehicle at t0 and 64 points. Only with `publish_trajectory: true`.",
}

MEANINGS = {
    "inputs": {
        "<input>: topic": "its name, after remapping",
        "<input>: state": "`receiving`, or why not: `no publisher`, `wrong type`, `incompatible QoS`, `no data`",
        "<input>: rate [Hz]": "messages over the last 2 s",
        "<input>: last message [s ago]": "since it arrived",
        "<input>: age of the newest stamp [s]": "by the node's clock",
        "<input>: received": "messages",
        "<input>: dropped": "missing by the stamps of those that came: an interval of n usual periods (median of 21) "
        "has n - 1 missing; more than 10 s count as a stop",
        "<input>: out of order": "with the stamp of the one before or an earlier one",
        "<input>: rejected": "that cannot be used",
        "<input>: last error": "why the last of those was rejected",
        "spread of newest frames [ms]": "from the oldest to the newest stamp among the cameras' newest frames",
        "resets": "how often everything was forgotten: `~/reset`, time going back, a change of the odometry's frame",
        "route text": "the last one received",
        "last_skip_reason": "why there is no plan at present",
    },
    "inference": {
        "state": "`active` or `inactive`",
        "plans": "published",
        "passed over while busy": "frames of the reference camera that came while the model was at work",
        "outdated": "results from before a reset, a deactivation or a jump of time: never published",
        "closed by the deadline": "plans whose reasoning was closed by `reasoning_deadline`",
        "withheld: <reason>": "frames of the reference camera without a plan, by reason (see troubleshooting.md)",
        "<time> p50 [ms]": "median of `inference` (in the worker), `t0 to publishing` and `overhead` (from the input "
        "to publishing, less the worker), last 100 plans",
        "<time> p95 [ms]": "95th percentile of the same",
        "last t0 [ns]": "of the last plan",
        "last sequence": "of the last plan",
        "last finish reason": "how its reasoning ended",
        "last tolerated tokens": "guessed tokens of its reasoning that are not the model's own; only with `accept: "
        "action_tolerant`",
        "last withheld": "reason and detail, until a plan is published again",
    },
    "model": {
        "directory": "it was loaded from",
        "backend": "what computes it",
        "device": "it runs on",
        "dtype": "of its weights",
        "parameters": "their number",
        "draft": "kind of the draft model",
        "worker": "process number, or `thread`",
        "worker restarts": "how often it died and was started again",
        "typed reasoning": "whether `~/output/reasoning` exists",
        "frames reused": "share of the images whose features were still there",
        "verify passes per plan": "of the model over guessed tokens, last 100 plans",
        "mean accepted length": "tokens committed per such pass",
        "routine share": "share of the reasoning that was guessed and accepted",
        "backend not used": "why PyTorch runs the model instead of the backend asked for",
        "draft not used": "why the model directory's draft was left aside",
        "notice": "what the model directory says about its model, and that plans are lossy if `accept` lets them be",
    },
    "ego history": {
        "v0 from the history [m/s]": "speed at t0 that the positions of the odometry imply",
        "odometry twist [m/s]": "speed that the odometry reports",
    },
}
FUNCTIONS = {  # that make the values of each status
    "inputs": ("_inputs", "_stream"),
    "inference": ("_inference", "_percentiles"),
    "model": ("_model",),
    "ego history": ("_ego_history",),
}
PLACEHOLDERS = {"_stream": {"name": "input"}, "_percentiles": {"name": "time"}}


def main() -> None:
    for name, text in references().items():
        (DOCS / name).write_text(text)


def references() -> dict[str, str]:
    """File name in docs/ -> what it has to hold."""
    return {"parameters.md": parameters(), "topics.md": topics(), "diagnostics.md": diagnostic_values()}


def parameters() -> str:
    rows = [(f"`{name}`", _default(one.default), one.expected, one.description) for name, one in SPECIFICATIONS.items()]
    return (
        f"# Parameters\n\n{GENERATED}\n"
        "Read when the node is configured; while it is, they cannot be changed. `use_sim_time` and `qos_overrides` are "
        "ROS 2's own.\n\n" + table(("name", "default", "expected", "meaning"), rows)
    )


def _default(value: object) -> str:
    return f"`{yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}`"


def topics() -> str:
    inputs = table(("topic", "type", "QoS unless overridden", ""), _subscribed())
    qos = f"{OUTPUT_QOS.reliability.name.lower()}, {OUTPUT_QOS.history.name.lower()} {OUTPUT_QOS.depth}"
    outputs = table(("topic", "type", ""), [(f"`{name}`", f"`{kind}`", TOPICS[name]) for name, kind in OUTPUTS.items()])
    return (
        f"# Topics\n\n{GENERATED}\n## Inputs\n\n{inputs}\n"
        f"Raw images: {', '.join(f'`{encoding}`' for encoding in RAW_ENCODINGS)}; others where a ROS installation has "
        "`cv_bridge`. Compressed images: JPEG, PNG.\n\n"
        f"## Outputs\n\nAll {qos}. All that belongs to one plan carries its t0 as `header.stamp`.\n\n{outputs}\n"
        "`/diagnostics` (`diagnostic_msgs/msg/DiagnosticArray`), once a second in every lifecycle state: "
        "[diagnostics.md](diagnostics.md).\n\n"
        "## Service\n\n`~/reset` (`std_srvs/srv/Trigger`): forget all inputs and the plan under way.\n"
    )


def _subscribed() -> list[tuple[str, ...]]:
    """What the node really subscribes to, asked of ROS."""
    context = rclpy.Context()
    rclpy.init(context=context)
    given = [("cameras", ["front"]), ("camera_ids", [1]), ("model", str(ROOT))]
    node = LifecycleNode(
        "rsd_planner", context=context, parameter_overrides=[Parameter(name, value=value) for name, value in given]
    )
    own = {id(subscription) for subscription in node.subscriptions}
    inputs = Inputs(node, ParameterServer(node).read(), lambda _: None)
    names = {kind: name for name, kind in _type_names().items()}
    rows = []
    for subscription in node.subscriptions:
        if id(subscription) in own:
            continue
        topic = subscription.topic_name.replace("/rsd_planner", "~").replace("image_front", "image_<camera>")
        profile = subscription.qos_profile
        qos = f"{profile.reliability.name.lower()}, {profile.history.name.lower()} {profile.depth}"
        rows.append((f"`{topic}`", f"`{names[subscription.msg_type]}`", qos, TOPICS[topic]))
    inputs.close()
    node.destroy_node()
    rclpy.shutdown(context=context)
    return rows


def _type_names() -> Mapping[str, Any]:
    types = MessageTypes()
    return {
        name: types[name]
        for name in ("sensor_msgs/msg/CompressedImage", "nav_msgs/msg/Odometry", "std_msgs/msg/String")
    }


def diagnostic_values() -> str:
    sections = []
    for part, meanings in MEANINGS.items():
        keys = list(dict.fromkeys(key for function in FUNCTIONS[part] for key in _keys(function)))
        rows = [(f"`{key}`", meanings[key]) for key in keys]
        sections.append(f"## {part}\n\n" + table(("value", "meaning"), rows))
    return (
        f"# Diagnostics\n\n{GENERATED}\n"
        "On `/diagnostics`, one status for each heading, named `rsd_planner: <heading>`. Values appear once there is "
        "something to say. What the messages mean and what to do: [troubleshooting.md](troubleshooting.md).\n\n"
        "`<input>` is `camera <name>` or `odometry`.\n\n" + "\n".join(sections)
    )


def _keys(function: str) -> Iterator[str]:
    """The keys of the values that a function of diagnostics.py makes, in its order."""
    tree = ast.parse(inspect.getsource(getattr(diagnostics, function)))
    for node in sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0)):
        if isinstance(node, ast.Dict):
            found: Sequence[ast.expr | None] = node.keys
        elif isinstance(node, ast.DictComp):
            found = [node.key]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found = [node.slice]
        else:
            continue
        yield from (_text(key, PLACEHOLDERS.get(function, {})) for key in found if key is not None)


def _text(key: ast.expr, placeholders: Mapping[str, str]) -> str:
    if isinstance(key, ast.JoinedStr):
        return "".join(_text(part, placeholders) for part in key.values)
    if isinstance(key, ast.FormattedValue):
        name = ast.unparse(key.value)
        return f"<{placeholders.get(name, name)}>"
    assert isinstance(key, ast.Constant)
    return str(key.value)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
