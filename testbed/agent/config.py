"""Configuration of an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from math import inf
from pathlib import Path

from testbed.enforcement import Enforcement
from testbed.trust.channel import Credentials

DATA_PORT = 720


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Place of an agent in the campus. Without `pin_dir` there is no kill-switch, and nothing is counted or guarded."""

    host: str
    address: IPv4Address
    coordinator: tuple[str, int]
    directory: Path
    data_port: int = DATA_PORT
    standby: tuple[str, int] | None = None  # the second coordinator, where there is one
    gpus: int = 1  # of this host: the slots in which jobs run
    pin_dir: Path | None = None
    owner_socket: Path | None = None
    owners_gid: int | None = None  # the host's own group, whose members may use that socket beside root
    migration_share_bytes_per_s: float = inf  # of the access link, payload; the aggregate bucket
    checkpoints_apart: bool = False  # they are no part of that share
    enforcement: Enforcement = Enforcement.PACE
    congestion: str = "bbr"
    credentials: Credentials | None = None  # None: conversations without certificates
    # gets each change of them, where they have to outlive the process
    keep: Callable[[Credentials], None] | None = None
    takes_open_jobs: bool = True  # those whose file has `sandbox = "none"`: what they run is root's
    # jobs stand still until a snapshot is written; else while it is copied in memory, where that can be
    snapshots_stop: bool = False
    transfers: str = "plain"  # of checkpoints: how they are protected (`testbed.trust.TRANSFERS`)
    # where the output of attempts goes (`testbed.workloads.output`); None: a folder in `directory`
    job_logs: Path | None = None
    group: str = ""  # of the host's control group, below which those of its jobs are; empty: jobs have none
