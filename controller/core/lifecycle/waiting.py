"""States in which a job waits for a word, and the way out of each when none comes.

Words are lost with connections, and an agent may have a fault or tell lies. A job that is being fetched waits for its receiver's
word, one that was started for its agent's, one that moves for the end of the notice, one that is cancelled for the end of its
process. `Cluster.expect_word` says until when. After that the question is put again: the checkpoint is ordered once more (a
receiver that has it says so), or the job is ordered to stop, which is answered whatever has become of it. Each time is twice as
long as the one before; a checkpoint that is still not there after `MOST_ASKED` is sought elsewhere. What takes its time for a
good reason is so asked a few times, and not broken off.
"""

from __future__ import annotations

from controller.core.lifecycle.offers import interrupt
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Phase
from testbed.messages import StopJob

# with a first time of ten times what it should take, that is three hundred times as long
MOST_ASKED = 5


def ask_again(cluster: Cluster) -> None:
    """For each job whose word is overdue: the question again, or the way out."""
    for name, wait in list(cluster.waits.items()):
        if cluster.now_s < wait.until_s:
            continue
        del cluster.waits[name]
        job = cluster.jobs[name]
        if not wait.holds(job):
            continue
        asked, host = wait.asked + 1, job.host or ""
        flows = [flow for flow in cluster.flows.values() if flow.job == name and flow.destination == host]
        if job.phase is not Phase.FETCHING:
            cluster.tell(host, StopJob(name, job.attempt))
        elif asked > MOST_ASKED or not flows or job.restore is None:
            job.unfit[host] = cluster.now_s + asked * cluster.settings.control_period_s
            interrupt(cluster, job, "checkpoint_lost")
        else:
            cluster.orders[flows[0].key] = None
        if wait.holds(job):
            cluster.expect_word(job, 2.0 * wait.within_s, asked)
