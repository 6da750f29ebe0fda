"""Transfers that a host sends: at most one for each (job, destination), retried where a job waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from testbed.agent.core import effects as do
from testbed.messages import Endpoint

RETRY_S = 0.25  # pause before what failed is tried again: a few round trips of the campus


@dataclass
class SendQueue:
    """Transfers that a host sends, by (job, destination host), as they were ordered."""

    table: dict[tuple[str, str], do.StartSending] = field(default_factory=dict)
    # of those that failed and wait: when they are tried again
    retries_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def next_retry_s(self) -> float:
        """Return the time of the next retry; inf if there is none."""
        return min(self.retries_s.values(), default=inf)

    def of(self, job: str) -> list[str]:
        """Return the destinations to which something of a job is being sent."""
        return [to for name, to in self.table if name == job]

    def send(self, order: do.StartSending) -> list[do.Effect]:
        """Send it; another checkpoint of the job on its way to the same place is given up for it."""
        key = (order.job, order.destination.host)
        present = self.table.get(key)
        if present is not None and present.sequence == order.sequence:
            self.readdress(order.job, order.destination)
            return self.regrant(*key, order.rate_bytes_per_s)
        superseded = self.abort(*key)
        self.table[key] = order
        return [*superseded, order]

    def readdress(self, job: str, destination: Endpoint) -> None:
        """Give the waiting retry to that host this address and number."""
        key = (job, destination.host)
        if present := self.table.get(key):
            self.table[key] = replace(present, destination=destination)

    def failed(self, key: tuple[str, str], now_s: float) -> None:
        """Try it again a little later."""
        self.retries_s[key] = now_s + RETRY_S

    def retry(self, now_s: float) -> list[do.Effect]:
        """Start again what is due."""
        if not self.retries_s:
            return []
        due = [key for key in self.table if now_s >= self.retries_s.get(key, inf)]
        for key in due:
            del self.retries_s[key]
        return [self.table[key] for key in due]

    def regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> list[do.Effect]:
        """Change the rate of what is sent there, if anything is."""
        key = (job, destination)
        present = self.table.get(key)
        if present is None or present.rate_bytes_per_s == rate_bytes_per_s:
            return []
        self.table[key] = replace(present, rate_bytes_per_s=rate_bytes_per_s)
        return [do.Regrant(job, destination, rate_bytes_per_s)]

    def abort(self, job: str, destination: str) -> list[do.Effect]:
        """Stop sending it, for good."""
        key = (job, destination)
        self.retries_s.pop(key, None)
        return [] if self.table.pop(key, None) is None else [do.AbortSending(job, destination)]

    def abort_elsewhere(self, job: str, destination: str) -> list[do.Effect]:
        """Stop sending anything of a job, but to there."""
        return [effect for to in self.of(job) if to != destination for effect in self.abort(job, to)]

    def abort_job(self, job: str) -> list[do.Effect]:
        """Stop sending anything of a job."""
        return [effect for to in self.of(job) for effect in self.abort(job, to)]
