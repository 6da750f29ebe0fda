"""Jobs whose deadlines press, and their way to on-demand (`job_deadlines` says when, and what that guarantees).

It is looked again when half of the time has gone that the first of them has until then, since the room on links changes, and
at that moment itself. A job that is on its way is looked at every control period: a move that P3 does not admit is tried again
until its time is over, and then the job is stopped and goes on from what is safe, if that can be in time: else it computes on.
So is one whose move should be over by then, and is not.
"""

from __future__ import annotations

from math import inf

from controller.core.lifecycle import job_deadlines
from controller.core.lifecycle.attempts import PATIENCE
from controller.core.lifecycle.candidates import reserved_rate, residual
from controller.core.lifecycle.migration import abandon, move_without_notice, plan_moves, replan
from controller.core.lifecycle.offers import interrupt, redirect, to_on_demand
from controller.core.lifecycle.on_demand import is_on_demand, slots
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState, Phase
from testbed.messages import StopJob

AT_ONCE_S = 1e-6  # less than this is no time to wait for: rounding of sums of seconds


def press(cluster: Cluster) -> None:
    """Send the jobs to on-demand that can stay with owners no longer, and note when to look again."""
    period_s, free = cluster.settings.control_period_s, residual(cluster, cluster.now_s, reserved_rate)
    nexts_s: list[float] = []
    job_deadlines.plan_fetches(cluster)
    for job in list(cluster.dated.values()):
        if job.phase is Phase.CANCELLING:
            continue
        if is_on_demand(cluster, job):
            if job.pressed_until_s is None:  # paper B sent it there
                job.pressed_until_s = job_deadlines.turn_until_s(cluster, job, cluster.hosts[job.host or ""])
            if job.move is not None:
                nexts_s.append(period_s)
                if job.move.deadline_s < cluster.now_s and _is_last_call(cluster, job):
                    _give_up_move(cluster, job)
            continue
        ahead_s = job_deadlines.ahead_s(cluster, job, free)
        if ahead_s > AT_ONCE_S and job.pressed_until_s is None:
            nexts_s.append(ahead_s / 2.0 if ahead_s > 2.0 * period_s else ahead_s)
            continue
        if job.pressed_until_s is None:
            there, left_s = job_deadlines.place_of(cluster, job), job_deadlines.left_s(cluster, job)
            safe, safe_s = job_deadlines.safe_start(cluster, job, there)
            job.on_demand, step = True, 0 if safe is None else safe.stored.step
            # it may have gone where a move takes longer than was counted with, which is not to cost the next their turns
            in_turn_s = job_deadlines.reserve_s(cluster, job, there, free) + min(0.0, ahead_s)
            needed_s = max(safe_s + job_deadlines.certain_s(cluster), in_turn_s)
            job.pressed_until_s = cluster.now_s + needed_s
            cluster.record(facts.DeadlinePresses(job.name, job.attempt, left_s, needed_s, step, there.name))
        _send(cluster, job, is_last_call=_is_last_call(cluster, job))
        nexts_s.append(period_s)
    cluster.deadlines_at_s = cluster.now_s + min(nexts_s, default=inf)


def _is_last_call(cluster: Cluster, job: JobState) -> bool:
    """Whether from what is safe of it it is in time if its attempt ends now, and not if that ends later."""
    _, needed_s = job_deadlines.safe_start(cluster, job, job_deadlines.place_of(cluster, job))
    spare_s = job_deadlines.within_s(cluster, job) - needed_s
    return 0.0 <= spare_s <= job_deadlines.certain_s(cluster) + AT_ONCE_S


def _send(cluster: Cluster, job: JobState, *, is_last_call: bool) -> None:
    """The next step on the way there."""
    match job.phase:
        case Phase.WAITING if job.name in cluster.backlog:
            if slots(cluster, job):  # its turn has come
                cluster.backlog.remove(job.name)
                to_on_demand(cluster, job)
        case Phase.WAITING:
            left = cluster.queue.leave(job.name, cluster.now_s)
            cluster.requeued.pop(job.name, None)
            cluster.homes.pop(job.name, None)
            if left is not None:
                redirect(cluster, job, len(cluster.queue), left.delay_s)
            else:
                to_on_demand(cluster, job)
        case Phase.FETCHING:
            interrupt(cluster, job, "deadline_presses")
        case Phase.STARTING | Phase.RUNNING if is_last_call and slots(cluster, job):
            _stop(cluster, job)
        case Phase.MOVING if is_last_call:
            _give_up_move(cluster, job)
        case Phase.MOVING if job.final_sequence is None:
            replan(cluster, job)
        case Phase.RUNNING if job.final_sequence is None:
            if cluster.hosts[job.host or ""].reclaim_at_s is None:
                move_without_notice(cluster, job)
            elif not job.degraded:  # else it is tried again at each tick
                plan_moves(cluster, [job])


def _give_up_move(cluster: Cluster, job: JobState) -> None:
    """Its state may come too late: it goes on from what is safe instead."""
    abandon(cluster, job)
    _stop(cluster, job)


def _stop(cluster: Cluster, job: JobState) -> None:
    """Have its process ended: when its host has said so, it goes on at its new place."""
    assert job.host is not None
    if cluster.hosts[job.host].connected:
        cluster.tell(job.host, StopJob(job.name, job.attempt))
        cluster.expect_word(job, PATIENCE * cluster.settings.restart_s)
