"""`reclaimnet reclaim`, `return` and `status`: on a running campus, from another terminal.

The campus is found by its ledger, the switch by its pin, the agent and the coordinator by their sockets; only the pin is needed.
"""

from __future__ import annotations

import difflib
import errno
import grp
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio
from rich.console import Console
from rich.table import Table

from bpf.errors import BpfError
from experiments.worlds.live.operator import SOCKET, connected
from testbed import owner
from testbed.clock import MonotonicClock
from testbed.emulation.safety.ledger import RunningCampus, running_campuses
from testbed.errors import SetupError, SpecError
from testbed.messages import Status
from topologies.units import format_duration

PATIENCE_S = 2.0  # for a coordinator that does not answer


def reclaim(console: Console, host: str, notice_s: float, grace: bool, campus_id: str | None) -> None:
    """Close a host, now or in `notice_s`."""
    if not 0.0 <= notice_s < 1e9:
        raise SpecError("--notice", notice_s, "seconds, 0 or more")
    campus = _campus_of(host, campus_id)
    with _permitted(campus, host):
        done = owner.reclaim(
            campus.switch_pin(host), _agent_socket(campus, host), notice_s=notice_s, grace=grace
        )
    when = f"in {format_duration(notice_s or owner.GRACE_S)}" if notice_s or grace else "now"
    _tell(console, f"{host} is yours {when}: switched in {format_duration(done.set_s)}", done.agent_obeyed)


def lend(console: Console, host: str, campus_id: str | None) -> None:
    """Open a host again."""
    campus = _campus_of(host, campus_id)
    with _permitted(campus, host):
        done = owner.lend(campus.switch_pin(host), _agent_socket(campus, host))
    _tell(console, f"{host} is lent again: switched in {format_duration(done.set_s)}", done.agent_obeyed)


def status(console: Console, campus_id: str | None) -> None:
    """Every running campus (or one), as its coordinator and its kernel see it."""
    found = [campus for campus in running_campuses() if campus_id in (None, campus.id)]
    if not found:
        raise SetupError("no campus is running on this machine")
    for campus in found:
        console.print(f"campus [bold]{campus.id}[/bold] ({campus.name}), process {campus.owner_pid}")
        told, why_not = _ask(campus)
        title, known = f"{why_not}; switches as the kernel has them", {}
        if told is not None:
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


def _tell(console: Console, text: str, agent_obeyed: bool) -> None:
    agent = (
        "its agent has obeyed"
        if agent_obeyed
        else "no agent answered; the kernel's switch is set all the same"
    )
    console.print(f"{text}; {agent}")


def _campus_of(host: str, campus_id: str | None) -> RunningCampus:
    campuses = [campus for campus in running_campuses() if campus_id in (None, campus.id)]
    if not campuses:
        raise SetupError(
            "no campus is running on this machine"
            if campus_id is None
            else f"no campus {campus_id} is running"
        )
    having = [campus for campus in campuses if host in campus.volunteers]
    if len(having) > 1:
        raise SetupError(
            f"several running campuses have a host {host}: add --campus, one of {[c.id for c in having]}"
        )
    if not having:
        if any(host in campus.hosts for campus in campuses):
            raise SpecError("HOST", host, "a volunteer host: only those have an owner")
        names = [name for campus in campuses for name in campus.volunteers]
        near = difflib.get_close_matches(host, names, n=1)
        hint = f" (nearest: {near[0]})" if near else ""
        raise SpecError("HOST", host, f"a volunteer host of a running campus{hint}")
    if not having[0].switch_pin(host).exists():
        raise SetupError(
            f"campus {having[0].id} has no kill-switch on {host}: it was built without enforcement"
        )
    return having[0]


@contextmanager
def _permitted(campus: RunningCampus, host: str) -> Iterator[None]:
    """SetupError that names the users of the switch, if this one is not among them."""
    try:
        yield
    except BpfError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise
        raise SetupError(f"the switch of {host} is for {_users(campus.switch_pin(host))} only") from error


def _users(pin: Path) -> str:
    """The users that a pin's mode lets in."""
    found = pin.stat()
    if not found.st_mode & stat.S_IWGRP:
        return "root (a campus started with --group lets a group of owners in)"
    with suppress(KeyError):
        return f"root and members of the group {grp.getgrgid(found.st_gid).gr_name}"
    return f"root and members of the group {found.st_gid}"


def _agent_socket(campus: RunningCampus, host: str) -> Path:
    return campus.run_dir / f"{host}.sock"


def _ask(campus: RunningCampus) -> tuple[Status | None, str]:
    """The coordinator's view; or None, and why there is none."""

    async def ask() -> Status | None:
        with trio.move_on_after(PATIENCE_S):
            async with connected(campus.run_dir / SOCKET) as operator:
                return await operator.status()
        return None

    try:
        return trio.run(ask, clock=MonotonicClock()), "the coordinator does not answer"
    except PermissionError:
        return None, "only root may ask the coordinator"
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        return None, "the coordinator does not answer"


def _switch_cells(pin: Path) -> tuple[str, str]:
    try:
        switch = owner.look(pin)
    except BpfError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise
        return f"for {_users(pin)} only", ""
    words = switch.mode.name.lower()
    if switch.isolate_at_ns:
        left_s = (switch.isolate_at_ns - time.monotonic_ns()) / 1e9
        words += f", closed in {format_duration(left_s)}" if left_s > 0 else ", now closed"
    return words, f"{switch.dropped_packets} packets" if switch.dropped_packets else ""
