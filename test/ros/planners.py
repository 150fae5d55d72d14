"""The golden model with something done to it; each is a `load` for the node's worker thread."""

import threading

from rsd_planner.worker.server import load_planner


def changed(change):
    """`change(plan, observation)` in place of the planner's `plan`."""

    def load(request, progress):
        planner = load_planner(request, progress)
        plan = planner.plan
        planner.plan = lambda observation, **_: change(plan, observation)
        return planner

    return load


def held_up(planning: threading.Event, go_on: threading.Event):
    """Every plan waits for a sign."""

    def wait(plan, observation):
        planning.set()
        assert go_on.wait(60)
        return plan(observation)

    return changed(wait)
