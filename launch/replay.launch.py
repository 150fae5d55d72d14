"""Play a recording through the planner, with RViz: the bag starts once the node is active, that is, loaded.

ros2 launch rsd_planner replay.launch.py bag:=/path/to/bag model:=/path/to/model
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, ExecuteProcess, IncludeLaunchDescription, RegisterEventHandler
from launch.conditions import IfCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.event_handlers import OnStateTransition

from launch import LaunchDescription

DISCOVERY_S = 3  # the player waits: what is published before it has found the node is lost


def generate_launch_description() -> LaunchDescription:
    """Arguments: bag, model, params_file, qos_file, namespace, rate, rviz, log_level."""
    share = Path(get_package_share_directory("rsd_planner"))
    config = share / "config"
    arguments = [
        DeclareLaunchArgument("bag", description="rosbag2 to play"),
        DeclareLaunchArgument("model", description="model directory"),
        DeclareLaunchArgument("params_file", default_value=str(config / "replay.yaml"), description="parameters"),
        DeclareLaunchArgument(
            "qos_file", default_value=str(config / "replay_qos.yaml"), description="QoS to play the topics with"
        ),
        DeclareLaunchArgument("namespace", default_value="", description="namespace of the node"),
        DeclareLaunchArgument("rate", default_value="1.0", description="how many times faster than recorded"),
        DeclareLaunchArgument("rviz", default_value="true", description="whether to open RViz"),
        DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error or fatal"),
    ]
    planner = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(share / "launch" / "planner.launch.py")),
        launch_arguments={
            "model": LaunchConfiguration("model"),
            "params_file": LaunchConfiguration("params_file"),
            "namespace": LaunchConfiguration("namespace"),
            "use_sim_time": "true",
            "log_level": LaunchConfiguration("log_level"),
        }.items(),
    )
    player = ExecuteProcess(
        cmd=[
            *("ros2", "bag", "play", LaunchConfiguration("bag"), "--clock"),
            *("--delay", str(DISCOVERY_S), "--rate", LaunchConfiguration("rate")),
            *("--qos-profile-overrides-path", LaunchConfiguration("qos_file")),
        ],
        output="screen",
    )
    # Once: a node that is activated again must not start a second player.
    play_when_active = RegisterEventHandler(OnStateTransition(goal_state="active", entities=[player], handle_once=True))
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        arguments=["-d", str(config / "rsd_planner.rviz")],
        parameters=[{"use_sim_time": True}],
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return LaunchDescription([*arguments, rviz, play_when_active, planner])
