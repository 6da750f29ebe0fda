"""Reports of agents on jobs and checkpoints, at and beyond their bounds."""

from typing import Any

import pytest
from msgspec import structs

from controller.core.admission.schedule import LAG_S
from controller.core.lifecycle.attempts import EVERYTHING
from controller.core.lifecycle.checkpoints import MOST_HELD
from controller.core.lifecycle.grants import reservations
from controller.core.lifecycle.job_events import MOST_KILLED, take_up_better
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import Checkpoint, Phase
from testbed import messages as m
from tests.world import a_running_job, a_world, job


class Campus:
    """A job "a" that runs on a host, with a standby that holds a completed checkpoint of it."""

    def __init__(self) -> None:
        self.world = a_world(5, 1)
        self.host = a_running_job(self.world, job("a", payload_bytes=100_000))
        self.world.run(40.0)
        standby = self.known.standby
        self.standby = standby
        self.sequence = max(self.known.checkpoints)
        self.true = self.known.checkpoints[self.sequence].stored

    @property
    def known(self) -> Any:
        """The job, as the coordinator knows it."""
        return self.world.jobs["a"]

    def say(self, host: str, message: m.FromAgent, after_s: float = 0.0) -> list[do.Effect]:
        """What follows from a word, received so much later."""
        return self.world.coordinator.handle(ev.AgentSaid(host, message), self.world.now_s + after_s)

    def stored(self, host: str, **changes: Any) -> list[do.Effect]:
        """A host says that it holds this, changed so."""
        return self.say(host, m.CheckpointStored(structs.replace(self.true, **changes)))


@pytest.fixture
def campus() -> Campus:
    return Campus()


def facts_of(effects: list[do.Effect], kind: type[f.Fact]) -> list[Any]:
    return [e.fact for e in effects if isinstance(e, do.Record) and isinstance(e.fact, kind)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sequence": 2**62 - 1, "step": 99_999}, "attempts so far"),
        ({"sequence": 5}, "attempts so far"),
        ({"sequence": 2_000_001}, "attempts so far"),
        ({"sequence": 1_900_000, "step": 10**9}, "the job has"),
        ({"step": 1}, "the snapshot of that number"),
        ({"digest": "another"}, "its bytes are not those"),
        ({"payload_bytes": 17}, "another checkpoint"),
    ],
)
def test_a_checkpoint_that_is_none_of_the_job_is_refused_and_not_spread(
    campus: Campus, changes: dict[str, Any], why: str
) -> None:
    before = {number: set(known.holders) for number, known in campus.known.checkpoints.items()}
    effects = campus.stored(campus.standby, **changes)
    [refused] = facts_of(effects, f.CheckpointRefused)
    assert why in refused.reason
    assert {number: known.holders for number, known in campus.known.checkpoints.items()} == before
    assert not [e for e in effects if isinstance(e, do.Tell) and isinstance(e.message, m.SendStored | m.Forget)]


@pytest.mark.parametrize("order", [1, -1])
def test_a_host_holds_a_bounded_number_of_checkpoints_of_a_job(campus: Campus, order: int) -> None:
    first = campus.known.attempt * m.SEQUENCES_PER_ATTEMPT + 500_000
    for number in range(200):
        campus.stored(campus.host, sequence=first + order * number)
    assert len(campus.known.checkpoints) <= MOST_HELD + 2
    assert campus.sequence in campus.known.checkpoints


@pytest.mark.parametrize("step", [2**62, 1001])
def test_no_job_has_done_more_steps_than_it_has(campus: Campus, step: int) -> None:
    attempt, steps = campus.known.attempt, campus.known.spec.steps
    assert steps == 1000
    claim = m.JobClaim("a", attempt, step)
    sequence = attempt * m.SEQUENCES_PER_ATTEMPT + 77
    for word in (
        m.Heartbeat(7, [claim]),
        m.SnapshotTaken("a", attempt, sequence, step, 1, final=False),
        m.SnapshotTaken("a", attempt, sequence + 1, step, 1, final=True),
        m.OwnerReclaims(100.0, False, [claim]),
        m.JobStarted("a", attempt, step, ""),
    ):
        effects = campus.say(campus.host, word)
        assert campus.known.step <= steps
        assert not facts_of(effects, f.CheckpointTaken)
    assert campus.known.phase in (Phase.RUNNING, Phase.MOVING)
    effects = campus.say(campus.host, m.OwnerReclaims(0.0, False, [claim], 1))
    lost = facts_of(effects, f.WorkLost)
    assert all(0.0 <= fact.work_lost_s <= steps * campus.known.spec.step_s for fact in lost)


def test_a_killed_job_goes_on_from_its_checkpoint_so_many_times(campus: Campus) -> None:
    for _ in range(MOST_KILLED):
        attempt, host = campus.known.attempt, campus.known.host
        newest = campus.world.coordinator.cluster.freshest(campus.known)
        effects = campus.say(host, m.JobEnded("a", attempt, "killed", 0, reason="killed by signal 9"))
        assert facts_of(effects, f.JobStopped)[0].cause == "killed"
        [dispatched] = facts_of(effects, f.JobDispatched)
        assert dispatched.restore_sequence == newest.stored.sequence
        campus.world.run(campus.world.now_s + 0.5)
        while campus.known.phase is Phase.FETCHING:
            campus.world.run(campus.world.now_s + 0.1)
    effects = campus.say(
        campus.known.host, m.JobEnded("a", campus.known.attempt, "killed", 0, reason="killed by signal 9")
    )
    [failed] = facts_of(effects, f.JobFailed)
    assert "killed by signal 9" in failed.reason
    assert campus.known.phase is Phase.FAILED


@pytest.mark.parametrize("why_not", ["", "not reported", "its holder is under notice", "they hold more"])
def test_older_copies_go_when_a_newer_one_is_safe(campus: Campus, why_not: str) -> None:
    if "notice" in why_not:
        campus.say(campus.standby, m.OwnerReclaims(100.0, False, []))
    of_use = {campus.host, campus.standby, campus.known.standby, campus.known.vault}
    third = min(campus.world.machines.keys() - of_use)
    number, step = campus.sequence + 40, campus.known.step
    campus.stored(third, **({"sequence": number - 1, "step": step + 9} if "more" in why_not else {}))
    if "reported" not in why_not:
        campus.say(campus.host, m.SnapshotTaken("a", 1, number, step, 100_000, final=False, digest="new"))
    effects = campus.stored(campus.standby, sequence=number, step=step, digest="new")
    told = [e.host for e in effects if isinstance(e, do.Tell) and isinstance(e.message, m.Forget)]
    assert told == ([] if why_not else [third])


# it takes as long as six steps to start
@pytest.mark.parametrize(("attempt", "steps", "stops"), [(2, 12, True), (2, 11, False), (1, 300, False)])
def test_a_job_is_stopped_for_an_earlier_attempts_copy_that_saves_twice_what_starting_from_it_takes(
    campus: Campus, attempt: int, steps: int, stops: bool
) -> None:
    cluster = campus.world.coordinator.cluster
    campus.known.attempt, campus.known.step = attempt, campus.true.step - steps
    campus.known.checkpoints[campus.sequence].holders.add(campus.host)
    take_up_better(cluster, campus.known)
    assert cluster.outbox == [do.Tell(campus.host, m.StopJob("a", attempt))] * stops


def test_other_bytes_than_were_taken_are_no_checkpoint(campus: Campus) -> None:
    number = campus.sequence + 40
    told = m.SnapshotTaken("a", 1, number, campus.known.step, 100_000, final=False, digest="a" * 64)
    campus.say(campus.host, told)
    other, same = (structs.replace(campus.true, sequence=number, step=told.step, digest=d * 64) for d in "fa")
    effects = campus.say(campus.standby, m.CheckpointStored(other))
    assert "its bytes are not those" in facts_of(effects, f.CheckpointRefused)[0].reason
    campus.say(campus.standby, m.CheckpointStored(same))
    assert campus.known.checkpoints[number].stored == same


@pytest.mark.parametrize("ahead", [False, True])
def test_a_host_keeps_all_where_a_newer_number_of_less_work_would_cost_it_more(campus: Campus, ahead: bool) -> None:
    """It holds two numbers of the attempt before: a host forgets by number."""
    known, hosts = campus.known, campus.world.coordinator.cluster.hosts
    elsewhere = next(name for name in sorted(hosts) if name not in (campus.host, campus.standby, known.vault))
    known.attempt += 1
    new, step = known.attempt * m.SEQUENCES_PER_ATTEMPT, known.step
    for number, work in ((campus.sequence + 1, step + ahead), (campus.sequence + 2, step - 1)):
        known.checkpoints[number] = Checkpoint(structs.replace(campus.true, sequence=number, step=work), {elsewhere})
    known.taken[new] = (step, "")
    effects = campus.stored(campus.standby, sequence=new, step=step)
    told = [e.message for e in effects if isinstance(e, do.Tell) and e.host == elsewhere]
    assert told == ([] if ahead else [m.Forget("a", new)])
    assert any(elsewhere in c.holders for c in known.checkpoints.values()) is ahead


@pytest.mark.parametrize(("name", "before"), [("a", 0), ("b", EVERYTHING)])
def test_end_of_no_present_attempt_costs_a_job_that_goes_on_no_checkpoint(
    campus: Campus, name: str, before: int
) -> None:
    effects = campus.say(campus.standby, m.JobEnded(name, 1, "failed", 1))
    assert [e for e in effects if isinstance(e, do.Tell)] == [do.Tell(campus.standby, m.Forget(name, before))]


def test_bytes_of_a_stopped_job_that_goes_elsewhere_count_once_its_source_knows_where_to(campus: Campus) -> None:
    number, cluster = campus.sequence + 40, campus.world.coordinator.cluster
    campus.say(campus.host, m.OwnerReclaims(20.0, False, []))
    campus.say(campus.host, m.SnapshotTaken("a", 1, number, campus.known.step, 100_000, final=True))
    first = campus.known.move.destination
    campus.say(first, m.OwnerReclaims(0.0, False, []))
    [(flow, reservation)] = reservations(cluster)
    assert flow.destination == campus.known.move.destination != first
    assert reservation.since_s == cluster.now_s + LAG_S


@pytest.mark.parametrize("late_s", [-0.1, 0.1])
def test_move_is_in_time_if_the_job_runs_at_its_destination_before_the_notice_is_over(
    campus: Campus, late_s: float
) -> None:
    step, number = campus.known.step, campus.sequence + 40
    final = structs.replace(campus.true, sequence=number, step=step, digest="final")
    campus.say(campus.host, m.OwnerReclaims(10.0, False, []))
    destination = campus.known.move.destination
    campus.say(campus.host, m.SnapshotTaken("a", 1, number, step, 100_000, final=True))
    campus.say(destination, m.CheckpointStored(final))
    effects = campus.say(destination, m.JobStarted("a", 2, step, "final", number), 10.0 + late_s)
    assert [fact.in_time for fact in facts_of(effects, f.MigrationFinished)] == [late_s < 0.0]
