"""`reclaimnet status`: the running campuses of this machine, as their coordinators and the kernel see them."""

from __future__ import annotations

import errno
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bpf.errors import BpfError
from experiments.cli.owner import users_of
from experiments.worlds.live.operator import Operator, ask
from testbed import owner
from testbed.emulation.safety.ledger import named_campuses
from testbed.errors import SetupError
from testbed.messages import HostStatus
from topologies.units import format_duration

PATIENCE_S = 2.0  # for a coordinator that does not answer


def status(console: Console, campus_id: str | None) -> None:
    """Every running campus (or one), as its coordinator and its kernel see it."""
    for campus in named_campuses(campus_id):
        console.print(f"campus [bold]{campus.id}[/bold] ({campus.name}), process {campus.owner_pid}")
        known: dict[str, HostStatus] = {}
        try:
            told = ask(campus.run_dir, Operator.status, PATIENCE_S)
        except SetupError as why_not:
            title = f"{why_not}; switches as the kernel has them"
        else:
            title = (
                f"{len(told.waiting)} waiting, r = {told.level:.2f}, mean cost {told.mean_cost:.2f}, "
                f"mean delay {format_duration(told.mean_delay_s)}"
            )
            known = {host.host: host for host in told.hosts}
        table = Table("host", "building", "state", "jobs", "kernel switch", "dropped", title=title)
        for name in campus.hosts:
            if campus.switch_pin(name).exists():
                host = known.get(name)
                where = (host.building, host.state, " ".join(host.jobs)) if host else ("", "", "")
                table.add_row(name, *where, *_switch_cells(campus.switch_pin(name)))
        console.print(table)


def _switch_cells(pin: Path) -> tuple[str, str]:
    try:
        switch = owner.look(pin)
    except BpfError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise
        return f"for {users_of(pin)} only", ""
    words = switch.mode.name.lower()
    if switch.isolate_at_ns:
        left_s = (switch.isolate_at_ns - time.monotonic_ns()) / 1e9
        words += f", closed in {format_duration(left_s)}" if left_s > 0 else ", now closed"
    return words, f"{switch.dropped_packets} packets" if switch.dropped_packets else ""
