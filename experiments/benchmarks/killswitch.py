"""Time from an owner's act to the last new connection that gets in, by every way to close a host.

The kernel's own ways are tried on a host alone; the agent's socket and the shell command on a host of a live campus. There the
agent is killed at last. Transfers under way are drained and cut on a host alone, and on the campus.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from bpf.errors import BpfError
from bpf.layout import Mode
from bpf.library import check, libbpf
from bpf.maps import KillSwitch
from experiments.benchmarks.bcc_observer import BccObserver
from experiments.benchmarks.closing_paths import (
    IPTABLES,
    LIBRARY,
    LISTENER,
    MAP,
    NFT,
    SYSCALL,
    TRIALS,
    ClosingPath,
    UnavailableError,
    figures,
    host_under_storm,
    measure_kill_switch,
    one_trial,
    run_quietly,
)
from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_ms, table_of
from experiments.benchmarks.syn_storm import HOST_ADDRESS, PORT, Arena, Trial, arena
from experiments.inputs.scenario import Scenario
from experiments.worlds.live.world import LiveWorld, live_world
from testbed import owner
from testbed.emulation.kernel.attachment import EGRESS, INGRESS, attached
from testbed.emulation.netlink import NetlinkSocket
from testbed.errors import SetupError
from testbed.namespaces import NetworkNamespace
from topologies import presets

SAMPLES = "killswitch.jsonl"
AGENT, COMMAND, OWNER, BESIDE, KILLED = (
    "agent",
    "command",
    "owner's command",
    "map beside agents",
    "agent killed",
)
COORDINATOR = "coordinator"
WORDS = {
    MAP: "(a) store into the pinned map's memory",
    BESIDE: "(a) the same, on a live campus",
    SYSCALL: "(b) bpf(2) update of the map",
    AGENT: "(c) the owner's call: store, then the agent's socket",
    KILLED: "(c) the same, the agent killed",
    COORDINATOR: "(d) through the coordinator",
    LIBRARY: "(e) libnftables in process",
    NFT: "(f) the command nft",
    IPTABLES: "(g) the command iptables",
    LISTENER: "(h) the application closes its listener",
    COMMAND: "(i) the command reclaimnet reclaim, as root",
    OWNER: "(j) the same as a member of the owners' group",
}
OF_CAMPUS = (BESIDE, AGENT, COMMAND, OWNER, KILLED)
# s, of a quiet machine, of the last SYN let in
LIMITS_S = {
    MAP: {"p50": 20e-6, "p99": 150e-6},
    AGENT: {"p50": 1e-3},
    COMMAND: {"p50": 40e-3},
    OWNER: {"p50": 40e-3},
}
# paper A's words: of its switch, then of others
PRINTED = {MAP: "p50 0.6 ms, p99 0.9 ms", IPTABLES: "about 10 ms", LISTENER: "about 100 ms"}
# where transfers go that an owner acts in the midst of
ALONE, LIVING, DEAD = "a host alone", "a host of the campus", "one whose agent is killed"
NO_COORDINATOR = (
    "there is no such way: an owner's act never goes through the coordinator; the host's agent tells it after"
)
HOSTS, QUICK_TRIALS = 4, 40
REGISTER_S = 60.0
# a storm without pauses keeps a processor from the many that a campus and a starting interpreter need
COMMAND_PAUSE_S = 100e-6
# a user and a group that own nothing here
OWNERS_UID, OWNERS_GID = 65534, 61777
TRANSFER_BYTES, CHUNK_BYTES, SILENCE_S, REFUSED_S = 32 << 20, 1 << 16, 1.0, 0.3


def measure(run: Run) -> dict[str, Any]:
    """Try every path; write the raw samples as JSON lines. CannotMeasureError as `measure_kill_switch`."""
    trials, hosts = QUICK_TRIALS if run.quick else TRIALS, run.hosts[0] if run.hosts else HOSTS
    with bcc_observer() as second:
        observer = None if isinstance(second, str) else second
        found = measure_kill_switch(trials, trials, observer=observer)
        with host_under_storm() as (stage, pin), closing(KillSwitch.open_pinned(pin)) as switch:
            transfers = _transfers(ALONE, stage, switch, observer)
        on_campus, obeyed, on_host = _on_campus(run.folder, trials, hosts, observer)
    found |= on_campus | {COORDINATOR: NO_COORDINATOR}
    with (run.folder / SAMPLES).open("w") as file:
        for name, samples in found.items():
            if not isinstance(samples, str):
                file.writelines(json.dumps({"path": name} | trial.record()) + "\n" for trial in samples)
    return {
        "campus_hosts": hosts,
        "paths": {name: figures(s) for name, s in found.items() if not isinstance(s, str)},
        "unavailable": {name: why for name, why in found.items() if isinstance(why, str)},
        "agent_obeyed": obeyed,
        "transfers": transfers + on_host,
        "no_observer": second if isinstance(second, str) else "",
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield the last connection let in by each path with a goal, then the agreement of bcc's observer."""
    for name, wanted in LIMITS_S.items():
        for quantile, limit_s in wanted.items():
            what = f"{WORDS[name]}, {quantile}"
            if path := result["paths"].get(name):
                yield at_most(what, path["last_let_in_s"][quantile], limit_s, in_ms)
            else:
                yield Goal(what, f"<= {in_ms(limit_s)}", result["unavailable"][name], None)
    what, goal = "an independent observer (bcc) counts what the storm from outside counts", "in each trial"
    observed = sum(path["observed"] for path in result["paths"].values())
    otherwise = sum(path["observer_disagrees"] for path in result["paths"].values())
    if observed:
        yield Goal(what, goal, f"in {observed - otherwise} of {observed}", not otherwise)
    else:
        yield Goal(what, goal, result["no_observer"], None)


def _on_campus(
    out: Path, trials: int, hosts: int, observer: BccObserver | None
) -> tuple[dict[str, list[Trial] | str], dict[str, int], list[dict[str, Any]]]:
    """Try the paths that need a campus.

    Return their samples, the calls that the agent obeyed, and transfers to its host, the agent alive and killed.
    """
    spec = presets.three_tier(hosts, min(3, hosts), 1)
    scenario = Scenario(spec.name, spec).played()
    found: dict[str, list[Trial] | str] = {}
    obeyed: dict[str, int] = {}
    with live_world(scenario, out / "campus", owners_gid=OWNERS_GID) as world:
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

            def tried(path: ClosingPath) -> list[Trial] | str:
                try:
                    return [one_trial(stage, switch, path, observer) for _ in range(trials)]
                except UnavailableError as error:
                    return str(error)

            def reclaimed(path: str) -> list[Trial] | str:
                answers: list[bool] = []
                act = lambda: answers.append(owner.reclaim(pin, agent_socket).agent_obeyed)  # noqa: E731
                samples = tried(ClosingPath(path, act, lend, uses_switch=True))
                obeyed[path] = sum(answers)
                return samples

            store = ClosingPath(
                BESIDE, lambda: switch.set(Mode.ISOLATE), lambda: switch.set(Mode.OFF), uses_switch=True
            )
            found[BESIDE] = tried(store)
            found[AGENT] = reclaimed(AGENT)
            beside = Path(sys.executable).with_name("reclaimnet")
            command = str(beside) if beside.exists() else shutil.which("reclaimnet")
            if command is None:
                raise SetupError(
                    "the command reclaimnet is not installed beside this Python, nor on the path"
                )
            interpreter = Path(command).read_text().partition("\n")[0].removeprefix("#!").split()
            words = [command, "reclaim", name, "--campus", world.campus.id]
            as_owner = [
                *("setpriv", f"--reuid={OWNERS_UID}", f"--regid={OWNERS_GID}", "--clear-groups"),
                *words,
            ]
            for path, argv in ((COMMAND, words), (OWNER, as_owner)):
                found[path] = tried(
                    ClosingPath(
                        path,
                        partial(run_quietly, argv),
                        lend,
                        uses_switch=True,
                        pause_s=COMMAND_PAUSE_S,
                        beside=partial(_start_s, [*argv[: -len(words)], *interpreter]),
                    )
                )
            transfers = _transfers(LIVING, stage, switch, observer)
            world.agent_process(name).kill()
            world.agent_process(name).wait(REGISTER_S)
            found[KILLED] = reclaimed(KILLED)
            transfers += _transfers(DEAD, stage, switch, observer)
    return found, obeyed, transfers


def _start_s(interpreter: list[str]) -> float:
    """Return the seconds from the start of this interpreter's process to the first line of a program."""
    program = "import time; print(time.monotonic_ns())"
    began_ns = time.monotonic_ns()
    done = subprocess.run([*interpreter, "-c", program], capture_output=True, check=True)
    return (int(done.stdout) - began_ns) * 1e-9


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


def _transfers(
    where: str, stage: Arena, switch: KillSwitch, observer: BccObserver | None
) -> list[dict[str, Any]]:
    """Return the outcome of one transfer to a host that is drained in its midst, and of one to a host that is isolated."""
    modes = Mode.DRAIN, Mode.ISOLATE
    return [{"where": where} | _transfer(stage, switch, mode, observer) for mode in modes]


def _transfer(stage: Arena, switch: KillSwitch, mode: Mode, observer: BccObserver | None) -> dict[str, Any]:
    """Send to the host; the owner acts in the midst of it. Return its outcome, and that of a new connection after."""
    earlier = observer.read(stage.inode) if observer else None
    content = os.urandom(TRANSFER_BYTES)
    received, here = 0, (HOST_ADDRESS, PORT + 1)
    digest = hashlib.sha256()
    with stage.host.entered():
        server = socket.create_server(here)
    with server, stage.outside.socket() as client:
        client.setblocking(True)
        client.settimeout(5.0)
        client.connect(here)
        sender = threading.Thread(target=_send, args=(client, content))
        sender.start()
        served, _ = server.accept()
        with served:
            served.settimeout(SILENCE_S)
            before: int | None = None
            refused = False
            with suppress(TimeoutError):
                while piece := served.recv(CHUNK_BYTES):
                    digest.update(piece)
                    received += len(piece)
                    if before is None and received >= TRANSFER_BYTES // 2:
                        before = received
                        switch.set(mode)
                        refused = not _connects(stage, here)
        switch.set(Mode.OFF)
        sender.join()
    return {
        "mode": mode.name.lower(),
        "bytes": TRANSFER_BYTES,
        "bytes_before": before,
        "bytes_received": received,
        "hash_right": digest.digest() == hashlib.sha256(content).digest(),
        "new_connection_refused": refused,
        "connections_observed": (observer.read(stage.inode) - earlier).established
        if observer and earlier
        else None,
    }


def _send(client: socket.socket, content: bytes) -> None:
    with suppress(OSError):  # the host was closed
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)


def _connects(stage: Arena, address: tuple[str, int]) -> bool:
    with stage.outside.socket() as other:
        other.settimeout(REFUSED_S)
        try:
            other.connect(address)
        except OSError:
            return False
        return True


@contextmanager
def bcc_observer() -> Iterator[BccObserver | str]:
    """Yield bcc's observer, or the reason why there is none."""
    with ExitStack() as last:
        found: BccObserver | str
        try:
            found = last.enter_context(BccObserver())
        except BpfError as error:
            found = f"no independent observer counted: {error}"
        yield found


def tables(result: Result) -> Iterator[Table | str]:
    """Yield every path beside the paper's words; then counts of trials, observers and transfers."""
    rows = []
    for name, words in WORDS.items():
        if path := result["paths"].get(name):
            last = ", ".join(in_ms(path["last_let_in_s"][q]) for q in ("p50", "p99", "max"))
            others = (in_ms(path[key]["p50"]) for key in ("first_refused_s", "call_s"))
            rows.append((words, last, *others, PRINTED.get(name, "")))
        else:
            rows.append((words, result["unavailable"][name], "", "", PRINTED.get(name, "")))
    heads = ("path", "last let in: p50, p99, max", "first refused: p50", "the call: p50", "paper A")
    yield table_of(f"Ways to close a host; a campus of {result['campus_hosts']} hosts", heads, rows)
    counts = []
    for name, path in result["paths"].items():
        own = ""
        if path["beside_s"]:
            own = ", ".join(in_ms(path[key]["p50"]) for key in ("beside_s", "without_beside_s"))
        seen = (
            f"{path['observed'] - path['observer_disagrees']} of {path['observed']}"
            if path["observed"]
            else ""
        )
        numbers = (
            "trials",
            "blind",
            "syns",
            "let_in_after_return",
            "lost_on_the_way",
            "others",
            "counts_disagree",
        )
        counts.append((WORDS[name], *(str(path[key]) for key in numbers), seen, own))
    yield table_of(
        "Trials",
        (
            *("path", "trials", "blind", "SYNs", "in after the call", "lost", "others", "counts differ"),
            *("bcc agrees", "interpreter, command"),
        ),
        counts,
        "blind: the storm had no processor as the host closed; in after the call: SYNs sent then that got in; others: packets by "
        "the campus's own cables; counts differ: the program's drops are not the storm's; interpreter, command: p50 of its start "
        "and of the rest",
    )
    moved = [
        (
            f"{each['mode']}, {each['where']}",
            f"{each['bytes_received']} of {each['bytes']}",
            "right" if each["hash_right"] else "not right",
            "refused" if each["new_connection_refused"] else "GETS IN",
            "" if each["connections_observed"] is None else str(each["connections_observed"]),
        )
        for each in result["transfers"]
    ]
    heads = ("in the midst of a transfer", "bytes arrived", "hash", "a new connection", "established, by bcc")
    yield table_of("Transfers under way", heads, moved)
    for name, count in result["agent_obeyed"].items():
        yield f"{WORDS[name]}: the agent obeyed {count} times"
    if result["no_observer"]:
        yield result["no_observer"]
