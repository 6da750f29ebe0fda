"""Mininet's hosts, switches, links and interfaces, over objects that are created elsewhere in batches.

Mininet's own classes start a shell for each node and run a command for each setting. These keep its interface (`cmd`, `popen`,
`IP`, `intfList`, `monitor`, ...) but start a node's shell on the first command, and take addresses from the plan. The processes
live in the machine's file and pid namespaces; only the network is the host's own, so /sys/class/net shows the
machine's interfaces (use `ip`), while /sys/fs/bpf shows the pinned maps.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from types import MappingProxyType
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Host, Node, Switch

from testbed import control_groups
from testbed.emulation.description.plan import CableEnd
from testbed.emulation.safety.ledger import MARK
from testbed.errors import SetupError
from topologies.of_mininet import limits_of
from topologies.spec import UNLIMITED, HostLimits
from topologies.units import MBIT_PER_S

CHANGEABLE = ("bw", "delay", "jitter", "loss")
FIXED = "a campus's nodes and links come from its description: change them there"
# of a shell, before a program: join each group, then become it
JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 126; shift; done; shift; exec "$@"'
PROMPT = chr(127)  # of Mininet's shells: ends a command's output
Started = Callable[[Popen[Any], str], None]


class CampusIntf(Intf):  # type: ignore[misc]
    """An interface whose address and MAC are known from the plan."""

    def __init__(self, end: CableEnd, node: Any, link: Any, address: str | None, prefix: int) -> None:
        stay = lambda *_: None  # noqa: E731 - interfaces are created where they belong
        super().__init__(end.name, node=node, port=end.port, link=link, mac=end.mac_text, moveIntfFn=stay)
        self.ip, self.prefixLen = address, prefix if address else None

    def config(
        self,
        bw: float | None = None,  # Mbit/s
        delay: str | None = None,  # as "5ms"
        jitter: str | None = None,
        loss: float | None = None,  # percent
        **params: Any,
    ) -> dict[str, Any]:
        """Change what leaves through this interface, as Mininet's TCIntf does; what is not named stays as it is.

        SetupError for any other parameter: addresses, offloads and queues come from the description.
        """
        if params:
            raise SetupError(
                f"{self.name}: {', '.join(sorted(params))} cannot change on a campus that stands "
                f"({', '.join(CHANGEABLE)} can): {FIXED}"
            )
        for key, time in (("delay", delay), ("jitter", jitter)):
            if time and not (isinstance(time, str) and time[-1:].isalpha()):
                raise SetupError(
                    f'{self.name}: {key} = {time!r}: a text with its unit, such as "5ms": by its release, '
                    "tc takes a number as microseconds or as nanoseconds"
                )
        for key, value in (("bw", bw), ("loss", loss)):
            if not isinstance(value, int | float | None) or isinstance(value, bool):
                raise SetupError(f"{self.name}: {key} = {value!r}: a number")
        wanted: dict[str, Any] = {"delay": delay, "jitter": jitter}
        if bw is not None:
            wanted["rate"] = bw * MBIT_PER_S
        if loss is not None:
            wanted["loss"] = loss / 100.0
        wanted = {key: value for key, value in wanted.items() if value is not None}
        if wanted:
            self.link.change(self, **wanted)
        return {}

    def ifconfig(self, *args: Any) -> str:
        """Do as Mininet's. "up" and "down" are the campus's to do, so that what it expects of the kernel stays true."""
        if args in (("up",), ("down",)) and self.link.change:
            self.link.change(self, up=args == ("up",))
            return ""
        return str(super().ifconfig(*args))

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> Any:  # noqa: N802, N803 - Mininet's
        """Raise SetupError: the switch takes frames of the planned address only."""
        raise SetupError(f"{self.name}: address {ipstr}: {FIXED}")

    def setMAC(self, macstr: str) -> Any:  # noqa: N802
        """Raise SetupError: the switch takes frames of the planned address only."""
        raise SetupError(f"{self.name}: address {macstr}: {FIXED}")

    def delete(self) -> None:
        """Raise SetupError: the description alone decides."""
        raise SetupError(f"{self.name}: {FIXED}")


class CampusLink(Link):  # type: ignore[misc]
    """A cable of the plan. `stop` of Mininet would run a command, the campus removes all at once."""

    def __init__(self, a: tuple[CableEnd, Any, str | None], b: tuple[CableEnd, Any, str | None], prefix: int) -> None:
        self.fast = True
        self.intf1 = CampusIntf(a[0], a[1], self, a[2], prefix)
        self.intf2 = CampusIntf(b[0], b[1], self, b[2], prefix)

    # (interface, rate=, delay=, ...): change what leaves through it; the campus sets it
    change: Callable[..., None] | None = None

    def stop(self) -> None:
        """Do nothing: the kernel removes links with their namespaces."""


def _of_shell(name: str) -> property:
    """Return an attribute of Mininet's Node that the shell brings: on a node that stands, reading it starts the shell."""

    def read(node: _LazyShell) -> Any:
        if not node.shell and not node.starting and node.pid is not None:
            node.startShell()
        return node.__dict__.get(name)

    return property(read, lambda node, value: node.__dict__.update({name: value}))


def _prompt_at_end(shell: Popen[Any], terminal: int) -> None:
    """Write a prompt to a shell's terminal when it has ended: the one of its last command is waited for, and would never come."""
    shell.wait()
    with contextlib.suppress(OSError):  # the terminal is closed
        os.write(terminal, PROMPT.encode())
    os.close(terminal)


class _LazyShell(Node):  # type: ignore[misc]
    """A node in the namespace of a holder process; its shell starts on the first command."""

    pid: int | None
    isSetup = True  # noqa: N815 - what Mininet would look for, and exit without, is checked at the campus's start
    campus_id = ""
    on_started: Started | None = None
    environment: Mapping[str, str] = MappingProxyType({})
    group: Sequence[Path] = ()  # the folders of its control group
    starting = True  # Node.__init__ calls startShell: not yet
    stdin, stdout, pollOut = map(_of_shell, ("stdin", "stdout", "pollOut"))  # noqa: N815 - for scripts that poll them

    def __init__(self, name: str, **params: Any) -> None:
        if params.get("privateDirs"):
            raise SetupError(f"{name}: privateDirs are not supported: hosts share the machine's files")
        super().__init__(name, inNamespace=True, **params)
        self.starting = False

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        """Start the shell (Mininet's, so that its prompt protocol works) in the holder's namespace; another if it has ended."""
        if self.starting:
            return
        if self.shell:
            if self.shell.poll() is None:
                return
            self.terminate()
        holder, self.starting = self._holder(), True
        try:
            super().startShell(mnopts)
        finally:
            self.pid, self.starting = holder, False
        terminal = os.dup(self.slave)
        threading.Thread(target=_prompt_at_end, args=(self.shell, terminal), daemon=True).start()

    def _holder(self) -> int:
        if self.pid is None:
            raise SetupError(f"{self.name} is not running: start() the campus first")
        return int(self.pid)

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        if list(cmd[:2]) == ["mnexec", "-cdn"]:
            cmd = ["mnexec", "-cda", str(self._holder()), *cmd[2:]]
        if self.group:
            cmd = ["sh", "-c", JOIN, "sh", *map(str, self.group), "--", *cmd]
        environment = params.pop("env", None) or os.environ
        process = super()._popen(list(cmd), env={**environment, **self.environment, MARK: self.campus_id}, **params)
        if self.on_started:
            self.on_started(process, self.name)
        return process

    def sendCmd(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
        """Do as Mininet's, after starting the shell if need be."""
        if not self.starting:
            self.startShell()
        return super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> Any:
        """Do as Mininet's, after starting the shell if need be."""
        if not self.starting:
            self.startShell()
        return super().cmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """Do as Mininet's; starts no shell of the host. `shell=True` needs no `SHELL` in the environment."""
        self._holder()
        if kwargs.pop("shell", False):
            words = args[0] if isinstance(args[0], list) else args
            args = ([os.environ.get("SHELL", "/bin/sh"), "-c", " ".join(words)],)
        return super().popen(*args, **kwargs)

    def config(self, **_params: Any) -> dict[str, Any]:
        """Do nothing: netlink configures all hosts in one batch."""
        return {}

    def terminate(self) -> None:
        """Kill the shell, if one was started, and what runs in it; the next command starts another."""
        if self.shell and self.shell.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # a moment after its start it leads no group yet
                os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.kill()
            self.shell.wait()
        super().terminate()

    def vanish(self) -> None:
        """Terminate, since its namespace goes, too."""
        self.terminate()
        self.pid = None


class CampusHost(_LazyShell, Host):  # type: ignore[misc]
    """A host of the campus."""

    limits = UNLIMITED

    def limit(self, limits: HostLimits) -> None:
        """Limit its programs, and those that its shell starts, and read it back. SetupError, KernelMismatch."""
        name = f"{control_groups.TOP}/{self.campus_id}/{self.name}"
        given = {"cpu": limits.cpu, "cpuset": limits.cores, "memory": limits.memory_bytes}
        control_groups.make(name, cpu=limits.cpu, cores=limits.cores, memory_bytes=limits.memory_bytes)
        self.group = control_groups.place(name, [key for key, value in given.items() if value is not None])
        self.limits = limits
        if self.shell and self.shell.poll() is None:
            control_groups.join(self.group, self.shell.pid)

    def setCPUFrac(self, f: float, sched: str = "cfs") -> None:  # noqa: N802 - Mininet's
        """Limit it to a share of all processors, as Mininet's CPULimitedHost does; below 0 to all of them."""
        if sched != "cfs":
            raise SetupError(f"{self.name}: sched = {sched!r}: cfs is the only one")
        self._holder()
        self.limit(replace(self.limits, cpu=limits_of(f if f > 0 else 1.0, None).cpu))

    def setCPUs(self, cores: Any, mems: int = 0) -> None:  # noqa: N802
        """Limit it to processors of these numbers, as Mininet's CPULimitedHost does."""
        self._holder()
        self.limit(replace(self.limits, cores=limits_of(None, cores).cores))


class BridgeSwitch(_LazyShell, Switch):  # type: ignore[misc]
    """A kernel bridge in the fabric's namespace; its shell sees all bridges of the campus."""

    stopped: tuple[Any, ...] = ()  # interfaces that `stop` took down

    def start(self, _controllers: Sequence[Any]) -> None:
        """Bring up what `stop` took down; the fabric made the switch."""
        for interface in self.stopped:
            interface.ifconfig("up")
        self.stopped = ()

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803
        """Forward nothing until `start`: every interface goes down, and none is deleted."""
        for interface in self.intfList():
            if interface.isUp():
                interface.ifconfig("down")
                self.stopped += (interface,)

    def defaultIntf(self) -> Any:  # noqa: N802
        """Return the first port."""
        return Node.defaultIntf(self)

    def connected(self) -> bool:
        """Return True: it forwards from the start, without spanning tree or controller."""
        return True

    def dpctl(self, *args: Any) -> Any:
        """Run brctl, as Mininet's LinuxBridge does."""
        return self.cmd("brctl", *args)


class OpenFlowSwitch(BridgeSwitch):
    """A switch of Open vSwitch; in its shell `ovs-vsctl`, `ovs-ofctl` and `ovs-appctl` speak to this campus's."""

    def connected(self) -> bool:
        """Return whether the switch has found its controller."""
        found, _, _ = self.pexec("ovs-vsctl", "get", "controller", self.name, "is_connected")
        return bool(found.strip() == "true")

    def dpctl(self, *args: Any) -> Any:
        """Run ovs-ofctl, as Mininet's OVSSwitch does: `dpctl("dump-flows")`."""
        return self.cmd("ovs-ofctl", "-O", "OpenFlow13", args[0], self.name, *args[1:])
