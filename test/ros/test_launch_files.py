"""launch_ros is in no wheel: what launch and configuration files mention is checked against what exists."""

import ast
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import rclpy
import yaml
from rclpy.node import Node
from ros_peer import MODEL

from rsd_planner.ros import publishers
from rsd_planner.ros.parameters import SPECIFICATIONS, ParameterServer

ROOT = Path(__file__).parents[2]
LAUNCH_FILES = sorted((ROOT / "launch").glob("*.launch.py"))
LAUNCH = ROOT / "launch" / "planner.launch.py"
TREES = {path.name: ast.parse(path.read_text(), str(path)) for path in LAUNCH_FILES}
TREE = TREES[LAUNCH.name]
CPU = ROOT / "config" / "replay.yaml"  # planner.yaml wants a GPU
ARGUMENTS = {
    "planner.launch.py": {"model", "params_file", "namespace", "use_sim_time", "log_level"},
    "replay.launch.py": {"bag", "model", "params_file", "qos_file", "namespace", "rate", "rviz", "log_level"},
}
OUTPUTS = {f"/rsd_planner/{topic.removeprefix('~/')}" for topic in publishers.OUTPUTS}


def constants() -> dict[str, object]:
    """The module-level constants of the launch file, evaluated without importing launch."""
    assignments = [node for node in TREE.body if isinstance(node, ast.Assign)]
    namespace: dict[str, object] = {}
    exec(compile(ast.Module(assignments, type_ignores=[]), str(LAUNCH), "exec"), namespace)
    return namespace


def calls(name: str, tree: ast.Module = TREE) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name]


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


@pytest.mark.parametrize("name", TREES)
def test_arguments_used_are_declared_and_the_other_way_round(name):
    declared = {call.args[0].value for call in calls("DeclareLaunchArgument", TREES[name])}
    used = {call.args[0].value for call in calls("LaunchConfiguration", TREES[name])}
    assert declared == used == ARGUMENTS[name]
    (function,) = [node for node in TREES[name].body if getattr(node, "name", "") == "generate_launch_description"]
    documented = re.fullmatch(r"Arguments: (.+)\.", ast.get_docstring(function))
    assert set(documented[1].split(", ")) == declared


@pytest.mark.parametrize("name", TREES)
def test_launch_files_compile_and_import_only_what_the_manifest_names(name):
    compile(TREES[name], name, "exec")
    modules = {
        (node.module or "").split(".")[0] for node in ast.walk(TREES[name]) if isinstance(node, ast.ImportFrom)
    } - sys.stdlib_module_names
    needed = {depend.text for depend in ElementTree.parse(ROOT / "package.xml").iter("exec_depend")}
    assert modules <= {*needed, "ament_index_python"}  # launch_ros brings ament_index_python


def test_replay_hands_the_planner_arguments_it_has():
    (include,) = calls("IncludeLaunchDescription", TREES["replay.launch.py"])
    given = {key.value for key in keywords(include)["launch_arguments"].func.value.keys}
    assert given == ARGUMENTS["planner.launch.py"]


def test_replay_plays_with_clock_once_the_node_is_active_and_only_once():
    (handler,) = calls("OnStateTransition", TREES["replay.launch.py"])
    given = keywords(handler)
    assert given["goal_state"].value == "active"
    assert given["handle_once"].value is True
    words = {node.value for node in ast.walk(TREES["replay.launch.py"]) if isinstance(node, ast.Constant)}
    assert {"ros2", "bag", "play", "--clock", "--rate", "--delay", "--qos-profile-overrides-path"} <= words


def test_activate_waits_for_the_end_of_configure():
    (handler,) = calls("OnStateTransition")
    given = {name: value.value for name, value in keywords(handler).items() if isinstance(value, ast.Constant)}
    assert given == {"start_state": "configuring", "goal_state": "inactive"}


def test_parameters_set_by_the_launch_file_exist():
    (node,) = calls("LifecycleNode")
    dictionaries = [value for value in keywords(node)["parameters"].elts if isinstance(value, ast.Dict)]
    names = {key.value for dictionary in dictionaries for key in dictionary.keys}
    assert names == {"model", "use_sim_time"}
    assert names <= {*SPECIFICATIONS, "use_sim_time"}


@pytest.mark.parametrize("name", TREES)
def test_files_mentioned_exist_and_are_installed(name):
    mentioned = {
        node.value for node in ast.walk(TREES[name]) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    files = {value for value in mentioned if re.fullmatch(r"[\w.]+\.(yaml|rviz|launch\.py)", value)}
    assert (
        files
        == {
            "planner.launch.py": {"planner.yaml"},
            "replay.launch.py": {"replay.yaml", "replay_qos.yaml", "rsd_planner.rviz", "planner.launch.py"},
        }[name]
    )
    for file in files:
        assert (ROOT / ("launch" if file.endswith(".py") else "config") / file).is_file()
    setup = (ROOT / "setup.py").read_text()
    assert "config" in setup
    assert "launch" in setup


def test_the_player_is_told_to_be_reliable_wherever_the_node_asks_for_it():
    played = yaml.safe_load((ROOT / "config" / "replay_qos.yaml").read_text())
    asked = yaml.safe_load((ROOT / "config" / "replay.yaml").read_text())["/**"]["ros__parameters"]["qos_overrides"]
    assert asked.keys() <= played.keys() == set(REMAPPINGS.values())
    for profile in played.values():
        assert profile.keys() == {"reliability", "history", "depth", "durability"}
        assert profile["reliability"] == "reliable"
        assert profile["durability"] == "volatile"


def test_the_fast_dds_profile_is_loaded_and_makes_a_large_segment(tmp_path):
    script = tmp_path / "segments.py"
    script.write_text(
        "import pathlib, rclpy\n"
        "def sizes(): return {p.name: p.stat().st_size for p in pathlib.Path('/dev/shm').glob('fast*')}\n"
        "before = sizes(); rclpy.init(); node = rclpy.create_node('camera')\n"
        "print(max(size for name, size in sizes().items() if name not in before))\n"
        "node.destroy_node(); rclpy.shutdown()\n"
    )
    profile = str(ROOT / "config" / "fastdds_large_images.xml")
    names = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
    environment = {**os.environ, **dict.fromkeys(names, profile)}
    ended = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert int(ended.stdout) >= 64 * 2**20
    assert "XML" not in ended.stderr


@pytest.mark.parametrize("name", TREES)
def test_launch_files_give_a_description_where_launch_ros_is_installed(name, tmp_path, monkeypatch):
    pytest.importorskip("launch_ros", reason="launch_ros is in no wheel: it comes with a ROS installation")
    description = runpy.run_path(str(ROOT / "launch" / name))["generate_launch_description"]()
    declared = {argument.name for argument in description.get_launch_arguments()}
    assert ARGUMENTS[name] <= declared


def test_the_launched_node_becomes_active_where_launch_ros_is_installed(peer, tmp_path):
    pytest.importorskip("launch_ros", reason="launch_ros is in no wheel: it comes with a ROS installation")
    with (tmp_path / "launch.log").open("w") as log:
        launched = subprocess.Popen(
            ["ros2", "launch", "rsd_planner", "planner.launch.py", f"model:={MODEL}", f"params_file:={CPU}"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            peer.until(lambda: peer.state() == "active", timeout_s=120)
        finally:
            launched.send_signal(signal.SIGINT)
            launched.wait(30)


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
