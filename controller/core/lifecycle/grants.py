"""One account for everything that the testbed sends: rates of all flows, on all links that they cross.

A migration has a floor, P3's guarantee; a checkpoint has a cap, P1's b_i, and no floor; a recovery has neither. Whatever
changes the set of flows ends with `settle`, which shares the links anew and tells the senders whose rate changed.

Where P3 lets rates vary, the floors of promised migrations are those of a timetable at this moment. `settle` plans it anew
from what is left of each (`pledge`), and `Cluster.regrant_at_s` is when the next rate in it changes.
"""

from __future__ import annotations

from math import inf

import numpy as np

from controller.core.admission.admission import Promise
from controller.core.admission.reservation import Pledge
from controller.core.admission.schedule import Timetable
from controller.core.lifecycle.announcements import ticket
from controller.core.lifecycle.changes import rates_moved
from controller.core.model import effects as do
from controller.core.model import facts
from controller.core.model.cluster import LEAST_FALL, Cluster, record
from controller.core.model.entities import CheckpointFlow
from controller.core.network.links import NO_LINK, Paths, filled
from controller.core.network.max_min import Wants
from controller.core.network.sharing import Demand
from testbed.messages import CancelTransfers, Grant
from topologies.spec import DirectedLink, TrafficClass

LEAST_RISE = 0.02  # a rate that rises by less than 2 % is not worth a message
LEAST_SPAN_S = (
    0.02  # rates are not changed more often by a timetable than this: a message takes about as long
)


def open_flow(cluster: Cluster, flow: CheckpointFlow) -> None:
    """Add a flow, or replace it: then rate and number stay. `settle` gives it its rate, its receiver is told to expect it."""
    key = flow.key
    before = cluster.flows.get(key)
    if before is not None:
        flow.rate_bytes_per_s, flow.ticket = before.rate_bytes_per_s, before.ticket
    else:
        cluster.opened += 1
        flow.ticket = ticket(cluster.secret, cluster.opened)
    cluster.flows[key] = flow
    cluster.jobs[flow.job].keepers.add(flow.destination)
    cluster.changed_flows[key] = None


def close_flow(cluster: Cluster, flow: CheckpointFlow, *, tell: bool = False) -> list[do.Effect]:
    """Remove a flow; `tell` its sender to stop, where it has not stopped of itself."""
    if cluster.flows.pop(flow.key, None) is None:
        return []
    cluster.changed_flows[flow.key] = None
    ended = record(facts.GrantEnded(flow.job, flow.source, flow.destination))
    if not tell:
        return [ended]
    return [do.Tell(flow.source, CancelTransfers(flow.job, flow.destination)), ended]


def close_flows(
    cluster: Cluster,
    *,
    job: str | None = None,
    source: str | None = None,
    destination: str | None = None,
    tell: bool = False,
) -> list[do.Effect]:
    """Remove all flows that match every given end."""
    matching = [
        flow
        for flow in cluster.flows.values()
        if job in (None, flow.job)
        and source in (None, flow.source)
        and destination in (None, flow.destination)
    ]
    return [effect for flow in matching for effect in close_flow(cluster, flow, tell=tell)]


def spendable(cluster: Cluster) -> dict[DirectedLink, float]:
    """What is given out of each link's share: the rest is room for falls that are too small to tell."""
    return cluster.spendable


def committed(cluster: Cluster, *, movable: bool = False) -> list[Promise]:
    """What is promised to admitted migrations (they stay admitted), and what cannot be taken back: see `_demand`.

    `movable`: sources that have not stopped their job yet may be told another moment to do so.
    """
    hosts = cluster.hosts
    return [
        _promise(cluster, flow, movable)
        for flow in cluster.flows.values()
        if flow.pledge is not None or flow.floor_bytes_per_s > 0.0 or not hosts[flow.source].connected
    ]


def pledged(cluster: Cluster) -> list[tuple[CheckpointFlow, Pledge]]:
    """Flows that follow the timetable. A sender that is not connected cannot: it keeps the rate that it has."""
    flows = cluster.flows.values()
    return [(f, f.pledge) for f in flows if f.pledge is not None and cluster.hosts[f.source].connected]


def _promise(cluster: Cluster, flow: CheckpointFlow, movable: bool) -> Promise:
    if flow.pledge is not None and cluster.hosts[flow.source].connected:
        links = cluster.routes.route(flow.source, flow.destination)
        return flow.pledge.request(flow.key, links, flow.cap_bytes_per_s, cluster.now_s, movable=movable)
    return _demand(cluster, flow)


def _follow_timetable(cluster: Cluster) -> None:
    """Count what has been sent, plan the rest, and set floors to what the plan says for now."""
    now_s = cluster.now_s
    for flow in cluster.flows.values():
        if flow.pledge is not None:
            connected = cluster.hosts[flow.source].connected
            flow.pledge.count(now_s, flow.rate_bytes_per_s if connected else 0.0)
    cluster.regrant_at_s = inf
    if not (following := pledged(cluster)):
        return
    next_s, plan = min(pledge.turn_s for _, pledge in following), Timetable()
    if next_s <= now_s:  # else nobody's turn has begun, and who comes first finds the links empty
        plan = cluster.policy.admit([], now_s, cluster.promisable, committed(cluster)).timetable
        next_s = plan.next_change_s(now_s)
    for flow, _ in following:
        flow.floor_bytes_per_s = plan.rate_at(flow.key, now_s)
    cluster.regrant_at_s = max(next_s, now_s + LEAST_SPAN_S)


def settle(cluster: Cluster) -> list[do.Effect]:
    """Share all links anew (max-min of totals with floors and caps) and tell whose rate changed, falls first."""
    _follow_timetable(cluster)
    keys, paths = cluster.flow_paths()
    flows = [cluster.flows[key] for key in keys]
    wants = _wants(cluster, flows, paths)
    rates, held_by = cluster.policy.share(wants, cluster.spendable_column)
    old = np.array([flow.rate_bytes_per_s for flow in flows], dtype=float)
    links = cluster.network.links
    effects: list[do.Effect] = []
    for n in rates_moved(old, rates, LEAST_FALL, LEAST_RISE).tolist():
        bottleneck = str(links[held_by[n]]) if held_by[n] != NO_LINK else ""
        effects += _grant(flows[n], float(rates[n]), bottleneck, cluster.now_s)
    return effects


def tell_grants(cluster: Cluster, source: str) -> list[do.Effect]:
    """The present rates of all that a host sends: it may have missed a change."""
    flows = [flow for _, flow in sorted(cluster.flows.items()) if flow.source == source]
    return [do.Tell(source, Grant(flow.job, flow.destination, flow.rate_bytes_per_s)) for flow in flows]


def _grant(flow: CheckpointFlow, rate_bytes_per_s: float, bottleneck: str, now_s: float) -> list[do.Effect]:
    if flow.pledge is not None:
        flow.pledge.regranted(now_s, flow.rate_bytes_per_s, rate_bytes_per_s)
    flow.rate_bytes_per_s, flow.bottleneck = rate_bytes_per_s, bottleneck
    granted = facts.Granted(
        flow.job,
        flow.source,
        flow.destination,
        flow.traffic_class.value,
        rate_bytes_per_s,
        flow.floor_bytes_per_s,
        bottleneck,
    )
    return [do.Tell(flow.source, Grant(flow.job, flow.destination, rate_bytes_per_s)), record(granted)]


def _demand(cluster: Cluster, flow: CheckpointFlow) -> Demand:
    """What a flow asks for."""
    route = cluster.routes.route(flow.source, flow.destination)
    return Demand(flow.key, route, 1.0, *_bounds(flow, cluster.hosts[flow.source].connected))


def _wants(cluster: Cluster, flows: list[CheckpointFlow], paths: Paths) -> Wants:
    """What all flows ask for."""
    floor = np.array([flow.floor_bytes_per_s for flow in flows], dtype=float)
    cap = np.array([flow.cap_bytes_per_s for flow in flows], dtype=float)
    floor, hosts = np.minimum(floor, cap), cluster.hosts
    for row in [row for row, flow in enumerate(flows) if not hosts[flow.source].connected]:
        floor[row], cap[row] = _bounds(flows[row], connected=False)
    return Wants(cluster.network, paths, filled(1.0, len(flows)), floor, cap)


def _bounds(flow: CheckpointFlow, connected: bool) -> tuple[float, float]:
    """Floor and cap. A sender that is not connected cannot be told: it keeps the rate that it has."""
    if not connected:
        return flow.rate_bytes_per_s, flow.rate_bytes_per_s
    return min(flow.floor_bytes_per_s, flow.cap_bytes_per_s), flow.cap_bytes_per_s


def presync_flow(job: str, source: str, standby: str, cap_bytes_per_s: float) -> CheckpointFlow:
    """P1's stream of checkpoints from a job's host to its standby."""
    return CheckpointFlow(job, source, standby, TrafficClass.PRESYNC, cap_bytes_per_s=cap_bytes_per_s)
