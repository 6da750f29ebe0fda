"""The cost of a crowded uplink: the bytes that a job's checkpoints wait for, and those that wait for it."""

import numpy as np
import pytest

from controller.core.lifecycle.attempts import crowding_s
from testbed.messages import JobSpec
from tests.world import a_running_job, a_world

MB = 1_000_000


def test_one_more_job_waits_for_its_neighbours_and_makes_each_wait_for_it() -> None:
    world = a_world(6, 2)
    host = a_running_job(world, JobSpec("large", 40_000, 0.1, 200 * MB))
    a_running_job(world, JobSpec("small", 40_000, 0.1, 20 * MB), 8.0)
    core = world.coordinator.cluster
    small, place = core.jobs["small"], core.places.number[host]
    uplinks = np.append(core.capacity.checkpoint_column, np.inf)[core.places.uplink]
    for _ in range(500):
        core.hazards.lend(host, core.now_s)
        core.hazards.depart(host, core.now_s, 0.0)  # too short for any job
    crowded = crowding_s(core, small)
    assert crowded[place] == pytest.approx((20 + 200 + 20) * MB / uplinks[place], rel=1e-2)
    empty = next(n for n, name in enumerate(core.places.hosts) if name not in (host, small.host))
    assert crowded[empty] == pytest.approx(20 * MB / uplinks[empty], rel=1e-2)
    for _ in range(50_000):
        core.hazards.lend(host, core.now_s)
        core.hazards.depart(host, core.now_s, 1e6)  # long enough
    assert crowding_s(core, small)[place] < 0.02 * crowded[place]
