"""What the ranks of a gang do together: they are placed together, end together, and stand still together while one moves.

A rank is a job like any other to P1, to its agent and to stores. What makes n of them one job is decided here, in three rules.

*None alone.* All ranks begin in one event, on GPUs that are all idle then (`choose_places`), and their processes are started once
every one has its part of the checkpoint at its host. A gang that waits holds nothing.

*One ends, all end.* When a rank is lost, the others are told to stop (`end`). Only when the last of them is known to be dead does
the gang come back: a rank that is told to stop may compute for as long as its order is under way, and two attempts of one rank
may not.

*One moves, all stand.* The rank that has to leave takes the last snapshot, with all others at the same step,
and only its bytes travel. The others wait; once they have said that their parts are on their own disks they are stopped (`halt`),
and the next attempt of all begins where each of them is then.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import numpy as np

from controller.core.lifecycle.attempts import PATIENCE, drop_move, start_s
from controller.core.lifecycle.candidates import candidates, request, reserved_rate, residual
from controller.core.lifecycle.grants import close_flows
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Gang, JobState, Phase
from controller.core.placement.select import Candidates, NoDestination
from testbed.messages import StopJob

ALIVE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.MOVING})  # an agent was told to run it


def choose_places(cluster: Cluster, gang: Gang) -> list[str] | None:
    """P2 for all ranks at once: a host for each, by number; None: there are not enough that fit.

    Of the buildings that can hold the whole gang, the one where its ranks' scores add up to least; else the whole campus; a host
    that said that a rank has failed, only where nothing else is left.
    """
    buildings: dict[str, set[str]] = {}
    failed_on = {rank.failed_on for rank in gang.ranks}
    for host in cluster.volunteers:
        if host.name not in failed_on:
            buildings.setdefault(host.spec.building, set()).add(host.name)
    found = [_places(cluster, gang, buildings[name]) for name in sorted(buildings)]
    near = [one for one in found if one is not None]
    chosen = min(near, key=lambda one: one[0], default=None)
    if chosen is None and len(buildings) > 1:
        chosen = _places(cluster, gang, cluster.hosts.keys() - failed_on)
    if chosen is None and any(failed_on):
        chosen = _places(cluster, gang, cluster.hosts.keys())
    return None if chosen is None else chosen[1]


def _places(cluster: Cluster, gang: Gang, among: Set[str]) -> tuple[float, list[str]] | None:
    """(sum of scores, hosts by rank): each rank goes where the policy likes best beside those before it."""
    free, hosts, score_s = residual(cluster, cluster.now_s, reserved_rate), list[str](), 0.0
    for rank in gang.ranks:
        checkpoint = cluster.freshest(rank)
        sources = cluster.holders(checkpoint) if checkpoint else []
        wanted = request(cluster, rank, None, rank.spec.payload_bytes if checkpoint else 0.0, None)
        fit = among & cluster.fit_hosts(rank)
        columns = candidates(cluster, wanted, sources, free, cluster.now_s, among=fit) if fit else None
        if columns is None:
            break
        risky = shared_risk(columns, hosts, len(gang.ranks))
        choice = cluster.policy.select(wanted, risky, draw=cluster.draw())
        if cluster.witness is not None:
            cluster.witness.chose_host("host", rank, wanted, risky, choice)
        if isinstance(choice, NoDestination):
            break
        cluster.hold_gpu(rank, cluster.hosts[choice.host])  # so that the next rank sees it taken
        hosts.append(choice.host)
        score_s += choice.score_s
    for rank, name in zip(gang.ranks, hosts, strict=False):
        cluster.let_gpu_go(rank, cluster.hosts[name])
    return (score_s, hosts) if len(hosts) == len(gang.ranks) else None


def shared_risk(columns: Candidates, chosen: list[str], ranks: int) -> Candidates:
    """The same hosts with the gang's risk: a departure costs all ranks, and one of a host that it is on already costs no more."""
    times = np.where(np.isin(columns.hosts.astype(str), chosen), 0.0, float(ranks))
    return replace(
        columns,
        survival=columns.survival**times,
        expected_reclaims=columns.expected_reclaims * times,
    )


def end(cluster: Cluster, gang: Gang, cause: str) -> None:
    """The attempt of all ranks ends for this cause: none moves any more, and those that may be alive are told to stop, once."""
    if gang.ending:
        return
    gang.ending = cause
    for rank in gang.ranks:
        if rank.phase is Phase.MOVING:
            close_flows(cluster, job=rank.name, tell=True)
            drop_move(cluster, rank)
            cluster.advance(rank, "abandoned")
        if rank.phase in ALIVE and rank.host is not None and rank.name not in gang.done:
            cluster.tell(rank.host, StopJob(rank.name, rank.attempt))
            cluster.expect_word(rank, PATIENCE * start_s(cluster, rank))


def is_whole(cluster: Cluster, gang: Gang) -> bool:
    """Whether every rank runs, and hears what it is told: only then can it be moved."""
    return not gang.ending and all(
        rank.phase is Phase.RUNNING
        and rank.name not in gang.done
        and cluster.hosts[rank.host or ""].connected
        for rank in gang.ranks
    )


def to_move(cluster: Cluster, gang: Gang) -> list[JobState]:
    """Ranks whose hosts have a notice running: all of them have to leave, or none can."""
    return [rank for rank in gang.ranks if rank.host and cluster.hosts[rank.host].reclaim_at_s is not None]


def halt(cluster: Cluster, gang: Gang) -> None:
    """Some rank's last snapshot exists: stop each rank that stays and has its own part of it."""
    finals = [
        rank.final_sequence for rank in gang.ranks if not rank.stays and rank.final_sequence is not None
    ]
    if not finals or gang.ending:
        return
    for rank in gang.ranks:
        if rank.stays and rank.final_sequence is None and finals[0] in rank.taken:
            rank.final_sequence, rank.step = finals[0], rank.taken[finals[0]][0]
            rank.stopped_at_s, rank.stopped_cause = cluster.now_s, "final_checkpoint"
            assert rank.host is not None
            cluster.tell(rank.host, StopJob(rank.name, rank.attempt))


def stayed(cluster: Cluster, rank: JobState) -> bool:
    """Whether a rank that was stopped was one that waits where it is for those that move."""
    if rank.gang is None or not rank.stays or rank.final_sequence is None or rank.gang.ending:
        return False
    if rank.name not in rank.gang.stopped:
        rank.gang.stopped.add(rank.name)
        stopped = facts.JobStopped(rank.name, rank.attempt, rank.host or "", rank.stopped_cause, rank.step)
        cluster.record(stopped)
    return True


def is_handed_over(rank: JobState) -> bool:
    """Whether its source has stopped it for good, and its destination (or its own host, where it stays) has its last state."""
    if rank.phase is not Phase.MOVING or rank.move is None or rank.final_sequence is None:
        return False
    if rank.stays and rank.gang is not None and rank.name not in rank.gang.stopped:
        return False
    final = rank.checkpoints.get(rank.final_sequence)
    return final is not None and rank.move.destination in final.holders
