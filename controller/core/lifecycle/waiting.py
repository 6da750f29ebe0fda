"""Timeouts of jobs that wait for a report.

Messages are lost with connections, and an agent may have a fault. A job that is being fetched waits for its receiver's
word, one that was started for its agent's, one that moves for the end of the notice, one that is cancelled for the end of its
process, one that runs and is in no heartbeat any more for word of its end. `Cluster.expect_word` says until when. After that the
question is put again: the checkpoint is ordered once more (a receiver that has it says so), or the job is ordered to stop, which
is answered whatever has become of it. Each time is twice as long as the one before; a checkpoint that is still not there after
`MOST_ASKED` is sought elsewhere, and from a holder that failed so a few times no more (`JobState.fetch_failed`). What takes its
time for a good reason is so asked a few times, and not broken off.

An agent that goes on with its heartbeats and leaves `MOST_UNANSWERED` orders to stop unanswered is as good as silent: it is
disconnected.
"""

from __future__ import annotations

from controller.core.lifecycle.membership import silent
from controller.core.lifecycle.offers import interrupt
from controller.core.model.cluster import Cluster
from controller.core.model.entities import Phase
from testbed.messages import StopJob

# with a first time of ten times what it should take, that is three hundred times as long
MOST_ASKED = 5
# an order to stop is answered in a moment, whatever has become of the job: the second is for one that was lost
MOST_UNANSWERED = 2


def ask_again(cluster: Cluster) -> None:
    """Retry the order of each job whose timeout has passed, or give it up."""
    for name, wait in list(cluster.waits.items()):
        if cluster.now_s < wait.until_s:
            continue
        del cluster.waits[name]
        job = cluster.jobs[name]
        if not wait.holds(job):
            continue
        asked, host = wait.asked + 1, job.host or ""
        flows = [flow for flow in cluster.flows.values() if flow.job == name and flow.destination == host]
        if job.phase is not Phase.FETCHING and asked > MOST_UNANSWERED and cluster.hosts[host].connected:
            job.unfit[host] = cluster.now_s + asked * wait.within_s
            silent(cluster, cluster.hosts[host], f"{asked - 1} orders to stop {name} were not answered")
        elif job.phase is not Phase.FETCHING:
            cluster.tell(host, StopJob(name, job.attempt))
        elif asked > MOST_ASKED or not flows or job.restore is None:
            job.unfit[host] = cluster.now_s + asked * cluster.settings.control_period_s
            for flow in flows:
                job.fetch_failed(flow.source)
            interrupt(cluster, job, "checkpoint_lost")
        else:
            cluster.orders[flows[0].key] = None
        if wait.holds(job):
            cluster.expect_word(job, 2.0 * wait.within_s, asked)
