"""Every row works end to end, through the same calls; rows differ where they say they do."""

import math
from dataclasses import replace

import pytest

from controller.core.admission.admission import Admission
from controller.core.admission.schedule import MigrationRequest
from controller.core.network.links import Network
from controller.core.parameters import Queue
from controller.core.placement.select import DestinationChoice, NoDestination, PlacementRequest
from controller.core.policies.overrides import with_overrides
from controller.core.policies.table import POLICIES, Policy, policy, row_of
from controller.core.queueing.queue import SpotJob, SpotQueue
from experiments.inputs.scenario import demo_scenario, dumps, loads
from experiments.inputs.traces import generate
from experiments.worlds.virtual import simulate
from tests import checkpoint_jobs
from tests.demands import Demand, in_columns
from tests.offered_hosts import Candidate
from tests.offered_hosts import in_columns as hosts_in_columns
from topologies.errors import SpecError
from topologies.spec import DirectedLink

QUEUE = Queue(target_delay_s=3.0, level_step_per_s=0.01, offer_ttl_s=0.0)
LINK = DirectedLink("h1", "sw")
JOBS = [checkpoint_jobs.Job("a", 1e9, 1e-4, (LINK,), 120.0), checkpoint_jobs.Job("b", 64e9, 3e-3, (LINK,), 9000.0)]
REQUEST = PlacementRequest("s", 1e9, 1e9, 7.0, 3600.0, 60.0, 5.0, "north")
HOSTS = hosts_in_columns(
    [
        Candidate("near", "north", 1, 24e9, 8.6, 0.0, 1e8, 0.1, 60.0, 2.3),
        Candidate("far", "south", 1, 24e9, 8.6, 0.0, 9e7, 0.9, 60.0, 0.1),
        Candidate("doomed", "south", 1, 24e9, 8.6, 0.0, 1e6, 0.01, 60.0, 4.6),
    ]
)
REQUESTS = [
    MigrationRequest("urgent", 20.0, 10.0, 0.0, (LINK,)),
    MigrationRequest("huge", 900.0, 20.0, 0.0, (LINK,)),
    MigrationRequest("small", 30.0, 30.0, 0.0, (LINK,)),
]
SHARE = {LINK: 10.0}


def admission_of(row: Policy) -> Admission:
    return row.admit(REQUESTS, 0.0, SHARE, [])


@pytest.mark.parametrize("name", POLICIES)
def test_every_row_plans_places_admits_grants_and_learns(name: str) -> None:
    row = policy(name)
    plans = checkpoint_jobs.plan(row.plan, JOBS, {LINK: 5e7})
    assert plans.rates_bytes_per_s.sum() <= 5e7 * (1 + 1e-9)
    assert all(plans.intervals_s >= 0.0)

    assert isinstance(row.select(REQUEST, HOSTS, draw=0.4), DestinationChoice)
    assert isinstance(row.select(REQUEST, hosts_in_columns([]), draw=0.4), NoDestination)

    answer = admission_of(row)
    assert answer.admitted.keys() | answer.refused.keys() == {"urgent", "huge", "small"}
    flows = [Demand(r.key, r.links, 1.0, answer.admitted[r.key]) for r in REQUESTS if r.key in answer.admitted]
    network = Network(SHARE)
    rates, _ = row.share(in_columns(flows, network), network.column(SHARE))
    assert math.fsum(rates) == pytest.approx(10.0)

    queue = SpotQueue(row.learner(QUEUE), QUEUE.offer_ttl_s)
    queue.submit(SpotJob("j"), 0.0, 0.0)
    assert queue.controller.level == 1.0


def test_as_printed_stays_in_the_building_and_stops_at_a_misfit() -> None:
    ours, printed = policy("reclaimnet"), policy("reclaimnet-as-printed")
    choices = [row.select(REQUEST, HOSTS) for row in (ours, printed)]
    assert [c.host for c in choices if isinstance(c, DestinationChoice)] == ["far", "near"]
    assert set(admission_of(ours).admitted) == {"urgent", "small"}
    assert set(admission_of(printed).admitted) == {"urgent"}
    infeasible = [checkpoint_jobs.plan(row.plan, JOBS, {LINK: 5e7}).infeasible[0] for row in (ours, printed)]
    assert infeasible == [False, True]


def test_one_interval_rows_give_everybody_the_same_and_static_ones_never_move() -> None:
    calm = [checkpoint_jobs.Job(j.name, 1e6, j.hazard_per_s / 100, (LINK,)) for j in JOBS]
    for name in ("tv-fixed-interval", "static"):
        found = checkpoint_jobs.plan(policy(name).plan, calm, {LINK: 5e7})
        assert len(set(found.intervals_s.tolist())) == 1
    assert found.intervals_s[0] == 600.0


def test_sending_may_take_the_paper_s_fifth_of_an_interval_where_the_job_stands_still_for_it() -> None:
    shares = {name: row.checkpoint_share for name, row in POLICIES.items()}
    printed = {"reclaimnet-as-printed", "tv-fixed-interval", "slurm-pr", "static"}
    assert {shares[name] for name in printed} == {0.2}
    assert {shares[name] for name in ("reclaimnet", "no-tc-bpf", "random-dst", "one-copy")} == {0.9}


def test_an_override_changes_one_field_of_a_row_and_is_part_of_its_name() -> None:
    row = row_of("reclaimnet")
    assert row_of("reclaimnet+vault=false") == replace(row, vault=False)
    both = with_overrides("reclaimnet+vault=false", {"takes_up": False, "plan": "no-p1"})
    assert both == "reclaimnet+plan=no-p1+takes_up=false+vault=false"
    assert row_of(both) == replace(row, vault=False, takes_up=False, plan=row_of("no-p1").plan)
    assert with_overrides(both, {"vault": True}).endswith("+vault=true")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "reclaimnet+valt=false",
            "override.valt = 'false': no field of a policy; nearest: vault; allowed here: plan, ",
        ),
        ("reclaimnet+vault=no", "override.vault = 'no': true or false"),
        ("reclaimnet+plan=no-p", "override.plan = 'no-p': a system, whose plan is taken: one of .*; nearest: no-p1"),
        ("reclaimnet+vault", "override = 'vault': FIELD=VALUE, such as vault=false"),
        ("reclaimnet+about=mine", "override.about = 'mine': no field of a policy"),
        ("no-migration+plan=reclaimnet", "override = 'no-migration.plan=reclaimnet': stays: with a Static"),
        ("best+vault=false", "policy = 'best.vault=false': one of slurm-pr, "),
    ],
)
def test_a_wrong_override_is_refused_with_what_is_allowed(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        policy(name)


def test_a_scenario_s_override_is_in_the_name_of_its_policy_and_in_the_summary() -> None:
    override = '[protocol]\noverride = { vault = false, plan = "no-p1" }'
    scenario = loads(dumps(demo_scenario()).replace("[protocol]", override), "")
    name = "reclaimnet+plan=no-p1+vault=false"
    assert scenario.protocol.policy == name
    assert loads(dumps(scenario), "") == scenario
    assert simulate(demo_scenario(), generate(demo_scenario()), system=name).summary().policy == name


def test_no_row_is_a_copy_of_another() -> None:
    rows = [replace(p, about="") for p in POLICIES.values()]
    assert all(a != b for i, a in enumerate(rows) for b in rows[:i])
