"""The owner's hand: close a host, or lend it again, from any process on its machine.

The switch is a word of kernel memory behind a pin. Writing it needs neither the agent nor the coordinator, and the next
packet is judged by it. A notice is kept by the kernel too: the program itself isolates the host when the time has come.
The agent, if there is one, is notified after, and is waited for a moment: it kills what runs there. How soon a command
closes a host is how soon this module is imported, so it imports little.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from bpf.errors import BpfError
from bpf.switch import DRAIN, ISOLATE, OFF, KillSwitch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from bpf.layout import SwitchStatus

ANSWER_S = 0.5  # how long the agent may take to obey before the owner learns that it does not answer
LOOK = {False: b"look", True: b"look, with grace"}  # the datagram to the agent: the map is written


class Switched:
    """Result of the owner's command. `set_s`: seconds until the kernel's map was set; `was_broken`: from no setting."""

    __slots__ = ("agent_obeyed", "set_at_s", "set_s", "was_broken")

    def __init__(self, set_s: float, set_at_s: float, agent_obeyed: bool, was_broken: bool = False) -> None:
        self.set_s, self.set_at_s, self.agent_obeyed, self.was_broken = set_s, set_at_s, agent_obeyed, was_broken

    def __str__(self) -> str:
        from topologies.units import format_duration

        heard = "its agent has obeyed"
        if not self.agent_obeyed:
            heard = "no agent answered; the kernel's switch is set all the same"
        broken = "; the switch had held what no command writes, and is whole again" if self.was_broken else ""
        return f"switched in {format_duration(self.set_s)}; {heard}{broken}"


def reclaim(
    switch_pin: Path | str, agent_socket: Path | str | None, *, notice_s: float = 0.0, grace: bool = False
) -> Switched:
    """Take a host back: now, or in `notice_s`, which is a `grace` for transfers if the owner is in a hurry.

    BpfError: the pin does not exist; SetupError: it is not for this user, and whose it is. Without notice, no new connection
    gets in once this returns.
    """
    if not 0.0 <= notice_s < 1e9:
        raise ValueError(f"a notice of {notice_s} s: 0 to 1e9 seconds")
    return _switch(switch_pin, agent_socket, DRAIN if notice_s > 0.0 else ISOLATE, notice_s, grace)


def lend(switch_pin: Path | str, agent_socket: Path | str | None) -> Switched:
    """Open the host again: a spot offer."""
    return _switch(switch_pin, agent_socket, OFF, 0.0, False)


def look(switch_pin: Path) -> SwitchStatus:
    """Return the switch's setting, and the packets dropped since."""
    switch = KillSwitch.open_pinned(switch_pin)
    try:
        return switch.status()
    finally:
        switch.close()


def let_group(switch_pin: Path, gid: int) -> None:
    """Let the members of a group use a switch, as root may; its agent's socket is opened to them by the agent."""
    switch_pin.parent.chmod(0o755)
    os.chown(switch_pin, -1, gid)
    switch_pin.chmod(0o660)


def _switch(pin: Path | str, agent_socket: Path | str | None, mode: int, window_s: float, grace: bool) -> Switched:
    try:
        switch = KillSwitch.open_pinned(pin)
    except BpfError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise
        from testbed.errors import SetupError

        host = os.path.basename(os.path.dirname(pin))
        raise SetupError(f"the switch of {host} is for {users_of(pin)} only") from error
    try:
        was_broken = switch.is_broken
        began_ns = time.monotonic_ns()
        switch.set(mode, isolate_at_ns=began_ns + int(window_s * 1e9) if mode == DRAIN else 0)
        set_ns = time.monotonic_ns()
    finally:
        switch.close()
    obeyed = agent_socket is not None and _tell_agent(os.fspath(agent_socket), grace)
    return Switched((set_ns - began_ns) / 1e9, set_ns / 1e9, obeyed, was_broken)


def _tell_agent(path: str, grace: bool) -> bool:
    """Notify the agent; return True if it acknowledged. Its imports wait until the switch is set."""
    import socket

    folder, name = os.path.split(path)
    if not os.access(folder, os.W_OK):
        import tempfile

        folder = tempfile.gettempdir()
    mine = f"{folder}/.{name}.{os.getpid()}.{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(mine)  # a file: names of the kernel's choice end at a network namespace
            sock.settimeout(ANSWER_S)
            sock.sendto(LOOK[grace], path)
            return bool(sock.recv(16))
        except OSError:
            return False  # no agent, or a dead one: the kernel has closed the host all the same
        finally:
            try:
                os.unlink(mine)
            except FileNotFoundError:
                pass


def users_of(pin: Path | str) -> str:
    """Return the users that a pin's mode lets in."""
    import grp

    found = os.stat(pin)
    if not found.st_mode & stat.S_IWGRP:
        return "root (a campus started with --group lets a group of owners in)"
    try:
        return f"root and members of the group {grp.getgrgid(found.st_gid).gr_name}"
    except KeyError:
        return f"root and members of the group {found.st_gid}"
