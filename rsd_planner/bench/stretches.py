"""Consecutive ticks of a recording, to measure on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rsd_planner.errors import ObservationError
from rsd_planner.evaluation.bag import Bag
from rsd_planner.evaluation.topics import Inputs
from rsd_planner.messages.images import decode_image
from rsd_planner.messages.odometry import read_odometry
from rsd_planner.messages.stamps import stamp_ns
from rsd_planner.scene.observation import Observation
from rsd_planner.scene.scene import Scene, Skip

Stretch = Sequence[Observation]  # consecutive ticks


def bag_stretches(bag: Bag, inputs: Inputs, count: int) -> Iterator[Stretch]:
    """The first `count` observations of a recording, 0.1 s apart; a new stretch wherever time jumps."""
    stretch: list[Observation] = []
    for fresh, observation in islice(_bag_observations(bag, inputs), count):
        if fresh and stretch:
            yield stretch
            stretch = []
        stretch.append(observation)
    if stretch:
        yield stretch


def _bag_observations(bag: Bag, inputs: Inputs) -> Iterator[tuple[bool, Observation]]:
    """Each new tick of a recording, and whether it is the first of its stretch."""
    camera_of = {topic: camera_id for camera_id, topic in inputs.cameras.items()}
    scene = Scene(list(inputs.cameras), decode_image)
    resets, last_ns = 0, -1
    for message in bag.messages(inputs.topics):
        if message.topic in camera_of:
            scene.add_image(camera_of[message.topic], stamp_ns(message.message.header.stamp), message.message)
        else:
            sample = read_odometry(message.message)
            try:
                scene.add_odometry(sample.stamp_ns, sample.position, sample.quaternion_xyzw)
            except ObservationError:  # as the node does: one bad pose is left out
                continue
        if scene.resets != resets:
            resets, last_ns = scene.resets, -1
        observed = scene.observe()
        if not isinstance(observed, Skip) and observed.stamp_ns > last_ns:
            yield last_ns < 0, observed
            last_ns = observed.stamp_ns
