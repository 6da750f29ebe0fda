"""Timeouts of jobs that wait for a report.

Messages are lost with connections, and an agent may have a fault. `Cluster.arm_timeout` sets the time by which a report is due:

- from the receiver of a job that is being fetched, or from the agent of one that was started;
- of the end of a move when its notice ends, or of the end of a job that was cancelled;
- of the end of a job that ran and is in no heartbeat any more.

After that time the order is sent again: to send the checkpoint (a receiver that has it reports it), or to stop the job, which is
answered whatever has become of it. Each timeout is twice as long as the one before. A checkpoint that is still missing after
`MOST_ASKED` is fetched from elsewhere; a holder that failed a few times is not asked any more (`JobState.fetch_failed`). A slow
transfer is so asked for a few times, and not broken off.

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


def retry_overdue(cluster: Cluster) -> None:
    """Retry the order of each job whose timeout has passed, or give it up."""
    for name, wait in list(cluster.timeouts.items()):
        if cluster.now_s < wait.until_s:
            continue
        del cluster.timeouts[name]
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
            job.unfit[host] = cluster.now_s + asked * cluster.protocol.control_period_s
            for flow in flows:
                job.fetch_failed(flow.source)
            interrupt(cluster, job, "checkpoint_lost")
        else:
            cluster.orders[flows[0].key] = None
        if wait.holds(job):
            cluster.arm_timeout(job, 2.0 * wait.within_s, asked)
