"""The lifecycle node: configure acquires, activate enables, deactivate disables, cleanup releases."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter

from rsd_planner.errors import PlannerError
from rsd_planner.ros.diagnostics import Diagnostics
from rsd_planner.ros.parameters import SPECIFICATIONS, NodeParameters, ParameterServer
from rsd_planner.ros.session import PlanningSession
from rsd_planner.ros.worker import PlanningWorker, load_planner

if TYPE_CHECKING:
    from rsd_planner.planner import Planner

RELEASE_TIMEOUT_S = 2.0

Transition = Callable[["PlannerNode", LifecycleState], None]


def _transition(callback: Transition) -> Callable[[PlannerNode, LifecycleState], TransitionCallbackReturn]:
    """Turn whatever a transition raises into a logged reason and FAILURE; rclpy would swallow it."""

    @functools.wraps(callback)
    def guarded(node: PlannerNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            callback(node, state)
        except PlannerError as error:
            node.get_logger().error(f"{callback.__name__} failed: {error}")
        except Exception:
            node.get_logger().error(f"{callback.__name__} failed:\n{traceback.format_exc()}")
        else:
            return TransitionCallbackReturn.SUCCESS
        return TransitionCallbackReturn.FAILURE

    return guarded


class PlannerNode(LifecycleNode):  # type: ignore[misc]  # rclpy has no type information on every distribution
    """`rsd_planner`: camera images and odometry in, reasoning and a path out.

    Attributes:
        abandoned: Whether the worker was still busy when it had to be released.
    """

    def __init__(self, load: Callable[[NodeParameters], Planner] = load_planner, **node_arguments: Any) -> None:
        """Declare parameters and publish diagnostics; everything else waits for configure.

        Args:
            load: Makes the planner, ready to plan; called in the worker's thread.
            node_arguments: Passed on to rclpy's LifecycleNode.
        """
        super().__init__("rsd_planner", **node_arguments)
        self._load = load
        self._session: PlanningSession | None = None
        self._leaving = threading.Event()
        self.abandoned = False
        self._parameter_server = ParameterServer(self)
        for error in self._parameter_server.rejected:
            self.get_logger().error(f"{error}; it cannot be configured like this")
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = Diagnostics(self, lambda: self._session)
        self._outcome_ready = self.create_guard_condition(self._on_outcome)
        if self.get_parameter("autostart").value:
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self._autostart = self.create_timer(0.0, self._start_by_itself, clock=steady)

    def leave(self) -> None:
        """Give up a configure that is under way. Callable from any thread, the only method that is."""
        self._leaving.set()

    def finish(self) -> None:
        """Go through the shutdown transition, unless something else already has."""
        self._leaving.set()
        if self._session is not None:
            self.trigger_shutdown()

    @_transition
    def on_configure(self, _: LifecycleState) -> None:
        self._diagnostics.configure_error = ""
        try:
            self._session = self._acquire()
        except Exception as error:
            named = "" if isinstance(error, PlannerError) else f"{type(error).__name__}: "
            self._diagnostics.configure_error = f"{named}{error}"
            raise
        for sentence in self._parameter_server.unknown_overrides():
            self.get_logger().warning(sentence)

    @_transition
    def on_activate(self, state: LifecycleState) -> None:
        super().on_activate(state)
        self._configured.activate()

    @_transition
    def on_deactivate(self, state: LifecycleState) -> None:
        self._configured.deactivate()
        super().on_deactivate(state)

    @_transition
    def on_cleanup(self, _: LifecycleState) -> None:
        self._release()

    @_transition
    def on_shutdown(self, _: LifecycleState) -> None:
        self._release()

    @property
    def _configured(self) -> PlanningSession:
        assert self._session is not None
        return self._session

    def _acquire(self) -> PlanningSession:
        parameters = self._parameter_server.read()
        self.get_logger().info(f"loading {parameters.model}")
        worker = PlanningWorker(lambda: self._load(parameters), self._outcome_ready.trigger)
        try:
            model = worker.wait_until_loaded(self._leaving.is_set)
            if model is None:
                raise PlannerError("told to leave while the model was loading")
            session = PlanningSession(self, parameters, worker, model)
        except Exception:
            self.abandoned = not worker.close(RELEASE_TIMEOUT_S)
            raise
        self.get_logger().info(
            f"{model.name}, {model.parameters:,} parameters, on {model.device} in {model.dtype}: "
            f"cameras {', '.join(parameters.cameras)}"
        )
        if model.notice:
            self.get_logger().warning(f"about this model: {model.notice}")
        if not session.publishers.typed:
            self.get_logger().info("rsd_planner_msgs is not installed: the reasoning goes out as text only")
        return session

    def _release(self) -> None:
        if self._session is None:
            return
        session, self._session = self._session, None
        self.abandoned = not session.close(RELEASE_TIMEOUT_S)
        if self.abandoned:
            self.get_logger().warning("the model is still busy: it is released when it is done")

    def _start_by_itself(self) -> None:
        self.destroy_timer(self._autostart)
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    def _on_outcome(self) -> None:
        if self._session is not None:
            self._session.take_outcome()

    def _on_set_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        names = [parameter.name for parameter in parameters if parameter.name in SPECIFICATIONS]
        if names and self._session is not None:
            return SetParametersResult(
                successful=False, reason=f"{', '.join(names)}: read when the node is configured; clean it up first"
            )
        self._parameter_server.accepted(names)
        return SetParametersResult(successful=True)
