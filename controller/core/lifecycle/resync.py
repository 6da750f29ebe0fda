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
    offer_all,
    remind,
    told_to_run,
)
from controller.core.lifecycle.protection import protect
from controller.core.lifecycle.rollforward import take_up
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, Phase
from testbed.messages import Hello, SendStored

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

    def came(self, cluster: Cluster, hello: Hello, now_s: float) -> list[do.Effect]:
        """An agent registers: it may go on with its jobs; the rest is judged later."""
        self.awaited.discard(hello.host)
        self.hellos[hello.host] = hello
        return join(cluster, cluster.hosts[hello.host], hello, now_s)

    def went(self, cluster: Cluster, host: HostState, now_s: float) -> None:
        """It has lost its connection again: what it said, it will say again."""
        if self.hellos.pop(host.name, None) is None:
            return
        disconnect(cluster, host, now_s)
        self.awaited.add(host.name)
        self.kept = [e for e in self.kept if not isinstance(e, ev.AgentSaid) or e.host != host.name]


def begin(cluster: Cluster, before: Reunion | None, now_s: float) -> Reunion:
    """All connections are gone. Jobs that were submitted in an earlier reunion, which ended like this, are kept."""
    settings = cluster.settings
    fence_at_s = now_s + settings.lease_s + settings.fence_margin_s
    awaited = {host.name for host in cluster.hosts.values() if host.connected}
    awaited |= before.awaited if before else set()
    for host in cluster.hosts.values():
        if host.connected:
            disconnect(cluster, host, now_s)
        if host.jobs or host.name in awaited:
            host.fence_at_s = fence_at_s
    cluster.watch()
    submitted = [event for event in before.kept if isinstance(event, ev.JobSubmitted)] if before else []
    return Reunion(awaited, now_s + PATIENCE * settings.heartbeat_s, kept=list(submitted))


def judge(cluster: Cluster, reunion: Reunion, now_s: float) -> list[do.Effect]:
    """Everybody who came back has spoken: from here on the picture is the truth, as far as it can be known."""
    hellos = sorted(reunion.hellos.items())
    hosts = [cluster.hosts[name] for name, _ in hellos]
    told = {host.name: told_to_run(cluster, host) for host in hosts}
    effects = [e for name, hello in hellos for e in _stored(cluster, cluster.hosts[name], hello, now_s)]
    for name in sorted(reunion.awaited):
        effects += lose(cluster, cluster.hosts[name], "did not come back after the coordinator", now_s)
    for host in hosts:
        if not host.usable:
            effects += let_go(cluster, host, now_s)
    effects += [e for name, hello in hellos for e in _ended(cluster, cluster.hosts[name], hello, now_s)]
    for name, hello in hellos:
        effects += agree(cluster, cluster.hosts[name], hello, told[name], now_s)
    for host in hosts:
        effects += [*remind(cluster, host, now_s), *_send_again(cluster, host)]
    effects += [*(e for host in hosts for e in offer_all(cluster, host, now_s)), *protect(cluster, now_s)]
    return [*effects, *(e for host in hosts for e in take_up(cluster, host, now_s))]


def _stored(cluster: Cluster, host: HostState, hello: Hello, now_s: float) -> list[do.Effect]:
    return [effect for stored in hello.stored for effect in stored_by(cluster, host, stored, now_s)]


def _ended(cluster: Cluster, host: HostState, hello: Hello, now_s: float) -> list[do.Effect]:
    return [effect for ended in hello.ended for effect in job_ended(cluster, host, ended, now_s)]


def _send_again(cluster: Cluster, host: HostState) -> list[do.Effect]:
    """Recoveries that were being sent from here."""
    effects: list[do.Effect] = []
    for _, flow in sorted(cluster.flows.items()):
        job = cluster.jobs[flow.job]
        if flow.source == host.name and job.phase is Phase.FETCHING and job.restore is not None:
            to, rate = cluster.endpoint(flow), flow.rate_bytes_per_s
            order = SendStored(job.name, job.restore.stored.sequence, to, rate)
            effects.append(do.Tell(host.name, order))
    return effects
