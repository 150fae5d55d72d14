"""Four cameras, 1920x1080 JPEG at 10 Hz, and odometry at 100 Hz, in time: `python load_publisher.py SECONDS`.

Prints how many messages of each it has sent, as JSON.
"""

import json
import sys
import time

import cv2
import numpy as np
import rclpy
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage

CAMERAS = ("front_left", "front", "front_right", "front_tele")
ODOMETRY_NS, IMAGE_NS = 10_000_000, 100_000_000
SPEED_MPS = 10.0
PLANNER = "/rsd_planner"


def picture(seed: int) -> bytes:
    """A textured 1920x1080 JPEG of some 300 kB, as cameras make them."""
    noise = np.random.default_rng(seed).integers(0, 255, (108, 192, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.resize(noise, (1920, 1080)), [cv2.IMWRITE_JPEG_QUALITY, 75])[1].tobytes()


def main(seconds: float) -> None:
    rclpy.init()
    node = Node("load")
    qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)  # as drivers publish
    cameras = [node.create_publisher(CompressedImage, f"{PLANNER}/input/image_{name}", qos) for name in CAMERAS]
    odometry = node.create_publisher(Odometry, f"{PLANNER}/input/odometry", qos)
    images = [CompressedImage(format="jpeg", data=picture(seed)) for seed in range(len(CAMERAS))]
    message = Odometry(child_frame_id="base_link")
    message.header.frame_id = "odom"
    message.pose.pose.orientation.w = 1.0
    message.twist.twist.linear.x = SPEED_MPS
    while not all(publisher.get_subscription_count() for publisher in [*cameras, odometry]):
        time.sleep(0.05)
    time.sleep(1.0)  # both ends know of each other

    begin_ns = time.time_ns()
    for tick in range(round(seconds * 1e9) // ODOMETRY_NS):
        due_ns = begin_ns + tick * ODOMETRY_NS
        time.sleep(max(0.0, (due_ns - time.time_ns()) / 1e9))
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(time.time_ns(), 10**9)
        message.pose.pose.position.x = SPEED_MPS * (due_ns - begin_ns) / 1e9
        odometry.publish(message)
        phase = tick * ODOMETRY_NS % IMAGE_NS // ODOMETRY_NS
        if phase < len(cameras):  # one camera after the other, 10 ms apart
            images[phase].header.stamp.sec, images[phase].header.stamp.nanosec = divmod(time.time_ns(), 10**9)
            cameras[phase].publish(images[phase])
    sent = {"odometry": tick + 1, "images": sum(t % 10 < len(cameras) for t in range(tick + 1))}
    print(json.dumps({**sent, "image_bytes": len(images[0].data)}), flush=True)
    time.sleep(1.0)  # let what is under way arrive
    node.destroy_node()
    rclpy.shutdown()


if __name__ == "__main__":
    main(float(sys.argv[1]))
