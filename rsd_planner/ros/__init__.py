"""The ROS 2 side: lifecycle node, bag player and live printer. The only place that imports rclpy or ROS messages."""
