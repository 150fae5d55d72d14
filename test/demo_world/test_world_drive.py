"""What the ego does on the road: lawful, safe, repeatable, and as people drive."""

import itertools

import numpy as np
import pytest

from rsd_planner.demo.world.drive import Drive, run_drive
from rsd_planner.demo.world.ego import FRONT_M, HALF_WIDTH_M
from rsd_planner.demo.world.layout import SIZE_M, Phase
from rsd_planner.demo.world.motion_fit import load_motion
from rsd_planner.demo.world.plans import make_layout
from rsd_planner.demo.world.splits import SEEDS, Split

SPLITS = (Split.TRAIN, Split.OFF_SHELF)
EGO_MIDDLE_M, EGO_HALF_LENGTH_M = 1.4, 2.4  # from the rear axle; half the length


@pytest.fixture(scope="module")
def drives() -> list[Drive]:
    return [run_drive(make_layout(split, seed)) for split in SPLITS for seed in SEEDS[split][:8]]


def test_a_seed_gives_one_drive() -> None:
    first, second = (run_drive(make_layout(Split.TEST, SEEDS[Split.TEST][3])) for _ in range(2))
    assert first.path.states == second.path.states
    assert first.phases == second.phases


def test_the_ego_touches_nobody(drives: list[Drive]) -> None:
    for drive in drives:
        road = drive.layout.road
        for tick, (state, front) in enumerate(zip(drive.path.states, drive.stations, strict=True)):
            s, lateral = road.locate(state.x, state.y, front - FRONT_M)
            others = [(plan.body, plan.s, plan.l, plan.heading) for plan in drive.layout.parked]
            tracks = (*drive.vehicles, *drive.walkers, *drive.cyclists)
            others += [(track.body, *(spot := track.spots[tick], spot.s, spot.l, spot.yaw)[1:]) for track in tracks]
            for body, other_s, other_l, yaw in others:
                length, width, _ = SIZE_M[body]
                if abs(np.sin(yaw)) > 0.3:
                    length, width = width, length
                apart_s = abs(other_s - s - EGO_MIDDLE_M) - length / 2 - EGO_HALF_LENGTH_M
                apart_l = abs(other_l - lateral) - width / 2 - HALF_WIDTH_M
                assert max(apart_s, apart_l) > -0.05, (body, tick)


def test_the_ego_never_enters_on_red(drives: list[Drive]) -> None:
    crossed = 0
    for drive in drives:
        for plan, phases in zip(drive.layout.signals, drive.phases, strict=True):
            over = np.flatnonzero(np.diff(np.array(drive.stations) > plan.stop))
            crossed += len(over)
            assert all(phases[tick + 1] is not Phase.RED for tick in over)
    assert crossed > 3


def test_the_ego_keeps_to_its_lane_but_for_what_stands_in_it(drives: list[Drive]) -> None:
    for drive in drives:
        road = drive.layout.road
        offsets = [
            road.locate(state.x, state.y, front - FRONT_M)[1] - road.lane_centre
            for state, front in zip(drive.path.states, drive.stations, strict=True)
        ]
        nudges = drive.layout.cyclists or any(plan.overlap > 0 for plan in drive.layout.parked)
        assert np.abs(offsets).max() < (2.2 if nudges else 0.9)


def test_speeds_and_accelerations_are_those_of_people(drives: list[Drive]) -> None:
    motion = load_motion()
    accel = np.concatenate([drive.path.controls[:, 0] for drive in drives])
    speed = np.array([state.speed for drive in drives for state in drive.path.states])
    assert 0.4 < accel.std() < 1.1  # Alpamayo's actions: 0.68
    assert np.quantile(accel, 0.99) < motion.accel_mps2 * 1.2
    assert np.quantile(accel, 0.01) > -motion.braking_mps2 * 1.8
    assert speed.max() < motion.free_speed_quantiles_mps[-1] + 2.0


def test_splits_share_no_seed() -> None:
    seeds = [set(SEEDS[split][:: max(1, len(SEEDS[split]) // 500)]) for split in Split]
    ranges = sorted((seeds.start, seeds.stop) for seeds in SEEDS.values())
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(ranges))
    assert len(set.union(*seeds)) == sum(map(len, seeds))
