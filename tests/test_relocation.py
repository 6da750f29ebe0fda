"""Jobs that leave before any notice for a host where departures take less, if that pays: row `moves-ahead`."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.admission import admission
from controller.core.model import facts as f
from controller.core.model.entities import OVER, Phase
from controller.core.placement.select import (
    Candidates,
    DestinationChoice,
    NoDestination,
    PlacementRequest,
    able_to_run,
    better_off,
)
from controller.core.policies.table import POLICIES, Policy
from experiments.dashboard.reasons import Reasons
from experiments.results import promises
from experiments.results.history import notices
from testbed.messages import JobSpec
from tests.cores_world import SETTINGS, CoresWorld
from topologies import presets
from topologies.spec import Campus, ResearchReserve

HERE, DAY_S = "o", 240.0  # hours of ten seconds
AHEAD = replace(SETTINGS, learner="fixed", level_start=50.0, policy="moves-ahead", day_s=DAY_S)


# ---------------------------------------------------------------- the rule

Host = tuple[float, float, float, float]  # expected reclaims, away again in, adds to loss, there in


def asked(hosts: list[Host]) -> tuple[PlacementRequest, Candidates]:
    """A job on the first of these, which looks at all; the state that it moves with is one byte."""
    names = np.array([HERE, *(f"d{n}" for n in range(1, len(hosts)))], dtype=object)
    reclaims, away_s, added_s, there_s = (
        np.array(column, dtype=float) for column in zip(*hosts, strict=True)
    )
    ones = np.ones(len(hosts))
    found = Candidates(
        names,
        names,
        ones,
        ones,
        ones,
        0.0 * ones,
        1.0 / there_s,
        np.exp(-reclaims),
        reclaims,
        away_s,
        added_s,
        0.0 * ones,
    )
    return PlacementRequest(HERE, 1.0, 1.0, 1.0, 3600.0, None, 0.0), found


times = st.floats(0.1, 1000.0)
hosts = st.lists(st.tuples(st.floats(0.001, 20.0), times, times, times), min_size=2, max_size=6)


@given(hosts)
def test_it_leaves_for_the_host_that_saves_most_and_for_none_that_saves_nothing(found: list[Host]) -> None:
    """Against the same sum by the exposure: seconds until the job's owner comes or it is done, times each host's rate."""
    (own, *others), work_s = found, 3600.0
    rate_per_s = own[0] / work_s
    exposed_s = -math.expm1(-rate_per_s * work_s) / rate_per_s
    staying_s = rate_per_s * exposed_s * (own[1] + own[2])
    going_s = [
        there + reclaims / work_s * exposed_s * (away + added) for reclaims, away, added, there in others
    ]
    choice = better_off(*asked(found))
    if min(going_s) > staying_s + 1e-6:
        assert choice is None
    elif min(going_s) < staying_s - 1e-6:
        assert choice is not None
        assert going_s[int(choice.host[1:]) - 1] == pytest.approx(min(going_s), abs=1e-6)
        assert choice.score_s == pytest.approx(min(going_s) - staying_s, abs=1e-6)


def test_it_stays_where_no_owner_comes_and_where_no_other_host_can_be_reached() -> None:
    assert better_off(*asked([(0.0, 10.0, 10.0, 1.0), (0.0, 1.0, 1.0, 0.1)])) is None
    assert better_off(*asked([(5.0, 100.0, 100.0, 1.0), (0.1, 1.0, math.inf, 0.1)])) is None
    request, found = asked([(5.0, 100.0, 100.0, 1.0)])
    assert better_off(request, found) is None
    assert not isinstance(better_off(request, found), NoDestination)


def test_a_row_that_never_moves_a_job_cannot_move_it_ahead() -> None:
    with pytest.raises(ValueError, match="relocate: only where jobs migrate"):
        Policy("stays, and goes", migrates=False, relocate=POLICIES["moves-ahead"].relocate)


# ---------------------------------------------------------------- in a campus

RESTLESS, CALM = "h1", "h2"


def campus() -> Campus:
    """Hosts of one GPU each, on links of 10 MB/s."""
    return presets.three_tier(
        6,
        1,
        0,
        access_bytes_per_s=10e6,
        uplink_bytes_per_s=40e6,
        core_bytes_per_s=40e6,
        mix=(presets.GpuShare(presets.A6000, 1, 1),),
        reserve=ResearchReserve(beta=0.3),
    )


def beside_a_restless_owner(policy: str = "moves-ahead") -> CoresWorld:
    """One owner comes and goes every few seconds, for minutes; then a job has to begin there, and others lend theirs again."""
    made = CoresWorld(campus(), replace(AHEAD, policy=policy))
    made.start()
    made.run(2.0)
    for _ in range(25):
        made.reclaim(RESTLESS)
        made.run(made.now_s + 0.5)
        made.give_back(RESTLESS)
        made.run(made.now_s + 6.0)
    others = [host.name for host in made.coordinator.cluster.volunteers if host.name != RESTLESS]
    for name in others:
        made.reclaim(name, 1.0)
    made.run(made.now_s + 2.0)
    made.submit(JobSpec("a", 20_000, 0.1, 200_000))
    made.run(made.now_s + 3.0)
    assert made.jobs["a"].host == RESTLESS
    for name in others:
        made.give_back(name)
    made.run(made.now_s + 40.0)
    return made


def test_a_job_leaves_a_restless_owner_when_a_calm_ones_gpu_is_free_and_loses_nothing() -> None:
    made = beside_a_restless_owner()
    [moved] = made.of(f.MigrationAdmitted)
    assert (moved.source, moved.without_notice) == (RESTLESS, True)
    assert made.jobs["a"].host == moved.destination
    [finished] = made.of(f.MigrationFinished)
    assert finished.in_time
    assert not made.of(f.WorkLost)
    [notice] = [each for each in notices(made.facts) if each.job == "a"]
    assert not notice.given
    assert made.promises() == []


def test_it_stays_without_the_rule_and_is_moved_once_with_it() -> None:
    assert not beside_a_restless_owner("reclaimnet").of(f.MigrationAdmitted)
    made = beside_a_restless_owner()
    made.run(made.now_s + 5.0 * DAY_S / 24.0)  # it is looked at in each hour
    assert len(made.of(f.MigrationAdmitted)) == 1


def test_the_page_says_what_staying_and_going_cost() -> None:
    made = beside_a_restless_owner("reclaimnet")
    cluster = made.coordinator.cluster
    cluster.policy = POLICIES["moves-ahead"].scaled(DAY_S / 86_400.0)
    reasons = cluster.witness = Reasons(cluster)
    made.run_until(lambda: bool(made.of(f.MigrationAdmitted)), made.now_s + DAY_S)
    [admitted] = made.of(f.MigrationAdmitted)
    told = [each for each in reasons.explain([admitted])[0] if "before there is a notice" in each["title"]]
    assert admitted.destination in told[0]["verdict"]
    [chosen] = [row for row in told[0]["table"]["rows"] if row["mark"] == "chosen"]
    assert chosen["cells"][0] == admitted.destination
    assert float(chosen["cells"][-1]) < 0.0


def test_a_job_leaves_with_what_its_last_checkpoint_sent_and_a_departure_makes_it_fetch_all() -> None:
    looks: list[tuple[PlacementRequest, Candidates]] = []

    def look(request: PlacementRequest, candidates: Candidates) -> None:
        looks.append((request, candidates))

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(POLICIES, "looks", Policy("looks", relocate=look))
        made = CoresWorld(campus(), replace(AHEAD, policy="looks"))
    made.start()
    made.run(2.0)
    made.submit(JobSpec("a", 20_000, 0.1, 40_000_000, params={"dirty_fraction": 1e-4}))
    made.run(100.0)
    request, found = looks[-1]
    assert request.payload_bytes < 40_000_000
    on_s = found.mean_migration_s - request.restart_s
    assert (on_s > 40_000_000 / 10e6).all()  # links have 10 MB/s


# ---------------------------------------------------------------- whatever owners do meanwhile


def anywhere(request: PlacementRequest, candidates: Candidates) -> DestinationChoice | None:
    """A rule of one's own: another host in every hour."""
    found = able_to_run(request, candidates)
    return None if isinstance(found, NoDestination) else found.choice(int(request.remaining_s) % len(found))


NOMADS = [  # a job goes to another host in every hour; P3 reserves a timetable, a constant rate, or nothing
    Policy("nomads", relocate=anywhere),
    Policy("nomads", relocate=anywhere, admit=admission.edf_skip),
    Policy("nomads", relocate=anywhere, admit=admission.admit_all, enforced=False),
]


def play(seed: int, row: Policy) -> CoresWorld:
    """Jobs that move all the time, some with deadlines, among owners and agents that come and go at random."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(POLICIES, "nomads", row)
        made = CoresWorld(settings=replace(AHEAD, policy="nomads"), seed=seed)
    made.start()
    made.run(1.0)
    for n in range(4):
        steps, payload_bytes = rng.randint(300, 900), rng.choice([20_000, 2_000_000, 20_000_000])
        spec = JobSpec(f"j{n}", steps, 0.1, payload_bytes, deadline_s=rng.choice([None, 0.15 * steps + 20.0]))
        made.at(rng.uniform(1.0, 30.0), lambda spec=spec: made.submit(spec))
    made.disturb(rng, rng.randint(10, 60), 100.0)
    made.run_until(lambda: made.now_s > 130.0 and all(job.phase in OVER for job in made.jobs.values()), 400.0)
    return made


@settings(max_examples=5)
@given(st.integers(0, 10**9), st.sampled_from(NOMADS))
def test_whatever_owners_do_meanwhile_every_promise_is_kept(seed: int, row: Policy) -> None:
    made = play(seed, row)
    # a move from a host that stands still meanwhile is late: that is no fact of the journal here
    assert {broken.rule for broken in made.promises()} <= {promises.IN_TIME}
    assert {job.phase for job in made.jobs.values()} <= {Phase.FINISHED}
    assert any(fact.without_notice for fact in made.of(f.MigrationAdmitted))
