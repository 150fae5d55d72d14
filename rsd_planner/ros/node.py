"""The lifecycle node: configure acquires, activate enables, deactivate disables, cleanup releases.

All of it runs in one thread, that of a single-threaded executor. While the model is loading, configure lets that
executor go on with everything else (services, diagnostics), so that the node answers in the meantime.
"""

from __future__ import annotations

import functools
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter

from rsd_planner.errors import PlannerError
from rsd_planner.model_info import ModelInfo
from rsd_planner.ros.diagnostics import Diagnostics
from rsd_planner.ros.parameters import SPECIFICATIONS, ParameterServer
from rsd_planner.ros.process import spin_once
from rsd_planner.ros.session import PlanningSession
from rsd_planner.worker.client import PlanningWorker
from rsd_planner.worker.runners import ProcessRunner, ThreadRunner
from rsd_planner.worker.server import Load, load_planner
from rsd_planner.worker.wire import UnexpectedError

RELEASE_TIMEOUT_S = 1.0
WAIT_S = 0.05  # for something to do, while the model is loading

Transition = Callable[["PlannerNode", LifecycleState], None]


def _transition(callback: Transition) -> Callable[[PlannerNode, LifecycleState], TransitionCallbackReturn]:
    """Turn what a transition raises into a logged reason; rclpy would swallow it.

    An error that is explained to the user ends in the state from before, any other one in `on_error`.
    """

    @functools.wraps(callback)
    def guarded(node: PlannerNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            callback(node, state)
        except PlannerError as error:
            node.get_logger().error(f"{callback.__name__} failed: {error}")
            return TransitionCallbackReturn.FAILURE
        except Exception:
            node.get_logger().error(f"{callback.__name__} failed:\n{traceback.format_exc()}")
            return TransitionCallbackReturn.ERROR
        return TransitionCallbackReturn.SUCCESS

    return guarded


class PlannerNode(LifecycleNodeMixin, Node):  # type: ignore[misc]  # rclpy is typed on some distributions only
    """`rsd_planner`: camera images and odometry in, reasoning and a path out.

    Attributes:
        abandoned: Whether the worker was still busy when it had to be released.
    """

    def __init__(self, load: Load = load_planner, **node_arguments: Any) -> None:
        """Declare parameters and publish diagnostics; everything else waits for configure.

        Args:
            load: Makes the planner, ready to plan, where the worker is a thread.
            node_arguments: Passed on to rclpy's Node.
        """
        Node.__init__(self, "rsd_planner", **node_arguments)
        # Reentrant, so that services are answered in the middle of a transition.
        transitions = ReentrantCallbackGroup()
        LifecycleNodeMixin.__init__(self, callback_group=transitions)
        for service in self.services:
            if service.srv_type is ChangeState:
                service.callback = functools.partial(self._on_change_state, service.callback)
        self._load = load
        self._session: PlanningSession | None = None
        self._configuring = False
        self._leaving = threading.Event()
        self.abandoned = False
        self._parameter_server = ParameterServer(self)
        for error in self._parameter_server.rejected:
            self.get_logger().error(f"{error}; it cannot be configured like this")
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = Diagnostics(self, lambda: self._session)
        self._worker_news = self.create_guard_condition(self._on_worker_news)
        if self.get_parameter("autostart").value:
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            self._autostart = self.create_timer(0.0, self._start_by_itself, transitions, clock=steady)

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
        self._configuring = True
        try:
            self._session = self._acquire()
        except PlannerError as error:
            self._diagnostics.configure_error = str(error)
            raise
        except Exception as error:  # all that was acquired is released: it may be tried again
            trace = error.trace if isinstance(error, UnexpectedError) else traceback.format_exc()
            self.get_logger().error(f"configuring failed:\n{trace}")
            named = str(error) if isinstance(error, UnexpectedError) else f"{type(error).__name__}: {error}"
            self._diagnostics.configure_error = named
            raise PlannerError(named) from error
        finally:
            self._configuring = False
            self._diagnostics.configuring = ""
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

    @_transition
    def on_error(self, _: LifecycleState) -> None:
        self._release()

    @property
    def _configured(self) -> PlanningSession:
        assert self._session is not None
        return self._session

    def _acquire(self) -> PlanningSession:
        parameters = self._parameter_server.read()
        runner = ThreadRunner(self._load) if parameters.worker == "thread" else ProcessRunner(parameters.model_python)
        worker = PlanningWorker(runner, parameters.load_request, self._worker_news.trigger)
        try:
            model = self._wait_until_loaded(worker)
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

    def _wait_until_loaded(self, worker: PlanningWorker) -> ModelInfo:
        """Wait for the model, and let the executor go on with everything else meanwhile."""
        started, progress = time.monotonic(), ""
        while worker.model is None:
            if self._leaving.is_set():
                raise PlannerError("told to leave while the model was loading")
            if worker.progress != progress:
                progress = worker.progress
                self.get_logger().info(progress)
            self._diagnostics.configuring = f"{progress}, {time.monotonic() - started:.0f} s"
            if self.executor is None:
                time.sleep(WAIT_S)
            else:
                spin_once(self.executor, self, WAIT_S)
            worker.update()
            worker.raise_failure()
        return worker.model

    def _release(self) -> None:
        if self._session is None:
            return
        session, self._session = self._session, None
        self.abandoned = not session.close(RELEASE_TIMEOUT_S)
        if self.abandoned:
            self.get_logger().warning("the model is still busy: it is released when it is done")

    def _on_change_state(self, change_state: Callable[..., Any], request: Any, response: Any) -> Any:
        """Refuse a transition that is not possible; before Kilted rclpy raises there and leaves the caller waiting."""
        try:
            return change_state(request, response)
        except Exception as error:
            self.get_logger().error(f"transition {request.transition.id or request.transition.label!r}: {error}")
            response.success = False
            return response

    def _start_by_itself(self) -> None:
        self.destroy_timer(self._autostart)
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS and not self._leaving.is_set():
            self.trigger_activate()

    def _on_worker_news(self) -> None:
        if self._session is not None:
            self._session.on_worker_news()

    def _on_set_parameters(self, parameters: list[Parameter]) -> SetParametersResult:
        names = [parameter.name for parameter in parameters if parameter.name in SPECIFICATIONS]
        if names and (self._session is not None or self._configuring):
            return SetParametersResult(
                successful=False, reason=f"{', '.join(names)}: read when the node is configured; clean it up first"
            )
        self._parameter_server.accepted(names)
        return SetParametersResult(successful=True)
