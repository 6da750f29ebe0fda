"""A single account for everything that the testbed sends: rates of all flows, on all links that they cross.

A migration has a floor, P3's guarantee; a checkpoint has a cap, P1's b_i, and no floor; a recovery has neither. An
event that changes the set of flows ends with `settle` (`coordinator.finish_event`), which shares the links again and
sends their new rates to senders.

Where P3 lets rates vary, the floors of admitted migrations are those of a timetable at this moment. `settle` plans it
again from what is left of each (`Reservation`), and `Cluster.regrant_at_s` is when the next rate in it changes.

Where checkpoints may borrow, streams share with migrations as ever, and have on top what is lent of the reserve, max-min again;
ports serve them after migrations.

A job that waits for its state computes nothing, and those whose checkpoints it would share a link with go on
meanwhile. So recoveries come after what is reserved and before all checkpoints. Of several the shortest comes first,
by which fewest jobs wait at any moment. (Shortest processing time first has the least sum of waits on one link,
whatever comes later.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from controller.core.admission.admission import Commitment, Held
from controller.core.admission.schedule import Reservation, Timetable
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import CheckpointFlow, FlowRows
from controller.core.network.links import LEAST_FALL, NO_LINK
from controller.core.network.max_min import Wants
from controller.numerics.arrays import Floats
from testbed.bounds import SEQUENCES_PER_ATTEMPT, most_checkpoint_bytes
from testbed.messages import CancelTransfers, Expect, ExpectNoMore, Grant
from topologies.paths import Routes
from topologies.spec import TrafficClass

LEAST_RISE = 0.02  # a rate that rises by less than 2 % is not worth a message
# Nor is one of a stream of checkpoints by less than 5 %: of thirty that share a trunk, each would get a rate whenever one comes
# or goes. With 250 jobs on 500 hosts that is 93 grants a second, and 50 with this, for 1 % of a stream's rate (5 % at most).
LEAST_STREAM_RISE = 0.05
# rates are not changed more often by a timetable than this: a message takes about as long
LEAST_SPAN_S = 0.02


def open_flow(cluster: Cluster, flow: CheckpointFlow) -> None:
    """Add a flow, or replace it, keeping its rate. Its receiver is to expect it, and `settle` gives it its rate.

    Its number is another one if its receiver is to expect something else.
    """
    before = cluster.flows.get(flow.key)
    if before is not None:
        flow.rate_bytes_per_s, flow.number = before.rate_bytes_per_s, before.number
    is_new = before is None or expected(cluster, before) != expected(cluster, flow)
    if is_new:
        if before is not None:
            cluster.tell(flow.destination, ExpectNoMore(cluster.ticket(before)))
        cluster.opened += 1
        flow.number = cluster.opened
    cluster.flows.put(flow)
    cluster.rates_stale = True
    if is_new:
        cluster.tell(flow.destination, expected(cluster, flow))


def expected(cluster: Cluster, flow: CheckpointFlow) -> Expect:
    """Return what the receiver of a flow is to expect: its one checkpoint, or whatever its job's present attempt takes."""
    job, source = cluster.jobs[flow.job], cluster.hosts[flow.source]
    first = job.attempt * SEQUENCES_PER_ATTEMPT if flow.sequence is None else flow.sequence
    last = first + SEQUENCES_PER_ATTEMPT - 1 if flow.sequence is None else first
    most_bytes = most_checkpoint_bytes(job.spec.payload_bytes)
    return Expect(cluster.ticket(flow), job.name, first, last, source.name, most_bytes)


def close_flow(cluster: Cluster, flow: CheckpointFlow, *, tell: bool = False) -> None:
    """Remove a flow; its sender is ordered to stop if that is asked for, since it has not stopped by itself."""
    if not cluster.flows.take(flow.key):
        return
    cluster.orders.pop(flow.key, None)  # one that waited for its way
    cluster.rates_stale = True
    cluster.tell(flow.destination, ExpectNoMore(cluster.ticket(flow)))
    if tell:
        cluster.tell(flow.source, CancelTransfers(flow.job, flow.destination))
    cluster.record(facts.GrantEnded(flow.job, flow.source, flow.destination))
    ends = (flow.source, flow.destination)
    if ends in cluster.installation.numbers and not goes_between(cluster, *ends):
        cluster.set_way(*ends, None)


def goes_between(cluster: Cluster, source: str, destination: str) -> bool:
    """Return whether a migration or recovery is under way between two hosts, so that their way must stay."""
    return any(
        flow.traffic_class is TrafficClass.PLANNED and (flow.source, flow.destination) == (source, destination)
        for flow in cluster.flows.values()
    )


def close_flows(
    cluster: Cluster,
    *,
    job: str | None = None,
    source: str | None = None,
    destination: str | None = None,
    tell: bool = False,
) -> None:
    """Remove all flows that match every given end."""
    for flow in list(cluster.flows.values()):
        if job in (None, flow.job) and source in (None, flow.source) and destination in (None, flow.destination):
            close_flow(cluster, flow, tell=tell)


def committed(cluster: Cluster, *, movable: bool = False, routes: Routes | None = None) -> list[Commitment]:
    """Return what is reserved for admitted migrations and cannot be taken back.

    `movable`: sources that have not stopped their job yet may be given another moment to do so. `routes`: others than the
    present ones.
    """
    routes = cluster.routes if routes is None else routes
    commitments: list[Commitment] = []
    for flow in cluster.flows.values():
        connected = cluster.hosts[flow.source].connected
        if flow.reservation is None and flow.floor_bytes_per_s <= 0.0 and connected:
            continue
        if cluster.policy.borrows and flow.traffic_class is TrafficClass.PRESYNC:
            continue  # it yields on the wire, ordered or not
        links, cap = routes.way(flow.source, flow.destination), flow.cap_bytes_per_s
        if flow.reservation is not None and connected:
            commitments.append(flow.reservation.request(flow.key, links, cap, cluster.now_s, movable=movable))
        else:
            commitments.append(Held(flow.key, links, _bounds(flow, connected)[0]))
    return commitments


def reservations(cluster: Cluster) -> list[tuple[CheckpointFlow, Reservation]]:
    """Return the flows that follow the timetable, without those whose sender is disconnected and keeps its rate."""
    firm, hosts = cluster.flows.firm(), cluster.hosts
    return [(f, f.reservation) for f in firm if f.reservation is not None and hosts[f.source].connected]


def count_sent(cluster: Cluster) -> None:
    """Count what has been sent of each reservation until now."""
    for flow in cluster.flows.firm():
        if flow.reservation is not None:
            connected = cluster.hosts[flow.source].connected
            flow.reservation.count(cluster.now_s, flow.rate_bytes_per_s if connected else 0.0)


def planned(cluster: Cluster, commitments: Sequence[Commitment]) -> Timetable:
    """Return the timetable of reservations, on what others leave of links.

    Where a migration would be late by that, it is planned on all that may be reserved.
    """
    if cluster.capacity.research:
        plan = cluster.policy.admit([], cluster.now_s, cluster.capacity.spendable, commitments).timetable
        if not plan.late:
            return plan
    return cluster.policy.admit([], cluster.now_s, cluster.capacity.reservable, commitments).timetable


def _follow_timetable(cluster: Cluster) -> None:
    """Count what has been sent, plan the rest, and set floors to what the plan gives for now."""
    now_s, cluster.regrant_at_s = cluster.now_s, inf
    if not cluster.flows.firm():
        return
    count_sent(cluster)
    if not (following := reservations(cluster)):
        return
    next_s, plan = min(reservation.start_s for _, reservation in following), Timetable()
    if next_s <= now_s:  # else none has begun, and the first finds the links empty
        plan = planned(cluster, committed(cluster))
        next_s = plan.next_change_s(now_s)
    for flow, _ in following:
        flow.floor_bytes_per_s = plan.rate_at(flow.key, now_s)
    cluster.regrant_at_s = max(next_s, now_s + LEAST_SPAN_S)


def recovery_bytes(cluster: Cluster) -> Floats:
    """Return the payloads of the recoveries that cross each link, by its number; none where they have no precedence."""
    column = np.zeros(len(cluster.network.links))
    if cluster.policy.recoveries_first:
        for flow in [flow for flow in cluster.flows.values() if flow.is_recovery]:
            size = cluster.jobs[flow.job].spec.payload_bytes
            column[[*cluster.paths.of(flow.source, flow.destination)]] += size
    return column


def settle(cluster: Cluster) -> None:
    """Share all links again, and announce changed rates, falls first."""
    cluster.rates_stale = False
    _follow_timetable(cluster)
    rows = cluster.flows.rows()
    if not rows.flows:
        return
    fell, rose = [], []
    for new in zip(rows.flows, *_shared(cluster, rows), strict=True):
        flow, rate, _ = new
        before = flow.rate_bytes_per_s
        if rate == before:
            continue
        least_rise = LEAST_STREAM_RISE if flow.traffic_class is TrafficClass.PRESYNC else LEAST_RISE
        if before > rate * (1.0 + LEAST_FALL):
            fell.append(new)
        elif rate > before * (1.0 + least_rise):
            rose.append(new)
    for flow, rate, link in fell + rose:
        if flow.reservation is not None:
            flow.reservation.regranted(cluster.now_s, flow.rate_bytes_per_s, rate)
        flow.rate_bytes_per_s = rate
        flow.bottleneck = cluster.network.names[link] if link != NO_LINK else ""
        cluster.tell(flow.source, Grant(flow.job, flow.destination, rate))
        cluster.record(
            facts.Granted(
                flow.job,
                flow.source,
                flow.destination,
                flow.traffic_class.value,
                rate,
                flow.floor_bytes_per_s,
                flow.bottleneck,
            )
        )


def _shared(cluster: Cluster, rows: FlowRows) -> tuple[list[float], list[int]]:
    """Return max-min rates of totals with floors and caps, and the links that bind them.

    Streams of checkpoints share what is lent of the reserve on top.
    """
    flows, paths, is_stream, weight = rows
    cap = np.array([flow.cap_bytes_per_s for flow in flows])
    floor = np.minimum([flow.floor_bytes_per_s for flow in flows], cap)
    hosts, others = cluster.hosts, len(flows) > np.count_nonzero(is_stream)
    for row, flow in enumerate(flows):
        if not hosts[flow.source].connected:
            floor[row] = cap[row] = flow.rate_bytes_per_s
    if cluster.policy.recoveries_first and others and any(flow.is_recovery for flow in flows):
        _raise_recoveries(cluster, rows, floor)
    rates, held_by = cluster.policy.share(
        Wants(cluster.network, paths, weight, floor, cap), cluster.capacity.given_column
    )
    if cluster.policy.borrows and np.count_nonzero(held_by[is_stream] != NO_LINK):
        # a sender that is not connected may have more than is left
        capacity = np.maximum(paths.load(rates, len(cluster.network.links)), cluster.capacity.lent_column)
        most = np.maximum(rates, cap)
        if others:
            most = np.where(is_stream, most, rates)
        raised, bound = cluster.policy.share(Wants(cluster.network, paths, weight, rates, most), capacity)
        if others:
            raised, bound = np.where(is_stream, raised, rates), np.where(is_stream, bound, held_by)
        rates, held_by = raised, bound
    return rates.tolist(), held_by.tolist()


def _raise_recoveries(cluster: Cluster, rows: FlowRows, floor: Floats) -> None:
    """Raise the floors of recoveries to all that other floors leave of their ways, the shortest recovery first."""
    flows, paths, _, _ = rows
    left = cluster.capacity.given_column - paths.load(floor, len(cluster.network.links))
    connected = [cluster.hosts[flow.source].connected for flow in flows]
    recoveries = [n for n, flow in enumerate(flows) if flow.is_recovery and connected[n]]
    for row in sorted(recoveries, key=lambda row: cluster.jobs[flows[row].job].spec.payload_bytes):
        way = paths.link[paths.start[row] : paths.start[row + 1]]
        if len(way):
            rate = max(0.0, float(left[way].min()))
            floor[row] += rate
            left[way] -= rate


def _bounds(flow: CheckpointFlow, connected: bool) -> tuple[float, float]:
    """Return floor and cap; a disconnected sender keeps the rate that it has."""
    if not connected:
        return flow.rate_bytes_per_s, flow.rate_bytes_per_s
    return min(flow.floor_bytes_per_s, flow.cap_bytes_per_s), flow.cap_bytes_per_s


def presync_flow(job: str, source: str, standby: str, cap_bytes_per_s: float) -> CheckpointFlow:
    """Return P1's stream of checkpoints from a job's host to its standby."""
    return CheckpointFlow(job, source, standby, TrafficClass.PRESYNC, cap_bytes_per_s=cap_bytes_per_s)
