"""Start the planner as a lifecycle node: configure it, and activate it once it is inactive, that is, loaded.

ros2 launch rsd_planner planner.launch.py model:=/path/to/model params_file:=my_planner.yaml
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import DeclareLaunchArgument, EmitEvent, RegisterEventHandler
from launch.event_handlers import OnProcessStart
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from lifecycle_msgs.msg import Transition

from launch import LaunchDescription

CAMERAS = ["front_left", "front", "front_right", "front_tele"]
REMAPPINGS = [
    *((f"~/input/image_{camera}", f"/camera/{camera}/image/compressed") for camera in CAMERAS),
    ("~/input/odometry", "/odom"),
]


def generate_launch_description() -> LaunchDescription:
    """Arguments: model, params_file, namespace, use_sim_time, log_level."""
    config = Path(get_package_share_directory("rsd_planner")) / "config"
    arguments = [
        DeclareLaunchArgument("model", description="model directory"),
        DeclareLaunchArgument("params_file", default_value=str(config / "planner.yaml"), description="parameters"),
        DeclareLaunchArgument("namespace", default_value="", description="namespace of the node"),
        DeclareLaunchArgument("use_sim_time", default_value="false", description="follow /clock"),
        DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error or fatal"),
    ]
    planner = LifecycleNode(
        package="rsd_planner",
        executable="rsd_planner_node",
        name="rsd_planner",
        namespace=LaunchConfiguration("namespace"),
        parameters=[  # the later one wins: a file that says something about use_sim_time has its way
            {"use_sim_time": ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool)},
            LaunchConfiguration("params_file"),
            {"model": ParameterValue(LaunchConfiguration("model"), value_type=str)},
        ],
        remappings=REMAPPINGS,
        ros_arguments=["--log-level", LaunchConfiguration("log_level")],
        output="screen",
    )
    configure = _transition(planner, Transition.TRANSITION_CONFIGURE)
    activate = _transition(planner, Transition.TRANSITION_ACTIVATE)
    configure_on_start = RegisterEventHandler(OnProcessStart(target_action=planner, on_start=[configure]))
    # Only on the way up: a deactivated node is inactive too, and is to stay so.
    activate_when_configured = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=planner, start_state="configuring", goal_state="inactive", entities=[activate]
        )
    )
    return LaunchDescription([*arguments, configure_on_start, activate_when_configured, planner])


def _transition(node: LifecycleNode, transition_id: int) -> EmitEvent:
    return EmitEvent(event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition_id))
