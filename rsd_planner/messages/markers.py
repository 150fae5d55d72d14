"""A plan as visualization_msgs/MarkerArray for RViz and Foxglove."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rsd_planner.messages.builder import MessageBuilder
from rsd_planner.messages.plans import IN_PLACE, check, placed
from rsd_planner.plan import Plan, TokenOrigin
from rsd_planner.scene.observation import EgoHistory, Pose

FULL_GREEN_MPS = 15.0
RIBBON_WIDTH_M, RIBBON_RISE_M, RIBBON_OPACITY = 1.8, 0.05, 0.8
HISTORY_WIDTH_M = 0.3
TEXT_COLUMNS, TEXT_BOTTOM_M, TEXT_GAP_M, LINE_SPACING = 48, 2.0, 0.3, 1.25
WHITE, GREY, AMBER = (1.0, 1.0, 1.0), (0.6, 0.6, 0.6), (1.0, 0.75, 0.2)


@dataclass(frozen=True)
class _Text:
    namespace: str
    text: str
    height_m: float  # of a capital letter
    colour: tuple[float, float, float]

    @property
    def block_m(self) -> float:
        return LINE_SPACING * self.height_m * len(self.text.splitlines())


class PlanMarkers:
    """Draws plans with message classes it was given."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        """Args: types: "visualization_msgs/msg/Marker" -> its class, as for PlanMessages."""
        self._build = MessageBuilder(types)

    def of(
        self,
        plan: Plan,
        history: EgoHistory,
        frame_id: str,
        lifetime_ns: int,
        *,
        in_ego_frame: bool = False,
        notice: str = "",
    ) -> Any:
        """Path, ego history and reasoning of one plan.

        Namespaces: `path` (a ribbon as wide as the vehicle, red at standstill, green from 15 m/s), `ego_history`,
        and texts above the vehicle, turned to the viewer: `reasoning` (all of it, white), `deliberative` (amber: only
        what the model wrote itself, dots where a draft or the memory wrote for it; left out when all is of one kind)
        and `notice`.

        Args:
            plan: What to show.
            history: The ego history it was made from.
            frame_id: The odometry frame; the vehicle's own at t0 if `in_ego_frame`.
            lifetime_ns: How long the markers stay: longer than the time between plans, or they flicker.
            in_ego_frame: Leave everything where it is in the vehicle's frame at t0.
            notice: What has to be said about the model, "" for nothing.

        Raises:
            ModelOutputError: The plan is empty or not finite.
        """
        check(plan)
        pose_t0 = IN_PLACE if in_ego_frame else history.pose_t0
        common = {
            "header": self._build.header(plan.stamp_ns, frame_id),
            "lifetime": self._build.duration(lifetime_ns),
        }
        markers = [self._ribbon(plan, pose_t0, common), self._history(history, pose_t0, common)]
        bottom_m = TEXT_BOTTOM_M
        for text in _texts(plan, notice):
            height = np.array([0.0, 0.0, bottom_m + text.block_m / 2])
            markers.append(
                self._build.marker(
                    "TEXT_VIEW_FACING",
                    (0.0, 0.0, text.height_m),
                    text.colour,
                    ns=text.namespace,
                    pose=self._build.pose(pose_t0.position + height),
                    text=text.text,
                    **common,
                )
            )
            bottom_m += text.block_m + TEXT_GAP_M
        return self._build.new("visualization_msgs/msg/MarkerArray", markers=markers)

    def delete_all(self, stamp_ns: int) -> Any:
        """Takes away whatever was drawn."""
        marker = self._build.marker(
            "LINE_STRIP",
            (0.0, 0.0, 0.0),
            WHITE,
            action=self._build.constant("visualization_msgs/msg/Marker", "DELETEALL"),
            header=self._build.header(stamp_ns, ""),
            ns="",
            pose=self._build.pose(np.zeros(3)),
            lifetime=self._build.duration(0),
        )
        return self._build.new("visualization_msgs/msg/MarkerArray", markers=[marker])

    def _ribbon(self, plan: Plan, pose_t0: Pose, common: Mapping[str, Any]) -> Any:
        centres = np.vstack([np.zeros(3), plan.positions])
        axes = np.concatenate([np.eye(3)[None], plan.rotations])  # columns: forward, left, up
        centres = centres + RIBBON_RISE_M * axes[:, :, 2]  # above the ground that viewers draw
        half = RIBBON_WIDTH_M / 2 * axes[:, :, 1]
        left, right = (self._points(edge, pose_t0) for edge in (centres + half, centres - half))
        colours = [self._build.colour(speed_colour(speed), RIBBON_OPACITY) for speed in (plan.v0, *plan.speeds)]
        points, shades = [], []
        for k in range(len(left) - 1):
            points += [left[k], right[k], left[k + 1], left[k + 1], right[k], right[k + 1]]
            shades += [colours[k], colours[k], colours[k + 1], colours[k + 1], colours[k], colours[k + 1]]
        return self._build.marker(
            "TRIANGLE_LIST",
            (1.0, 1.0, 1.0),
            WHITE,
            ns="path",
            pose=self._build.pose(np.zeros(3)),
            points=points,
            colors=shades,
            **common,
        )

    def _history(self, history: EgoHistory, pose_t0: Pose, common: Mapping[str, Any]) -> Any:
        return self._build.marker(
            "LINE_STRIP",
            (HISTORY_WIDTH_M, 0.0, 0.0),
            GREY,
            ns="ego_history",
            pose=self._build.pose(np.zeros(3)),
            points=self._points(history.positions, pose_t0),
            **common,
        )

    def _points(self, ego_positions: NDArray[np.float64], pose_t0: Pose) -> list[Any]:
        return [self._build.point(position) for position in placed(ego_positions, pose_t0)]


def speed_colour(speed_mps: float) -> tuple[float, float, float]:
    """Red at standstill (and backwards) over yellow to green."""
    share = min(max(speed_mps / FULL_GREEN_MPS, 0.0), 1.0)
    return (min(2 - 2 * share, 1.0), min(2 * share, 1.0), 0.0)


def words_by_origin(plan: Plan) -> list[tuple[str, bool]]:
    """The words of the reasoning, each with whether it holds anything the model wrote itself."""
    text = "".join(part.text for part in plan.parts)
    own = [part.origin is not TokenOrigin.ROUTINE for part in plan.parts for _ in part.text]
    return [(word.group(), any(own[word.start() : word.end()])) for word in re.finditer(r"\S+", text)]


def deliberative_words(plan: Plan) -> str:
    """The words that hold anything the model wrote itself, dots for the others; "" when all words are of one kind."""
    words = words_by_origin(plan)
    if len({mine for _, mine in words}) < 2:
        return ""
    shown: list[str] = []
    for word, mine in words:
        if mine or shown[-1:] != ["..."]:
            shown.append(word if mine else "...")
    return " ".join(shown)


def _texts(plan: Plan, notice: str) -> Iterator[_Text]:
    """From the bottom to the top."""
    if notice:
        yield _Text("notice", textwrap.fill(notice, TEXT_COLUMNS), 0.4, GREY)
    if words := deliberative_words(plan):
        yield _Text("deliberative", textwrap.fill(words, TEXT_COLUMNS), 0.6, AMBER)
    lines = [textwrap.fill(line, TEXT_COLUMNS) for line in plan.reasoning.splitlines()]
    reasoning = "\n".join(lines).strip() or "(no reasoning)"  # RViz complains about an empty text
    yield _Text("reasoning", reasoning, 0.8, WHITE)
