"""From messages to plans on real DDS: what is published, and what is withheld for which reason."""

import re
import shutil
import time
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from planners import changed
from rclpy.qos import ReliabilityPolicy
from ros_peer import CONFIGURE, DEACTIVATE, MODEL, PLANNER, SPEED_MPS, STEP_NS, jpeg, nanoseconds, position_at
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String
from visualization_msgs.msg import Marker


@pytest.mark.jazzy
def test_a_plan_goes_out_on_every_output_stamped_t0(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps() and len(peer.markers) == len(peer.paths))

    path = peer.paths[-1]
    assert nanoseconds(path.header.stamp) == t0
    assert path.header.frame_id == "odom"
    assert [nanoseconds(pose.header.stamp) for pose in path.poses] == [t0 + STEP_NS * (k + 1) for k in range(64)]
    assert path.poses[0].pose.position.x == pytest.approx(position_at(t0) + 0.1 * SPEED_MPS, abs=0.1)
    assert path.poses[0].pose.position.y == pytest.approx(0.0, abs=0.1)
    for pose in path.poses:
        q = pose.pose.orientation
        assert np.linalg.norm([q.x, q.y, q.z, q.w]) == pytest.approx(1.0)

    markers = {marker.ns: marker for marker in peer.markers[-1].markers}
    assert {nanoseconds(marker.header.stamp) for marker in markers.values()} == {t0}
    assert {marker.header.frame_id for marker in markers.values()} == {"odom"}
    peer.until(lambda: markers["reasoning"].text.split() == peer.texts[-1].data.split())
    assert "nearly random" in " ".join(markers["notice"].text.split())
    assert markers["ego_history"].points[-1].x == pytest.approx(position_at(t0), abs=1e-6)


def test_in_the_vehicle_frame_the_path_starts_at_the_origin_of_odometrys_child_frame(make_node, peer):
    make_node(output_frame="base_link")
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps() and len(peer.markers) == len(peer.paths))
    assert peer.paths[-1].header.frame_id == "vehicle"
    assert peer.paths[-1].poses[0].pose.position.x == pytest.approx(0.1 * SPEED_MPS, abs=0.1)
    history = next(marker for marker in peer.markers[-1].markers if marker.ns == "ego_history")
    assert history.header.frame_id == "vehicle"
    assert history.points[-1].x == pytest.approx(0.0)


def test_every_t0_is_an_image_stamp_planned_on_once_and_never_again(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    peer.spin_for(1.0)
    for step in range(10):  # odometry alone is no reason to plan
        peer.publish_odometry(t0 + step * STEP_NS // 10)
    peer.spin_for(1.0)
    stamps = peer.stamps()
    assert stamps == sorted(set(stamps))
    assert {(t0 - stamp) % STEP_NS for stamp in stamps} == {0}
    assert stamps[-1] == t0


def test_every_reference_frame_is_accounted_for(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    peer.until(lambda: int(peer.value("inference", "plans") or 0) == len(peer.paths))
    status = peer.statuses["inference"]
    counts = {value.key: int(value.value) for value in status.values if value.key.startswith("withheld")}
    passed_over = int(peer.value("inference", "passed over while busy"))
    assert sum(counts.values()) + passed_over + len(peer.paths) == int(peer.value("inputs", "camera front: received"))
    assert counts["withheld: history_not_covered"] > 0  # the first 1.5 s


@pytest.mark.parametrize(("stopped", "reason"), [("odometry", "no_odometry"), ("images", "no_images")])
def test_when_an_input_stops_plans_stop_and_diagnostics_say_which(make_node, peer, stopped, reason):
    make_node(max_input_age=3.0)
    peer.activate()
    peer.drive()
    peer.until(lambda: peer.go_on(0.3) is None and peer.paths)
    peer.until(lambda: peer.go_on(0.3, **{stopped: False}) is None and peer.message("inputs").startswith(reason))
    topic = f"{PLANNER}/input/{'odometry' if stopped == 'odometry' else 'image_front'}"
    assert topic in peer.message("inputs")
    assert peer.statuses["inputs"].level == b"\x02"
    assert int(peer.value("inference", f"withheld: {reason}")) == 1
    plans = len(peer.paths)
    peer.go_on(1.0, **{stopped: False})
    assert len(peer.paths) == plans
    peer.until(lambda: peer.go_on(0.3) is None and len(peer.paths) > plans)
    peer.until(lambda: peer.message("inputs") == "all inputs arrive")


def test_a_camera_that_never_sends_is_waited_for_by_name(make_node, peer):
    make_node(cameras=["front", "front_tele"], camera_ids=[1, 6])
    peer.activate()
    peer.drive()
    peer.until(lambda: peer.message("inputs").startswith("waiting for front_tele: no publisher"))
    assert not peer.paths


def test_cameras_out_of_sync_are_withheld_and_said_by_how_much(make_node, peer):
    make_node(cameras=["front", "front_tele"], camera_ids=[1, 6], max_input_age=1.0)
    tele = peer.node.create_publisher(CompressedImage, f"{PLANNER}/input/image_front_tele", 100)
    peer.activate()
    peer.until(lambda: tele.get_subscription_count() == 1)

    def one_more():
        stamp_ns = peer.drive(0.1)
        tele.publish(peer.image(stamp_ns + 50 * STEP_NS))
        peer.spin_for(0.1)
        return peer.message("inputs").startswith("cameras_out_of_sync")

    peer.until(one_more)
    found = re.search(r"camera 6 is \+(\d\.\d{3}) s off", peer.message("inputs"))
    assert found
    assert 4.0 < float(found[1]) <= 5.0  # less where a frame of the other camera has come since
    assert not peer.paths


@pytest.mark.jazzy
def test_a_recording_without_simulated_time_is_stale_and_the_message_says_what_to_set(make_node, peer):
    make_node(max_input_age=1.0)
    peer.activate()
    peer.drive(to_ns=10**18)
    peer.until(lambda: peer.message("inputs").startswith("stale"))
    assert "set use_sim_time and play it with --clock" in peer.message("inputs")
    assert not peer.paths


def test_simulated_time_without_a_clock_says_so(make_node, peer):
    make_node(use_sim_time=True, max_input_age=1.0)
    peer.activate()
    peer.drive()
    peer.until(lambda: peer.message("inputs").startswith("no_clock"))
    assert not peer.paths


@pytest.mark.jazzy
def test_a_truncated_image_is_withheld_and_the_next_good_ones_are_planned_on(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    bad = t0 + STEP_NS
    peer.publish_odometry(bad)
    peer.publish_image(bad, jpeg()[:500])
    peer.until(lambda: peer.value("inference", "withheld: undecodable_image") == "1")
    assert f"frame at {bad} ns" in peer.value("inference", "last withheld")
    newest = peer.drive(to_ns=t0 + 10 * STEP_NS)
    peer.until(lambda: newest in peer.stamps())
    assert bad not in peer.stamps()


def test_odometry_that_is_not_finite_is_refused_and_counted(make_node, peer):
    make_node()
    peer.activate()
    peer.publish_odometry(peer.now_ns, x=float("nan"))
    peer.until(lambda: peer.value("inputs", "odometry: rejected") == "1")
    assert "finite" in peer.value("inputs", "odometry: last error")


def test_a_model_that_raises_is_an_error_in_diagnostics_and_the_next_frame_is_planned_on(make_node, peer):
    def fail(plan, observation):
        if observation.stamp_ns == peer.now_ns:
            raise RuntimeError("device lost")
        return plan(observation)

    make_node(changed(fail))
    peer.activate()
    peer.drive()
    peer.until(lambda: peer.value("inference", "withheld: internal_error") == "1")
    assert "device lost" in peer.value("inference", "last withheld")
    assert peer.statuses["inference"].level == b"\x02"
    failed = peer.now_ns
    after = failed + STEP_NS
    peer.publish_odometry(after)
    peer.publish_image(after)
    peer.until(lambda: after in peer.stamps())
    assert failed not in peer.stamps()


def test_a_plan_that_fails_the_checks_is_withheld_by_name(make_node, peer):
    def far_away(plan, observation):
        found = plan(observation)
        return replace(found, positions=found.positions + np.array([30.0, 0.0, 0.0]))

    make_node(changed(far_away))
    peer.activate()
    peer.drive()
    peer.until(lambda: int(peer.value("inference", "withheld: start") or 0) > 0)
    assert "the first waypoint is" in peer.value("inference", "last withheld")
    assert not peer.paths


@pytest.mark.jazzy
def test_when_a_bag_loops_plans_go_on_with_the_stamps_of_the_new_round(make_node, peer):
    make_node()
    peer.activate()
    first = peer.drive()
    peer.until(lambda: first in peer.stamps())
    again = first - 30 * 10**9
    peer.drive(to_ns=again)
    peer.until(lambda: again in peer.stamps())
    peer.until(lambda: int(peer.value("inputs", "resets") or 0) >= 1)


def test_a_route_text_that_the_model_does_not_take_is_ignored_and_diagnostics_say_so(make_node, peer):
    make_node()
    peer.activate()
    route = peer.node.create_publisher(String, f"{PLANNER}/input/nav_text", 1)
    peer.until(lambda: route.get_subscription_count() == 1)
    route.publish(String(data="Turn left in 30 m"))
    peer.until(lambda: peer.value("inputs", "route text") == "Turn left in 30 m (ignored: Alpamayo R1 takes none)")
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())


@pytest.mark.jazzy
def test_raw_images_are_planned_on(make_node, peer):
    make_node(image_transport="raw")
    peer.node.destroy_publisher(peer.images)  # one topic, one type
    images = peer.images = peer.node.create_publisher(Image, f"{PLANNER}/input/image_front", 100)
    peer.activate()

    def publish(stamp_ns):
        message = Image(height=270, width=480, encoding="bgr8", step=3 * 480, data=bytes(270 * 480 * 3))
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
        images.publish(message)

    peer.publish_image = publish
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())


@pytest.mark.jazzy
def test_reliability_of_an_input_can_be_asked_for_by_topic(make_node, peer):
    topic = f"{PLANNER}/input/image_front"
    make_node(**{f"qos_overrides.{topic}.subscription.reliability": "reliable"})
    peer.activate()
    (image,) = peer.node.get_subscriptions_info_by_topic(topic)
    (odometry,) = peer.node.get_subscriptions_info_by_topic(f"{PLANNER}/input/odometry")
    assert image.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    assert odometry.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT


def test_a_reliability_that_does_not_exist_fails_configure_with_the_parameters_name(make_node, peer):
    name = f"qos_overrides.{PLANNER}/input/image_front.subscription"
    make_node(**{f"{name}.reliability": "very"})
    assert not peer.transition(1)
    peer.until(lambda: name in peer.message("model"))
    assert "expected" in peer.message("model")


def test_without_its_message_package_the_reasoning_goes_out_as_text_and_diagnostics_say_so(make_node, peer):
    installed = find_spec("rsd_planner_msgs") is not None
    make_node()
    peer.activate()
    peer.until(lambda: peer.value("model", "typed reasoning") is not None)
    assert peer.value("model", "typed reasoning") == ("published" if installed else "rsd_planner_msgs is not installed")
    assert peer.node.count_publishers(f"{PLANNER}/output/reasoning") == int(installed)


def test_the_markers_are_taken_away_on_deactivate(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps() and len(peer.markers) == len(peer.paths))
    assert peer.transition(DEACTIVATE)
    peer.until(lambda: [marker.action for marker in peer.markers[-1].markers] == [Marker.DELETEALL])
    peer.drive()
    peer.spin_for(0.5)
    assert peer.markers[-1].markers[0].action == Marker.DELETEALL


def test_markers_outlive_the_time_to_the_next_plan(make_node, peer):
    make_node()
    peer.activate()
    begun = time.time_ns()
    for t0 in (peer.drive(to_ns=begun + k * 20 * STEP_NS) for k in range(3)):
        peer.until(lambda t0=t0: t0 in peer.stamps())
    peer.until(lambda: len(peer.markers) == len(peer.paths))
    lifetimes = {nanoseconds(marker.lifetime) for marker in peer.markers[-1].markers}
    periods = np.diff(peer.stamps())[-5:]
    assert lifetimes == {min(max(3 * int(np.median(periods)), 10**9), 10**10)}


@pytest.mark.skipif(find_spec("autoware_planning_msgs") is not None, reason="autoware_planning_msgs is installed")
def test_a_trajectory_without_its_message_package_fails_configure_and_says_so(make_node, peer):
    make_node(publish_trajectory=True)
    assert not peer.transition(CONFIGURE)
    peer.until(lambda: "parameter 'publish_trajectory': found true" in peer.message("model"))
    assert "message type autoware_planning_msgs/msg/Trajectory is not installed" in peer.message("model")
    assert peer.set_parameter("publish_trajectory", False).successful
    assert peer.transition(CONFIGURE)


def test_a_trajectory_goes_out_beside_the_path(make_node, peer):
    messages = pytest.importorskip("autoware_planning_msgs.msg", reason="autoware_planning_msgs is not built here")
    received = []
    peer.node.create_subscription(messages.Trajectory, f"{PLANNER}/output/trajectory", received.append, 10)
    make_node(publish_trajectory=True)
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: received and t0 in peer.stamps() and nanoseconds(received[-1].header.stamp) == t0)
    points, poses = received[-1].points, peer.paths[-1].poses
    assert received[-1].header.frame_id == "odom"
    assert [nanoseconds(point.time_from_start) for point in points] == [STEP_NS * k for k in range(65)]
    assert points[0].pose.position.x == pytest.approx(position_at(t0), abs=1e-6)
    assert [point.pose.position.x for point in points[1:]] == [pose.pose.position.x for pose in poses]
    assert points[0].longitudinal_velocity_mps == pytest.approx(SPEED_MPS, abs=0.5)


def test_the_typed_reasoning_belongs_to_the_path_of_the_same_stamp(make_node, peer):
    messages = pytest.importorskip("rsd_planner_msgs.msg", reason="rsd_planner_msgs is not built in this environment")
    received = []

    def keep_whole_ones(message):
        if message.complete:
            received.append(message)

    peer.node.create_subscription(messages.Reasoning, f"{PLANNER}/output/reasoning", keep_whole_ones, 10)
    make_node(memory_ticks=0)
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: received and t0 in peer.stamps() and nanoseconds(received[-1].header.stamp) == t0)
    reasoning = received[-1]
    assert reasoning.header.frame_id == "odom"
    peer.until(lambda: reasoning.text == peer.texts[-1].data)
    assert reasoning.sequence == len(peer.paths)
    assert reasoning.finish_reason in ("stop", "max_tokens")
    assert 0 < reasoning.num_tokens <= 18  # 16 and the two that close them
    assert reasoning.mean_accepted_length == 1.0  # one token at a time
    assert reasoning.routine_share == 0.0
    assert 0.0 < reasoning.inference_time <= reasoning.latency


def test_what_was_said_before_is_guessed_and_diagnostics_say_how_often(make_node, peer):
    make_node()
    peer.activate()
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
    t0 = peer.drive(0.1, to_ns=t0 + STEP_NS)  # nothing has changed but the time
    peer.until(lambda: t0 in peer.stamps())
    peer.until(lambda: float(peer.value("model", "routine share") or 0) > 0)
    assert peer.value("model", "draft") == "none"
    assert float(peer.value("model", "verify passes per plan")) < 15  # as many as it takes alone
    assert peer.value("model", "mean accepted length") is not None


def test_a_draft_that_does_not_fit_is_refused_or_left_aside_and_diagnostics_say_why(make_node, peer, tmp_path):
    for part in ("checkpoint", "processor"):
        (tmp_path / part).symlink_to(MODEL / part)
    shutil.copytree(MODEL.parent / "dflash", tmp_path / "draft")
    make_node(model=str(tmp_path))
    assert not peer.transition(CONFIGURE)
    peer.until(lambda: "field rope is missing" in peer.message("model"))
    assert peer.set_parameter("allow_plain_decoding", True).successful
    peer.activate()
    peer.until(lambda: peer.value("model", "draft not used") is not None)
    assert "field rope is missing" in peer.value("model", "draft not used")
    assert "without a draft" in peer.message("model")
    t0 = peer.drive()
    peer.until(lambda: t0 in peer.stamps())
