"""The node as a process of its own: fed by a bag player process, and told to stop in every state."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from lifecycle_msgs.msg import Transition
from ros_peer import CONFIGURE, MODEL, MODEL_PYTHON, STEP_NS, nanoseconds
from ros_process import children
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore

ROOT = Path(__file__).parents[2]
CARND = ROOT.parent / "shared" / "data" / "carnd_highway"
BAG = CARND if CARND.exists() else ROOT / "rsd_planner" / "demo" / "bag"  # a real recording where there is one
REMAPPINGS = ["-r", "~/input/image_front:=/camera/front/image/compressed", "-r", "~/input/odometry:=/odom"]
PARAMETERS = ["--params-file", str(ROOT / "config" / "replay.yaml"), "-p", f"model:={MODEL}"]


def stamps_in(bag: Path, topic: str) -> list[int]:
    store = get_typestore(Stores.ROS2_HUMBLE)
    with Reader(bag) as reader:
        connections = [connection for connection in reader.connections if connection.topic == topic]
        messages = [store.deserialize_cdr(data, c.msgtype) for c, _, data in reader.messages(connections=connections)]
    return [nanoseconds(message.header.stamp) for message in messages]


def test_a_bag_played_in_real_time_becomes_plans_stamped_with_image_stamps(run, peer):
    node = run("main", "--ros-args", *PARAMETERS, "-p", "autostart:=true", *REMAPPINGS)
    player = run("play_bag", str(BAG), "--clock")
    peer.until(lambda: not player.running, 90.0)
    peer.until(lambda: len(peer.paths) == len(peer.markers))
    assert player.wait() == 0, player.output
    assert node.stop(signal.SIGINT) == 0, node.output
    assert "Traceback" not in node.output
    assert "has no effect" not in node.output  # every parameter of the file is known

    images = stamps_in(BAG, "/camera/front/image/compressed")
    stamps = peer.stamps()
    possible = sum(stamp >= images[0] + 15 * STEP_NS for stamp in images)  # all but those without a full history
    assert 3 <= len(stamps) <= possible  # how many depends on the machine
    assert set(stamps) <= set(images)
    assert stamps == sorted(set(stamps))
    assert any(text.data for text in peer.texts)
    for path, markers in zip(peer.paths, peer.markers, strict=True):
        history = next(marker for marker in markers.markers if marker.ns == "ego_history")
        points = np.array([[p.pose.position.x, p.pose.position.y, p.pose.position.z] for p in path.poses])
        vehicle = np.array([history.points[-1].x, history.points[-1].y, history.points[-1].z])
        before = np.array([history.points[-2].x, history.points[-2].y, history.points[-2].z])
        assert points.shape == (64, 3)
        assert np.isfinite(points).all()
        assert np.linalg.norm(points[0] - (2 * vehicle - before)) < 0.6  # a tenth of a second on from the vehicle
        assert path.header.frame_id == "odom"


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("starting", signal.SIGINT),
        ("starting", signal.SIGTERM),
        ("unconfigured", signal.SIGINT),
        ("configuring", signal.SIGTERM),
        ("inactive", signal.SIGINT),
        ("active", signal.SIGTERM),
        pytest.param("planning", signal.SIGINT, marks=pytest.mark.jazzy),
        ("finalized", signal.SIGTERM),
    ],
)
def test_signals_end_the_node_and_its_worker_with_exit_code_0_and_no_traceback(run, peer, state, number):
    given = (f"model:={MODEL}", "cameras:=[front]", "camera_ids:=[1]", "max_input_age:=60.0")
    if MODEL_PYTHON:
        given += (f"model_python:={MODEL_PYTHON}",)
    arguments = [argument for parameter in given for argument in ("-p", parameter)]
    autostart = "true" if state in ("active", "planning") else "false"
    node = run("main", "--ros-args", *arguments, "-p", f"autostart:={autostart}")
    workers = []
    if state == "starting":
        peer.spin_for(0.3)  # somewhere in its imports
    elif state in ("active", "planning"):
        peer.until(lambda: node.says("about this model") and peer.state() == "active", 90.0)
    else:
        peer.until(lambda: peer.message("model") == "not configured")
    if state == "configuring":
        peer.begin_transition(CONFIGURE)
        peer.until(lambda: node.says("importing PyTorch"))
    elif state == "inactive":
        assert peer.transition(CONFIGURE)
    elif state == "planning":
        peer.until(peer.connected)
        peer.drive()
        peer.until(lambda: peer.go_on(0.1) is None and peer.texts)  # some words, while the rest is being decoded
    elif state == "finalized":
        assert peer.transition(Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)
    if state not in ("starting", "unconfigured", "finalized"):
        workers = children(node.pid)
        assert len(workers) == 1
    started = time.monotonic()
    assert node.stop(number) == 0, node.output
    print(f"{state}: ended within {time.monotonic() - started:.2f} s")  # on an idle machine under 2 s
    assert "Traceback" not in node.output
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_parameter_file_that_cannot_be_read_is_one_line_and_not_a_traceback(run):
    node = run("main", "--ros-args", "--params-file", "/no/such/file.yaml")
    assert node.wait() == 2
    assert "error: " in node.output
    assert "/no/such/file.yaml" in node.output
    assert "Traceback" not in node.output


@pytest.mark.jazzy
def test_a_namespaced_node_lives_in_its_namespace_and_reads_the_parameter_file(run, peer):
    node = run("main", "--ros-args", "-r", "__ns:=/car", *PARAMETERS)
    peer.until(lambda: peer.node.count_publishers("/car/rsd_planner/transition_event") == 1)
    assert list(peer.parameter_of("/car/rsd_planner", "camera_ids")) == [1]
    assert node.stop() == 0
