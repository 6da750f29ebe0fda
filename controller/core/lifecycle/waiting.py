"""States in which a job waits for a word, and the way out of each when none comes.

Words are lost with connections, and an agent may have a fault or tell lies. A job that is being fetched waits for its receiver's
word, one that was started for its agent's, one that moves for the end of the notice. `Cluster.expect_word` says until when. After
that the question is put again: the checkpoint is ordered once more (a receiver that has it says so), or the job is ordered to
stop, which is answered whatever has become of it. Each time is twice as long as the one before; a checkpoint that is still not
there after `MOST_ASKED` is sought elsewhere. What takes its time for a good reason is so asked a few times, and not broken off.
"""

from __future__ import annotations

from controller.core.lifecycle.dispatch import interrupt
from controller.core.lifecycle.protection import protect
from controller.core.model import effects as do
from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState, Phase
from testbed.messages import SendStored, StopJob

# with a first time of ten times what it should take, that is three hundred times as long
MOST_ASKED = 5


def ask_again(cluster: Cluster, now_s: float) -> list[do.Effect]:
    """For each job whose word is overdue: the question again, or the way out."""
    effects: list[do.Effect] = []
    for name, wait in list(cluster.waits.items()):
        if now_s < wait.until_s:
            continue
        del cluster.waits[name]
        job = cluster.jobs[name]
        if wait.holds(job):
            effects += _asked(cluster, job, wait.asked + 1, now_s)
            if wait.holds(job):
                cluster.expect_word(job, 2.0 * wait.within_s, wait.asked + 1)
    return effects


def _asked(cluster: Cluster, job: JobState, asked: int, now_s: float) -> list[do.Effect]:
    host = job.host or ""
    if job.phase is not Phase.FETCHING:
        return [do.Tell(host, StopJob(job.name, job.attempt))]
    flows = [flow for flow in cluster.flows.values() if flow.job == job.name and flow.destination == host]
    if asked > MOST_ASKED or not flows or job.restore is None:
        job.unfit[host] = now_s + asked * cluster.settings.control_period_s
        return [*interrupt(cluster, job, "checkpoint_lost", now_s), *protect(cluster, now_s)]
    sequence, [flow] = job.restore.stored.sequence, flows[:1]
    return [
        do.Tell(flow.source, SendStored(job.name, sequence, cluster.endpoint(flow), flow.rate_bytes_per_s))
    ]
