"""`reclaimnet status`: the running campuses of this machine, as their coordinators and the kernel see them."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import msgspec
from rich.table import Table

from bpf.errors import BpfError
from experiments.worlds.live.operator import Operator, ask
from testbed import owner
from testbed.emulation.safety.living import named_campuses, running_campuses
from testbed.errors import SetupError
from testbed.messages import HostStatus, Status
from testbed.owner import users_of
from topologies.units import format_duration, format_level

PATIENCE_S = 2.0  # for a coordinator that does not answer


class OwnerSwitch(msgspec.Struct):
    """An owner's switch, as the kernel has it."""

    mode: str  # off, drain, isolate
    closes_in_s: float | None  # below 0: closed since
    dropped_packets: int


class HostAndSwitch(msgspec.Struct):
    """A host of a campus: the coordinator's view (None: it does not answer, or does not know it) and the kernel's."""

    host: str
    coordinator: HostStatus | None
    switch: OwnerSwitch | None  # None: not for this user, or on another machine
    switch_users: str  # who may read and set it here


class CampusStatus(msgspec.Struct):
    """A running campus."""

    campus: str
    name: str
    process: int
    coordinator: Status | None
    why_not: str  # the coordinator does not answer
    hosts: list[HostAndSwitch]


def campus_status(campus_id: str | None) -> list[CampusStatus]:
    """Return every running campus (or one), as its coordinator and its kernel see it."""
    found = []
    for campus in running_campuses() if campus_id is None else named_campuses(campus_id):
        told, why_not = None, ""
        try:
            told = ask(campus.run_dir, Operator.status, PATIENCE_S)
        except SetupError as error:
            why_not = str(error)
        known = {host.host: host for host in told.hosts} if told else {}
        pins = {name: Path(campus.switch_pin(name)) for name in campus.hosts}
        hosts = [
            HostAndSwitch(name, known.get(name), _switch(pin), users_of(pin))
            for name, pin in pins.items()
            if pin.exists()
        ]
        hosts += [HostAndSwitch(name, host, None, "") for name, host in known.items() if name not in pins]
        found.append(CampusStatus(campus.id, campus.name, campus.owner_pid, told, why_not, hosts))
    return found


def status_table(campus: CampusStatus) -> tuple[str, Table]:
    """Return a campus for people: a title, and a table of its hosts."""
    title = f"{campus.why_not}; switches as the kernel has them"
    if told := campus.coordinator:
        title = (
            f"{len(told.waiting)} waiting, r = {format_level(told.level)}, mean cost {told.mean_cost:.2f}, "
            f"mean delay {format_duration(told.mean_delay_s)}"
        )
    table = Table("host", "building", "state", "jobs", "kernel switch", "dropped", title=title)
    for each in campus.hosts:
        host = each.coordinator
        where = (host.building, host.state, " ".join(host.jobs)) if host else ("", "", "")
        if (switch := each.switch) is None:
            words, dropped = f"for {each.switch_users} only" if each.switch_users else "on another machine", ""
        else:
            words = switch.mode
            dropped = f"{switch.dropped_packets} packets" if switch.dropped_packets else ""
            if (closes_in_s := switch.closes_in_s) is not None:
                words += f", closed in {format_duration(closes_in_s)}" if closes_in_s > 0 else ", now closed"
        table.add_row(each.host, *where, words, dropped)
    return f"campus {campus.campus} ({campus.name}), process {campus.process}", table


def _switch(pin: Path) -> OwnerSwitch | None:
    try:
        switch = owner.look(pin)
    except BpfError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise
        return None
    left_s = (switch.isolate_at_ns - time.monotonic_ns()) / 1e9 if switch.isolate_at_ns else None
    return OwnerSwitch(switch.mode.name.lower(), left_s, switch.dropped_packets)
