"""Heartbeats, the lease that their acknowledgements extend, and the counters that travel with them.

A lease runs from the *sending* of the last heartbeat that was acknowledged (Hello counts as number 0, Welcome as its
acknowledgement). The coordinator counts the same duration from a later moment. So without a common clock the agent's
copy of a job is dead before the coordinator dares to start another.

A host that runs nothing and sends nothing has little to report. It is silent for half a lease, where that is longer
than the pace that the coordinator asked for. In a campus of hundreds most heartbeats are of such hosts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.messages import EgressSample, Heartbeat, JobClaim, Welcome

MAX_UNSENT_SAMPLES = 100  # egress samples kept without a connection: ten seconds of 100 ms
IDLE_SHARE = 0.5  # of a lease: one late heartbeat of an idle host does not end it


@dataclass
class Lease:
    """The agent's side of the lease. Without a connection `heartbeat_at_s` is inf; without a lease nothing may run."""

    lease_s: float = 0.0  # how long one lasts, as the coordinator set it
    lease_until_s: float = -inf  # jobs may run until then
    heartbeat_s: float = 1.0  # between heartbeats of a host that is not idle
    pace_s: float = 1.0  # between the last heartbeat and the next
    heartbeat_at_s: float = inf  # when the next is due
    number: int = 0  # of the last heartbeat
    unacknowledged: dict[int, float] = field(default_factory=dict)  # heartbeat -> when it was sent
    sampled: ev.Sampled | None = None  # the last counters; None: none yet
    samples: list[EgressSample] = field(default_factory=list)  # of egress, since the last heartbeat
    told_drops: int = 0  # in the last heartbeat
    lagged_s: float = 0.0  # the longest that counters were late since the last heartbeat
    answered_s: float = 0.0  # the last acknowledgement came so long after its heartbeat

    def greet(self, now_s: float) -> None:
        """Forget the heartbeats of another connection, whose acknowledgements count no more: Hello is being sent."""
        self.unacknowledged = {0: now_s}

    def welcome(self, message: Welcome, now_s: float, *, idle: bool) -> list[do.Effect]:
        """Begin heartbeats, since the agent is registered: at once, unless it is idle and Hello was as good as one."""
        self.lease_s, self.heartbeat_s = message.lease_s, message.heartbeat_s
        self._wait(now_s, idle=idle)
        if not idle or now_s - self.unacknowledged.get(0, -inf) > self.heartbeat_s:
            self.heartbeat_at_s = now_s
        return self.acknowledged(0, now_s)

    def lost(self) -> None:
        """End heartbeats, since the connection is gone; the lease runs on."""
        self.heartbeat_at_s = inf

    def acknowledged(self, number: int, now_s: float) -> list[do.Effect]:
        """Extend the lease, unless this heartbeat is of another connection or acknowledged already."""
        sent_s = self.unacknowledged.pop(number, None)
        if sent_s is None:
            return []
        self.unacknowledged = {n: at_s for n, at_s in self.unacknowledged.items() if n > number}
        self.answered_s = now_s - sent_s
        self.lease_until_s = sent_s + self.lease_s
        return [do.ExtendLease(self.lease_until_s)]

    def beat(self, claims: list[JobClaim], now_s: float, *, idle: bool) -> list[do.Effect]:
        """Send a heartbeat with what was counted since the last one; `idle`: the host runs nothing and sends nothing."""
        self.number += 1
        self._wait(now_s, idle=idle)
        self.unacknowledged[self.number] = now_s
        sampled = self.sampled or ev.Sampled({}, [], None, 0.0)
        samples, self.samples = self.samples, []
        self.told_drops = _drops(sampled)
        counted = sampled.classes, sampled.flows, samples, self.lagged_s
        self.lagged_s = 0.0
        return [do.Send(Heartbeat(self.number, claims, *counted, self.answered_s))]

    def _wait(self, now_s: float, *, idle: bool) -> None:
        self.pace_s = max(self.heartbeat_s, IDLE_SHARE * self.lease_s) if idle else self.heartbeat_s
        self.heartbeat_at_s = now_s + self.pace_s

    def busy(self, now_s: float) -> None:
        """Set the usual pace for the next heartbeat: a job begins here."""
        self.pace_s = self.heartbeat_s
        if self.heartbeat_at_s < inf:
            self.heartbeat_at_s = min(self.heartbeat_at_s, now_s + self.pace_s)

    def note(self, sampled: ev.Sampled) -> bool:
        """Take in the kernel's counters; whether they are worth a heartbeat at once: another set of flows, or drops."""
        known = {flow.transfer for flow in self.sampled.flows} if self.sampled else set()
        self.sampled = sampled
        self.lagged_s = max(self.lagged_s, sampled.loop_lag_s)
        if sampled.sample is not None:
            self.samples = [*self.samples, sampled.sample][-MAX_UNSENT_SAMPLES:]
        changed = known != {flow.transfer for flow in sampled.flows} or _drops(sampled) != self.told_drops
        return changed and self.heartbeat_at_s < inf


def _drops(sampled: ev.Sampled) -> int:
    return sum(count.drops for count in sampled.classes.values())
