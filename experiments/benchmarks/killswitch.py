"""Time from an owner's act to the last new connection that gets in, by each way to close a host.

The storm (`syn_storm`) comes over a cable of its own from another network namespace and another processor; an answered SYN is a
new connection that got in. "Last let in" is the kernel's stamp on the last answer, 0 if it was before the act; "first refused" is
the time at which the next SYN was sent. The host closed in between. The kernel's own ways are tried on a host alone. The agent's
socket and the shell command are tried on a host of a live campus, where the agent is killed at last.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from bpf.errors import BpfError
from bpf.layout import Mode
from bpf.library import check, libbpf
from bpf.maps import KillSwitch
from bpf.objects import ensure_bpffs, load_host_programs
from experiments.benchmarks.bcc_observer import BccObserver
from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_ms, quantiles, table_of
from experiments.benchmarks.nodes import Node, run_in
from experiments.benchmarks.syn_storm import PORT, Arena, Trial, arena
from experiments.inputs.scenario import Scenario
from experiments.worlds.live.world import LiveWorld, live_world
from testbed import owner
from testbed.emulation.kernel.attachment import EGRESS, INGRESS, attached
from testbed.emulation.netlink import NetlinkSocket
from testbed.emulation.safety.ledger import PIN_ROOT
from testbed.errors import CommandFailed, SetupError
from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from topologies import presets

SAMPLES = "killswitch.jsonl"
MAP, NFT, IPTABLES, LISTENER = "map", "nft", "iptables", "listener"
AGENT, COMMAND, OWNER, KILLED = "agent", "command", "owner's command", "agent killed"
OF_CAMPUS = (AGENT, COMMAND, OWNER, KILLED)
WORDS = {
    MAP: "store into the pinned map's memory",
    AGENT: "the owner's call: store, then the agent's socket",
    KILLED: "the same, the agent killed",
    NFT: "the command nft",
    IPTABLES: "the command iptables",
    LISTENER: "the application closes its listener",
    COMMAND: "the command `reclaimnet reclaim`, as root",
    OWNER: "the same as a member of the owners' group",
}
# s, of a quiet machine, of the last SYN let in
LIMITS_S = {MAP: {"p50": 20e-6, "p99": 150e-6}, AGENT: {"p50": 1e-3}, COMMAND: {"p50": 40e-3}, OWNER: {"p50": 40e-3}}
# paper A's words: of its switch, then of others
PRINTED = {MAP: "p50 0.6 ms, p99 0.9 ms", IPTABLES: "about 10 ms", LISTENER: "about 100 ms"}
TRIALS, QUICK_TRIALS = 300, 40
BLIND_S = 200e-6  # between two SYNs; a storm that has its processor sends one in 3 to 10 us, or in its pause
HOSTS, REGISTER_S = 4, 60.0
# a storm without pauses keeps a processor from the many that a campus and a starting interpreter need
COMMAND_PAUSE_S = 100e-6
# a user and a group that own nothing here
OWNERS_UID, OWNERS_GID = 65534, 61777
# the kernel's reasons for a drop, in words: by a program at the interface, by a netfilter rule, for want of a socket
BY_PROGRAM, BY_RULE, NOBODY_LISTENS = "tc ingress", "netfilter drop", "no socket"
TABLE = "add table inet kill; add chain inet kill in { type filter hook input priority 0; }"
DROP, OPEN = f"add rule inet kill in tcp dport {PORT} drop", "flush chain inet kill in"
IPTABLES_RULE = f"INPUT -p tcp --dport {PORT} -j DROP"


@dataclass(frozen=True, slots=True)
class ClosingPath:
    """Way to close the host under the storm, and to open it again. `uses_switch`: the programs' own counts apply.

    `reason` is the kernel's for dropping what the path refuses; `pause_s` is from one SYN to the next, at least: longer where
    the path takes longer.
    """

    act: Callable[[], object]
    undo: Callable[[], object]
    uses_switch: bool = False
    pause_s: float = 0.0
    reason: str = BY_PROGRAM


Samples = dict[str, list[Trial] | str]  # by path; the reason why this machine lacks it


def measure(run: Run) -> dict[str, Any]:
    """Try every path; write the raw samples as JSON lines. SetupError or BpfError: this machine cannot."""
    trials, hosts = QUICK_TRIALS if run.quick else TRIALS, run.hosts[0] if run.hosts else HOSTS
    no_observer = ""
    with ExitStack() as last:
        observer: BccObserver | None = None
        try:
            observer = last.enter_context(closing(BccObserver()))
        except BpfError as error:
            no_observer = f"no independent observer counted: {error}"
        found = measure_kill_switch(trials, observer=observer)
        on_campus, obeyed = _on_campus(run.folder, trials, hosts, observer)
    found |= on_campus
    with (run.folder / SAMPLES).open("w") as file:
        for name, samples in found.items():
            if not isinstance(samples, str):
                file.writelines(json.dumps({"path": name} | asdict(trial)) + "\n" for trial in samples)
    return {
        "campus_hosts": hosts,
        "paths": {name: figures(s) for name, s in found.items() if not isinstance(s, str)},
        "unavailable": {name: why for name, why in found.items() if isinstance(why, str)},
        "agent_obeyed": obeyed,
        "no_observer": no_observer,
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield the last connection let in by each path with a goal, then the agreement of all counts."""
    for name, wanted in LIMITS_S.items():
        for quantile, limit_s in wanted.items():
            what = f"{WORDS[name]}, {quantile}"
            if path := result["paths"].get(name):
                yield at_most(what, path["last_let_in_s"][quantile], limit_s, in_ms)
            else:
                yield Goal(what, f"<= {in_ms(limit_s)}", result["unavailable"][name], None)
    paths = result["paths"].values()
    late = sum(path["let_in_after_return"] for path in paths)
    yield at_most("SYNs sent after the call that got in", late, 0, "{:.0f}".format)
    apart = sum(path["counts_disagree"] for path in paths)
    yield at_most("trials whose drops the program and the storm count apart", apart, 0, "{:.0f}".format)
    what, goal = "an independent observer (bcc) counts what the storm from outside counts", "in each trial"
    observed = sum(path["observed"] for path in paths)
    otherwise = sum(path["observer_disagrees"] for path in paths)
    if observed:
        yield Goal(what, goal, f"in {observed - otherwise} of {observed}", not otherwise)
    else:
        yield Goal(what, goal, result["no_observer"], None)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield every path beside the paper's words."""
    rows = []
    for name, words in WORDS.items():
        if path := result["paths"].get(name):
            last = ", ".join(in_ms(path["last_let_in_s"][q]) for q in ("p50", "p99", "max"))
            others = (in_ms(path[key]["p50"]) for key in ("first_refused_s", "call_s"))
            rows.append((words, last, *others, PRINTED.get(name, ""), f"{path['trials']}", f"{path['blind']}"))
        else:
            rows.append((words, result["unavailable"][name], "", "", PRINTED.get(name, ""), "", ""))
    heads = ("path", "last let in: p50, p99, max", "first refused: p50", "the call: p50", "paper A", "trials", "blind")
    title = f"Ways to close a host; a campus of {result['campus_hosts']} hosts"
    yield table_of(title, heads, rows, "blind: the storm had no processor as the host closed")
    for name, count in result["agent_obeyed"].items():
        yield f"{WORDS[name]}: the agent obeyed {count} times"
    if result["no_observer"]:
        yield result["no_observer"]


def figures(trials: list[Trial]) -> dict[str, Any]:
    """Return quantiles in s, and sums that must be 0.

    Trials in which the storm stood still as the host closed are counted as `blind`: another process had its processor.
    Their times are left out, unless all are blind.
    """
    seen = [trial for trial in trials if trial.gap_s <= BLIND_S] or trials
    times = ("last_let_in_s", "first_refused_s", "gap_s", "call_s")
    return {
        **{name: quantiles([getattr(trial, name) for trial in seen]) for name in times},
        "trials": len(trials),
        "blind": sum(trial.gap_s > BLIND_S for trial in trials),
        "syns": sum(trial.sent for trial in trials),
        "let_in_after_return": sum(trial.let_in_after_return for trial in trials),
        "lost_on_the_way": sum(trial.missed for trial in trials),
        "others": sum(trial.others for trial in trials if trial.dropped is not None),
        "counts_disagree": sum(not trial.counts_agree for trial in trials),
        "observed": sum(trial.observed is not None for trial in trials),
        "observer_disagrees": sum(not trial.observer_agrees for trial in trials),
    }


def one_trial(stage: Arena, switch: KillSwitch, path: ClosingPath, observer: BccObserver | None) -> Trial:
    """Take one trial: the storm, and the path's act in its midst; then open the host again."""

    def dropped() -> int:
        return switch.status().dropped_packets

    before = observer.read(stage.inode) if observer else None
    received = stage.received_by_others()
    try:
        trial = stage.storm.trial(path.act, dropped if path.uses_switch else None, path.pause_s)
        seen = observer.read(stage.inode) if observer else None
        return replace(
            trial,
            observed=None if seen is None or before is None else seen[path.reason] - before[path.reason],
            others=stage.received_by_others() - received,
        )
    finally:
        path.undo()


# ---------------------------------------------------------------- a host alone


def measure_kill_switch(trials: int, observer: BccObserver | None = None) -> Samples:
    """Return trials of each path on a host of its own. SetupError: not root, no namespaces, or one processor; BpfError."""
    if os.geteuid() != 0:
        raise SetupError("it needs root: CAP_BPF, CAP_NET_ADMIN and a network namespace")
    found: Samples = {}
    with ExitStack() as last:
        ensure_bpffs()
        folder = PIN_ROOT / f"killswitch-{os.getpid()}"
        last.callback(shutil.rmtree, folder, ignore_errors=True)
        programs = load_host_programs(folder)
        last.callback(programs.close)
        host = last.enter_context(closing(Node()))
        stage = last.enter_context(arena(host.network, programs.egress_fd, programs.ingress_fd))
        switch = last.enter_context(closing(KillSwitch.open_pinned(folder / "switch")))
        for name in (MAP, NFT, IPTABLES, LISTENER):
            try:
                with _path(name, stage, switch) as path:
                    found[name] = [one_trial(stage, switch, path, observer) for _ in range(trials)]
            except CommandFailed as error:
                found[name] = str(error)
    return found


@contextmanager
def _path(name: str, stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    """Yield a path of a host alone. CommandFailed: its command is not installed, or does not work here."""
    command = partial(run_in, stage.host, name)
    if name == MAP:
        yield ClosingPath(lambda: switch.set(Mode.ISOLATE), lambda: switch.set(Mode.OFF), uses_switch=True)
    elif name == NFT:
        command(TABLE)
        yield ClosingPath(partial(command, DROP), partial(command, OPEN), reason=BY_RULE)
        command("delete table inet kill")
    elif name == IPTABLES:
        insert, delete = (partial(command, how, *IPTABLES_RULE.split()) for how in ("-I", "-D"))
        insert()  # and loads what it needs, or reports what it lacks
        delete()
        yield ClosingPath(insert, delete, reason=BY_RULE)
    else:
        close, listen = (partial(stage.application.order, listens=listens) for listens in (False, True))
        yield ClosingPath(close, listen, reason=NOBODY_LISTENS)


# ---------------------------------------------------------------- a host of a campus


def _on_campus(out: Path, trials: int, hosts: int, observer: BccObserver | None) -> tuple[Samples, dict[str, int]]:
    """Try the paths that need a campus; return their samples, and the calls that the agent obeyed, alive and killed."""
    spec = presets.three_tier(hosts, min(3, hosts), 1)
    scenario = Scenario(spec.name, spec).played()
    obeyed: dict[str, int] = {}
    with live_world(scenario, out / "campus", owners={"": OWNERS_GID}) as world:
        name = scenario.volunteers[0].name
        pin, agent_socket = world.switch_pin(name), world.owner_socket(name)
        limit_s = time.monotonic() + REGISTER_S
        while not owner.lend(pin, agent_socket).agent_obeyed:
            if time.monotonic() > limit_s:
                raise SetupError(f"the agent of {name} does not answer within {REGISTER_S} s")
            time.sleep(0.1)
        with _campus_host(world, name) as stage, closing(KillSwitch.open_pinned(pin)) as switch:

            def lend() -> None:
                owner.lend(pin, agent_socket)

            def tried(act: Callable[[], None], pause_s: float = 0.0) -> list[Trial] | str:
                path = ClosingPath(act, lend, uses_switch=True, pause_s=pause_s)
                try:
                    return [one_trial(stage, switch, path, observer) for _ in range(trials)]
                except CommandFailed as error:
                    return str(error)

            def reclaimed(path: str) -> list[Trial] | str:
                def act() -> None:
                    obeyed[path] += owner.reclaim(pin, agent_socket).agent_obeyed

                obeyed[path] = 0
                return tried(act)

            found: Samples = {AGENT: reclaimed(AGENT)}
            words = [_reclaimnet(), "reclaim", name, "--campus", world.campus.id]
            user = ["setpriv", f"--reuid={OWNERS_UID}", f"--regid={OWNERS_GID}", "--clear-groups"]
            for path, argv in ((COMMAND, words), (OWNER, [*user, *words])):
                found[path] = tried(partial(run_in, OWN_NETWORK, *argv), COMMAND_PAUSE_S)
            world.agent_process(name).kill()
            world.agent_process(name).wait(REGISTER_S)
            found[KILLED] = reclaimed(KILLED)
    return found, obeyed


def _reclaimnet() -> str:
    beside = Path(sys.executable).with_name("reclaimnet")
    command = str(beside) if beside.exists() else shutil.which("reclaimnet")
    if command is None:
        raise SetupError("the command reclaimnet is not installed beside this Python, nor on the path")
    return command


@contextmanager
def _campus_host(world: LiveWorld, name: str) -> Iterator[Arena]:
    """Yield a host of the campus under the storm, with its own programs on the storm's cable too."""
    interface = world.campus.get(name).defaultIntf().name
    host = NetworkNamespace.of_process(world.campus.kernel.holder_pids[name])
    assert host.fd is not None
    fds: list[int] = []
    try:
        with host.entered(), NetlinkSocket() as netlink:
            for hook in (EGRESS, INGRESS):
                (number, _), *_ = attached(netlink, socket.if_nametoindex(interface), hook, interface)
                fds.append(check(libbpf().bpf_prog_get_fd_by_id(number), f"open the program {number}"))
        with arena(host, fds[0], fds[1]) as stage:
            yield stage
    finally:
        for fd in (*fds, host.fd):
            os.close(fd)
