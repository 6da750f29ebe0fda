"""Limits of what a receiver gives to those that send to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection, of one peer (a host's address) and of all together. Beyond them a sender is refused."""

    # a host sends a checkpoint of each job that it runs, and as a standby what it keeps: seldom more than ten at once
    connections_of_peer: int = 24
    # of all hosts; where transfers are announced, beside one of each host that something is announced from
    connections: int = 128
    # of addresses from which nothing is announced: a Hello may overtake its announcement, and is tried again a moment later
    connections_of_stranger: int = 4
    connections_of_strangers: int = 32
    # of manifests that are being read: one of the longest (4.5 MB), and a few of usual length (a GiB: 140 kB)
    manifest_bytes_of_peer: int = 8 << 20
    manifest_bytes: int = 64 << 20
    # a flow that is granted nothing trickles at 8 kB/s; of that, the paper's bucket leaves 4 %
    least_rate_bytes_per_s: float = 256.0
    # long enough for a few of TCP's timeouts in a row
    rate_window_s: float = 30.0


LIMITS = Limits()
