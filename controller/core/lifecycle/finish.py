"""The end of every event, once: idle GPUs offered, checkpoints planned, links shared, and then the orders that carry rates.

Handlers only note what they leave to be done (`Cluster.freed`, `plan_stale`, `rates_stale`, `orders`), most of it by the very
functions that change the picture: a job that begins to run or no longer runs, a flow that opens or closes, a host that is
gained or lost. So no handler can forget it, and nothing is planned for a picture that the same event changes further:

1. GPUs that have become idle are offered, after all jobs that the event interrupted have found a host or the head of the queue;
2. P1 plans for the jobs that run now; a replica that it gives up leaves a GPU, which is offered as well;
3. links are shared among the flows that are open now, and senders are sent the rates that changed;
4. the network is sent the routes that changed, and the loads of trunks if they changed much;
5. senders are ordered to send, and jobs are sent their new intervals. Orders over a route that the network does not have yet
   wait for it.

A host takes only transfers that it expects: it is sent that a flow opens (`grants`) before its sender is ordered to send.
"""

from __future__ import annotations

from controller.core.lifecycle.attempts import TIMEOUT_FACTOR, start_s
from controller.core.lifecycle.grants import recovery_bytes, settle
from controller.core.lifecycle.offers import offer_freed
from controller.core.lifecycle.protection import plan_checkpoints, tell_intervals
from controller.core.model import effects as do
from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, Phase
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.messages import Migrate, SendStored
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE

# reclaims within so much of each other are planned for together: less than a message may be late
TOGETHER_S = 0.05
LOAD_STEP = 1 / 8  # of a trunk's rate: less is not sent, for connections of research move with every change
ANSWER_S = 1.0  # programming takes some milliseconds; a controller that dies is started again in that time, or not at all


def finish_event(cluster: Cluster, *, in_a_hurry: bool) -> None:
    """Do once what handlers of the event have left to be done.

    `in_a_hurry`: each of several owners that leave together is answered at once, and checkpoints are planned a moment later.
    """
    if cluster.freed:
        offer_freed(cluster)
    plan = None
    if cluster.plan_stale and in_a_hurry and cluster.now_s < cluster.planned_s + TOGETHER_S:
        cluster.plan_stale, cluster.plan_at_s = False, cluster.planned_s + TOGETHER_S
    elif cluster.plan_stale:
        plan = plan_checkpoints(cluster)
        offer_freed(cluster)
    if cluster.rates_stale:
        settle(cluster)
        if cluster.routes.has_choice:
            _tell_loads(cluster)
    if cluster.installation.dirty:
        _ask_network(cluster)
    send_orders(cluster)
    if plan is not None:
        tell_intervals(cluster, *plan)


def _ask_network(cluster: Cluster) -> None:
    """Send the network's controller the ways to have: they have changed."""
    cluster.installation.dirty = False
    cluster.installation.requested += 1
    pins = [
        do.PinnedWay(cluster.installation.numbers[ends], [ends[0], *(link.target for link in way)])
        for ends, way in cluster.routes.pins.items()
    ]
    draining = [(a, b) for a, b in sorted(sorted(trunk) for trunk in cluster.capacity.draining)]
    cluster.outbox.append(do.SetWays(cluster.installation.requested, pins, draining))
    if cluster.installation.answers and cluster.installation.held:
        cluster.installation.due_s = min(cluster.installation.due_s, cluster.now_s + ANSWER_S)


def _tell_loads(cluster: Cluster) -> None:
    """Send the network's controller what grants take of each trunk, if that has changed much."""
    loads: dict[DirectedLink, float] = {}
    for flow in cluster.flows.values():
        for link in cluster.routes.way(flow.source, flow.destination)[1:-1]:
            loads[link] = loads.get(link, 0.0) + flow.rate_bytes_per_s / PAYLOAD_SHARE
    told, capacity = cluster.installation.loads_sent, cluster.capacity.wire
    if told is None or any(
        abs(loads.get(link, 0.0) - told.get(link, 0.0)) > LOAD_STEP * capacity[link]
        for link in loads.keys() | told.keys()
    ):
        cluster.installation.loads_sent = loads
        cluster.outbox.append(do.SetLoads([(*link, load) for link, load in sorted(loads.items())]))


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
            assert job.move is not None
            stops = job.move if flow.reservation is None else flow.reservation
            within_s = max(0.0, stops.final_at_s - cluster.now_s)
            cluster.tell(flow.source, Migrate(job.name, job.attempt, to, rate, within_s))
            if flow.reservation is not None:
                flow.reservation.told = True
            continue
        wait = cluster.timeouts.get(job.name)
        if flow.is_recovery and job.phase is Phase.FETCHING and (wait is None or not wait.holds(job)):
            cluster.arm_timeout(job, TIMEOUT_FACTOR * (start_s(cluster, job) + _fetch_s(cluster, flow)))
        cluster.tell(flow.source, SendStored(job.name, flow.sequence, to, rate, urgent=flow.is_recovery))


def _fetch_s(cluster: Cluster, flow: CheckpointFlow) -> float:
    """Return the seconds that a fetch should take at its rate, or behind the others on its way where it has no rate yet."""
    payload_bytes = float(cluster.jobs[flow.job].spec.payload_bytes)
    if flow.rate_bytes_per_s > TRICKLE_BYTES_PER_S:
        return payload_bytes / flow.rate_bytes_per_s
    way = [*cluster.paths.of(flow.source, flow.destination)]
    carried, free = recovery_bytes(cluster)[way].clip(payload_bytes), cluster.capacity.given_column[way]
    return float((carried / free.clip(TRICKLE_BYTES_PER_S)).max(initial=0.0))
