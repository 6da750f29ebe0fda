"""Move jobs to better hosts before any notice, where the policy has a rule that says when that pays (`Policy.relocate`).

A job is placed when it starts, moves or resumes, on what is free then. Later a better GPU becomes free, neighbours come whose
checkpoints share its uplink, or its host's owner turns out to leave often. So each job that an owner can interrupt is looked at
anew in every hour of the day, since hazards have one value an hour. What it would move with is what its last checkpoint sent:
the rest is there before it stops. A departure makes it fetch all of its state. P3 is asked as for a deadline's move: twice the
time that it takes on what its way has free.
"""

from __future__ import annotations

from dataclasses import replace

from controller.core.lifecycle.candidates import candidates, request, reserved_rate, residual
from controller.core.lifecycle.migration import move_without_notice
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState, Phase
from controller.core.placement.exposure import HOURS
from controller.core.placement.select import Relocator


def relocate(cluster: Cluster) -> None:
    """Look for a better host for each job that was not looked at in this hour, and send those there that P3 admits."""
    if (rule := cluster.policy.relocate) is None:
        return
    settings = cluster.settings
    hour = int((cluster.now_s + settings.day_start_s) / settings.day_s * HOURS)
    for job in cluster.unfinished():
        if job.looked_in < hour and _may_leave(cluster, job):
            job.looked_in = hour
            job.better_host = _better_host(cluster, job, rule)
            if job.better_host is not None:
                move_without_notice(cluster, job)
                job.better_host = None


def _may_leave(cluster: Cluster, job: JobState) -> bool:
    """Whether it computes by itself on a lent host that can be told, and nothing else takes it away from there."""
    if job.phase is not Phase.RUNNING or job.on_demand or job.final_sequence is not None:
        return False
    host = cluster.hosts[job.host or ""]
    return host.is_volunteer and host.usable


def _better_host(cluster: Cluster, job: JobState, rule: Relocator) -> str | None:
    """The host that the rule names, if it is another than its own, whose GPU is as free to the job as any."""
    own = cluster.hosts[job.host or ""]
    wanted = request(cluster, job, own.name, job.checkpoint_bytes, None)
    free = residual(cluster, cluster.now_s, reserved_rate)
    cluster.let_gpu_go(job, own)
    found = candidates(
        cluster,
        replace(wanted, payload_bytes=job.spec.payload_bytes),  # to a host from one where its owner came
        [own.name],
        free,
        cluster.now_s,
        among=cluster.fit_hosts(job) | {own.name},
        all_ways=True,
    )
    cluster.hold_gpu(job, own)
    choice = rule(wanted, found)
    if choice is None or choice.host == own.name:
        return None
    if cluster.witness is not None:
        cluster.witness.chose_host("relocation", job, wanted, found, choice)
    return choice.host
