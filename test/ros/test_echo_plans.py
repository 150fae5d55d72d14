"""The live printer: one block per plan, reasoning and path matched by their stamp."""

import io

import pytest
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
from rclpy.time import Time
from rich.console import Console
from ros_peer import MODEL
from visualization_msgs.msg import Marker, MarkerArray

from rsd_planner.ros.echo_plans import PlanPrinter


@pytest.fixture
def printer():
    return PlanPrinter(Console(file=io.StringIO(), width=120))


def printed(printer):
    return printer._console.file.getvalue()


def path(stamp_ns, speed):
    message = Path()
    message.header.stamp = Time(nanoseconds=stamp_ns).to_msg()
    message.header.frame_id = "odom"
    for k in range(64):
        pose = PoseStamped()
        pose.pose.position.x = 0.1 * speed * (k + 1)
        message.poses.append(pose)
    return message


def markers(stamp_ns, **texts):
    stamp = Time(nanoseconds=stamp_ns).to_msg()
    message = MarkerArray()
    for namespace, text in texts.items():
        marker = Marker(ns=namespace, text=text)
        marker.header.stamp = stamp
        message.markers.append(marker)
    return message


def test_reasoning_and_path_are_matched_by_stamp_and_not_by_order(printer):
    printer.on_path(path(2_000_000_000, speed=20.0))
    printer.on_markers(markers(1_000_000_000, reasoning="Slow down\nfor the lead."))
    assert printer.printed == 0
    printer.on_markers(markers(2_000_000_000, reasoning="Keep [speed]."))
    assert printer.printed == 1
    assert "t0 2.000 s   Keep [speed]." in printed(printer)
    assert "(2.0, 0.0, 0.0) to (128.0, 0.0, 0.0) m in odom, 6.4 s, 20.0 to 20.0 m/s" in printed(printer)
    printer.on_path(path(1_000_000_000, speed=10.0))
    assert "t0 1.000 s   Slow down for the lead." in printed(printer)


def test_the_notice_about_the_model_is_printed_once(printer):
    for stamp_ns in (1, 2, 3):
        printer.on_markers(markers(stamp_ns, notice="Nearly\nrandom."))
    assert printed(printer).count("About this model: Nearly random.") == 1


def test_markers_that_are_taken_away_print_nothing(printer):
    message = MarkerArray(markers=[Marker(action=Marker.DELETEALL)])
    printer.on_markers(message)
    assert printed(printer) == ""


def test_halves_without_their_other_half_are_forgotten(printer):
    for k in range(1000):
        printer.on_path(path(k, speed=1.0))
    printer.on_markers(markers(0, reasoning="too late"))
    assert printer.printed == 0
    printer.on_markers(markers(999, reasoning="in time"))
    assert printer.printed == 1


def test_it_prints_the_plans_of_a_running_node(run, make_node, peer):
    make_node(model=str(MODEL))
    echo = run("echo_plans", "--count", "1")
    peer.activate()
    peer.until(lambda: peer.node.count_subscribers("/rsd_planner/output/path") == 2)
    peer.until(lambda: peer.drive() and peer.spin_for(0.3) is None and not echo.running)
    assert echo.wait() == 0
    assert "t0 " in echo.output
    assert "m in odom" in echo.output
    assert "nearly random" in " ".join(echo.output.split())
