"""rsd_planner: a reasoning driving planner for ROS 2, offline evaluation included."""

__version__ = "0.1.0"
