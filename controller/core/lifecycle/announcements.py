"""Which transfers receivers are to expect: those of the flows that are open, under numbers that cannot be guessed.

A host takes only what was announced to it (`messages.Expect`), so a flow that opens is announced to its destination and one that
closes is called off there. That is not done where flows open and close, in a dozen places: these mark the flow, and once an
event has been decided, what was told of each marked flow is compared with what is so now. What is told comes before the orders
to senders.

Numbers are a keyed hash of a count. A coordinator that decides its journal's events again comes to the same numbers, so that what
was announced and ordered before it died goes on; a host that does not know the key cannot tell the next one.
"""

from __future__ import annotations

import hashlib

from controller.core.model import effects as do
from controller.core.model.cluster import Cluster
from testbed.bounds import LARGEST_INTEGER, SEQUENCES_PER_ATTEMPT, most_checkpoint_bytes
from testbed.messages import Expect, ExpectNoMore, Welcome


def announce(cluster: Cluster) -> None:
    """Tell receivers which transfers to expect, ahead of all else in the outbox but the Welcome of a new registration."""
    if not cluster.changed_flows:
        return
    effects = cluster.take_outbox()
    if effects and isinstance(effects[0], do.Tell) and isinstance(effects[0].message, Welcome):
        cluster.outbox.append(effects.pop(0))
    for key in cluster.changed_flows:
        flow, before = cluster.flows.get(key), cluster.announced.get(key)
        if flow is None:
            if before is not None:
                del cluster.announced[key]
                cluster.tell(before[0], ExpectNoMore(before[1].ticket))
            continue
        job, source = cluster.jobs[flow.job], cluster.hosts[flow.source]
        if flow.sequence is not None:
            first = last = flow.sequence
        else:  # whatever the present attempt takes
            first = job.attempt * SEQUENCES_PER_ATTEMPT
            last = first + SEQUENCES_PER_ATTEMPT - 1
        most_bytes = most_checkpoint_bytes(job.spec.payload_bytes)
        now = Expect(flow.ticket, job.name, first, last, source.name, source.address, most_bytes)
        if before is not None and before[1] == now:
            continue
        cluster.announced[key] = (flow.destination, now)
        cluster.tell(flow.destination, now)
        if before is not None and before[1].ticket != now.ticket:  # it was closed and opened again at once
            cluster.tell(flow.destination, ExpectNoMore(before[1].ticket))
    cluster.changed_flows.clear()
    cluster.outbox += effects


def announce_again(cluster: Cluster, host: str) -> None:
    """Announce everything again to a host that has just registered."""
    for key in [key for key, (to, _) in cluster.announced.items() if to == host]:
        del cluster.announced[key]
    for key, flow in cluster.flows.items():
        if flow.destination == host:
            cluster.changed_flows[key] = None


def ticket(secret: bytes, count: int) -> int:
    """Return the one-time number of the n-th flow that was opened."""
    digest = hashlib.blake2b(count.to_bytes(8, "big"), key=secret, digest_size=8).digest()
    return int.from_bytes(digest, "big") & LARGEST_INTEGER or 1
