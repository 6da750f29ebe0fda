"""How much Python a decision runs does not grow with the campus: what is asked of every host, job or flow stands in columns.

Calls are counted, not timed: a loop that calls something for each job is found at 60 hosts as surely as at 5 000.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from controller.core.lifecycle import finish
from controller.core.lifecycle.grants import close_flow, open_flow, presync_flow, settle
from controller.core.network.sharing import ShareMemo
from controller.warm_up import rehearse
from experiments.benchmarks.decisions import AtWork
from experiments.benchmarks.decisions_world import coordinator_at_work
from topologies.presets import three_tier

SMALL, LARGE = 60, 240
FEW = 1.25  # times as many calls, where there are four times as many hosts, jobs and flows


@pytest.fixture(scope="module")
def at_work() -> tuple[AtWork, AtWork]:
    """The same campus in two sizes, both in the middle of their work, with nothing left to be told."""
    rehearse()
    found = [AtWork(coordinator_at_work(three_tier(hosts, 4, 2)), 1) for hosts in (SMALL, LARGE)]
    for one in found:
        for _ in range(3):
            one._periodic_tick()
            one._checkpoints()
            one._destinations(1)
    return found[0], found[1]


def calls(work: Callable[[], object]) -> int:
    """Functions of Python that `work` calls, comprehensions among them."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_a_destination_is_chosen_without_asking_each_host_or_job(at_work: tuple[AtWork, AtWork]) -> None:
    few, many = (calls(lambda one=one: one._destinations(1)) for one in at_work)
    assert many < FEW * few


def test_all_checkpoints_are_planned_without_asking_each_job(at_work: tuple[AtWork, AtWork]) -> None:
    few, many = (calls(one._checkpoints) for one in at_work)
    assert many < FEW * few


def test_a_tick_in_which_nothing_changed_asks_no_job_and_shares_links_once(
    at_work: tuple[AtWork, AtWork], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    for name in ("plan_checkpoints", "settle"):
        whole = getattr(finish, name)
        monkeypatch.setattr(
            finish, name, lambda cluster, whole=whole, name=name: (runs.append(name), whole(cluster))[1]
        )
    few, many = (calls(one._periodic_tick) for one in at_work)
    assert runs == ["plan_checkpoints", "settle"] * 2
    assert many < FEW * few


def test_streams_are_counted_anew_only_when_a_job_has_moved(at_work: tuple[AtWork, AtWork]) -> None:
    cluster = at_work[0].core.cluster
    known, job = cluster.flows.crossing(), next(iter(cluster.jobs.values()))
    at_work[0]._periodic_tick()
    at_work[0]._destinations(1)
    assert cluster.flows.crossing() is known
    cluster.put_job(job, job.host)
    assert cluster.flows.crossing() is not known
    assert cluster.flows.crossing().tolist() == known.tolist()


def test_a_copy_to_a_vault_is_no_stream(at_work: tuple[AtWork, AtWork]) -> None:
    cluster = at_work[0].core.cluster
    job = next(job for job in cluster.jobs.values() if job.standby not in (None, job.host))
    streams, crossing = cluster.flows.streams(), cluster.flows.crossing().tolist()
    vault = next(name for name in cluster.hosts if name not in (job.host, job.standby))
    copy = presync_flow(job.name, job.standby or "", vault, 1.0)
    open_flow(cluster, copy)
    assert cluster.flows.streams() is streams and cluster.flows.crossing().tolist() == crossing
    close_flow(cluster, copy)
    assert cluster.flows.streams() is streams and cluster.flows.crossing().tolist() == crossing
    close_flow(cluster, cluster.flows[f"{job.name}:{job.host}>{job.standby}"])
    assert sum(cluster.flows.crossing()) == sum(crossing) - len(
        cluster.paths.of(job.host or "", job.standby or "")
    )


def test_few_flows_are_shared_as_they_were_before_without_filling_links() -> None:
    cluster, filled = coordinator_at_work(three_tier(20, 2)).cluster, list[int]()
    share = cluster.policy.share
    cluster.policy = replace(cluster.policy, share=lambda *given: (filled.append(1), share(*given))[1])
    job = next(job for job in cluster.jobs.values() if job.standby not in (None, job.host))
    vault = next(name for name in cluster.hosts if name not in (job.host, job.standby))

    def copies() -> list[float]:
        copy = presync_flow(job.name, job.standby or "", vault, 1e8)
        open_flow(cluster, copy)
        settle(cluster)
        rates = [flow.rate_bytes_per_s for flow in cluster.flows.values()]
        close_flow(cluster, copy)
        settle(cluster)
        return [*rates, *(flow.rate_bytes_per_s for flow in cluster.flows.values())]

    copies(), copies()
    filled.clear()
    known = copies()
    assert not filled
    cluster.flows.shares = ShareMemo()
    assert copies() == known and len(filled) == 4  # twice each: what is lent is shared apart
    cluster.links_measured({link: 0.9 * rate for link, rate in cluster.capacity.bandwidth.capacity.items()})
    assert (
        sum(copies()) < sum(known) and len(filled) == 8
    )  # links have less for them: nothing of before holds
