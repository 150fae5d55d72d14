"""The last look at a plan before anybody follows it."""

from __future__ import annotations

import numpy as np

from rsd_planner.plan import Plan
from rsd_planner.scene.observation import STEP_NS

START_TOLERANCE_M = 0.5
REVERSE_TOLERANCE_M = 0.5
REVERSING_MPS = 0.5  # faster backwards than this at t0, the vehicle is reversing and may go on


def withhold_reason(plan: Plan) -> str | None:
    """Why this plan must not be published, or None.

    A plan must be finite, start at the vehicle (its first waypoint lies where the speed at t0 leads within 0.1 s) and,
    unless the vehicle is reversing at t0, must not travel back more than half a metre from the farthest point reached.
    """
    for name in ("positions", "rotations", "speeds"):
        if not np.isfinite(getattr(plan, name)).all():
            return f"not finite: {name} hold a value that is not finite"
    step_s = STEP_NS * 1e-9
    start_error = float(np.linalg.norm(plan.positions[0] - [plan.v0 * step_s, 0.0, 0.0]))
    if start_error > START_TOLERANCE_M:
        return (
            f"start: the first waypoint is {start_error:.2f} m from where the vehicle will be, "
            f"expected at most {START_TOLERANCE_M} m"
        )
    travelled = np.concatenate([[0.0], np.cumsum(plan.speeds * step_s)])
    back = float(np.max(np.maximum.accumulate(travelled) - travelled))
    if plan.v0 > -REVERSING_MPS and back > REVERSE_TOLERANCE_M:
        return f"reverse: the path runs {back:.2f} m backwards, expected at most {REVERSE_TOLERANCE_M} m"
    return None
