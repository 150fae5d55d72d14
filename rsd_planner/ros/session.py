"""From configure to cleanup: inputs become observations, observations become plans, plans are published or withheld.

Everything here runs in the executor's one thread; only the model runs elsewhere (rsd_planner/worker/).
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from rclpy.clock import JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode
from std_srvs.srv import Trigger

from rsd_planner.errors import ImageError, ModelOutputError, PlannerError, WorkerError
from rsd_planner.plan import WAYPOINTS
from rsd_planner.plan_checks import withhold_reason
from rsd_planner.ros.inputs import Inputs
from rsd_planner.ros.parameters import NodeParameters
from rsd_planner.ros.plan_statistics import PlanStatistics, Withheld
from rsd_planner.ros.publishers import PlanPublishers
from rsd_planner.ros.stream import describe_troubles
from rsd_planner.scene.observation import STEP_NS
from rsd_planner.scene.scene import Skip
from rsd_planner.worker.client import Job, Outcome, PlanningWorker
from rsd_planner.worker.wire import UnexpectedError

if TYPE_CHECKING:
    from rsd_planner.model_info import ModelInfo

LOG_PERIOD_S = 5.0
HISTORY_S = 1.5  # of odometry that a plan needs
HORIZON_S = WAYPOINTS * STEP_NS / 1e9

_FAILURES = {  # the most special first
    ImageError: "undecodable_image",
    ModelOutputError: "model_output",
    WorkerError: "worker_lost",
    PlannerError: "planner_error",
}


class PlanningSession:
    """What one configuration of the node acquired: inputs, worker and outputs, and the way of a frame through them.

    Every frame of the reference camera is a chance for a plan. It ends published, or counted under the reason why
    not. A t0 is planned on once, and only the newest one: while the worker is busy nothing queues up.
    """

    def __init__(
        self, node: LifecycleNode, parameters: NodeParameters, worker: PlanningWorker, model: ModelInfo
    ) -> None:
        """Create subscriptions and publishers.

        Raises:
            ParameterError: A QoS override that does not exist.
        """
        self._node = node
        self._logger = node.get_logger()
        self._max_input_age_s = parameters.max_input_age
        self.worker = worker
        self.parameters = parameters
        self.model = model
        self.statistics = PlanStatistics()
        self.active = False
        self.stalled: Withheld | None = None  # why no plan can be made at present
        self._generation = 0
        self._sequence = 0  # of the newest observation that was planned on
        self._last_t0_ns: int | None = None
        self._waiting = False  # a reference frame has come for which there is no plan yet
        self._last_skip: Withheld | None = None
        self._idle_since = time.monotonic()
        self._last_log: tuple[str, float] = ("", 0.0)
        self._submitted_ns = 0  # when the observation under way was handed over, by the node's clock
        self._submitting_s = 0.0  # what it took to choose and hand over the observation under way
        self._lost = ""  # why there is no worker, as last logged
        with ExitStack() as resources:
            self.publishers = PlanPublishers(node, parameters, model.notice)
            resources.callback(self.publishers.close)
            self.inputs = Inputs(node, parameters, self._on_data)
            resources.callback(self.inputs.close)
            threshold = JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=True)
            jumps = node.get_clock().create_jump_callback(threshold, post_callback=self._on_clock_jump)
            resources.callback(jumps.unregister)
            resources.callback(node.destroy_service, node.create_service(Trigger, "~/reset", self._on_reset))
            self._resources = resources.pop_all()
        self._scene_resets = self.inputs.scene.resets

    def activate(self) -> None:
        """Plan on what arrives from now on."""
        self._forget_plans()
        self.active = True

    def deactivate(self) -> None:
        """Stop planning; what is under way will not be published. Inputs are still taken in."""
        if self.active:
            self.publishers.clear_markers()
        self.active = False
        self._forget_plans()

    def reset(self) -> None:
        """Forget everything seen and everything under way."""
        self.inputs.scene.clear()
        self._follow_scene()

    def close(self, timeout_s: float) -> bool:
        """Release everything; False if the worker is still busy after `timeout_s`."""
        self.deactivate()
        self._resources.close()
        return self.worker.close(timeout_s)

    def on_worker_news(self) -> None:
        """Publish or withhold what the worker has made, and give it the newest observation."""
        outcome = self.worker.update()
        partial = self.worker.take_partial()
        if partial is not None and partial.job.generation == self._generation:
            self.publishers.publish_partial(partial)
        if outcome is not None:
            self._take(outcome)
        self._look_after_worker()
        self._plan_newest()

    def watch(self) -> None:
        """Find out whether plans have stopped for want of inputs or of a worker; called about once a second."""
        self._look_after_worker()
        idle_s = time.monotonic() - self._idle_since
        if not self.active or self.worker.busy_s is not None or idle_s <= self._max_input_age_s:
            return
        if self.worker.ready:
            found = self._explain_silence() or self._last_skip or Withheld("no_images", "nothing new to plan on")
        else:
            found = self._worker_lost()
        if self.stalled is None or self.stalled.reason != found.reason:
            self._withhold(found)
        self.stalled = found
        self._log(found)

    def _take(self, outcome: Outcome) -> None:
        if outcome.job.generation != self._generation:
            self.statistics.outdated += 1
            return
        withheld = self._publish(outcome)
        if withheld is not None:
            self._withhold(withheld)

    def _look_after_worker(self) -> None:
        """Have a worker that has died started again."""
        if self.worker.lost and self.worker.lost != self._lost:
            self._logger.error(f"{self.worker.lost}; {self.worker.progress}")
        elif self._lost and not self.worker.lost:
            self._logger.info("the worker is back")
        self._lost = self.worker.lost
        self.worker.revive()

    def _worker_lost(self) -> Withheld:
        return Withheld("worker_lost", f"{self.worker.lost}; {self.worker.progress}")

    def _on_data(self, reference: bool) -> None:
        if self.inputs.scene.resets != self._scene_resets:
            self._logger.warning("time went back or the odometry changed: starting anew")
            self._follow_scene()
        if reference:
            if self._waiting and self.active:
                self._count_passed_over()
            self._waiting = True
        self._plan_newest()

    def _plan_newest(self) -> None:
        """Hand the newest observation to the worker, once per t0."""
        began = time.monotonic()
        if not self.active or not self._waiting or self.worker.busy_s is not None:
            return
        if not self.worker.ready:
            self._last_skip = self._worker_lost()
            return
        observed = self.inputs.scene.observe(self.inputs.route if self.model.takes_route else None)
        if isinstance(observed, Skip):
            self._last_skip = Withheld(observed.reason.value, observed.detail)
            return
        if self._last_t0_ns is not None and observed.stamp_ns <= self._last_t0_ns:
            self._last_skip = self._explain_delay()
            return
        self._waiting = False
        self._last_t0_ns = observed.stamp_ns
        out_of_date = self._compare_with_clock(observed.stamp_ns)
        if out_of_date is not None:
            self._last_skip = self.stalled = out_of_date
            self._withhold(out_of_date)
            return
        if self.stalled is not None:
            self._logger.info(f"planning again (was held up by {self.stalled.reason})")
            self.stalled = None
        self._last_skip = None
        self._idle_since = time.monotonic()
        self._sequence += 1
        self._submitted_ns = self.now_ns()
        self.worker.submit(
            Job(observed, self._sequence, self._generation, self.inputs.odometry_frame_id, self.inputs.vehicle_frame_id)
        )
        self._submitting_s = time.monotonic() - began

    def _publish(self, outcome: Outcome) -> Withheld | None:
        if isinstance(outcome.result, Exception):
            return self._describe_failure(outcome.result)
        plan = replace(outcome.result, sequence=outcome.job.sequence)
        refused = withhold_reason(plan)
        if refused is not None:
            reason, _, detail = refused.partition(": ")
            return Withheld(reason.replace(" ", "_"), detail)
        now_ns = self.now_ns()
        latency_s = (now_ns - plan.stamp_ns) / 1e9
        planning_s = (now_ns - self._submitted_ns) / 1e9
        if planning_s >= HORIZON_S:
            return Withheld("late", f"planning took {planning_s:.3f} s, expected less than the path's {HORIZON_S:g} s")
        began = time.monotonic()
        self.publishers.publish(plan, outcome.job, outcome.seconds, latency_s)
        publishing_s = time.monotonic() - began
        overhead_s = self._submitting_s + outcome.round_trip_s - outcome.seconds + publishing_s
        self.statistics.published(plan, outcome.seconds, latency_s, overhead_s)
        return None

    def _describe_failure(self, error: Exception) -> Withheld:
        if isinstance(error, UnexpectedError):
            self._logger.error(f"the model failed:\n{error.trace}")
        for kind, reason in _FAILURES.items():
            if isinstance(error, kind):
                return Withheld(reason, str(error))
        return Withheld("internal_error", str(error))

    def _compare_with_clock(self, t0_ns: int) -> Withheld | None:
        now_ns = self.now_ns()
        age_s = (now_ns - t0_ns) / 1e9
        if abs(age_s) <= self._max_input_age_s:
            return None
        simulated = self._node.get_parameter("use_sim_time").value
        if simulated and now_ns == 0:
            return Withheld("no_clock", "use_sim_time is set but nothing arrives on /clock: play the bag with --clock")
        hint = "" if simulated else "; for a recording set use_sim_time and play it with --clock"
        if age_s > 0:
            return Withheld("stale", f"t0 is {age_s:.3f} s old, expected at most {self._max_input_age_s:g} s{hint}")
        return Withheld(
            "ahead_of_clock", f"t0 is {-age_s:.3f} s in the future, expected at most {self._max_input_age_s:g} s{hint}"
        )

    def _explain_silence(self) -> Withheld | None:
        silent = self.inputs.troubles(self._max_input_age_s)
        if not silent:
            return None
        reason = "no_odometry" if list(silent) == ["odometry"] else "no_images"
        return Withheld(reason, describe_troubles(silent))

    def _explain_delay(self) -> Withheld:
        """Why the newest reference frame cannot be planned on although an older one could."""
        reference = self.inputs.cameras[self.parameters.reference_camera]
        newest_ns = {name: stream.newest_ns or 0 for name, stream in self.inputs.cameras.items()}
        behind_s = {name: ((reference.newest_ns or 0) - stamp_ns) / 1e9 for name, stamp_ns in newest_ns.items()}
        odometry_behind_s = ((reference.newest_ns or 0) - (self.inputs.odometry.newest_ns or 0)) / 1e9
        slowest = max(behind_s, key=lambda name: behind_s[name])
        if odometry_behind_s >= behind_s[slowest]:
            return Withheld("odometry_behind", f"odometry is {odometry_behind_s:.3f} s behind the newest frame")
        return Withheld("cameras_out_of_sync", f"camera {slowest} is {behind_s[slowest]:.3f} s behind the newest frame")

    def _count_passed_over(self) -> None:
        if self.worker.busy_s is not None:
            self.statistics.busy += 1
        elif self._last_skip is not None:
            self.statistics.withheld[self._last_skip.reason] += 1

    def _withhold(self, withheld: Withheld) -> None:
        self.statistics.withheld[withheld.reason] += 1
        self.statistics.last_withheld = withheld
        self._log(withheld)

    def _log(self, withheld: Withheld) -> None:
        """A new reason at once, the same one again only after a while."""
        reason, logged = self._last_log
        if withheld.reason != reason or time.monotonic() - logged > LOG_PERIOD_S:
            self._last_log = (withheld.reason, time.monotonic())
            self._logger.warning(f"plan withheld: {withheld.reason}: {withheld.detail}")

    def _on_clock_jump(self, _: TimeJump) -> None:
        self._logger.warning("the clock went back or changed its source: starting anew")
        self.reset()

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.reset()
        response.success = True
        response.message = "inputs forgotten; the plan under way will not be published"
        return response

    def _follow_scene(self) -> None:
        self._scene_resets = self.inputs.scene.resets
        self._last_t0_ns = None
        self._forget_plans()

    def _forget_plans(self) -> None:
        self._generation += 1
        self._waiting = False
        self._last_skip = self.stalled = None
        self._idle_since = time.monotonic() + HISTORY_S  # no complaint before the history can be complete

    def now_ns(self) -> int:
        """The node's clock."""
        return int(self._node.get_clock().now().nanoseconds)
