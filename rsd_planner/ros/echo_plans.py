"""Print the plans of a running node as they come: one block per plan.

The markers carry both the reasoning and the stamp of its plan, so text and path are matched by t0 and never by order
of arrival. `echo_plans --ros-args -r __ns:=/vehicle` listens to a node in a namespace.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.ros.process import start_rclpy, stop_on_signals

STEP_S = 0.1  # between two poses of a path
KEPT = 20  # halves of plans that wait for their other half


def main() -> None:
    """Print until SIGINT or SIGTERM, or until `--count` plans have been printed; exit code 0."""
    stop = stop_on_signals()
    import rclpy

    options = _parser().parse_args(start_rclpy(sys.argv))
    node = rclpy.create_node("echo_plans")
    printer = PlanPrinter(Console(highlight=False))
    _subscribe(node, options.node, printer)
    while not stop.is_set() and (options.count is None or printer.printed < options.count):
        rclpy.spin_once(node, timeout_sec=0.1)
    node.destroy_node()
    rclpy.try_shutdown()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="echo_plans", description=__doc__.splitlines()[0])
    parser.add_argument("--node", default="rsd_planner", help="name of the node to listen to")
    parser.add_argument("--count", type=int, default=None, help="stop after this many plans")
    return parser


def _subscribe(node: Any, planner: str, printer: PlanPrinter) -> None:
    from nav_msgs.msg import Path
    from visualization_msgs.msg import MarkerArray

    node.create_subscription(MarkerArray, f"{planner}/output/markers", printer.on_markers, 10)
    node.create_subscription(Path, f"{planner}/output/path", printer.on_path, 10)


class PlanPrinter:
    """Matches path and reasoning of a plan by their stamp and prints them.

    Attributes:
        printed: Plans printed so far.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._paths: dict[int, Any] = {}  # by t0, ns
        self._reasoning: dict[int, str] = {}
        self._notice = ""
        self.printed = 0

    def on_markers(self, message: Any) -> None:
        """Take the reasoning out of a visualization_msgs/MarkerArray."""
        for marker in message.markers:
            text = " ".join(marker.text.split())
            if marker.ns == "notice" and text != self._notice:
                self._notice = text
                self._console.print(f"[yellow]About this model: {escape(text)}[/yellow]\n")
            elif marker.ns == "reasoning":
                self._reasoning[stamp_ns(marker.header.stamp)] = text
        self._print_complete()

    def on_path(self, message: Any) -> None:
        """Take a nav_msgs/Path."""
        self._paths[stamp_ns(message.header.stamp)] = message
        self._print_complete()

    def _print_complete(self) -> None:
        for t0_ns in sorted(self._paths.keys() & self._reasoning.keys()):
            self._print(t0_ns, self._reasoning.pop(t0_ns), self._paths.pop(t0_ns))
        for halves in (self._paths, self._reasoning):
            while len(halves) > KEPT:
                halves.pop(next(iter(halves)))

    def _print(self, t0_ns: int, reasoning: str, path: Any) -> None:
        self.printed += 1
        points = [pose.pose.position for pose in path.poses]
        begin_mps, end_mps = _distance(points[0], points[1]) / STEP_S, _distance(points[-2], points[-1]) / STEP_S
        self._console.print(
            f"[bold]t0 {t0_ns / 1e9:.3f} s[/bold]   {escape(reasoning) or '(no reasoning)'}\n"
            f"   path {_point(points[0])} to {_point(points[-1])} m in {path.header.frame_id}, "
            f"{len(points) * STEP_S:.1f} s, {begin_mps:.1f} to {end_mps:.1f} m/s\n"
        )


def _distance(a: Any, b: Any) -> float:
    return math.dist((a.x, a.y, a.z), (b.x, b.y, b.z))


def _point(position: Any) -> str:
    return f"({position.x:.1f}, {position.y:.1f}, {position.z:.1f})"


if __name__ == "__main__":
    main()
