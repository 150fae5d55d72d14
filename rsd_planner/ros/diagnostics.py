"""/diagnostics: inputs, inference, model and ego history, once a second, in every lifecycle state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from rsd_planner.plan import FinishReason
from rsd_planner.ros.session import PlanningSession
from rsd_planner.ros.stream import Stream, Trouble, describe_troubles

PERIOD_S = 1.0
V0_TOLERANCE_MPS = 1.0

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


class Diagnostics:
    """Publishes what the node and its session know.

    Attributes:
        configure_error: Why the last attempt to configure failed, "" if it did not.
        configuring: How far an attempt under way has come, "" if there is none.
    """

    def __init__(self, node: Node, session: Callable[[], PlanningSession | None]) -> None:
        self._node = node
        self._session = session
        self.configure_error = ""
        self.configuring = ""
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # Steady: also without a /clock there is something to say.
        node.create_timer(PERIOD_S, self.publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def publish(self) -> None:
        """Look at the inputs, and publish all statuses."""
        session = self._session()
        if session is None:
            statuses = [self._unconfigured()]
        else:
            session.watch()
            statuses = [
                self._status("inputs", *_inputs(session)),
                self._status("inference", *_inference(session)),
                self._status("model", *_model(session)),
                self._status("ego history", *_ego_history(session)),
            ]
        message = DiagnosticArray(status=statuses)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def _unconfigured(self) -> DiagnosticStatus:
        if self.configuring:
            return self._status("model", WARN, f"configuring: {self.configuring}", {})
        if self.configure_error:
            return self._status("model", ERROR, f"not configured: {self.configure_error}", {})
        return self._status("model", WARN, "not configured", {})

    def _status(self, part: str, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
        name = self._node.get_fully_qualified_name()
        return DiagnosticStatus(
            level=level,
            name=f"{name.lstrip('/')}: {part}",
            message=message,
            hardware_id=name,
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )


def _inputs(session: PlanningSession) -> tuple[bytes, str, dict[str, object]]:
    inputs = session.inputs
    troubles = inputs.troubles(session.parameters.max_input_age)
    values: dict[str, object] = {}
    for name, stream in inputs.cameras.items():
        values.update(_stream(f"camera {name}", stream, troubles.get(name), session.now_ns()))
    values.update(_stream("odometry", inputs.odometry, troubles.get("odometry"), session.now_ns()))
    newest_ns = [stream.newest_ns for stream in inputs.cameras.values() if stream.newest_ns is not None]
    if newest_ns:
        values["spread of newest frames [ms]"] = f"{(max(newest_ns) - min(newest_ns)) / 1e6:.0f}"
    values["resets"] = inputs.scene.resets
    if inputs.route is not None:
        ignored = "" if session.model.takes_route else f" (ignored: {session.model.name} takes none)"
        values["route text"] = f"{inputs.route}{ignored}"
    if session.stalled is not None:
        values["last_skip_reason"] = session.stalled.reason
        return ERROR, f"{session.stalled.reason}: {session.stalled.detail}", values
    if troubles:
        return WARN, f"waiting for {describe_troubles(troubles)}", values
    return OK, "all inputs arrive", values


def _stream(name: str, stream: Stream, trouble: Trouble | None, now_ns: int) -> dict[str, object]:
    silent_s = stream.silent_s
    values: dict[str, object] = {
        f"{name}: topic": stream.topic,
        f"{name}: state": "receiving" if trouble is None else trouble.kind,
        f"{name}: rate [Hz]": f"{stream.rate_hz:.1f}",
        f"{name}: last message [s ago]": "never" if silent_s is None else f"{silent_s:.2f}",
        f"{name}: age of the newest stamp [s]": "none"
        if stream.newest_ns is None
        else f"{(now_ns - stream.newest_ns) / 1e9:.3f}",
        f"{name}: received": stream.received,
        f"{name}: dropped": stream.dropped,
        f"{name}: out of order": stream.out_of_order,
    }
    if stream.rejected:
        values[f"{name}: rejected"] = stream.rejected
        values[f"{name}: last error"] = stream.last_error
    return values


def _inference(session: PlanningSession) -> tuple[bytes, str, dict[str, object]]:
    statistics = session.statistics
    values: dict[str, object] = {
        "state": "active" if session.active else "inactive",
        "plans": statistics.plans,
        "passed over while busy": statistics.busy,
        "outdated": statistics.outdated,
        "closed by the deadline": statistics.deadlines,
    }
    values.update({f"withheld: {reason}": count for reason, count in sorted(statistics.withheld.items())})
    values.update(_percentiles("inference", statistics.inference_s))
    values.update(_percentiles("t0 to publishing", statistics.latency_s))
    values.update(_percentiles("overhead", statistics.overhead_s, digits=1))
    if statistics.last_plan is not None:
        values["last t0 [ns]"] = statistics.last_plan.stamp_ns
        values["last sequence"] = statistics.last_plan.sequence
        if statistics.last_plan.lossy:
            values["last tolerated tokens"] = len(statistics.last_plan.speculation.tolerated)
        values["last finish reason"] = statistics.last_plan.finish_text
    if statistics.last_withheld is not None:
        values["last withheld"] = f"{statistics.last_withheld.reason}: {statistics.last_withheld.detail}"
    if not session.active:
        return OK, "inactive", values
    busy_s = session.worker.busy_s or 0.0
    if busy_s > session.parameters.max_input_age:
        return WARN, f"the model has been at work on one plan for {busy_s:.1f} s", values
    if statistics.last_withheld is not None:
        level = ERROR if statistics.last_withheld.reason in ("internal_error", "worker_lost") else WARN
        return level, f"plan withheld: {statistics.last_withheld.reason}", values
    if statistics.last_plan is not None and statistics.last_plan.finish_reason is FinishReason.DEADLINE:
        return WARN, "the reasoning of the last plan was closed by the deadline", values
    return OK, "planning" if statistics.plans else "no plan yet", values


def _percentiles(name: str, seconds: Sequence[float], digits: int = 0) -> dict[str, object]:
    if not seconds:
        return {}
    p50, p95 = np.percentile(np.asarray(seconds), [50, 95])
    return {f"{name} p50 [ms]": f"{p50 * 1e3:.{digits}f}", f"{name} p95 [ms]": f"{p95 * 1e3:.{digits}f}"}


def _model(session: PlanningSession) -> tuple[bytes, str, dict[str, object]]:
    model, statistics = session.model, session.statistics
    values: dict[str, object] = {
        "directory": model.path,
        "backend": model.backend,
        "device": model.device,
        "dtype": model.dtype,
        "parameters": model.parameters,
        "draft": model.draft or "none",
        "worker": "thread" if session.worker.pid is None else f"process {session.worker.pid}",
        "worker restarts": session.worker.restarts,
        "typed reasoning": "published" if session.publishers.typed else "rsd_planner_msgs is not installed",
    }
    frames = statistics.frames_encoded + statistics.frames_reused
    if frames:
        values["frames reused"] = f"{statistics.frames_reused / frames:.3f}"
    if statistics.plans:
        passes = sum(statistics.passes)
        values["verify passes per plan"] = f"{passes / len(statistics.passes):.2f}"
        values["mean accepted length"] = f"{sum(statistics.verified_tokens) / passes:.2f}" if passes else "no pass"
        values["routine share"] = f"{sum(statistics.routine_share) / len(statistics.routine_share):.3f}"
    if model.backend_refused:
        values["backend not used"] = model.backend_refused
    if model.draft_refused:
        values["draft not used"] = model.draft_refused
    if model.notice:
        values["notice"] = model.notice
    if session.worker.lost:
        return ERROR, f"{session.worker.lost}; {session.worker.progress}", values
    if model.backend_refused:
        return WARN, f"{model.name}: runs on PyTorch, the backend asked for cannot", values
    if model.draft_refused:
        return WARN, f"{model.name}: decoding without a draft, the model directory's does not fit", values
    if model.notice:
        return WARN, f"{model.name}: {model.notice.splitlines()[0]}", values
    return OK, model.name, values


def _ego_history(session: PlanningSession) -> tuple[bytes, str, dict[str, object]]:
    plan, measured_mps = session.statistics.last_plan, session.inputs.speed_mps
    if plan is None or measured_mps is None:
        return OK, "no plan yet", {}
    values: dict[str, object] = {
        "v0 from the history [m/s]": f"{plan.v0:.2f}",
        "odometry twist [m/s]": f"{measured_mps:.2f}",
    }
    if abs(plan.v0 - measured_mps) > V0_TOLERANCE_MPS:
        return WARN, "the speed implied by the odometry's positions is not that of its twist", values
    return OK, "positions and twist of the odometry agree", values
