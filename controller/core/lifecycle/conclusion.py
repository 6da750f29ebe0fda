"""What every event ends with, once: idle GPUs offered, checkpoints planned, links shared, and then the orders that carry rates.

Handlers only note what they leave to be done (`Cluster.freed`, `plan_stale`, `rates_stale`, `orders`), most of it by the very
functions that change the picture: a job that begins to run or no longer runs, a flow that opens or closes, a host that is
gained or lost. So no handler can forget it, and nothing is planned for a picture that the same event changes further:

1. GPUs that have become idle are offered, after all jobs that the event interrupted have found a host or the head of the queue;
2. P1 plans for the jobs that run now; a replica that it gives up leaves a GPU, which is offered as well;
3. links are shared among the flows that are open now, and senders are told the rates that changed;
4. the network is told which ways are others, and what grants take of trunks if that is much else;
5. senders are ordered to send, receivers of orders being announced first, and jobs are told their new intervals. Orders over a
   way that the network does not have yet wait for it.
"""

from __future__ import annotations

from controller.core.lifecycle.attempts import PATIENCE, start_s
from controller.core.lifecycle.grants import recovery_bytes, settle
from controller.core.lifecycle.migration import final_within_s
from controller.core.lifecycle.offers import offer_freed
from controller.core.lifecycle.protection import plan_checkpoints, tell_intervals
from controller.core.lifecycle.ways import ask_network, tell_loads
from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, Phase
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.messages import Migrate, SendStored

# reclaims within so much of each other are planned for together: less than a message may be late
TOGETHER_S = 0.05


def conclude(cluster: Cluster, *, in_a_hurry: bool) -> None:
    """Do once what the event has left to be done.

    `in_a_hurry`: each of several owners that leave together is answered at once, and checkpoints are planned a moment later.
    """
    offer_freed(cluster)
    plan = None
    if cluster.plan_stale and in_a_hurry and cluster.now_s < cluster.planned_s + TOGETHER_S:
        cluster.plan_stale, cluster.plan_at_s = False, cluster.planned_s + TOGETHER_S
    elif cluster.plan_stale:
        plan = plan_checkpoints(cluster)
        offer_freed(cluster)
    if cluster.rates_stale:
        settle(cluster)
        tell_loads(cluster)
    ask_network(cluster)
    send_orders(cluster)
    if plan is not None:
        tell_intervals(cluster, plan)


def send_orders(cluster: Cluster) -> None:
    """Order senders what to send, and how fast, for flows that are still open."""
    flows = [flow for key in cluster.orders if (flow := cluster.flows.get(key)) is not None]
    cluster.orders.clear()
    for flow in flows:
        if (flow.source, flow.destination) in cluster.installation.held:
            cluster.orders[flow.key] = None
            continue
        job, to, rate = cluster.jobs[flow.job], cluster.endpoint(flow), flow.rate_bytes_per_s
        if flow.sequence is None:  # a move
            within_s = final_within_s(cluster, job, flow)
            cluster.tell(flow.source, Migrate(job.name, job.attempt, to, rate, within_s))
            if flow.reservation is not None:
                flow.reservation.told = True
            continue
        wait = cluster.waits.get(job.name)
        if flow.is_recovery and job.phase is Phase.FETCHING and (wait is None or not wait.holds(job)):
            cluster.expect_word(job, PATIENCE * (start_s(cluster, job) + _fetch_s(cluster, flow)))
        cluster.tell(flow.source, SendStored(job.name, flow.sequence, to, rate, urgent=flow.is_recovery))


def _fetch_s(cluster: Cluster, flow: CheckpointFlow) -> float:
    """Seconds that a fetch should take at its rate, or behind the others on its way where it has no rate yet."""
    payload_bytes = float(cluster.jobs[flow.job].spec.payload_bytes)
    if flow.rate_bytes_per_s > TRICKLE_BYTES_PER_S:
        return payload_bytes / flow.rate_bytes_per_s
    way = [*cluster.paths.of(flow.source, flow.destination)]
    carried, free = recovery_bytes(cluster)[way].clip(payload_bytes), cluster.capacity.given_column[way]
    return float((carried / free.clip(TRICKLE_BYTES_PER_S)).max(initial=0.0))
