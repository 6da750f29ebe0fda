"""The nine systems: each differs from ReclaimNet in what it says it does, and in nothing else; all play by the same rules."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf
from typing import Any

import pytest

from controller.core import facts as f
from controller.core import policies
from controller.core.baselines import SLOWDOWN, SLURM_REQUEUE_WAIT_S, TAKEOVER_S
from controller.core.placement import Candidate, Choice, NoDestination, Request, select_random
from controller.core.policies import ABLATION, POLICIES, SYSTEMS, Policy, ablation, policy
from controller.core.settings import DAY_S
from controller.core.state import Phase
from experiments.live.settings import enforcement_of, live_row
from experiments.promises import IN_SHARE, IN_TIME, RESERVED, RULES, not_promised
from experiments.scenario import ResearchFlow, demo_scenario
from experiments.traces import generate
from experiments.virtual import VirtualRun, VirtualWorld, simulate
from experiments.virtual.checks import Invariants
from testbed import messages as m
from testbed.enforcement import Enforcement
from testbed.messages import JobSpec
from tests.cores_world import COSTS, SETTINGS, small_campus
from topologies.errors import SpecError
from topologies.spec import TrafficClass

TIME = SETTINGS.day_s / DAY_S  # the small world's time scale
STEP_S = 0.1
DECIDES = ("plan", "select", "admit", "share", "learner", "standby")
OTHERWISE = {
    "slurm-pr": {
        "plan",
        "select",
        "admit",
        "migrates",
        "central_store",
        "requeue_wait_s",
        "enforced",
        "takes_up",
    },
    "no-migration": {"plan", "select", "admit", "migrates", "stays", "enforced", "takes_up"},
    "static": {"plan", "select", "admit", "enforced", "takes_up"},
    "bamboo": {"plan", "select", "standby", "admit", "migrates", "replication", "enforced", "takes_up"},
    "random-dst": {"select"},
    "no-tc-bpf": {"admit", "enforced"},
    "tv-fixed-interval": {"plan"},
    "reclaimnet-as-printed": {"plan", "select", "admit", "learner", "takes_up"},
    "reclaimnet": set(),
}


def job(name: str = "a", steps: int = 1000, payload_bytes: int = 2_000_000) -> JobSpec:
    return JobSpec(name, steps, STEP_S, payload_bytes)


class Small(VirtualWorld):
    """A small campus under a system; what agents were told is kept, every invariant is checked."""

    def __init__(self, system: str, hosts: int = 6, on_demand: int = 0, **options: Any) -> None:
        settings = replace(SETTINGS, level_start=3.0, policy=system)
        campus = small_campus(hosts, on_demand)
        super().__init__(campus, settings, 1, costs=COSTS, after_each=Invariants(), **options)
        self.told: list[tuple[str, Any]] = []
        self.stage.told = lambda host, message: self.told.append((host, message))
        self.start()
        self.run(0.5)

    def running(self, name: str = "a", until_s: float = 12.0, **more: Any) -> str:
        """Submit a job and let it run; its host."""
        self.submit(job(name, **more))
        self.run(until_s)
        host = self.jobs[name].host
        assert self.jobs[name].phase is Phase.RUNNING
        assert host is not None
        return host

    def of(self, kind: type) -> list[Any]:
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def at_s(self, kind: type) -> list[float]:
        return [at_s for at_s, fact in self.facts if isinstance(fact, kind)]

    def messages(self, kind: type) -> list[Any]:
        return [message for _, message in self.told if isinstance(message, kind)]


# ---------------------------------------------------------------- rows


def test_the_nine_systems_are_table_three_s_in_its_order() -> None:
    assert list(SYSTEMS) == list(OTHERWISE)
    labels = [POLICIES[name].label for name in SYSTEMS]
    assert labels[:7] == [
        "Slurm-PR (B1')",
        "No-Mig. (B2)",
        "Static (B3)",
        "Bamboo (B1)",
        "Rand-Dst (B4)",
        "No-BPF (B5)",
        "TV-FI (B7)",
    ]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_differs_from_ours_in_what_it_says_and_in_nothing_else(name: str) -> None:
    ours, row = Policy(""), POLICIES[name]
    differing = {each.name for each in fields(Policy) if getattr(row, each.name) != getattr(ours, each.name)}
    assert differing - {"about", "label"} == OTHERWISE[name]


def test_the_ablation_switches_each_protocol_by_itself() -> None:
    full = ablation(True, True, True)
    assert full is POLICIES["reclaimnet"]
    assert len({ABLATION[key] for key in ABLATION}) == len(ABLATION) == 8
    for p1, p2, p3 in ABLATION:
        row = ablation(p1, p2, p3)
        assert (row.plan == full.plan) == p1
        assert (row.select == full.select) == p2
        assert (row.admit == full.admit) == (row.enforced == full.enforced) == p3
    naive = ablation(False, False, False)
    assert naive.plan == policies.NAIVE
    assert policies.NAIVE.interval_s == 1800.0
    assert naive.select is select_random


def test_table_four_s_rows_are_table_three_s_where_the_paper_says_so() -> None:
    assert (ABLATION[True, True, False], ABLATION[True, False, True]) == ("no-tc-bpf", "random-dst")


def test_durations_of_a_row_follow_the_scale_of_the_scenario() -> None:
    slurm, bamboo = policy("slurm-pr", 0.01), policy("bamboo", 0.01)
    assert slurm.requeue_wait_s == pytest.approx(0.01 * SLURM_REQUEUE_WAIT_S)
    assert bamboo.replication is not None
    assert bamboo.replication.takeover_s == pytest.approx(0.01 * TAKEOVER_S)
    assert bamboo.replication.slowdown == SLOWDOWN


def test_a_replica_and_a_migration_are_not_had_together() -> None:
    with pytest.raises(ValueError, match="only where nothing migrates"):
        replace(POLICIES["bamboo"], migrates=True)
    with pytest.raises(ValueError, match=r"stays: .* with a StaticPlanner"):
        replace(POLICIES["no-migration"], plan=POLICIES["reclaimnet"].plan)


# ---------------------------------------------------------------- ours


def test_a_checkpoint_goes_to_the_new_standby_at_once_when_the_only_holder_is_about_to_leave() -> None:
    world = Small("reclaimnet")
    world.running(until_s=40.0)
    holder = world.of(f.CheckpointCompleted)[-1].holder
    assert world.jobs["a"].standby == holder
    world.reclaim(holder, 60.0)
    world.run(40.5)
    assert world.jobs["a"].standby not in (holder, None)
    assert world.messages(m.Protect)[-1].first_s == 0.0
    world.run(60.0)
    assert world.of(f.CheckpointCompleted)[-1].holder == world.jobs["a"].standby


# ---------------------------------------------------------------- selectors of the baselines

WANTED = Request("s", 1e9, 1e9, 7.0, 3600.0, None, 5.0, "north")


def host(name: str, building: str, memory_bytes: float = 24e9) -> Candidate:
    return Candidate(name, building, 1, memory_bytes, 8.6, 0.0, 1e8, 0.5)


def test_slurm_takes_the_first_node_of_its_table_that_can_run_the_job() -> None:
    hosts = [host("n3", "north"), host("n1", "north", 1e8), host("n2", "south")]
    chosen = policy("slurm-pr").select(WANTED, hosts, draw=0.9)
    assert isinstance(chosen, Choice)
    assert chosen.host == "n2"


def test_a_replica_is_put_into_another_building_if_there_is_room() -> None:
    select = policy("bamboo").standby
    assert select is not None
    hosts = [host("n1", "north"), host("n2", "south"), host("n3", "east"), host("n4", "north")]

    def chosen(among: list[Candidate], draw: float) -> str:
        choice = select(WANTED, among, draw=draw)
        assert isinstance(choice, Choice)
        return choice.host

    assert {chosen(hosts, draw / 10) for draw in range(10)} == {"n2", "n3"}
    assert {chosen([hosts[0], hosts[3]], draw / 10) for draw in range(10)} == {"n1", "n4"}
    assert isinstance(select(WANTED, [], draw=0.5), NoDestination)


# ---------------------------------------------------------------- no migration


def test_no_migration_sends_nothing_and_waits_for_its_host() -> None:
    world = Small("no-migration")
    first = world.running(until_s=40.0)
    world.reclaim(first, 4.0)
    world.run(60.0)
    assert world.jobs["a"].phase is Phase.WAITING
    assert world.coordinator.world.homes == {"a": first}
    assert len(world.of(f.CheckpointTaken)) >= 1
    world.give_back(first)
    world.run(62.0)
    again = world.of(f.JobRunning)[-1]
    assert again.host == first
    assert again.step == world.of(f.CheckpointTaken)[-1].step > 0
    assert world.messages(m.Migrate) == world.messages(m.SendStored) == world.of(f.TransferFinished) == []
    assert not world.coordinator.world.homes


def test_no_migration_gives_the_gpu_of_a_host_that_is_lent_again_to_who_waited_for_it() -> None:
    world = Small("no-migration", hosts=2)
    world.submit(job("b"))
    world.submit(job("c"))
    first = world.running(until_s=40.0)
    world.reclaim(first)
    world.submit(job("younger"))
    world.run(42.0)
    world.give_back(first)
    world.run(44.0)
    assert world.jobs["a"].host == first
    assert world.jobs["younger"].phase is Phase.WAITING


def test_no_migration_starts_a_job_that_has_no_checkpoint_anywhere() -> None:
    world = Small("no-migration")
    world.submit(job())
    world.run(1.5)
    first = world.jobs["a"].host
    assert first is not None
    world.reclaim(first)
    world.run(5.0)
    assert world.jobs["a"].host not in (first, None)


@pytest.mark.parametrize("system", ["slurm-pr", "no-migration", "bamboo"])
def test_who_does_not_migrate_says_so_at_each_notice_and_runs_until_its_host_closes(system: str) -> None:
    world = Small(system)
    first = world.running()
    world.reclaim(first, 4.0)
    world.run(15.9)
    [said] = world.of(f.MigrationDegraded)
    assert said.reason == "this system does not migrate"
    assert world.jobs["a"].host == first
    assert world.messages(m.Migrate) == []
    world.run(16.2)
    assert world.jobs["a"].host != first


# ---------------------------------------------------------------- slurm


def test_slurm_s_job_goes_back_to_the_queue_and_waits_before_it_starts_again() -> None:
    world = Small("slurm-pr")
    first = world.running(until_s=14.0)
    world.reclaim(first)
    world.run(14.5)
    wait_s = SLURM_REQUEUE_WAIT_S * TIME
    assert world.jobs["a"].phase is Phase.WAITING
    assert world.coordinator.world.requeued.keys() == {"a"}
    [waits] = world.of(f.JobWaits)
    assert "requeued" in waits.reason
    world.run(30.0)
    stopped_s, again_s = world.at_s(f.JobStopped)[0], world.at_s(f.JobDispatched)[1]
    assert again_s - stopped_s == pytest.approx(wait_s)
    assert world.of(f.JobDispatched)[1].restore_sequence is not None
    assert not world.coordinator.world.requeued


def test_slurm_s_job_is_before_younger_ones_when_its_wait_is_over() -> None:
    world = Small("slurm-pr", hosts=2)
    first = world.running()
    for name in ("b", "c", "d"):
        world.submit(job(name))
    world.run(13.0)
    waiting = world.coordinator.world.queue.waiting()
    assert len(waiting) == 1
    world.reclaim(first)
    world.run(16.0)
    lost = {fact.job for fact in world.of(f.JobStopped)}
    assert world.coordinator.world.queue.waiting()[-1] == waiting[0]
    assert set(world.coordinator.world.queue.waiting()[:-1]) == lost


def test_slurm_s_period_is_ten_minutes_whatever_a_checkpoint_takes() -> None:
    world = Small("slurm-pr")
    world.running(payload_bytes=40_000_000)
    assert {message.interval_s for message in world.messages(m.Protect)} == {600.0 * TIME}


def test_slurm_s_images_lie_where_nobody_reclaims() -> None:
    with_room, without = Small("slurm-pr", on_demand=1), Small("slurm-pr")
    assert "coord" in without.machines
    assert "coord" not in Small("reclaimnet").machines
    for world in (with_room, without):
        world.running()
    assert {message.standby.host for message in with_room.messages(m.Protect)} <= {"od1", "coord"}
    assert {message.standby.host for message in without.messages(m.Protect)} == {"coord"}


# ---------------------------------------------------------------- bamboo


def replica(world: Small, name: str = "a") -> str:
    """The host of its replica; a GPU is held there."""
    standby = world.jobs[name].standby
    assert standby is not None
    assert name in world.coordinator.world.hosts[standby].jobs
    return standby


def test_a_replica_holds_a_gpu_in_another_building() -> None:
    world = Small("bamboo")
    first = world.running()
    buildings = {each.name: each.building for each in world.stage.campus.hosts}
    assert buildings[replica(world)] != buildings[first]
    assert sum("a" in state.jobs for state in world.coordinator.world.hosts.values()) == 2


def test_an_emergency_costs_a_replicated_job_no_restart_and_at_most_one_step() -> None:
    world = Small("bamboo")
    first, second = world.running(), ""
    second = replica(world)
    world.at(12.34, lambda: world.reclaim(first))
    world.run(13.0)
    assert world.replicas.taken_over == 1
    run = world.of(f.JobRunning)[-1]
    assert (run.host, run.attempt) == (second, 2)
    assert run.downtime_s == pytest.approx(TAKEOVER_S * TIME, abs=0.01)
    assert sum(fact.work_lost_s for fact in world.of(f.WorkLost)) <= STEP_S
    assert world.messages(m.SendStored) == []
    assert run.step > 80


def test_a_replicated_job_gets_another_replica_after_each_takeover_and_gives_it_back_at_its_end() -> None:
    world = Small("bamboo")
    first = world.running(steps=300)
    world.reclaim(first)
    world.run(20.0)
    second = world.jobs["a"].host
    assert second is not None
    assert replica(world) not in (first, second)
    world.run(70.0)
    assert world.jobs["a"].phase is Phase.FINISHED
    assert all(not state.jobs for state in world.coordinator.world.hosts.values())


def test_a_replica_whose_owner_comes_back_is_replaced_and_its_job_goes_on() -> None:
    world = Small("bamboo")
    first = world.running()
    gone = replica(world)
    world.reclaim(gone)
    world.run(14.0)
    assert world.jobs["a"].host == first
    assert world.of(f.JobStopped) == []
    assert replica(world) != gone


def test_a_replica_takes_over_from_a_dead_agent_once_its_lease_has_lapsed() -> None:
    world = Small("bamboo")
    first, second = world.running(), ""
    second = replica(world)
    world.kill(first)
    world.run(20.0)
    assert world.jobs["a"].host == second
    assert sum(fact.work_lost_s for fact in world.of(f.WorkLost)) <= STEP_S


def test_without_a_gpu_for_a_replica_a_job_is_restored_from_its_checkpoint() -> None:
    world = Small("bamboo", hosts=2)
    for name in ("a", "b", "c"):
        world.submit(job(name))
    world.run(25.0)
    known = world.coordinator.world
    assert {each.phase for each in world.jobs.values()} == {Phase.RUNNING}
    assert sum(len(state.jobs) for state in known.hosts.values()) == 3
    hit = world.jobs["a"].host
    assert hit is not None
    world.reclaim(hit)
    world.run(26.0)
    assert world.replicas.taken_over == 0


def test_redundant_computation_makes_every_step_longer() -> None:
    ends = {}
    for system in ("reclaimnet", "bamboo"):
        world = Small(system)
        world.submit(job(steps=200))
        world.run(60.0)
        [(begun_s, _)] = [(at_s, fact) for at_s, fact in world.facts if isinstance(fact, f.JobRunning)]
        ends[system] = world.at_s(f.JobFinished)[0] - begun_s
    assert ends["reclaimnet"] == pytest.approx(200 * STEP_S, rel=0.1)
    assert ends["bamboo"] == pytest.approx(200 * STEP_S * (1.0 + SLOWDOWN), rel=0.1)


# ---------------------------------------------------------------- nothing enforced


def rates_beside_research(system: str) -> tuple[float, list[float], float]:
    """The rate of research, those of checkpoints beside it on one access link, and what the link carries."""
    flow = ResearchFlow("h1", "h2")
    world = Small(system, hosts=2, research=(flow,))
    world.research.begin()
    for name in ("a", "b", "c"):
        world.submit(job(name, payload_bytes=60_000_000))
    world.run(6.0)
    network = world.stage.wire.network
    for _ in range(400):
        world.run(world.now_s + 0.1)
        flows = list(network.flows_from("h1"))
        sending = [each for each in flows if each.traffic_class is not TrafficClass.RESEARCH]
        if sending and len(sending) < len(flows):
            [research] = [each for each in flows if each.traffic_class is TrafficClass.RESEARCH]
            capacity = network.capacity_bytes_per_s(research.links[0])
            return research.rate_bytes_per_s, [each.rate_bytes_per_s for each in sending], capacity
    raise AssertionError("nothing was ever sent beside research")


def test_without_enforcement_migrations_and_research_share_a_link_as_tcp_does() -> None:
    research, others, capacity = rates_beside_research("no-tc-bpf")
    assert research + sum(others) == pytest.approx(capacity)
    assert all(rate == pytest.approx(research) for rate in others)


def test_with_enforcement_research_has_what_grants_leave() -> None:
    research, others, capacity = rates_beside_research("reclaimnet")
    assert sum(others) <= 0.7 * capacity
    assert research == pytest.approx(capacity - sum(others))


def test_without_enforcement_there_is_no_reserve_and_ours_has_it() -> None:
    wanted = small_campus().research_reserve
    assert POLICIES["reclaimnet"].reserve(wanted) == wanted
    assert POLICIES["no-tc-bpf"].reserve(wanted).reserve_bytes_per_s(1e9) == 0.0
    free, kept = Small("no-tc-bpf"), Small("reclaimnet")
    for link, rate in free.coordinator.world.share.items():
        assert kept.coordinator.world.share[link] == pytest.approx(0.7 * rate)


def test_who_promises_no_rate_copies_first_and_stops_when_the_rate_that_it_hopes_for_says_so() -> None:
    world = Small("no-tc-bpf", hosts=4)
    first = world.running(payload_bytes=20_000_000)
    world.reclaim(first, 20.0)
    world.run(12.3)
    [order] = world.messages(m.Migrate)
    assert 10.0 < order.final_within_s < 20.0 - 20_000_000 / 10e6
    world.run(40.0)
    [finished] = world.of(f.MigrationFinished)
    assert finished.in_time


# ---------------------------------------------------------------- the rest


def test_what_was_saved_is_saved_again_at_once_when_its_only_holder_goes() -> None:
    world = Small("static")
    world.running(until_s=20.0)
    holder = world.jobs["a"].standby
    assert holder is not None
    taken = len(world.of(f.CheckpointTaken))
    assert taken >= 1
    world.reclaim(holder)
    world.run(20.9)
    assert len(world.of(f.CheckpointTaken)) == taken + 1
    assert world.jobs["a"].standby not in (holder, None)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_system_does_not_promise_is_said_and_not_judged(name: str) -> None:
    row, waived = POLICIES[name], not_promised(POLICIES[name])
    assert waived.keys() <= RULES.keys()
    assert (RESERVED in waived) == (IN_SHARE in waived) == (not row.enforced)
    assert (IN_TIME in waived) == (name in ("slurm-pr", "no-migration", "static", "bamboo", "no-tc-bpf"))


def play(system: str, seed: int = 2, **options: Any) -> VirtualRun:
    scenario = demo_scenario(seed=seed)
    return simulate(scenario, generate(scenario), system=system, **options)


@pytest.mark.parametrize("name", [*SYSTEMS, "all-off", "only-p1", "only-p2", "only-p3", "no-p1"])
def test_every_system_keeps_what_it_promises_and_loses_no_job(name: str) -> None:
    summary = play(name, after_each=Invariants()).summary()
    assert summary.invariants_broken == []
    assert summary.not_promised == not_promised(POLICIES[name])
    assert summary.jobs.lost == 0
    assert summary.jobs.finished > 15


@pytest.mark.parametrize("name", ["slurm-pr", "bamboo", "no-tc-bpf"])
def test_heartbeats_left_out_change_no_decision_of_a_baseline(name: str) -> None:
    kinds = (f.JobDispatched, f.JobStopped, f.JobFinished, f.MigrationAdmitted, f.JobWaits)

    def decisions(run: VirtualRun) -> list[tuple[str, str, str]]:
        told = [fact for _, fact in run.facts if isinstance(fact, kinds)]
        return [(type(fact).__name__, fact.job, getattr(fact, "host", "")) for fact in told]

    assert decisions(play(name)) == decisions(play(name, quiet=False))


def test_a_live_run_takes_its_enforcement_from_the_system_and_refuses_replicas() -> None:
    def played(system: str, enforcement: str = "drop") -> Any:
        scenario = demo_scenario()
        protocol = replace(scenario.protocol, policy=system, enforcement=enforcement)
        return replace(scenario, protocol=protocol).played()

    assert enforcement_of(played("reclaimnet")) is Enforcement.DROP
    assert enforcement_of(played("no-tc-bpf")) is Enforcement.NONE
    assert live_row(played("slurm-pr")).requeue_wait_s > 0.0
    with pytest.raises(SpecError, match=r"protocol\.policy = 'bamboo'.*virtual time only"):
        live_row(played("bamboo"))


def test_a_policy_of_one_s_own_is_one_function_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def select_last(request: Request, candidates: Any, *, draw: float = 0.0) -> Choice | NoDestination:
        seen.append(len(candidates))
        return select_random(request, candidates, draw=1.0 - 1e-12)

    monkeypatch.setitem(POLICIES, "mine", Policy("the last by name", select=select_last, label="Mine"))
    summary = play("mine").summary()
    assert summary.invariants_broken == []
    assert summary.jobs.finished > 20
    assert max(seen) > 1
    assert policy("mine").reserve(small_campus().research_reserve).beta < inf
