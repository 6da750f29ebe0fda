"""What the agent decides, event by event, beside what the transcripts of `test_cores_scenarios` hold."""

from typing import Any

import pytest
from msgspec.structs import replace

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.agent.core.announced import refusal
from testbed.agent.core.running import AttemptPhase
from testbed.bounds import MAX_ENDED, MAX_STORED
from testbed.errors import InvariantBroken

JOB = m.JobSpec("a", 1000, 0.1, 1_000_000)
STANDBY = m.Endpoint("h2", "10.0.0.2", 7200)
TARGET = m.Endpoint("h3", "10.0.0.3", 7200)
LEASE_S = 3.0


def agent() -> AgentCore:
    """Registered at 10 s: Hello sent at 10.0, Welcome received at 10.2."""
    core = AgentCore("h1", 1, 7200)
    core.handle(ev.Connected(), 10.0)
    core.handle(ev.Received(m.Welcome(LEASE_S, 1.0)), 10.2)
    return core


def running(attempt: int = 1, restore: m.StoredCheckpoint | None = None) -> AgentCore:
    core = agent()
    core.handle(ev.Received(m.StartJob(JOB, attempt, restore)), 10.3)
    core.handle(ev.WorkloadStarted("a", attempt, restore.step if restore else 0, "digest"), 10.4)
    return core


def said(effects: list[do.Effect], kind: type) -> list[Any]:
    return [e.message for e in effects if isinstance(e, do.Send) and isinstance(e.message, kind)]


def of(effects: list[do.Effect], kind: type) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]


def protect(core: AgentCore, now_s: float, first_s: float = 0.0, rate: float = 1e6) -> list[do.Effect]:
    return core.handle(ev.Received(m.Protect("a", 1, STANDBY, rate, 5.0, first_s)), now_s)


def snapshot(core: AgentCore, sequence: int, now_s: float, *, final: bool = False) -> list[do.Effect]:
    taken = m.StoredCheckpoint("a", sequence, 7, 1_000_000, "digest")
    return core.handle(ev.SnapshotDone(1, taken, final), now_s)


def ordered(core: AgentCore, message: m.ToAgent, now_s: float) -> list[do.Effect]:
    return core.handle(ev.Received(message), now_s)


def failed(
    core: AgentCore, job: str, sequence: int, host: str, now_s: float, *, retryable: bool = True
) -> list[do.Effect]:
    account = m.TransferEnded("t", job, sequence, host, False, 1, 0, 1.0)
    return core.handle(ev.SendEnded(account, retryable), now_s)


def ended(core: AgentCore, outcome: m.Outcome, step: int, now_s: float, **how: Any) -> list[do.Effect]:
    fenced = how.pop("fenced", False)
    return core.handle(ev.WorkloadEnded(m.JobEnded("a", 1, outcome, step, **how), fenced), now_s)


# ---------------------------------------------------------------- the lease


def test_an_acknowledgement_extends_the_lease_from_when_its_heartbeat_was_sent() -> None:
    core = agent()
    core.handle(ev.Woke(), 11.7)
    effects = core.handle(ev.Received(m.HeartbeatAck(core.lease.number)), 11.9)
    assert effects[0] == do.ExtendLease(11.7 + LEASE_S)
    [beat] = said(core.handle(ev.Woke(), 13.2), m.Heartbeat)
    assert beat.answered_s == pytest.approx(0.2)


def test_acknowledgement_counts_once_not_after_a_later_one_and_not_on_another_connection() -> None:
    core = agent()
    core.handle(ev.Woke(), 11.7)
    core.handle(ev.Woke(), 13.2)
    assert ordered(core, m.HeartbeatAck(2), 13.3) == [do.ExtendLease(13.2 + LEASE_S)]
    assert ordered(core, m.HeartbeatAck(2), 13.3) == ordered(core, m.HeartbeatAck(1), 13.4) == []
    core.handle(ev.Woke(), 14.7)
    core.handle(ev.Disconnected(), 14.8)
    core.handle(ev.Connected(), 14.9)
    assert ordered(core, m.HeartbeatAck(3), 15.0) == []


def test_host_that_runs_nothing_is_silent_for_half_a_lease_until_a_job_begins_there() -> None:
    core = agent()
    assert core.lease.heartbeat_at_s == pytest.approx(10.2 + LEASE_S / 2)
    core.handle(ev.Received(m.StartJob(JOB, 1, None)), 10.5)
    assert core.lease.heartbeat_at_s == pytest.approx(11.5), "the usual pace from now on"
    core.handle(ev.Woke(), 11.5)
    assert core.lease.heartbeat_at_s == pytest.approx(12.5)


@pytest.mark.parametrize(("welcomed_s", "runs", "beats"), [(10.2, False, 0), (10.2, True, 1), (12.9, False, 1)])
def test_hello_of_an_idle_host_is_a_heartbeat_unless_its_lease_has_run_for_long(
    welcomed_s: float, runs: bool, beats: int
) -> None:
    core = running() if runs else AgentCore("h1", 1, 7200)
    core.handle(ev.Connected(), 10.0)
    assert len(said(ordered(core, m.Welcome(LEASE_S, 1.0), welcomed_s), m.Heartbeat)) == beats


def test_the_longest_that_counters_were_late_is_told_once() -> None:
    core = agent()
    for lag_s, at_s in ((0.0, 10.3), (1.7, 10.5), (0.001, 10.6)):
        core.handle(ev.Sampled({}, [], m.EgressSample(0.1, 0, 0, 0), lag_s), at_s)
    [beat] = said(core.handle(ev.Woke(), core.lease.heartbeat_at_s), m.Heartbeat)
    assert beat.loop_lag_s == 1.7
    [beat] = said(core.handle(ev.Woke(), core.lease.heartbeat_at_s), m.Heartbeat)
    assert beat.loop_lag_s == 0.0


def test_other_drops_are_reported_at_once_and_the_same_ones_are_not() -> None:
    core, seen = agent(), [ev.Sampled({"planned": m.ClassCount(9, 9, drops)}, [], None, 0.0) for drops in (0, 2, 2, 3)]
    assert [len(said(core.handle(sampled, 10.3), m.Heartbeat)) for sampled in seen] == [0, 1, 0, 1]


def test_the_last_samples_that_no_connection_carried_are_sent_on_the_next() -> None:
    core = AgentCore("h1", 1, 7200)
    for number in range(150):
        core.handle(ev.Sampled({}, [], m.EgressSample(0.1, number, 0, 0), 0.0), 10.0)
    core.handle(ev.Connected(), 10.1)
    ordered(core, m.Welcome(LEASE_S, 1.0), 10.2)
    [beat] = said(core.handle(ev.Woke(), core.lease.heartbeat_at_s), m.Heartbeat)
    assert [sample.migration_bytes for sample in beat.samples] == list(range(50, 150))


# ---------------------------------------------------------------- Hello


def test_hello_lists_the_last_checkpoint_of_each_job_and_as_many_as_a_frame_has_room_for() -> None:
    core = agent()
    for number in range(MAX_STORED + 1):
        for sequence in (1, 2):
            core.handle(ev.CheckpointReceived(m.StoredCheckpoint(f"j{number:05}", sequence, 1, 1, "")), 10.3)
    [hello] = said(core.handle(ev.Connected(), 10.4), m.Hello)
    assert len(hello.stored) == len({known.job for known in hello.stored}) == MAX_STORED
    assert {known.sequence for known in hello.stored} == {2}


def test_hello_lists_the_last_ends_and_an_end_is_listed_until_the_job_is_forgotten_or_begins_again() -> None:
    core, names = agent(), [f"j{number}" for number in range(MAX_ENDED + 1)]
    for name in names:
        ordered(core, m.StartJob(replace(JOB, name=name), 1, None), 10.3)
        core.handle(ev.WorkloadEnded(m.JobEnded(name, 1, "failed", 1)), 10.3)
    [hello] = said(core.handle(ev.Connected(), 10.4), m.Hello)
    assert [each.job for each in hello.ended] == names[1:]
    ordered(core, m.Forget(names[-1], 0), 10.5)
    ordered(core, m.StartJob(replace(JOB, name=names[0]), 2, None), 10.5)
    [hello] = said(core.handle(ev.Connected(), 10.6), m.Hello)
    assert [each.job for each in hello.ended] == names[1:-1]


def test_the_last_snapshot_of_a_finished_job_is_reported_where_the_job_is_to_go_on() -> None:
    core = running()
    snapshot(core, 1_000_001, 10.5)
    kept = ended(core, "finished", 1000, 10.6)
    assert said(kept, m.CheckpointStored) == []
    [hello] = said(core.handle(ev.Connected(), 10.7), m.Hello)
    assert [known.sequence for known in hello.stored] == [1_000_001]
    told = [said(ordered(core, m.Forget("a", 0), 10.8), m.CheckpointStored) for _ in range(2)]
    assert told == [[m.CheckpointStored(hello.stored[0])], []]


# ---------------------------------------------------------------- the owner


def test_a_closed_switch_kills_first_cuts_transfers_and_tells_last() -> None:
    core = running()
    protect(core, 10.5)
    snapshot(core, 1_000_001, 10.6)
    effects = core.handle(ev.SwitchRead(False, 0.0), 10.7)
    kinds = [type(e) for e in effects]
    assert kinds[0] is do.KillWorkload
    assert kinds.index(do.AbortSending) < kinds.index(do.Send)
    reclaimed = said(effects, m.OwnerReclaims)[0]
    assert reclaimed == m.OwnerReclaims(0.0, False, [m.JobClaim("a", 1, 7)], closures=1)


def test_a_job_that_is_protected_again_stays_though_the_order_to_stay_was_lost() -> None:
    core = running()
    core.handle(ev.Received(m.Migrate("a", 1, TARGET, 2e6, 5.0)), 10.5)
    snapshot(core, 1_000_001, 10.6)  # its copy is on its way, faster than any stream may be
    effects = core.handle(ev.Received(m.Protect("a", 1, TARGET, 1e6, 5.0, 9.0)), 10.8)
    assert of(effects, do.AbortSending) == [do.AbortSending("a", TARGET.host)]
    assert not of(core.handle(ev.Woke(), 15.6), do.TakeSnapshot), "it was to stop then"


def test_a_move_that_is_called_off_leaves_snapshots_here_until_the_job_is_protected_anew() -> None:
    core = running()
    protect(core, 10.5, first_s=9.0)
    ordered(core, m.Migrate("a", 1, TARGET, 2e6, 5.0), 10.6)
    ordered(core, m.CancelTransfers("a", TARGET.host), 10.7)
    assert of(snapshot(core, 1_000_001, 10.8), do.StartSending) == []
    protect(core, 10.9)
    assert [send.destination for send in of(snapshot(core, 1_000_002, 11.0), do.StartSending)] == [STANDBY]


# ---------------------------------------------------------------- what failed and is tried again


def test_snapshot_of_a_move_that_failed_is_taken_again_after_a_moment() -> None:
    core = running()
    [first] = of(ordered(core, m.Migrate("a", 1, TARGET, 2e6, 5.0), 11.0), do.TakeSnapshot)
    core.handle(ev.SnapshotFailed("a", 1, False, "no room"), 11.1)
    assert of(core.handle(ev.Woke(), 11.3), do.TakeSnapshot) == []
    [again] = of(core.handle(ev.Woke(), 11.4), do.TakeSnapshot)
    assert (again.final, again.sequence) == (False, first.sequence + 1)


def test_between_two_snapshots_there_is_a_step_however_short_the_interval() -> None:
    core = running()
    ordered(core, m.Protect("a", 1, None, 0.0, 0.01, 0.0), 11.0)
    core.running["a"].speed = 2.0
    snapshot(core, 1_000_001, 11.2)
    assert of(core.handle(ev.Woke(), 11.24), do.TakeSnapshot) == []
    assert of(core.handle(ev.Woke(), 11.26), do.TakeSnapshot)


def test_transfer_to_a_standby_that_failed_is_reported_and_waits_for_the_next_checkpoint() -> None:
    core = running()
    protect(core, 10.5)
    snapshot(core, 1_000_001, 10.6)
    assert said(failed(core, "a", 1_000_001, "h2", 11.0), m.TransferEnded)
    assert of(core.handle(ev.Woke(), 12.0), do.StartSending) == []


@pytest.mark.parametrize("of_move", [True, False])
def test_transfer_for_which_a_job_waits_is_tried_again_by_the_last_order_given(of_move: bool) -> None:
    """To that address, under that number, at that rate."""
    core, to, job, sequence = running(), replace(TARGET, ticket=9), "a" if of_move else "b", 1_000_001

    def order(destination: m.Endpoint, at_s: float) -> None:
        moves = m.Migrate("a", 1, destination, 2e6, 5.0), m.SendStored("b", sequence, destination, 2e6)
        ordered(core, moves[not of_move], at_s)

    order(TARGET, 10.5)
    snapshot(core, sequence, 10.6)
    assert said(failed(core, job, sequence, "h3", 11.0), m.TransferEnded) == []
    order(to, 11.1)
    assert len(ordered(core, m.Grant(job, "h3", 5e5), 11.1)) == 1
    assert ordered(core, m.Grant(job, "h3", 5e5), 11.1) == []
    assert of(core.handle(ev.Woke(), 11.2), do.StartSending) == []
    [again] = of(core.handle(ev.Woke(), 11.3), do.StartSending)
    assert (again.job, again.destination, again.rate_bytes_per_s) == (job, to, 5e5)
    assert said(failed(core, job, sequence, "h3", 11.4, retryable=False), m.TransferEnded)


def test_a_transition_that_is_not_in_the_table_is_a_bug_that_says_where() -> None:
    core = running()
    core.handle(ev.WorkloadStarted("a", 1, 3, "again"), 10.5)  # a process may say so twice
    job = core.running["a"]
    assert (job.phase, job.step) == (AttemptPhase.RUNNING, 0)
    core.handle(ev.Received(m.Migrate("a", 1, TARGET, 2e6, 1.0)), 10.5)
    snapshot(core, 1_000_001, 10.6, final=True)
    assert job.phase is AttemptPhase.MOVED
    for trigger in ("started", "final snapshot"):
        with pytest.raises(InvariantBroken, match=f"a, attempt 1: no transition '{trigger}' from moved"):
            job.to(trigger)


# ---------------------------------------------------------------- recoveries


def test_a_host_under_notice_sends_what_it_keeps_and_a_closed_one_does_not() -> None:
    noticed, closed = agent(), agent()
    noticed.handle(ev.SwitchRead(False, 10.0), 10.2)
    closed.handle(ev.SwitchRead(False, 0.0), 10.2)
    order = ev.Received(m.SendStored("b", 5, TARGET, 1e6))
    assert of(noticed.handle(order, 10.3), do.StartSending)
    assert closed.handle(order, 10.3) == []
    closed.handle(ev.SwitchRead(True), 10.4)
    assert of(closed.handle(order, 10.5), do.StartSending)


def test_recoveries_stop_with_the_connection_and_checkpoints_of_running_jobs_do_not() -> None:
    core = running()
    protect(core, 10.5)
    snapshot(core, 1_000_001, 10.6)
    core.handle(ev.Received(m.SendStored("b", 5, TARGET, 1e6)), 10.6)
    assert core.handle(ev.Disconnected(), 10.7) == [do.AbortSending("b", "h3")]
    assert list(core.sends.table) == [("a", "h2")]
    assert said(core.handle(ev.Connected(), 10.8), m.Hello)[0].sending == [("a", "h2")]


# ---------------------------------------------------------------- only what was announced

EXPECTED = m.Expect(7, "b", 1_000_001, 1_999_999, "h5", 1_000)
OFFER = {"ticket": 7, "job": "b", "sequence": 1_000_001, "payload_bytes": 1_000, "sender": "h5"}


def expecting() -> AgentCore:
    core = agent()
    assert core.handle(ev.Received(EXPECTED), 10.3) == []
    return core


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"ticket": 8}, "no such transfer"),
        ({"job": "a"}, "a checkpoint of b is announced, not of a"),
        ({"sequence": 2_000_000}, "1000001 to 1999999 are announced"),
        ({"sequence": 1_000_000}, "1000001 to 1999999 are announced"),
        ({"payload_bytes": 1_001}, "at most 1000 bytes"),
        ({"sender": "h6"}, "announced from h5, and comes from h6"),
    ],
)
def test_transfer_that_differs_from_its_announcement_is_refused(lie: dict[str, Any], said: str) -> None:
    assert said in refusal(expecting().announced, **{**OFFER, **lie})


def test_announcement_outlives_the_connection_and_ends_with_the_next_welcome_or_when_it_is_withdrawn() -> None:
    """Transfers go on while a coordinator begins again; behind its Welcome, what still holds is told again."""
    core = expecting()
    core.handle(ev.Disconnected(), 11.0)
    assert refusal(core.announced, **OFFER) == ""
    core.handle(ev.Connected(), 12.0)
    core.handle(ev.Received(m.Welcome(LEASE_S, 1.0)), 12.1)
    assert 7 not in core.announced
    for first in (1_000_001, 5):  # of the same number
        ordered(core, m.Expect(7, "b", first, first, "h5", 1_000), 12.2)
    assert refusal(core.announced, **OFFER) == "sequences 5 to 5 are announced, not 1000001"
    for ticket in (99, 7):
        assert 7 in core.announced
        ordered(core, m.ExpectNoMore(ticket), 12.3)
    assert refusal(core.announced, **OFFER) == "no such transfer is announced"


# ---------------------------------------------------------------- asked to end


def test_a_job_that_is_asked_to_end_is_ended_with_grace_and_said_to_be_stopped_when_its_process_is_gone() -> None:
    core = running()
    protect(core, 10.5)
    asked = core.handle(ev.Received(m.StopJob("a", 1, 2.0)), 11.0)
    assert of(asked, do.EndWorkload) == [do.EndWorkload("a", 1, 2.0)]
    assert said(asked, m.JobEnded) == []
    assert core.running["a"].phase is AttemptPhase.ENDING
    assert core.handle(ev.Received(m.StopJob("a", 1, 2.0)), 11.1) == []
    assert ordered(core, m.Migrate("a", 1, STANDBY, 1e6, 0.05), 11.1) == []
    assert of(core.handle(ev.Woke(), 11.2), do.TakeSnapshot) == []
    gone = core.handle(ev.WorkloadEnded(m.JobEnded("a", 1, "failed", 9, reason="ended")), 12.0)
    [ended] = said(gone, m.JobEnded)
    assert (ended.outcome, ended.attempt) == ("stopped", 1)
    assert core.running == {}
    assert core.ended == {}


def test_an_owner_or_a_lapsed_lease_does_not_wait_for_the_grace() -> None:
    core = running()
    core.handle(ev.Received(m.StopJob("a", 1, 60.0)), 11.0)
    closed = core.handle(ev.SwitchRead(False, 0.0), 11.1)
    assert isinstance(closed[0], do.KillWorkload)
    core = running()
    core.handle(ev.Received(m.StopJob("a", 1, 60.0)), 11.0)
    assert isinstance(core.handle(ev.Woke(), core.lease.lease_until_s)[0], do.KillWorkload)
    [told] = said(ended(running(), "killed", 5, 11.0, fenced=True), m.JobEnded)  # by its own watch
    assert (told.outcome, told.reason) == ("stopped", "the lease lapsed")


@pytest.mark.parametrize("order", [m.StopJob("b", 1), m.StopJob("b", 1, 2.0), m.Migrate("b", 1, TARGET, 1e6, 5.0)])
def test_order_about_a_job_that_is_not_here_is_answered_by_its_end(order: m.ToAgent) -> None:
    [told] = said(ordered(running(), order, 10.5), m.JobEnded)
    assert (told.job, told.outcome, told.reason) == ("b", "stopped", "it is not here")


def test_an_older_attempt_is_refused_and_the_same_one_again_is_no_second() -> None:
    core = running(3)
    older = core.handle(ev.Received(m.StartJob(JOB, 2, None)), 10.5)
    assert [ended.reason for ended in said(older, m.JobEnded)] == ["attempt 3 is here"]
    again = core.handle(ev.Received(m.StartJob(JOB, 3, None)), 10.6)
    assert again == [do.Send(m.JobStarted("a", 3, 0, "digest", None))]


def test_a_start_that_its_own_end_has_overtaken_is_refused_and_a_later_attempt_is_not() -> None:
    core = agent()
    core.handle(ev.Received(m.StopJob("a", 3, 2.0)), 10.3)
    core.handle(ev.Received(m.Forget("a", 2**62)), 10.3)
    for name, attempt in [("a", 2), *((f"c{number}", 1) for number in range(63))]:
        ordered(core, m.StopJob(name, attempt), 10.3)
    late = core.handle(ev.Received(m.StartJob(JOB, 3, None)), 10.4)
    assert [ended.reason for ended in said(late, m.JobEnded)] == ["it was called off before"]
    assert of(core.handle(ev.Received(m.StartJob(JOB, 4, None)), 10.5), do.StartWorkload) != []
    for number in range(200):
        core.handle(ev.Received(m.StopJob(f"b{number}", 1)), 10.6)
    assert len(core.called_off) <= 64
    late = core.handle(ev.Received(m.StartJob(replace(JOB, name="b199"), 1, None)), 10.7)
    assert of(late, do.StartWorkload) == []
