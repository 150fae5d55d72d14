"""RViz and Foxglove show what there is: every topic, namespace and field that their files name exists."""

import json
import re
from pathlib import Path

import pytest
import yaml
from test_launch_files import OUTPUTS, REMAPPINGS, ROOT

from rsd_planner.messages import markers

CAMERAS = set(REMAPPINGS.values()) - {"/odom"}
FOXGLOVE = json.loads((ROOT / "config" / "foxglove_layout.json").read_text())
RVIZ = yaml.safe_load((ROOT / "config" / "rsd_planner.rviz").read_text())["Visualization Manager"]
NAMESPACES = set(re.findall(r'(?:ns=|_Text\()"(\w+)"', Path(markers.__file__).read_text()))


def rviz_displays():
    return [each for display in RVIZ["Displays"] for each in display.get("Displays", [display])]


def test_rviz_shows_outputs_and_inputs_in_the_odometry_frame():
    assert RVIZ["Global Options"]["Fixed Frame"] == "odom"
    topics = {each["Topic"]["Value"]: each for each in rviz_displays() if "Topic" in each}
    shown = {topic: each["Class"].rpartition("/")[2] for topic, each in topics.items()}
    assert shown["/rsd_planner/output/path"] == "Path"
    assert shown["/rsd_planner/output/markers"] == "MarkerArray"
    assert {topic for topic, kind in shown.items() if kind == "Image"} == CAMERAS
    assert set(shown) <= OUTPUTS | set(REMAPPINGS.values())
    assert all(each["Enabled"] for each in rviz_displays())


def test_rviz_shows_every_namespace_of_the_markers():
    (display,) = [each for each in rviz_displays() if each["Class"].endswith("MarkerArray")]
    assert display["Namespaces"] == dict.fromkeys(NAMESPACES, True)
    assert {"path", "ego_history", "reasoning", "deliberative"} <= NAMESPACES


def test_rviz_follows_the_vehicle_and_offers_a_view_without_transforms():
    assert RVIZ["Views"]["Current"]["Target Frame"] == "base_link"
    assert [view["Target Frame"] for view in RVIZ["Views"]["Saved"]] == ["<Fixed Frame>"]


def panels(layout):
    return [layout] if isinstance(layout, str) else [*panels(layout["first"]), *panels(layout["second"])]


def test_foxglove_lays_out_the_panels_it_configures():
    assert sorted(panels(FOXGLOVE["layout"])) == sorted(FOXGLOVE["configById"])


def test_foxglove_shows_cameras_outputs_and_diagnostics():
    text = json.dumps(FOXGLOVE["configById"])
    topics = set(re.findall(r"(/(?:rsd_planner|camera|odom|diagnostics)[\w/]*)", text))
    assert topics <= OUTPUTS | set(REMAPPINGS.values()) | {"/diagnostics"}
    assert {f"/rsd_planner/output/{name}" for name in ("path", "markers", "reasoning_text", "reasoning")} <= topics
    assert topics >= CAMERAS


@pytest.mark.parametrize("path", re.findall(r"/rsd_planner/output/reasoning\{[^\"]+", json.dumps(FOXGLOVE)))
def test_foxglove_plots_fields_that_the_message_has(path):
    message = (ROOT / "msg" / "msg" / "Reasoning.msg").read_text()
    filtered, field = re.fullmatch(r"[^{]+\{(\w+)==\w+\}\.(\w+)", path).groups()
    for name in (filtered, field):
        assert re.search(rf"^\w+ {name}\b", message, re.MULTILINE)
