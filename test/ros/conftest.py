"""Real DDS on a domain of this test session's own; nodes under test spin in their own thread, as in their process."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ["ROS_DOMAIN_ID"] = str(os.getpid() % 100 + 1)
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["OMP_NUM_THREADS"] = "1"  # small models are slowed down by threads that wait for each other

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from ros_peer import MODEL, MODEL_PYTHON, Peer
from ros_process import Program

from rsd_planner.ros.main import finish, spin
from rsd_planner.ros.node import PlannerNode

# A slow machine is no reason to fail: what is about age says so itself.
DEFAULTS = {
    "model": str(MODEL),
    "max_reasoning_tokens": 16,
    "cameras": ["front"],
    "camera_ids": [1],
    "max_input_age": 60.0,
    "worker": "thread",  # starts within a second
}

if MODEL_PYTHON:
    DEFAULTS.update(worker="process", model_python=MODEL_PYTHON)

MakeNode = Callable[..., PlannerNode]


@pytest.fixture
def context() -> Iterator[None]:
    rclpy.init()
    yield
    gc.collect()  # a destroyed lifecycle node stays in the graph until its state machine is collected
    rclpy.try_shutdown()


@pytest.fixture
def make_node(context: None) -> Iterator[MakeNode]:
    """Start a node with one front camera and the golden model; keyword arguments are parameters."""
    running = []

    def start(load: Callable | None = None, **parameters: object) -> PlannerNode:
        if MODEL_PYTHON and load is not None:
            pytest.skip("changes the model, which lives on another interpreter here")
        given = {**DEFAULTS, **parameters}
        overrides = [Parameter(name, value=value) for name, value in given.items()]
        arguments = {} if load is None else {"load": load}
        node = PlannerNode(parameter_overrides=overrides, **arguments)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        finished = threading.Event()
        thread = threading.Thread(target=spin, args=(executor, node, finished))
        thread.start()
        running.append((node, executor, finished, thread))
        return node

    yield start
    for node, executor, finished, thread in running:
        executor.create_task(finish, node, finished)
        thread.join()
        executor.shutdown()
        node.destroy_node()


@pytest.fixture
def peer(context: None) -> Iterator[Peer]:
    """The world around the node: camera, odometry, whoever follows the plans."""
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start programs of rsd_planner.ros by module name; what still runs at the end of the test is killed."""
    programs: list[Program] = []

    def start(module: str, *arguments: str) -> Program:
        programs.append(Program(tmp_path / f"{len(programs)}.log", module, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.end()
