"""How soon an owner's act closes a host: from the act to the last new connection that gets in, under a storm of SYNs.

Each path is another way to close the host, tried again and again. The storm (`syn_storm`) comes over a cable of its own from
another network namespace and another processor; an answered SYN is a new connection that got in. "Last let in" is the kernel's
stamp on the last answer, 0 if it was before the act; "first refused" is when the next SYN was sent. The host closed in between.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bpf.errors import BpfError
from bpf.layout import KillSwitchStruct, Mode
from bpf.library import check, libbpf
from bpf.maps import KillSwitch
from bpf.objects import ensure_bpffs, load_host_programs
from experiments.benchmarks.syn_storm import PORT, Arena, Trial, arena, new_namespace
from experiments.results.pictures import canvas, dress
from testbed.emulation.kernel.netlink import NetlinkRefused
from testbed.emulation.safety.ledger import PIN_ROOT
from testbed.errors import SetupError
from topologies.errors import TestbedError

TRIALS, RULE_TRIALS = 300, 20
SAMPLES, RESULT, PICTURE = "killswitch.jsonl", "killswitch.json", "killswitch.svg"
MAP, SYSCALL, LIBRARY, NFT, IPTABLES, LISTENER = "map", "bpf(2)", "libnftables", "nft", "iptables", "listener"
WORDS = {
    MAP: "(a) store into the pinned map's memory",
    SYSCALL: "(b) bpf(2) update of the map",
    LIBRARY: "(e) libnftables in process",
    NFT: "(f) the command nft",
    IPTABLES: "(g) the command iptables",
    LISTENER: "(h) the application closes its listener",
}
# s, of a quiet machine, of the last SYN let in
GOALS = {MAP: {"p50": 20e-6, "p99": 150e-6}}
# paper A's, s: of its switch, then what it says of others
PRINTED = {
    MAP: "p50 0.6 ms, p99 0.9 ms",
    IPTABLES: "about 10 ms",
    LISTENER: "about 100 ms",
}
NO_COORDINATOR = (
    "there is no such way: an owner's act never goes through the coordinator; the host's agent tells it after"
)
TABLE = "add table inet kill; add chain inet kill in { type filter hook input priority 0; }"
DROP, OPEN = f"add rule inet kill in tcp dport {PORT} drop", "flush chain inet kill in"
IPTABLES_RULE = f"INPUT -p tcp --dport {PORT} -j DROP"


class CannotMeasureError(TestbedError):
    """This machine does not let us: the text says why."""


class UnavailableError(TestbedError):
    """A path that this machine does not have: the text says why."""


@dataclass(frozen=True, slots=True)
class ClosingPath:
    """One way to close the host under the storm, and to open it again. `uses_switch`: the programs' own counts apply."""

    name: str
    act: Callable[[], None]
    undo: Callable[[], None]
    uses_switch: bool = False


def measure_kill_switch(
    trials: int = TRIALS, rule_trials: int = RULE_TRIALS, names: Iterable[str] = tuple(WORDS)
) -> dict[str, list[Trial] | str]:
    """Trials of each path on a host of its own, by the path's name; or why this machine does not have the path.

    CannotMeasureError: not root, no BPF, no namespaces, or one processor.
    """
    with _host() as (stage, pin):
        switch = KillSwitch.open_pinned(pin)
        found: dict[str, list[Trial] | str] = {}
        try:
            for name in names:
                count = trials if name in (MAP, SYSCALL) else rule_trials
                try:
                    with PATHS[name](stage, switch) as path:
                        found[name] = [_try(stage, switch, path) for _ in range(count)]
                except UnavailableError as error:
                    found[name] = str(error)
        finally:
            switch.close()
    return found


@contextmanager
def _host() -> Iterator[tuple[Arena, Path]]:
    """A host under the storm, with programs of its own, and where its switch is pinned."""
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


def _try(stage: Arena, switch: KillSwitch, path: ClosingPath) -> Trial:
    def dropped() -> int:
        return switch.status().dropped_packets

    try:
        return stage.storm.trial(path.act, dropped if path.uses_switch else None)
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
        yield ClosingPath(LIBRARY, lambda: run(DROP), lambda: run(OPEN))
        run("delete table inet kill")
    finally:
        library.nft_ctx_free(context)


@contextmanager
def _through_nft(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    nft = _command("nft")

    def run(text: str) -> None:
        with stage.host.entered():
            _call([nft, text])

    run(TABLE)
    yield ClosingPath(NFT, lambda: run(DROP), lambda: run(OPEN))
    run("delete table inet kill")


@contextmanager
def _through_iptables(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    iptables = _command("iptables")

    def run(how: str) -> None:
        with stage.host.entered():
            _call([iptables, how, *IPTABLES_RULE.split()])

    run("-I")  # and loads what it needs, or says what it lacks
    run("-D")
    yield ClosingPath(IPTABLES, lambda: run("-I"), lambda: run("-D"))


@contextmanager
def _through_listener(stage: Arena, switch: KillSwitch) -> Iterator[ClosingPath]:
    yield ClosingPath(LISTENER, stage.application.close_listener, stage.application.listen)


PATHS = {
    MAP: _through_memory,
    SYSCALL: _through_syscall,
    LIBRARY: _through_library,
    NFT: _through_nft,
    IPTABLES: _through_iptables,
    LISTENER: _through_listener,
}


def _command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UnavailableError(f"the command {name} is not installed")
    return found


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip()}")


def figures(trials: list[Trial]) -> dict[str, Any]:
    """Quantiles in s, and sums of what must be 0."""

    def quantiles(values: list[float]) -> dict[str, float]:
        p50, p99 = np.quantile(values, [0.5, 0.99])
        return {"p50": float(p50), "p99": float(p99), "max": max(values)}

    return {
        "trials": len(trials),
        "last_let_in_s": quantiles([trial.last_let_in_s for trial in trials]),
        "first_refused_s": quantiles([trial.first_refused_s for trial in trials]),
        "gap_s": quantiles([trial.gap_s for trial in trials]),
        "call_s": quantiles([trial.call_s for trial in trials]),
        "syns": sum(trial.sent for trial in trials),
        "let_in_after_return": sum(trial.let_in_after_return for trial in trials),
        "lost_on_the_way": sum(trial.missed for trial in trials),
        "counts_disagree": sum(not trial.counts_agree for trial in trials),
    }


def measure_killswitch(out: Path, trials: int = TRIALS) -> dict[str, Any]:
    """Every path, its raw samples in a file of JSON lines, a table's figures and a picture in `out`."""
    found = measure_kill_switch(trials, trials)
    out.mkdir(parents=True, exist_ok=True)
    with (out / SAMPLES).open("w") as file:
        for name, samples in found.items():
            if not isinstance(samples, str):
                file.writelines(json.dumps({"path": name} | trial.record()) + "\n" for trial in samples)
    result = {
        "cpus": os.cpu_count(),
        "kernel": os.uname().release,
        "paths": {name: figures(s) for name, s in found.items() if not isinstance(s, str)},
        "unavailable": {name: why for name, why in found.items() if isinstance(why, str)}
        | {"coordinator": NO_COORDINATOR},
        "observer": observer(),
    }
    (out / RESULT).write_text(json.dumps(result, indent=1) + "\n")
    _draw(found, out / PICTURE)
    return result


def observer() -> str:
    """Whether an observer apart from the programs and the storm could count, and why not."""
    program = "RAW_TRACEPOINT_PROBE(kfree_skb) { return 0; }"
    probe = f"import bcc; bcc.BPF(text={program!r}).load_func('raw_tracepoint__kfree_skb', bcc.BPF.RAW_TRACEPOINT)"
    python = shutil.which("python3", path="/usr/bin:/bin")  # where distributions put bcc
    if python is None:
        return "no observer counted: bcc needs the distribution's python3"
    try:
        done = subprocess.run(
            [python, "-c", probe], capture_output=True, text=True, check=False, timeout=60.0
        )
    except subprocess.TimeoutExpired:
        return "no independent observer counted: bcc did not compile a program within 60 s"
    if done.returncode == 0:
        return "no independent observer counted: bcc compiles here, but this command has no bcc observer"
    said = done.stderr.strip().splitlines() or ["it died"]
    return f"no independent observer counted: bcc cannot compile here ({said[-1]})"


def killswitch_table(result: dict[str, Any]) -> Table:
    """What was measured beside goals and what the paper prints."""
    title = f"Kill-switch under SYNs: {result['cpus']} processors, kernel {result['kernel']}"
    table = Table(
        "path",
        "last let in: p50, p99, max",
        "first refused: p50",
        "the call: p50",
        "goal",
        "paper A",
        title=title,
    )
    for name, words in WORDS.items():
        if name not in result["paths"]:
            table.add_row(words, result["unavailable"][name], "", "", "", PRINTED.get(name, ""))
            continue
        path = result["paths"][name]
        last, goals = path["last_let_in_s"], GOALS.get(name, {})
        goal = ", ".join(
            f"{q} {_brief(goal_s)}{'' if last[q] <= goal_s else ': not met'}" for q, goal_s in goals.items()
        )
        table.add_row(
            words,
            ", ".join(_brief(last[q]) for q in ("p50", "p99", "max")),
            _brief(path["first_refused_s"]["p50"]),
            _brief(path["call_s"]["p50"]),
            goal,
            PRINTED.get(name, ""),
        )
    table.add_row("(d) through the coordinator", result["unavailable"]["coordinator"], "", "", "", "")
    return table


def killswitch_notes(result: dict[str, Any]) -> Iterator[str]:
    """What a table has no column for."""
    for name, path in result["paths"].items():
        yield (
            f"{WORDS[name]}: {path['trials']} trials, {path['syns']} SYNs, {path['let_in_after_return']} let in that were sent "
            f"after the call was over, {path['lost_on_the_way']} lost on the way"
        )
        if path["counts_disagree"]:
            yield f"{WORDS[name]}: in {path['counts_disagree']} trials the program's count of drops is not the storm's"
    yield result["observer"]


def _brief(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _draw(found: dict[str, list[Trial] | str], path: Path) -> None:
    with canvas(path, 1, 1, (8.6, 4.8), "From the owner's act to the first SYN that is refused") as (
        _,
        panels,
    ):
        axes = panels[0][0]
        for name, samples in found.items():
            if not isinstance(samples, str):
                values = sorted(max(1e-3, trial.first_refused_s * 1e6) for trial in samples)
                axes.plot(
                    values, np.arange(1, len(values) + 1) / len(values), label=WORDS[name], linewidth=1.6
                )
        axes.set_xscale("log")
        dress(axes, "us after the act (log)", "share of trials")
        axes.legend(frameon=False, fontsize=8)
