"""Job deadlines: what is accepted is kept, whatever owners do, and a GPU that is kept is no one else's."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from controller.core.admission.admission import Admission, Reason, Refusal, Requests
from controller.core.lifecycle import job_deadlines, rollforward
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import OVER, JobState, KeptGpu, Phase
from controller.core.queueing.controllers.fixed import Fixed
from controller.core.queueing.queue import OnDemand, Queued, Reneged, SpotJob, SpotQueue
from experiments.dashboard.reasons import Reasons
from experiments.inputs.scenario import demo_scenario
from experiments.results import promises
from experiments.results.deadlines import deadlines
from experiments.results.history import Timed
from experiments.results.link_rates import RoutesThen
from experiments.storms.play import context_of
from testbed.messages import JobSpec, Rejected, StopJob
from tests.cores_world import SETTINGS, CoresWorld, small_campus
from topologies import presets
from topologies.errors import SpecError
from topologies.paths import Routes
from topologies.spec import Campus, ResearchReserve, Role

STEP_S = 0.1
PATIENT = replace(SETTINGS, learner="fixed", level_start=8.0)  # jobs wait for owners, and are not sent away


def job(name: str = "a", steps: int = 200, deadline_s: float | None = 60.0, **more: Any) -> JobSpec:
    return JobSpec(name, steps, STEP_S, 2_000_000, deadline_s=deadline_s, **more)


def world(**changes: Any) -> CoresWorld:
    made = CoresWorld(settings=replace(PATIENT, **changes))
    made.start()
    made.run(2.0)
    return made


def one_rented(level: float = 8.0) -> CoresWorld:
    """All owners have their machines, and one GPU is rented out; `level`: r."""
    made = CoresWorld(small_campus(on_demand=1, slots=1), replace(PATIENT, level_start=level))
    made.start()
    made.run(2.0)
    for host in made.env.campus.hosts:
        if host.role is Role.VOLUNTEER:
            made.reclaim(host.name)
    made.run(3.0)
    return made


def answers(made: CoresWorld, spec: JobSpec) -> list[Any]:
    """What a user is told who submits it."""
    effects = made.coordinator.handle(ev.JobSubmitted(spec, 0.5), made.now_s)
    return [effect.message for effect in effects if isinstance(effect, do.Answer)]


# ---------------------------------------------------------------- what is accepted


def test_a_deadline_that_on_demand_alone_cannot_keep_is_refused_with_what_it_takes() -> None:
    made = world()
    made.submit(job(deadline_s=20.0))
    [refused] = made.of(f.DeadlineRefused)
    assert "its deadline of 20 s cannot be kept: on-demand alone it takes" in refused.reason
    assert (refused.job, refused.deadline_s) == ("a", 20.0)
    assert not made.jobs
    assert answers(made, job(deadline_s=20.0)) == [Rejected("a", refused.reason)]


def test_jobs_take_turns_where_no_gpu_is_open_as_far_as_all_can_be_in_time() -> None:
    made = world()
    cluster = made.coordinator.cluster
    slots = sum(host.spec.gpus for host in cluster.ownerless)
    for n in range(2 * slots):
        made.submit(job(f"j{n}"))
    kept = [gpu for host in cluster.ownerless for gpu in host.kept]
    assert [len(gpu.jobs) for gpu in kept] == [2] * slots  # of 20 s each, within 60 s
    assert not any(host.open_gpus for host in cluster.ownerless)
    made.submit(job("more"))
    [refused] = made.of(f.DeadlineRefused)
    told = (
        f"of {slots} that fit and are connected {slots} are kept for other deadlines, after or before which"
    )
    assert refused.job == "more" and told in refused.reason
    made.submit(job("later", deadline_s=90.0))
    assert not isinstance(answers(made, job("without", deadline_s=None))[0], Rejected)
    assert made.of(f.DeadlineRefused) == [refused]
    for name in ("h1", "h2", "h3", "h4", "h5", "h6"):  # all have to go there
        made.reclaim(name)
    assert made.run_until(lambda: not cluster.dated, 150.0)
    assert late(made) == []
    assert len({fact.job for fact in made.of(f.JobDispatched) if fact.host.startswith("od")}) > slots
    assert not any(host.kept for host in cluster.hosts.values())


def test_of_jobs_that_take_turns_the_one_due_first_presses_for_all_and_others_wait_until_it_is_over() -> None:
    made = one_rented()
    made.submit(job("second", deadline_s=80.0))
    made.submit(job("first", deadline_s=75.0))
    cluster = made.coordinator.cluster
    [gpu] = cluster.hosts["od1"].kept
    assert [each.name for each in gpu.jobs] == ["first", "second"]
    assert made.run_until(lambda: not cluster.dated, 100.0)
    pressed = {fact.job: fact for fact in made.of(f.DeadlinePresses)}
    assert pressed["first"].left_s > 1.5 * pressed["first"].needed_s  # for the other's sake
    assert late(made) == []
    times = [(at_s, fact) for at_s, fact in made.facts if isinstance(fact, f.JobDispatched | f.JobFinished)]
    told = [(type(fact).__name__, fact.job) for _, fact in times]
    assert told == [(kind, name) for name in ("first", "second") for kind in ("JobDispatched", "JobFinished")]


def test_a_job_that_the_queue_sends_on_demand_waits_there_for_its_turn() -> None:
    made = one_rented(level=0.0)
    for name, deadline_s in (("a", 200.0), ("b", 70.0), ("c", 300.0)):
        made.submit(job(name, deadline_s=deadline_s))
    assert made.jobs["a"].host == "od1"
    assert made.coordinator.cluster.backlog == ["b", "c"]
    assert made.run_until(lambda: not made.coordinator.cluster.dated, 150.0)
    assert [fact.job for fact in made.of(f.JobFinished)] == ["a", "b", "c"]
    assert late(made) == []


def test_a_job_that_has_just_got_its_turn_counts_with_all_that_it_may_take() -> None:
    made = one_rented(level=0.0)
    cluster = made.coordinator.cluster
    made.submit(job("n", steps=50, deadline_s=100.0))
    made.submit(job("a", steps=600, deadline_s=300.0))
    assert made.run_until(lambda: made.jobs["a"].host == "od1", 100.0)
    made.jobs["a"].pressed_until_s = None  # as in the moment of its dispatch
    told = answers(made, job("b", steps=200, deadline_s=50.0))
    assert isinstance(told[0], Rejected)
    assert "it cannot be in time" in told[0].reason
    assert [gpu.jobs for gpu in cluster.hosts["od1"].kept] == [[made.jobs["a"]]]


@pytest.mark.parametrize("rate_bytes_per_s", [100_000.0, 70_000.0])
def test_a_turn_is_not_spent_on_a_fresher_checkpoint_that_comes_slowly(rate_bytes_per_s: float) -> None:
    made = CoresWorld(small_campus(on_demand=1, slots=1), replace(PATIENT, policy="no-vault"))
    made.start()
    made.run(2.0)
    for name in ("h1", "h3", "h4", "h5", "h6"):
        made.reclaim(name)
    made.run(3.0)
    for n in range(2):  # h2 is full
        made.submit(job(f"full{n}", steps=20_000, deadline_s=None))
    made.run(4.0)
    made.give_back("h1")
    made.run(5.0)
    made.submit(job("one", steps=400, deadline_s=200.0))
    one = made.jobs["one"]
    assert made.run_until(lambda: any("h2" in known.holders for known in one.checkpoints.values()), 100.0)
    made.reclaim("h1")
    made.run(made.now_s + 2.0)
    [neighbour] = made.env.campus.neighbours["h2"]
    made.change_link("h2", neighbour, rate_bytes_per_s=rate_bytes_per_s)
    made.run(made.now_s + 2.0)
    made.submit(job("two", steps=400, deadline_s=196.0))
    assert made.run_until(lambda: not made.coordinator.cluster.dated, 300.0)
    assert [fact.restore_step for fact in made.of(f.JobDispatched) if fact.host == "od1"] == [0, 0]
    assert late(made) == []


@pytest.mark.parametrize(("deadline_s", "leave_at_s"), [(5000.0, 1900.0), (4000.0, 2500.0)])
def test_all_are_in_time_where_many_have_to_fetch_over_one_port_at_once(
    deadline_s: float, leave_at_s: float
) -> None:
    campus = presets.three_tier(
        14,
        2,
        3,
        access_bytes_per_s=10e6,
        uplink_bytes_per_s=40e6,
        core_bytes_per_s=10e6,
        mix=(presets.GpuShare(presets.RTX3090, 1, 1),),
        on_demand_slots=6,
        reserve=ResearchReserve(beta=0.3),
    )
    made = CoresWorld(campus, replace(PATIENT, level_start=20.0), quiet=True, checks=False)
    made.start()
    made.run(2.0)
    for n in range(12):  # each has a GPU of its own, and what is safe of all lies on one host
        made.submit(JobSpec(f"j{n}", 3000, 1.0, 400_000_000, deadline_s=deadline_s))
    made.run(leave_at_s)
    for host in campus.hosts:
        if host.role is Role.VOLUNTEER:
            made.reclaim(host.name)
    assert made.run_until(lambda: not made.coordinator.cluster.dated, deadline_s + 500.0)
    assert len(made.of(f.JobFinished)) == 12
    assert made.promises() == []


def test_a_turn_does_not_grow_where_the_job_goes_to_a_host_with_a_slower_link() -> None:
    made = CoresWorld(small_campus(on_demand=1, slots=1), replace(PATIENT, policy="no-vault"))
    made.start()
    made.run(1.0)
    made.change_link("h4", *made.env.campus.neighbours["h4"], rate_bytes_per_s=2e6)
    made.run(2.0)
    for name in ("h1", "h2", "h4", "h5", "h6"):
        made.reclaim(name)
    made.run(3.0)
    made.submit(job("full", steps=30_000, deadline_s=None))  # on h3
    made.run(4.0)
    for name, steps, deadline_s in (("one", 800, 171.0), ("two", 200, 172.0)):
        made.submit(JobSpec(name, steps, STEP_S, 30_000_000, deadline_s=deadline_s))
    made.run(30.0)
    made.give_back("h4")
    made.run(31.0)
    one, two = made.jobs["one"], made.jobs["two"]
    assert one.host == "h4"
    assert made.run_until(lambda: one.pressed_until_s is not None, 100.0)
    safe_s = job_deadlines.safe_start(made.coordinator.cluster, one, made.coordinator.cluster.hosts["od1"])[1]
    made.run((one.pressed_until_s or 0.0) - safe_s - job_deadlines.certain_s(made.coordinator.cluster) - 1.3)
    made.reclaim("h3")  # without a notice, as late as can be
    made.run(made.now_s + 1.0)
    made.reclaim("h4")
    assert made.run_until(lambda: not made.coordinator.cluster.dated, 300.0)
    assert late(made) == []
    assert two.ended_s > one.ended_s


def test_a_campus_without_on_demand_hosts_promises_no_deadline_nor_does_one_whose_host_is_not_there() -> None:
    bare = CoresWorld(small_campus(on_demand=0), PATIENT)
    bare.start()
    bare.run(2.0)
    assert "this campus has none" in answers(bare, job())[0].reason
    made = world()
    for name in [host.name for host in made.coordinator.cluster.ownerless]:
        made.kill(name)
    made.run(10.0)
    assert "of 0 that fit and are connected" in answers(made, job())[0].reason


def test_a_scenario_whose_campus_can_keep_no_deadline_is_refused_as_it_is_read() -> None:
    bare = demo_scenario(hosts=4, on_demand=1)
    campus = replace(
        bare, campus=small_campus(on_demand=0), research=(), owners=replace(bare.owners, script=())
    )
    with pytest.raises(SpecError, match=r"jobs.deadline_factor.*left out: a campus without on-demand hosts"):
        replace(campus, jobs=replace(campus.jobs, deadline_factor=2.0))


def test_a_row_that_knows_of_no_deadline_accepts_any_and_keeps_no_gpu() -> None:
    made = world(policy="no-deadlines")
    assert not isinstance(answers(made, job(deadline_s=0.5))[0], Rejected)
    assert not made.coordinator.cluster.dated
    assert promises.DEADLINES in promises.not_promised(made.policy)


# ---------------------------------------------------------------- the GPU that is kept


def test_a_gpu_that_is_kept_is_no_one_elses_and_is_free_when_the_job_is_over() -> None:
    made = one_rented(level=0.0)
    made.give_back("h1")
    made.run(4.0)
    made.submit(job("a", steps=60))  # takes the one offer that stands
    made.submit(job("b", deadline_s=None, steps=20))  # the queue is closed to it, and the only GPU is kept
    made.run(8.0)
    assert made.jobs["a"].host == "h1"
    assert made.jobs["b"].phase is Phase.WAITING
    assert made.coordinator.cluster.backlog == ["b"]
    assert len([fact for fact in made.of(f.JobWaits) if fact.job == "b"]) == 1  # said once
    assert made.run_until(lambda: made.jobs["a"].phase in OVER, 30.0)
    made.run(made.now_s + 1.0)
    assert made.jobs["b"].host == "od1"


# ---------------------------------------------------------------- when it presses, and what follows


@pytest.mark.parametrize("slots", [1, 2], ids=["to the only one", "beside an open one"])
def test_a_job_stays_with_owners_as_long_as_it_may_and_moves_without_loss_then(slots: int) -> None:
    made = CoresWorld(small_campus(on_demand=1, slots=slots), PATIENT)
    made.start()
    made.run(2.0)
    made.submit(job(steps=300, deadline_s=42.0))
    made.run(4.0)
    assert made.jobs["a"].host not in (None, "od1", "od2")
    [told] = made.coordinator.status(made.now_s).jobs
    assert told.due_in_s == pytest.approx(40.0)
    assert made.run_until(lambda: made.jobs["a"].phase in OVER, 100.0)
    [pressed] = made.of(f.DeadlinePresses)
    assert pressed.left_s == pytest.approx(pressed.needed_s, abs=1e-3)
    assert [fact.host.rstrip("123456") for fact in made.of(f.JobDispatched)] == ["h", "od"]
    assert not made.of(f.WorkLost)
    assert [fact.in_time for fact in made.of(f.MigrationFinished)] == [True]
    assert made.of(f.JobFinished)
    assert made.now_s < 2.0 + 42.0 + 1.0
    assert made.promises() == []


def test_a_job_with_time_enough_never_goes_to_on_demand() -> None:
    made = world()
    made.submit(job(deadline_s=500.0))
    assert made.run_until(lambda: made.jobs["a"].phase in OVER, 100.0)
    assert not made.of(f.DeadlinePresses)
    assert not made.coordinator.cluster.dated
    assert not any(host.kept for host in made.coordinator.cluster.hosts.values())


def test_a_job_that_waits_leaves_the_queue_when_it_presses_at_cost_k() -> None:
    made = world()
    for name in ("h1", "h2", "h3", "h4", "h5", "h6"):
        made.reclaim(name)
    made.run(3.0)
    made.submit(job(deadline_s=45.0))
    made.run(4.0)
    assert made.jobs["a"].phase is Phase.WAITING
    assert made.run_until(lambda: made.jobs["a"].phase in OVER, 100.0)
    [sent] = made.of(f.JobRedirected)
    assert sent.waited_s > 5.0
    assert [(fact.cost, fact.delay_s) for fact in made.of(f.JobDispatched)] == [
        (PATIENT.on_demand_cost, sent.waited_s)
    ]
    assert made.now_s < 3.0 + 45.0 + 1.0
    assert made.promises() == []


def test_a_job_whose_deadline_leaves_no_time_for_owners_goes_to_on_demand_at_once() -> None:
    made = world()
    made.submit(job(deadline_s=26.0))
    assert made.jobs["a"].host in ("od1", "od2")
    assert made.run_until(lambda: made.jobs["a"].phase in OVER, 100.0)
    assert made.promises() == []


def test_where_no_move_is_admitted_it_is_stopped_in_time_and_goes_on_from_what_is_safe() -> None:
    made = world(policy="no-vault")

    def refuse(requests: Requests, *rest: Any) -> Admission:
        return Admission({}, {each.key: Refusal(Reason.NO_ROOM) for each in requests})

    made.coordinator.cluster.policy = replace(made.policy, admit=refuse)
    made.submit(job(steps=300, deadline_s=45.0))
    assert made.run_until(lambda: made.jobs["a"].phase in OVER, 100.0)
    assert [fact.cause for fact in made.of(f.JobStopped)] == ["stopped"]
    [_, again] = made.of(f.JobDispatched)
    assert again.host.startswith("od")
    assert again.restore_step > 0
    assert not made.of(f.MigrationAdmitted)
    assert made.now_s < 2.0 + 45.0 + 1.0


def test_an_open_gpu_beside_the_one_that_is_kept_is_no_turn_on_that() -> None:
    cluster = CoresWorld(small_campus(on_demand=1, slots=2)).coordinator.cluster
    host, gpu = cluster.hosts["od1"], KeptGpu("od1")
    first, second = (
        JobState(job(name, deadline_s=deadline_s), 0.0) for name, deadline_s in (("a", 50.0), ("b", 70.0))
    )
    for state in (second, first):
        cluster.dated[state.name] = state
        cluster.keep_gpu(state, gpu)
    assert (gpu.jobs, host.open_gpus) == ([first, second], 1)
    cluster.hold_gpu(second, host)
    assert (gpu.jobs, host.open_gpus, second.kept) == ([first], 0, None)
    cluster.hold_gpu(first, host)
    assert (gpu.taken_by(host), host.open_gpus, first.kept) == (first, 0, gpu)
    cluster.let_gpu_go(second, host)  # one stays free for it until it is over
    assert second.kept is not None
    assert (second.kept.jobs, host.free_gpus, host.open_gpus) == ([second], 1, 0)


def test_no_job_is_stopped_for_a_checkpoint_that_its_deadline_would_not_let_it_go_on_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world()
    made.submit(job(steps=2000, deadline_s=400.0))
    assert made.run_until(lambda: len(made.jobs["a"].checkpoints) > 0, 60.0)
    cluster, state = made.coordinator.cluster, made.jobs["a"]
    better = max(state.checkpoints.values(), key=lambda known: known.stored.step)
    better.stored, state.attempt = structs.replace(better.stored, step=1900), state.attempt + 1
    with monkeypatch.context() as patched:
        patched.setattr(job_deadlines, "resumes_from", lambda *_: None)
        rollforward.take_up_better(cluster, state)
        assert not cluster.take_outbox()
    rollforward.take_up_better(cluster, state)
    [told] = cluster.take_outbox()
    assert isinstance(told, do.Tell) and isinstance(told.message, StopJob)


# ---------------------------------------------------------------- whatever owners do


def play(
    seed: int, *, factor: float, policy: str = "reclaimnet", jobs: int = 3, campus: Campus | None = None
) -> CoresWorld:
    """Jobs with deadlines among owners that come and go at random, with notice and without, and agents that die."""
    rng = random.Random(seed)
    level = (
        8.0 if campus is None else rng.choice([0.0, 1.5, 8.0])
    )  # jobs may be sent on demand by the queue, too
    made = CoresWorld(campus, settings=replace(PATIENT, policy=policy, level_start=level), seed=seed)
    made.start()
    made.run(1.0)
    for n in range(jobs):
        steps = rng.randint(50, 300)
        spec = job(f"j{n}", steps, factor * steps * STEP_S + rng.choice([4.0, 12.0, 25.0]))
        made.at(rng.uniform(1.0, 10.0), lambda spec=spec: made.submit(spec))
    made.disturb(rng, rng.randint(5, 40), 60.0)
    if campus is not None:  # most leave at once, and for good
        at_s = rng.uniform(5.0, 30.0)
        for name in rng.sample(["h1", "h2", "h3", "h4", "h5", "h6"], rng.randint(4, 6)):
            made.at(
                at_s + rng.uniform(0.0, 5.0), lambda name=name: made.reclaim(name, rng.choice([0.0, 3.0]))
            )
    made.run(140.0)
    return made


def late(made: CoresWorld) -> list[str]:
    roles = {host.name: host.role for host in made.env.campus.hosts}
    found = deadlines(made.facts, roles, made.now_s, RoutesThen(made.env.campus, made.facts).history)
    assert all(not each.excuse for each in found)  # nothing here may excuse any
    return [each.job for each in found if each.was_late(made.now_s)]


@settings(max_examples=6)
@given(st.integers(0, 10**9), st.sampled_from([1.0, 1.3, 2.0]))
def test_every_deadline_that_is_accepted_is_kept(seed: int, factor: float) -> None:
    made = play(seed, factor=factor)
    assert late(made) == []
    # a move from a host that stands still meanwhile is late: that is no fact of the journal here
    assert {broken.rule for broken in made.promises()} <= {promises.IN_TIME}


@settings(max_examples=6)
@given(st.integers(0, 10**9), st.sampled_from([1.0, 2.0, 4.0]), st.integers(1, 2))
def test_every_deadline_is_kept_of_jobs_that_take_turns(seed: int, factor: float, slots: int) -> None:
    made = play(seed, factor=factor, jobs=6, campus=small_campus(on_demand=1, slots=slots))
    assert late(made) == []
    assert {broken.rule for broken in made.promises()} <= {promises.IN_TIME}


def test_without_the_rule_jobs_are_late_under_the_same_owners() -> None:
    assert any(late(play(seed, factor=1.3, policy="no-deadlines")) for seed in range(6))


# ---------------------------------------------------------------- the queue


def test_a_pressed_job_takes_no_offer_and_does_not_wait() -> None:
    queue = SpotQueue(Fixed(8.0))
    queue.offer(1, 0.0)
    assert queue.submit(SpotJob("a"), 1.0, 0.5, pressed=True) == OnDemand(0)
    assert [offer.offer_id for offer in queue.standing()] == [1]
    assert (queue.statistics.arrivals, queue.statistics.on_demand) == (1, 1)


def test_a_job_that_leaves_is_counted_with_its_wait_once() -> None:
    queue = SpotQueue(Fixed(8.0))
    assert isinstance(queue.submit(SpotJob("a"), 1.0, 0.5), Queued)
    assert queue.leave("a", 11.0) == Reneged("a", 10.0)
    assert queue.leave("a", 12.0) is None
    queue.requeue_at_head(SpotJob("b"), 13.0)
    assert queue.leave("b", 14.0) is None
    assert queue.waiting() == []
    assert (queue.statistics.on_demand, queue.statistics.total_delay_s) == (1, 10.0)


# ---------------------------------------------------------------- what is safe, and what is needed


def test_only_what_lies_where_no_owner_is_counts_as_safe() -> None:
    made = world()
    made.submit(job(steps=2000, deadline_s=400.0))
    assert made.run_until(lambda: len(made.jobs["a"].checkpoints) > 0, 60.0)
    made.run(made.now_s + 10.0)
    cluster, state = made.coordinator.cluster, made.jobs["a"]
    there, safe = cluster.hosts["od1"], job_deadlines.safe_checkpoint(cluster, state)
    assert safe is not None
    assert cluster.safe_holders(safe)
    whole_s = job_deadlines.needed_s(cluster, state, there, None)
    assert whole_s > 2000 * STEP_S
    safe_s = job_deadlines.needed_s(cluster, state, there, safe)
    assert safe_s < whole_s - 0.9 * safe.stored.step * STEP_S + 5.0
    assert job_deadlines.safe_start(cluster, state, there) == (safe, safe_s)
    for known in state.checkpoints.values():
        known.holders = {name for name in known.holders if cluster.hosts[name].is_volunteer}
    assert job_deadlines.safe_checkpoint(cluster, state) is None
    assert job_deadlines.safe_start(cluster, state, there) == (None, whole_s)


def test_what_is_needed_counts_with_no_owner_as_sender_and_with_the_first_step_where_that_is_sooner() -> None:
    made = CoresWorld(small_campus(on_demand=2, slots=1), PATIENT)
    cluster = made.coordinator.cluster
    made.start()
    made.run(1.0)
    made.change_link("od1", *made.env.campus.neighbours["od1"], rate_bytes_per_s=500_000.0)
    made.run(2.0)
    made.submit(JobSpec("a", 2000, STEP_S, 30_000_000, deadline_s=600.0))
    made.run(40.0)
    state, there = made.jobs["a"], cluster.hosts["od2"]
    newest = max(state.checkpoints.values(), key=lambda known: known.stored.step)
    newest.holders = {"od1", "h3"}
    state.checkpoints = {newest.stored.sequence: newest}
    needed_s = job_deadlines.needed_s(cluster, state, there, newest)
    newest.holders = {"od1"}
    assert job_deadlines.needed_s(cluster, state, there, newest) == needed_s  # h3 may be gone, and was sooner
    whole_s = job_deadlines.needed_s(cluster, state, there, None)
    assert needed_s > whole_s
    assert job_deadlines.safe_start(cluster, state, there) == (None, whole_s)


def test_the_only_safe_checkpoint_is_kept_until_another_is_safe() -> None:
    made = CoresWorld(small_campus(on_demand=1, slots=1), PATIENT)
    made.start()
    made.run(2.0)
    for name in ("h2", "h3", "h4", "h5", "h6"):
        made.reclaim(name)
    made.run(3.0)
    made.submit(job(steps=1000, deadline_s=130.0))  # its standby is where no owner is: there is no other
    made.run(60.0)
    cluster, state = made.coordinator.cluster, made.jobs["a"]
    assert state.standby == "od1"
    for name in ("h2", "h3"):
        made.give_back(name)
    made.run(62.0)
    made.reclaim("h1")
    safe: list[int] = []
    while cluster.dated and made.now_s < 133.0:
        made.run(made.now_s + 0.05)
        known = job_deadlines.safe_checkpoint(cluster, state)
        safe.append(0 if known is None else known.stored.step)
    assert state.phase is Phase.FINISHED
    assert safe[0] > 500
    assert safe == sorted(safe)


# ---------------------------------------------------------------- what may excuse one


ROLES = {
    "head": Role.COORDINATOR,
    **dict.fromkeys(("h1", "h2"), Role.VOLUNTEER),
    **dict.fromkeys(("od1", "od2"), Role.ON_DEMAND),
}
PRESSED = f.DeadlinePresses("a", 1, 20.0, 20.0, 50, "od1")
STORY: list[Timed] = [
    (0.0, f.JobSubmitted("a", 100, 0.5, 10, 60.0)),
    (1.0, f.JobDispatched("a", 1, "h1")),
    (40.0, PRESSED),
    (41.0, f.JobDispatched("a", 2, "od1")),
    (70.0, f.JobFinished("a", 2, "od1", 100, "x")),
]


def excused(*more: Timed, pressed: f.DeadlinePresses = PRESSED) -> str:
    story = [(at_s, pressed if fact is PRESSED else fact) for at_s, fact in STORY]
    facts = sorted([*story, *more], key=lambda timed: timed[0])
    [found] = deadlines(facts, ROLES, 80.0, RoutesThen(small_campus(), facts).history)
    assert found.was_late(80.0)
    return found.excuse


def test_a_late_job_has_no_excuse_of_its_own() -> None:
    assert excused() == ""
    assert excused((30.0, f.HostReclaimed("h1", 0.0, False, ["a"]))) == ""
    assert excused((45.0, f.HostLost("h2", "silent", []))) == ""


@pytest.mark.parametrize(
    "cause",
    [
        f.HostLost("od1", "connection lost", []),
        f.CoordinatorRestarted(1.0, []),
        f.JobStopped("a", 2, "od1", "killed", 60),
        f.CancelOrdered("a", 2, "od1"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_cause_excuses_what_it_can_have_touched(cause: f.AnyFact) -> None:
    assert excused((50.0, cause))
    if not isinstance(cause, f.CancelOrdered):
        assert excused((75.0, cause)) == ""
        back = [(11.0, f.HostJoined(cause.host, 2, True))] if isinstance(cause, f.HostLost) else []
        assert excused((10.0, cause), *back) == ""
        grew = structs.replace(PRESSED, left_s=10.0)  # when it pressed, it was too late already
        assert excused((10.0, cause), *back, pressed=grew)


def test_a_link_excuses_that_becomes_slower_on_the_way_of_the_job_or_of_its_checkpoint() -> None:
    campus = small_campus()
    [near], [far], [beside] = (campus.neighbours[name] for name in ("h1", "od1", "h2"))
    for a, b in (("h1", near), (near, "h1"), (far, "od1")):
        assert excused((40.5, f.LinkChanged(a, b, 10.0))) == f"the link {a}-{b} became slower"
        assert excused((40.5, f.LinkChanged(a, b, 1e12))) == ""
        assert excused((30.0, f.LinkChanged(a, b, 10.0))) == ""  # it pressed later, and counted with that
        assert excused((30.0, f.LinkChanged(a, b, 10.0)), (40.5, f.LinkChanged(a, b, 20.0))) == ""
    slower = (40.5, f.LinkChanged("h2", beside, 10.0))
    assert excused(slower) == ""
    assert excused((20.0, f.CheckpointHeld("a", 1, "h2")), slower)
    trunk = next(
        sorted((link.source, link.target))
        for link in Routes(campus).way("h1", "od1")
        if "h1" not in link and "od1" not in link
    )
    assert excused((40.5, f.TrunksDraining([trunk]))) == "a trunk was announced to go down"
    assert excused((40.5, f.TrunksDraining([]))) == ""


def test_a_checkpoint_excuses_that_its_holder_cannot_send_and_none_that_an_owner_takes() -> None:
    lost = (45.0, f.JobStopped("a", 2, "od1", "checkpoint_lost", 60))
    failed = f.TransferFinished("a", 1, "h2", "od1", False, 0, 0, 1.0, None, 0, "its bytes are not those")
    assert excused(lost) == ""
    assert excused((45.0, failed), lost) == "its checkpoint could not be sent"
    assert excused((44.0, failed), lost) == ""


def test_an_attempt_that_dies_with_its_lease_excuses_where_no_owner_is() -> None:
    assert excused((50.0, f.JobStopped("a", 2, "od1", "agent_lost", 60)))
    assert excused((50.0, f.JobStopped("a", 2, "od1", "stopped", 60)))
    assert excused((50.0, f.JobStopped("a", 2, "h1", "agent_lost", 60))) == ""
    assert excused((50.0, f.JobStopped("a", 2, "od1", "superseded", 60))) == ""


def test_one_that_waited_for_its_turn_is_excused_by_what_kept_the_other_there_and_only_then() -> None:
    before: list[Timed] = [
        (0.0, f.JobSubmitted("b", 100, 0.5, 10, 300.0)),
        (2.0, f.JobDispatched("b", 1, "od1")),
        (30.0, f.JobStopped("b", 1, "od1", "killed", 60)),
        (31.0, f.JobDispatched("b", 2, "od1")),
    ]
    ended = f.JobFinished("b", 2, "od1", 100, "x")

    def excuse(story: list[Timed]) -> str:
        facts = sorted([*STORY, *story], key=lambda timed: timed[0])
        found = deadlines(facts, ROLES, 80.0, RoutesThen(small_campus(), facts).history)
        return next(each.excuse for each in found if each.job == "a")

    assert excuse([*before, (50.0, ended)]) == "it waited for b: its process ended: killed"
    assert excuse([*before, (35.0, ended)]) == ""  # over when the other pressed
    assert excuse([*before[:2], (50.0, ended)]) == ""  # nothing was the matter
    elsewhere = [(at_s, structs.replace(fact, host="od2")) for at_s, fact in before[1:]]
    assert excuse([before[0], *elsewhere, (50.0, structs.replace(ended, host="od2"))]) == ""


def test_the_loss_of_another_host_without_an_owner_excuses_only_where_it_had_the_checkpoint() -> None:
    lost, held = (10.0, f.HostLost("head", "connection lost", [])), (5.0, f.CheckpointHeld("a", 1, "head"))
    assert excused(lost, held) == ""
    assert excused((50.0, lost[1]), held)
    assert excused((50.0, lost[1])) == ""
    assert excused(lost, held, pressed=structs.replace(PRESSED, left_s=10.0))


def test_an_agent_that_leaves_orders_unanswered_excuses_a_job_of_its_own() -> None:
    unanswered = f.HostLost("h1", "2 orders to stop a were not answered", ["a"])
    assert excused((40.5, unanswered))
    assert excused((40.5, structs.replace(unanswered, host="h2"))) == ""


def test_the_promise_tells_of_a_late_job_and_is_silent_of_one_that_failed_before() -> None:
    made = world()
    context = context_of(made, {})
    late_story = [timed for timed in STORY if not isinstance(timed[1], f.DeadlinePresses)]
    breaches = list(promises.deadlines_are_kept(late_story, context))
    assert [(breach.subject, breach.at_s) for breach in breaches] == [("a", 60.0)]
    assert "finished 10.000 s later; it never pressed" in breaches[0].what
    failed = [*late_story[:-1], (50.0, f.JobFailed("a", 2, "od1", "it crashed"))]
    assert list(promises.deadlines_are_kept(failed, context)) == []


def test_the_live_page_says_why_a_job_has_to_leave() -> None:
    reasons = Reasons(world().coordinator.cluster)
    sent, moves = f.JobRedirected("a", 0, 1.0, 5.0), f.JobDispatched("b", 1, "h1")
    told = reasons.explain([PRESSED, sent, moves])
    assert [[each["theory"] for each in decisions] for decisions in told] == [
        ["deadline"],
        ["deadline"],
        ["queue"],
    ]
    assert told[0] == told[1]
    assert ["safe from owners up to step", "50"] in told[0][0]["inputs"]
    assert [each["theory"] for each in reasons.explain([sent])[0]] == ["queue"]
