"""launch_ros is in no wheel: what launch and configuration files mention is checked against what exists."""

import ast
import re
from pathlib import Path

import pytest
import rclpy
import yaml
from rclpy.node import Node
from ros_peer import MODEL

from rsd_planner.ros.parameters import SPECIFICATIONS, ParameterServer

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch" / "planner.launch.py"
TREE = ast.parse(LAUNCH.read_text(), str(LAUNCH))
OUTPUTS = {"/rsd_planner/output/path", "/rsd_planner/output/markers", "/rsd_planner/output/reasoning_text"}


def constants() -> dict[str, object]:
    """The module-level constants of the launch file, evaluated without importing launch."""
    assignments = [node for node in TREE.body if isinstance(node, ast.Assign)]
    namespace: dict[str, object] = {}
    exec(compile(ast.Module(assignments, type_ignores=[]), str(LAUNCH), "exec"), namespace)
    return namespace


def calls(name: str) -> list[ast.Call]:
    return [node for node in ast.walk(TREE) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name]


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


REMAPPINGS = dict(constants()["REMAPPINGS"])


def test_executable_and_node_name_are_the_packages_own():
    (node,) = calls("LifecycleNode")
    given = {name: value.value for name, value in keywords(node).items() if isinstance(value, ast.Constant)}
    assert given["package"] == "rsd_planner"
    assert given["name"] == "rsd_planner"
    assert (ROOT / "scripts" / given["executable"]).is_file()
    assert f"scripts/{given['executable']}" in (ROOT / "setup.py").read_text()  # installed to lib/rsd_planner


def test_arguments_used_are_declared_and_the_other_way_round():
    declared = {call.args[0].value for call in calls("DeclareLaunchArgument")}
    used = {call.args[0].value for call in calls("LaunchConfiguration")}
    assert declared == used == {"model", "params_file", "namespace", "use_sim_time", "log_level"}


def test_parameters_set_by_the_launch_file_exist():
    (node,) = calls("LifecycleNode")
    dictionaries = [value for value in keywords(node)["parameters"].elts if isinstance(value, ast.Dict)]
    names = {key.value for dictionary in dictionaries for key in dictionary.keys}
    assert names == {"model", "use_sim_time"}
    assert names <= {*SPECIFICATIONS, "use_sim_time"}


def test_files_mentioned_exist_and_are_installed():
    names = re.findall(r"[\w.]+\.yaml", LAUNCH.read_text())
    assert "planner.yaml" in names
    for name in {"planner.yaml", "replay.yaml", "rsd_planner.rviz"}:
        assert (ROOT / "config" / name).is_file()
    assert "config" in (ROOT / "setup.py").read_text()


def test_remapped_names_are_those_the_node_subscribes_to(make_node, peer):
    cameras = constants()["CAMERAS"]
    assert cameras == SPECIFICATIONS["cameras"].default
    node = make_node(cameras=cameras, camera_ids=SPECIFICATIONS["camera_ids"].default)
    assert peer.transition(1)
    private = {f"~/{name}" for name in ["input/odometry", *(f"input/image_{camera}" for camera in cameras)]}
    assert set(REMAPPINGS) == private
    subscribed = {subscription.topic_name for subscription in node.subscriptions}
    assert {name.replace("~", "/rsd_planner") for name in private} <= subscribed


@pytest.mark.parametrize("name", ["planner.yaml", "replay.yaml"])
def test_parameter_files_are_accepted_in_any_namespace(name):
    path = ROOT / "config" / name
    rclpy.init(args=["--ros-args", "--params-file", str(path), "-p", f"model:={MODEL}", "-r", "__ns:=/car"])
    node = Node("rsd_planner")
    server = ParameterServer(node)
    given = yaml.safe_load(path.read_text())["/**"]["ros__parameters"]
    parameters = server.read()
    unknown = [sentence for sentence in server.unknown_overrides() if "qos_overrides" not in sentence]
    node.destroy_node()
    rclpy.shutdown()
    assert unknown == []
    assert list(parameters.cameras) == given["cameras"]
    assert parameters.device == given.get("device", "cpu")


@pytest.mark.parametrize("name", ["planner.yaml", "replay.yaml"])
def test_qos_overrides_are_for_topics_that_the_launch_file_remaps_to(name):
    text = (ROOT / "config" / name).read_text().replace("# qos_overrides", "qos_overrides").replace("#   /", "  /")
    given = yaml.safe_load(text)["/**"]["ros__parameters"]
    assert given["qos_overrides"].keys() <= set(REMAPPINGS.values())


def test_rviz_shows_outputs_and_inputs_in_the_odometry_frame():
    manager = yaml.safe_load((ROOT / "config" / "rsd_planner.rviz").read_text())["Visualization Manager"]
    assert manager["Global Options"]["Fixed Frame"] == "odom"
    shown = {}
    for display in manager["Displays"]:
        for each in display.get("Displays", [display]):
            if "Topic" in each:
                shown[each["Topic"]["Value"]] = each["Class"].rpartition("/")[2]
    assert shown["/rsd_planner/output/path"] == "Path"
    assert shown["/rsd_planner/output/markers"] == "MarkerArray"
    assert {topic for topic, kind in shown.items() if kind == "Image"} == set(REMAPPINGS.values()) - {"/odom"}
    assert set(shown) <= OUTPUTS | set(REMAPPINGS.values())
