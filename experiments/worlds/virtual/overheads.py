"""Overheads of the machinery: seconds that a live run spends in sockets, processes and disks, as laws to draw from.

They are machine time, so no scale applies to them. Live runs were measured on one machine of two cores. The defaults
are the middle of the journals of demonstrations on such a machine while a fifth of it is busy. `reclaimnet compare`
measures them again, and shows both. The overhead of a real campus is the paper's T_r. `costs_of` chooses laws within
the restart and snapshot times that P3 reserves, as its promise requires: beyond these, only faults are late.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from controller.core.parameters import Protocol

Span = tuple[float, float]  # drawn uniformly between these


@dataclass(frozen=True, slots=True)
class Overheads:
    """Overheads in seconds. A span is drawn for each use, from the stream of its purpose."""

    message_s: float = 0.001  # one way between an agent and the coordinator, beside the links' delays
    boot_s: Span = (0.0, 0.05)  # of an agent, at the start of a run
    switch_s: Span = (0.0005, 0.002)  # until an agent has read a switch that was written
    start_s: Span = (0.1, 0.3)  # of a workload, with the proof of its state
    finish_s: Span = (0.02, 0.06)  # from its last step to its end: the proof of its state, the exit
    snapshot_s: Span = (0.03, 0.12)  # a snapshot ordered and hashed,
    snapshot_bytes_per_s: float = inf  # and its payload written at this rate
    # for which it stops a job that goes on; None: the job stands still for all of it, and its host reports nothing of what it
    # took: the coordinator plans with what the scenario has
    snapshot_pause_s: Span | None = None
    snapshot_pause_bytes_per_s: float = inf  # and while its payload is copied at this rate
    connect_s: float = 0.003  # a transfer's handshake, and what the receiver lacks
    commit_s: float = 0.02  # the receiver's last hash and fsync
    # pause before an agent tries the coordinator again; twice as long each time in vain
    reconnect_s: float = 0.2
    reconnect_most_s: float = 1.0
    silence_s: float = 10.0  # a transfer without a sign of life is given up after this


RESTART_SHARE = (0.5, 0.9)  # of T_r: what a restart takes of the time that is reserved for it
SNAPSHOT_SHARE = (0.2, 0.8)


def costs_of(protocol: Protocol) -> Overheads:
    """Return overheads within the reserved times: a restart takes part of T_r, a snapshot part of its allowance."""
    low, high = RESTART_SHARE
    small, large = SNAPSHOT_SHARE
    pause_s = (small * protocol.copy_s, large * protocol.copy_s) if protocol.copies else None
    return Overheads(
        start_s=(low * protocol.restart_s, high * protocol.restart_s),
        snapshot_s=(small * protocol.snapshot_s, large * protocol.snapshot_s),
        snapshot_bytes_per_s=protocol.snapshot_bytes_per_s / large,
        snapshot_pause_s=pause_s,
        snapshot_pause_bytes_per_s=1e9 * protocol.copy_gb_per_s / large if protocol.copies else inf,
        silence_s=min(10.0, max(protocol.lease_s, 1.0)) if protocol.lease_s < inf else 10.0,
    )
