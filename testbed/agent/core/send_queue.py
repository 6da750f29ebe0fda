"""Transfers that a host sends: at most one for each (job, destination), retried where a job waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from testbed.agent.core import effects as do
from testbed.messages import Endpoint
from topologies.spec import TrafficClass

RETRY_S = 0.25  # pause before what failed is tried again: a few round trips of the campus


@dataclass
class QueuedSend:
    """A transfer that this host is sending, or will retry at `retry_at_s`."""

    sequence: int
    destination: Endpoint
    rate_bytes_per_s: float
    traffic_class: TrafficClass
    retry_at_s: float = inf

    @property
    def on_its_way(self) -> bool:
        """True while bytes flow; False while it waits for a retry."""
        return self.retry_at_s == inf


@dataclass
class SendQueue:
    """Transfers that a host sends, by (job, destination host)."""

    table: dict[tuple[str, str], QueuedSend] = field(default_factory=dict)

    def next_retry_s(self) -> float:
        """Return the time of the next retry; inf if there is none."""
        return min([sending.retry_at_s for sending in self.table.values()], default=inf)

    def of(self, job: str) -> list[str]:
        """Destinations to which something of a job is being sent."""
        return [to for name, to in self.table if name == job]

    def send(self, job: str, to_send: QueuedSend) -> list[do.Effect]:
        """Send it; another checkpoint of the job on its way to the same place is given up for it."""
        key = (job, to_send.destination.host)
        present = self.table.get(key)
        if present is not None and present.sequence == to_send.sequence:
            present.destination = to_send.destination
            return self.regrant(*key, to_send.rate_bytes_per_s)
        superseded = self.abort(*key)
        self.table[key] = to_send
        return [*superseded, _start(job, to_send)]

    def readdress(self, job: str, destination: Endpoint) -> None:
        """Give the waiting retry to that host this address and number."""
        if sending := self.table.get((job, destination.host)):
            sending.destination = destination

    def retry(self, now_s: float) -> list[do.Effect]:
        """Start again what is due."""
        effects: list[do.Effect] = []
        for (job, _), sending in self.table.items():
            if now_s >= sending.retry_at_s:
                sending.retry_at_s = inf
                effects.append(_start(job, sending))
        return effects

    def regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> list[do.Effect]:
        """Change the rate of what is sent there, if anything is."""
        sending = self.table.get((job, destination))
        if sending is None or sending.rate_bytes_per_s == rate_bytes_per_s:
            return []
        sending.rate_bytes_per_s = rate_bytes_per_s
        return [do.Regrant(job, destination, rate_bytes_per_s)] if sending.on_its_way else []

    def abort(self, job: str, destination: str) -> list[do.Effect]:
        """Stop sending it, for good."""
        sending = self.table.pop((job, destination), None)
        return [do.AbortSending(job, destination)] if sending and sending.on_its_way else []

    def abort_elsewhere(self, job: str, destination: str) -> list[do.Effect]:
        """Stop sending anything of a job, but to there."""
        return [effect for to in self.of(job) if to != destination for effect in self.abort(job, to)]

    def abort_job(self, job: str) -> list[do.Effect]:
        """Stop sending anything of a job."""
        return [effect for to in self.of(job) for effect in self.abort(job, to)]


def _start(job: str, sending: QueuedSend) -> do.StartSending:
    return do.StartSending(
        job, sending.sequence, sending.destination, sending.rate_bytes_per_s, sending.traffic_class
    )
