"""After a restart of the coordinator: all agents are heard again before anything is decided.

The journal brings back what the coordinator believed when it died, and that no connection survived it. The campus went on
without it: jobs computed and finished, checkpoints arrived, owners came and went. An agent that reconnects says all of that in
its Hello, but each says its own half only. A move whose final checkpoint has arrived is known to its destination, and at
its source nothing is left of the job; a coordinator that judged the source's Hello before it had heard the destination
would take the job for dead. So it gathers: Hellos are answered, which renews leases, and everything else waits until every
agent that was connected has come back, or until `PATIENCE` heartbeats are over. Then all are judged together: first what is
stored, then who is missing, then what runs where; at last what was said meanwhile.

Leases need no clock that outlived the process. An agent's lease runs from the sending of a heartbeat that was acknowledged by
the process that died, so it ends at the latest one lease after that death, thus within one lease of the restart, however
long the coordinator was down. Until then (and a margin) the jobs of an agent that does not come back are fenced.

What was promised stays promised: moves and their grants go on between agents that came back as they are. Recoveries, which an
agent stops sending when it loses the coordinator, are ordered again. Offers lapse and are made anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.lifecycle.checkpoints import stored_by
from controller.core.lifecycle.job_reports import job_ended
from controller.core.lifecycle.membership import (
    agree,
    disconnect,
    join,
    let_go,
    lose,
    remind,
    told_to_run,
)
from controller.core.lifecycle.offers import offer_all
from controller.core.lifecycle.rollforward import take_up
from controller.core.model import events as ev
from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, Phase
from testbed.messages import Hello

PATIENCE = 2  # heartbeats: two attempts of an agent to connect at its slowest, and less than a lease


@dataclass
class Reunion:
    """Whom the coordinator waits for after a restart, until when, and what it was told meanwhile."""

    awaited: set[str]
    until_s: float
    hellos: dict[str, Hello] = field(default_factory=dict)
    kept: list[ev.AgentSaid | ev.JobSubmitted | ev.LinksMeasured] = field(default_factory=list)

    def over(self, now_s: float) -> bool:
        """Whether all are there, or the patience is at its end."""
        return not self.awaited or now_s >= self.until_s

    def came(self, cluster: Cluster, hello: Hello) -> None:
        """An agent registers: it may go on with its jobs; the rest is judged later."""
        self.awaited.discard(hello.host)
        self.hellos[hello.host] = hello
        join(cluster, cluster.hosts[hello.host], hello)

    def went(self, cluster: Cluster, host: HostState) -> None:
        """It has lost its connection again: what it said, it will say again."""
        if self.hellos.pop(host.name, None) is None:
            return
        disconnect(cluster, host)
        self.awaited.add(host.name)
        self.kept = [e for e in self.kept if not isinstance(e, ev.AgentSaid) or e.host != host.name]


def begin(cluster: Cluster, before: Reunion | None) -> Reunion:
    """All connections are gone. Jobs that were submitted in an earlier reunion, which ended like this, are kept."""
    now_s, settings = cluster.now_s, cluster.settings
    fence_at_s = now_s + settings.lease_s + settings.fence_margin_s
    awaited = {host.name for host in cluster.hosts.values() if host.connected}
    awaited |= before.awaited if before else set()
    for host in cluster.hosts.values():
        if host.connected:
            disconnect(cluster, host)
        if host.jobs or host.name in awaited:
            cluster.fence(host, fence_at_s)
    submitted = [event for event in before.kept if isinstance(event, ev.JobSubmitted)] if before else []
    return Reunion(awaited, now_s + PATIENCE * settings.heartbeat_s, kept=list(submitted))


def judge(cluster: Cluster, reunion: Reunion) -> None:
    """All agents that came back have spoken: from here on the picture is the truth, as far as it can be known."""
    came = [(cluster.hosts[name], hello) for name, hello in sorted(reunion.hellos.items())]
    told = {host.name: told_to_run(cluster, host) for host, _ in came}
    for host, hello in came:
        for stored in hello.stored:
            stored_by(cluster, host, stored)
    for name in sorted(reunion.awaited):
        lose(cluster, cluster.hosts[name], "did not come back after the coordinator")
    for host, _ in came:
        if not host.usable:
            let_go(cluster, host)
    for host, hello in came:
        for ended in hello.ended:
            job_ended(cluster, host, ended)
    for host, hello in came:
        agree(cluster, host, hello, told[host.name])
    for host, _ in came:
        remind(cluster, host)
        for _, flow in sorted(cluster.flows.items()):  # recoveries that were being sent from here
            job = cluster.jobs[flow.job]
            if flow.source == host.name and job.phase is Phase.FETCHING and job.restore is not None:
                cluster.orders[flow.key] = None
    for host, _ in came:
        offer_all(cluster, host)
    for host, _ in came:
        take_up(cluster, host)
