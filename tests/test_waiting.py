"""No job waits for ever for a word that does not come."""

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from controller.core.lifecycle.attempts import dispatch, fair_shares, release
from controller.core.lifecycle.grants import close_flows, open_flow
from controller.core.lifecycle.membership import MAX_REST_LEASES
from controller.core.lifecycle.protection import improve_standby
from controller.core.lifecycle.reconcile import MAX_ASKED
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from controller.core.model.entities import MOST_FAILED_FETCHES, OVER, CheckpointFlow, JobState, Phase
from testbed import messages as m
from tests.world import a_running_job, a_world, calm_and_finish, job
from topologies.spec import TrafficClass


class Silent:
    """A coordinator whose agents say nothing but what a test says for them, and whose leases do not end."""

    def __init__(self) -> None:
        world = a_world(5, 0)
        self.host = a_running_job(world, job("a", payload_bytes=100_000))
        world.run(40.0)
        self.core, self.now_s = world.coordinator, world.now_s
        self.job = self.core.cluster.jobs["a"]
        for host in self.core.cluster.hosts.values():
            self.core.cluster.lease(host, inf)

    def say(self, host: str, message: m.FromAgent) -> list[do.Effect]:
        return self.core.handle(ev.AgentSaid(host, message), self.now_s)

    def wakes(self, until_s: float) -> Iterator[list[do.Effect]]:
        """What follows whenever the coordinator wants to be woken."""
        while (due_s := self.core.next_deadline_s()) < until_s:
            self.now_s = max(self.now_s, due_s)
            yield self.core.handle(ev.Woke(), self.now_s)

    def fetch(self) -> tuple[str, str]:
        """(sender, receiver) of the job's checkpoint, which is on its way to a host that has none."""
        cluster = self.core.cluster
        checkpoint = cluster.freshest(self.job)
        cluster.advance(self.job, "interrupted")
        release(cluster, self.job)
        to = next(h for h in cluster.hosts.values() if h.usable and h.name not in checkpoint.holders)
        dispatch(cluster, self.job, to)
        [(sender, _)] = orders(self.core.handle(ev.Woke(), self.now_s), m.SendStored)
        assert self.job.phase is Phase.FETCHING
        return sender, to.name


def test_of_all_holders_the_one_sends_that_can_have_a_copy_there_first(silent: Silent) -> None:
    """It is behind the other recoveries of its way. A job's own stream takes nothing of what one more would get."""
    cluster, job_ = silent.core.cluster, silent.job
    path = [*cluster.paths.of(silent.host, job_.standby or "")]
    own, other = fair_shares(cluster, [job_, JobState(job("b"))])
    assert own[path].tolist() == pytest.approx((2.0 * other[path]).tolist())
    first, to = silent.fetch()
    elsewhere = next(name for name in sorted(cluster.hosts) if name not in (first, to))
    cluster.jobs.add(JobState(job("b", payload_bytes=50_000_000)))
    open_flow(cluster, CheckpointFlow("b", first, elsewhere, TrafficClass.PLANNED, sequence=1))
    second, _ = silent.fetch()
    close_flows(cluster, job="b")
    narrow = cluster.routes.way(second, to)[0]
    silent.core.handle(ev.LinksChanged([(narrow.source, narrow.target, 1e4)]), silent.now_s)
    assert [silent.fetch()[0], second] == [first, second] != [first, first]


def test_the_only_copy_is_dropped_after_the_second_start_that_failed_on_its_host(silent: Silent) -> None:
    _, to = silent.fetch()
    stored = silent.job.restore.stored
    silent.say(to, m.CheckpointStored(stored))
    for name in silent.core.cluster.hosts.keys() - {to}:
        silent.say(name, m.OwnerReclaims(0.0, False, []))
    silent.job.restore.holders.intersection_update([to])
    for forgets in ([], [(to, m.Forget("a", stored.sequence + 1))]):
        said = silent.say(to, m.JobEnded("a", silent.job.attempt, "failed", 0, reason="no GPU here"))
        assert orders(said, m.Forget) == forgets
    assert silent.job.checkpoints == {}


def test_a_copy_that_its_sender_finds_damaged_is_none_and_its_receiver_may_have_another(silent: Silent) -> None:
    sender, to = silent.fetch()
    checkpoint = silent.job.restore
    ended = m.TransferEnded("t", "a", checkpoint.stored.sequence, to, False, 0, 1, 0.1, own_fault=True)
    silent.say(sender, ended)
    assert sender not in checkpoint.holders
    assert to not in silent.job.obstacles.unfit


def test_a_standby_is_given_up_after_a_second_checkpoint_in_a_row_that_failed(silent: Silent) -> None:
    standby = silent.job.standby
    for ok in (False, True, False, False):
        assert silent.job.standby == standby
        silent.say(silent.host, m.TransferEnded("t", "a", 1_000_001, standby, ok, 0, 1, 0.1))
    assert silent.job.standby != standby


def orders(effects: list[do.Effect], kind: type[Any]) -> list[tuple[str, Any]]:
    return [(e.host, e.message) for e in effects if isinstance(e, do.Tell) and isinstance(e.message, kind)]


@pytest.fixture
def silent() -> Silent:
    return Silent()


def test_a_checkpoint_that_arrived_without_a_word_is_ordered_again_and_its_receiver_says_so(silent: Silent) -> None:
    sender, to = silent.fetch()
    stored = silent.job.restore.stored
    silent.say(sender, m.TransferEnded("t", "a", stored.sequence, to, True, 0, 1, 0.1))
    again = next(found for effects in silent.wakes(1000.0) if (found := orders(effects, m.SendStored)))
    assert [(host, order.sequence, order.destination.host) for host, order in again] == [(sender, stored.sequence, to)]
    silent.say(to, m.CheckpointStored(stored))  # it has had it all the time
    assert silent.job.phase is Phase.STARTING


def test_a_receiver_that_never_says_anything_is_given_up(silent: Silent) -> None:
    _, to = silent.fetch()
    asked: list[float] = []  # when
    for effects in silent.wakes(1e6):
        asked += [silent.now_s for _ in orders(effects, m.SendStored)]
        if any(isinstance(e, do.Record) and isinstance(e.fact, f.JobStopped) for e in effects):
            break
    assert len(asked) == MAX_ASKED
    pauses_s = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses_s[1:] == pytest.approx([2.0 * pause_s for pause_s in pauses_s[:-1]])
    assert silent.job.host != to
    assert to in silent.job.obstacles.unfit


@pytest.mark.parametrize("told", [True, False])
def test_a_copy_that_never_arrives_is_given_up_however_far_apart_the_tries_are(silent: Silent, told: bool) -> None:
    cluster = silent.core.cluster
    silent.fetch()
    [checkpoint] = silent.job.checkpoints.values()
    for holder in sorted(checkpoint.holders):  # under a notice that does not end it can send, and runs nothing new
        silent.say(holder, m.OwnerReclaims(1e6, False, []))
    for _ in range(4 * MOST_FAILED_FETCHES):
        if silent.job.phase is not Phase.FETCHING:
            break
        assert silent.job.restore is not None
        [flow] = [flow for flow in cluster.flows.values() if flow.destination == silent.job.host]
        attempt = silent.job.attempt
        if told:
            silent.now_s = max(silent.now_s, *silent.job.obstacles.unfit.values(), 0.0) + 1.0
            ended = m.TransferEnded("t", "a", flow.sequence, flow.destination, False, 0, 1, 0.1, reason="rotten")
            silent.say(flow.source, ended)
        for _ in silent.wakes(silent.now_s + (1.0 if told else 1e7)):
            if silent.job.attempt != attempt:
                break
    assert silent.job.phase is Phase.STARTING
    assert silent.job.restore is None
    assert silent.job.step == 0


def test_job_has_failed_when_it_is_said_twice_and_goes_on_elsewhere_the_first_time(silent: Silent) -> None:
    """A broken host fails every job that comes to it."""
    first = silent.host
    said = silent.say(first, m.JobEnded("a", silent.job.attempt, "failed", 60, reason="no GPU here"))
    [again] = [e.fact for e in said if isinstance(e, do.Record) and isinstance(e.fact, f.JobDispatched)]
    assert again.host != first
    assert again.restore_step > 0
    silent.say(again.host, m.JobStarted("a", silent.job.attempt, again.restore_step, "", again.restore_sequence))
    last = silent.say(again.host, m.JobEnded("a", silent.job.attempt, "failed", 70, reason="it raised"))
    [failed] = [e.fact for e in last if isinstance(e, do.Record) and isinstance(e.fact, f.JobFailed)]
    assert (failed.host, failed.reason) == (again.host, f"it raised ({first} had said so before)")


def test_a_start_that_is_not_answered_is_ordered_to_stop(silent: Silent) -> None:
    _, to = silent.fetch()
    silent.say(to, m.CheckpointStored(silent.job.restore.stored))
    attempt = silent.job.attempt
    told = next(found for effects in silent.wakes(1e6) if (found := orders(effects, m.StopJob)))
    assert told == [(to, m.StopJob("a", attempt))]
    silent.say(to, m.JobEnded("a", attempt, "stopped", 0, reason="it is not here"))
    assert silent.job.attempt == attempt + 1


def test_a_move_whose_notice_never_ends_is_ordered_to_stop(silent: Silent) -> None:
    silent.say(silent.host, m.OwnerReclaims(10.0, False, []))
    assert silent.job.phase is Phase.MOVING
    told = next(found for effects in silent.wakes(1e6) if (found := orders(effects, m.StopJob)))
    assert told == [(silent.host, m.StopJob("a", 1))]


def test_the_page_says_of_each_phase_what_ends_it() -> None:
    page = (Path(__file__).parents[1] / "docs/how/job.md").read_text()
    missing = [phase for phase in Phase if phase not in OVER and f"| `{phase}` |" not in page]
    assert missing == []


def test_a_host_that_is_toggled_twice_a_second_does_not_get_the_job_again_and_again() -> None:
    """It had got it twelve times in seven seconds; when its owner leaves it alone, the job goes on there."""
    world = a_world(1, 0, buildings=1)
    host = world.running(until_s=30.0)
    for at_s in [30.0 + 0.5 * n for n in range(14)]:
        world.at(at_s, lambda: world.reclaim(host))
        world.at(at_s + 0.25, lambda: world.give_back(host))
    world.run(37.0)
    given = [fact.attempt for fact in world.of(f.JobDispatched)]
    assert len(given) <= 3
    assert world.coordinator.cluster.hosts[host].rest_s == MAX_REST_LEASES * world.protocol.lease_s
    world.run(37.0 + 21.0 * world.protocol.lease_s)
    assert world.jobs["a"].phase is Phase.RUNNING
    last_s = world.at_s(f.JobDispatched)[-1]
    world.reclaim(host)
    world.run(world.now_s + 5.0)
    world.give_back(host)
    world.run(world.now_s + 2.0)
    assert world.at_s(f.JobDispatched)[-1] > last_s, "it had stayed lent: it gets the job at once"
    calm_and_finish(world)


def test_the_job_that_is_most_over_its_budget_gets_another_standby_if_that_is_twice_as_well_connected() -> None:
    world = a_world(7, 0, buildings=1)
    cluster, jobs = world.coordinator.cluster, []
    for name in "ab":
        a_running_job(world, job(name, loss_budget_s=5.0), world.now_s + 4.0)
        jobs.append(world.jobs[name])
    for each, interval_s in zip(jobs, (10.0, 20.0), strict=True):
        each.stream.endangered, each.interval_s = True, interval_s
    before = [each.standby for each in jobs]
    for part, moved in ((0.6, [False, False]), (0.4, [False, True])):
        links = [cluster.routes.way(each.host, each.standby)[-1] for each in jobs]
        cluster.links_changed({link: part * cluster.campus.capacity_bytes_per_s[link] for link in links})
        improve_standby(cluster)
        assert [each.standby != first for each, first in zip(jobs, before, strict=True)] == moved
