"""Jobs that must go at once: the most demanding is placed first, so as many find GPUs as can."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from controller.core.model import facts as f
from testbed.messages import JobSpec
from tests.world import PROTOCOL, QUEUE, World
from topologies import presets
from topologies.spec import Campus, ResearchReserve

SMALL_BYTES, LARGE_BYTES = 20e9, 40e9  # fits both kinds of GPU; fits an A6000 only
PATIENT = replace(QUEUE, learner="fixed", level_start=50.0, level_max=50.0)


GATHER = "h3"  # has four GPUs on which anything fits; all others have one
SINGLE = ("h1", "h2", "h4", "h5", "h6", "h7", "h9", "h10")


def campus() -> Campus:
    """Hosts of one RTX 3090, of one A6000, and of four A100s."""
    return presets.three_tier(
        10,
        1,
        0,
        access_bytes_per_s=10e6,
        uplink_bytes_per_s=40e6,
        core_bytes_per_s=40e6,
        mix=(
            presets.GpuShare(presets.RTX3090, 1, 2),
            presets.GpuShare(presets.A6000, 1, 2),
            presets.GpuShare(presets.A100, 4, 1),
        ),
        reserve=ResearchReserve(beta=0.3),
    )


def evacuated(
    memories: list[float], back: list[str], *, policy: str = "reclaimnet", seed: int = 1
) -> tuple[World, list[str], list[str]]:
    """Jobs run on one host, the only one that is lent; some others are lent again, and then its owner gives a long notice:
    (the world, the jobs, those hosts)."""
    made = World(campus(), replace(PROTOCOL, policy=policy), PATIENT, seed)
    made.start()
    made.run(2.0)
    for host in made.coordinator.cluster.volunteers:
        if host.name != GATHER:
            made.reclaim(host.name)
    made.run(3.0)
    names = [f"j{n}" for n in range(len(memories))]
    for name, memory in zip(names, memories, strict=True):
        made.submit(JobSpec(name, 5000, 0.1, 200_000, memory_bytes=memory))
    made.run(5.0)
    assert {made.jobs[name].host for name in names} == {GATHER}
    for name in back:
        made.give_back(name)
    made.run(6.0)
    made.reclaim(GATHER, 25.0)
    made.run(7.0)
    return made, names, back


def admitted(made: World) -> set[str]:
    return {fact.job for fact in made.of(f.MigrationAdmitted)}


def most(made: World, jobs: list[str], hosts: list[str]) -> int:
    """How many of the jobs can have a GPU of these hosts at once, by an assignment solver."""
    cluster = made.coordinator.cluster
    fits = [[cluster.fits(made.jobs[job], cluster.hosts[host]) for host in hosts] for job in jobs]
    gain = np.array(fits, dtype=float).reshape(len(jobs), len(hosts))
    rows, columns = linear_sum_assignment(gain, maximize=True)
    return int(gain[rows, columns].sum())


@settings(max_examples=8)
@given(
    st.lists(st.sampled_from([SMALL_BYTES, LARGE_BYTES]), min_size=1, max_size=4),
    st.lists(st.sampled_from(SINGLE), max_size=5, unique=True),
    st.integers(1, 1000),
)
def test_as_many_jobs_find_a_gpu_as_an_assignment_solver_says(
    memories: list[float], back: list[str], seed: int
) -> None:
    made, jobs, hosts = evacuated(memories, back, seed=seed)
    for host in made.coordinator.cluster.hosts.values():  # a GPU for each job that moves, and none for two
        assert len(host.jobs) <= host.spec.gpus
    assert len(admitted(made)) == most(made, jobs, hosts)
    made.run(60.0)
    assert not made.of(f.WorkLost) or len(admitted(made)) < len(jobs)
