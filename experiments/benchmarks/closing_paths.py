"""Ways to close a host under a storm of SYNs, and the time from the act to the last new connection that gets in.

Each path is tried again and again. The storm (`syn_storm`) comes over a cable of its own from
another network namespace and another processor; an answered SYN is a new connection that got in. "Last let in" is the kernel's
stamp on the last answer, 0 if it was before the act; "first refused" is when the next SYN was sent. The host closed in between.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpf.errors import BpfError
from bpf.layout import KillSwitchStruct, Mode
from bpf.library import check, libbpf
from bpf.maps import KillSwitch
from bpf.objects import ensure_bpffs, load_host_programs
from experiments.benchmarks.bcc_observer import BccObserver
from experiments.benchmarks.frame import quantiles
from experiments.benchmarks.syn_storm import PORT, Arena, Trial, arena, new_namespace
from testbed.emulation.netlink import NetlinkRefused
from testbed.emulation.safety.ledger import PIN_ROOT
from testbed.errors import SetupError
from topologies.errors import TestbedError

TRIALS, RULE_TRIALS = 300, 20
BLIND_S = 200e-6  # between two SYNs; a storm that has its processor sends one in 3 to 10 us, or in its pause
MAP, SYSCALL, LIBRARY, NFT, IPTABLES, LISTENER = "map", "bpf(2)", "libnftables", "nft", "iptables", "listener"
OF_ANY_HOST = (MAP, SYSCALL, LIBRARY, NFT, IPTABLES, LISTENER)
# the kernel's reasons for a drop, in words: by a program at the interface, by a netfilter rule, for want of a socket
BY_PROGRAM, BY_RULE, NOBODY_LISTENS = "tc ingress", "netfilter drop", "no socket"
TABLE = "add table inet kill; add chain inet kill in { type filter hook input priority 0; }"
DROP, OPEN = f"add rule inet kill in tcp dport {PORT} drop", "flush chain inet kill in"
IPTABLES_RULE = f"INPUT -p tcp --dport {PORT} -j DROP"


class CannotMeasureError(TestbedError):
    """Reason why this machine cannot measure."""


class UnavailableError(TestbedError):
    """Reason why this machine does not have a path."""


@dataclass(frozen=True, slots=True)
class ClosingPath:
    """Way to close the host under the storm, and to open it again. `uses_switch`: the programs' own counts apply.

    `reason` is the kernel's for dropping what the path refuses; `pause_s` is from one SYN to the next, at least: longer where
    the path takes longer. `beside` times the part of the path that is not this program's.
    """

    name: str
    act: Callable[[], None]
    undo: Callable[[], None]
    uses_switch: bool = False
    pause_s: float = 0.0
    reason: str = BY_PROGRAM
    beside: Callable[[], float] | None = None


def measure_kill_switch(
    trials: int = TRIALS,
    rule_trials: int = RULE_TRIALS,
    names: Iterable[str] = OF_ANY_HOST,
    observer: BccObserver | None = None,
) -> dict[str, list[Trial] | str]:
    """Return trials of each path on a host of its own, by the path's name; or the reason why this machine lacks the path.

    CannotMeasureError: not root, no BPF, no namespaces, or one processor.
    """
    with host_under_storm() as (stage, pin):
        switch = KillSwitch.open_pinned(pin)
        found: dict[str, list[Trial] | str] = {}
        try:
            for name in names:
                count = trials if name in (MAP, SYSCALL) else rule_trials
                try:
                    with PATHS[name](stage, switch) as path:
                        found[name] = [one_trial(stage, switch, path, observer) for _ in range(count)]
                except UnavailableError as error:
                    found[name] = str(error)
        finally:
            switch.close()
    return found


@contextmanager
def host_under_storm() -> Iterator[tuple[Arena, Path]]:
    """Yield a host under the storm, with programs of its own, and the pin of its switch."""
    if os.geteuid() != 0:
        raise CannotMeasureError("it needs root: CAP_BPF, CAP_NET_ADMIN and a network namespace")
    try:
        with ExitStack() as last:
            ensure_bpffs()
            folder = PIN_ROOT / f"killswitch-{os.getpid()}"
            last.callback(shutil.rmtree, folder, ignore_errors=True)
            programs = load_host_programs(folder)
            last.callback(programs.close)
            host = last.enter_context(new_namespace())
            stage = last.enter_context(arena(host, programs.egress_fd, programs.ingress_fd))
            yield stage, folder / "switch"
    except (OSError, BpfError, NetlinkRefused, SetupError, subprocess.SubprocessError) as error:
        raise CannotMeasureError(f"{error}") from error


def one_trial(
    stage: Arena, switch: KillSwitch, path: ClosingPath, observer: BccObserver | None = None
) -> Trial:
    """Take one trial: the storm, and the path's act in its midst; then open the host again."""

    def dropped() -> int:
        return switch.status().dropped_packets

    before = observer.read(stage.inode) if observer else None
    received = stage.received_by_others()
    try:
        trial = stage.storm.trial(
            path.act, dropped if path.uses_switch else None, pause_s=path.pause_s, beside=path.beside
        )
        seen = (observer.read(stage.inode) - before).dropped if observer and before else None
        return replace(
            trial,
            observed=None if seen is None else seen.get(path.reason, 0),
            others=stage.received_by_others() - received,
        )
    finally:
        path.undo()


@contextmanager
def _through_memory(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    yield ClosingPath(MAP, lambda: switch.set(Mode.ISOLATE), lambda: switch.set(Mode.OFF), uses_switch=True)


@contextmanager
def _through_syscall(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    key, value = ctypes.c_uint32(0), KillSwitchStruct(mode=Mode.ISOLATE)

    def close() -> None:
        value.set_at_ns = time.monotonic_ns()
        status = libbpf().bpf_map_update_elem(switch.fd, ctypes.byref(key), ctypes.byref(value), 0)
        check(status, "update the switch's map")

    yield ClosingPath(SYSCALL, close, lambda: switch.set(Mode.OFF), uses_switch=True)


@contextmanager
def _through_library(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    try:
        library = ctypes.CDLL("libnftables.so.1")
    except OSError as error:
        raise UnavailableError(f"libnftables.so.1 is not installed ({error})") from error
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    with stage.host.entered():  # its netlink socket stays there
        context = ctypes.c_void_p(library.nft_ctx_new(0))

    def run(text: str) -> None:
        if library.nft_run_cmd_from_buffer(context, text.encode()):
            raise UnavailableError(library.nft_ctx_get_error_buffer(context).decode().splitlines()[0])

    library.nft_ctx_buffer_error(context)
    try:
        run(TABLE)
        yield ClosingPath(LIBRARY, lambda: run(DROP), lambda: run(OPEN), reason=BY_RULE)
        run("delete table inet kill")
    finally:
        library.nft_ctx_free(context)


@contextmanager
def _through_nft(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    nft = installed("nft")

    def run(text: str) -> None:
        with stage.host.entered():
            run_quietly([nft, text])

    run(TABLE)
    yield ClosingPath(NFT, lambda: run(DROP), lambda: run(OPEN), reason=BY_RULE)
    run("delete table inet kill")


@contextmanager
def _through_iptables(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    iptables = installed("iptables")

    def run(how: str) -> None:
        with stage.host.entered():
            run_quietly([iptables, how, *IPTABLES_RULE.split()])

    run("-I")  # and loads what it needs, or says what it lacks
    run("-D")
    yield ClosingPath(IPTABLES, lambda: run("-I"), lambda: run("-D"), reason=BY_RULE)


@contextmanager
def _through_listener(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    application = stage.application
    yield ClosingPath(LISTENER, application.close_listener, application.listen, reason=NOBODY_LISTENS)


PATHS = {
    MAP: _through_memory,
    SYSCALL: _through_syscall,
    LIBRARY: _through_library,
    NFT: _through_nft,
    IPTABLES: _through_iptables,
    LISTENER: _through_listener,
}


def installed(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(f"the command {name} is not installed")
    return found


def run_quietly(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip()}")


def figures(trials: list[Trial]) -> dict[str, Any]:
    """Return quantiles in s, and sums that must be 0.

    Trials in which the storm stood still as the host closed are counted as `blind`: another process had its processor.
    Their times are left out, unless all are blind.
    """
    seen = [trial for trial in trials if trial.gap_s <= BLIND_S] or trials

    beside = [(trial.last_let_in_s, trial.beside_s) for trial in seen if trial.beside_s is not None]
    return {
        "trials": len(trials),
        "blind": sum(trial.gap_s > BLIND_S for trial in trials),
        "last_let_in_s": quantiles([trial.last_let_in_s for trial in seen]),
        "first_refused_s": quantiles([trial.first_refused_s for trial in seen]),
        "gap_s": quantiles([trial.gap_s for trial in seen]),
        "call_s": quantiles([trial.call_s for trial in seen]),
        "beside_s": quantiles([other_s for _, other_s in beside]) if beside else None,
        "without_beside_s": quantiles([all_s - other_s for all_s, other_s in beside]) if beside else None,
        "syns": sum(trial.sent for trial in trials),
        "let_in_after_return": sum(trial.let_in_after_return for trial in trials),
        "lost_on_the_way": sum(trial.missed for trial in trials),
        "others": sum(trial.others for trial in trials if trial.dropped is not None),
        "counts_disagree": sum(not trial.counts_agree for trial in trials),
        "observed": sum(trial.observed is not None for trial in trials),
        "observer_disagrees": sum(not trial.observer_agrees for trial in trials),
    }
