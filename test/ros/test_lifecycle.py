"""Transitions, over the lifecycle services of a real node."""

import threading

import pytest
from rclpy.parameter import Parameter
from ros_peer import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, MODEL

from rsd_planner.ros.worker import load_planner


def test_configure_fails_with_a_reason_and_succeeds_once_the_parameter_is_fixed(make_node, peer):
    make_node(model="/no/such/model")
    assert not peer.transition(CONFIGURE)
    assert peer.state() == "unconfigured"
    peer.until(lambda: "/no/such/model" in (peer.statuses["model"].message if "model" in peer.statuses else ""))
    assert peer.set_parameter("model", str(MODEL)).successful
    assert peer.transition(CONFIGURE)
    assert peer.state() == "inactive"
