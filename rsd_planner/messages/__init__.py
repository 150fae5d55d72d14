"""ROS messages without ROS: read and built by field name, so that rclpy and rosbags classes both serve."""
