"""How long a campus takes to stand and to go, against stock Mininet on the same tree, in one run.

Ours is the whole of it: links shaped on both ends, addresses, BPF programs loaded and attached, every setting read back.
Stock is Mininet with LinuxBridge and plain links, unshaped (shaping would make it slower still). Each is measured in a fresh
process; stock runs inside a network namespace of its own, so that its bridges cannot clash with anything and go with it. The
floor is what the kernel needs on this machine today: processes with namespaces, bare veth pairs, and removing them.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from experiments.benchmarks.goals import JudgedFigure
from experiments.benchmarks.results import machine, write_result
from experiments.benchmarks.timing import seconds_of
from experiments.results.pictures import GOOD, canvas
from testbed.errors import CommandFailed
from testbed.workloads.memory import of_machine, pss_bytes
from topologies.presets import campus54, three_tier
from topologies.spec import Campus as Description

STOCK_DESCRIPTORS = 16384  # what Mininet's own fixLimits asks for
SETTLE_S = 2.0  # before each run: the kernel removes the last one's empty namespaces in the background
DOWN_S = 20.0  # a process that is told to end takes its campus down
DOWN_PHASES = ("end_agents", "end_programs", "cables_gone", "kill", "remove_files")
TARGETS = {"up": 4.0, "down": 8.0}


def measure_bringup(
    out: Path, hosts: int = 500, *, repeats: int | None = None, with_stock: bool = True
) -> dict[str, Any]:
    """Measure `hosts` hosts (54: the campus of paper A), write bringup.json and bringup.svg to `out`, return the figures.

    `repeats` runs of each (default: 3 up to 100 hosts, else 2), of which the fastest is kept: others disturb, nothing speeds
    up. Takes about a minute at 500 hosts with stock. CommandFailed, with the child's words, if a run fails (no root).
    """
    out.mkdir(parents=True, exist_ok=True)
    repeats = repeats or (3 if hosts <= 100 else 2)
    kinds = ("ours", "floor", *(("stock",) if with_stock else ()))
    result: dict[str, Any] = {
        "hosts": hosts,
        "repeats": repeats,
        **machine(),
    }
    for kind in kinds:
        result[kind] = min(
            (_in_fresh_process(kind, hosts) for _ in range(repeats)), key=lambda run: run["up_s"]
        )
    if with_stock:
        result["times_faster"] = {
            way: result["stock"][f"{way}_s"] / result["ours"][f"{way}_s"] for way in TARGETS
        }
        result["targets"] = TARGETS
    write_result(out / "bringup.json", result)
    draw(result, out / "bringup.svg")
    return result


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    for way, target in TARGETS.items():
        times = result["times_faster"][way]
        what = f"{result['hosts']} hosts {way}, against stock Mininet"
        yield JudgedFigure(what, f">= {target:g}x", f"{times:.1f}x", times >= target)


def description_of(hosts: int) -> Description:
    """The campus that is built."""
    return campus54() if hosts == 54 else three_tier(hosts=hosts, buildings=4)


def _in_fresh_process(kind: str, hosts: int) -> dict[str, Any]:
    time.sleep(SETTLE_S)
    argv = [sys.executable, "-m", "experiments.benchmarks.bringup", kind, str(hosts)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
    try:
        printed, complaint = process.communicate()
    finally:
        if (
            process.poll() is None
        ):  # this measurement was interrupted: the other process takes its campus down first
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=DOWN_S)
            process.kill()
            process.communicate()
    if process.returncode:
        raise CommandFailed(argv, process.returncode, complaint)
    figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return figures


def ours(hosts: int) -> dict[str, Any]:
    """The testbed's campus, complete."""
    from testbed.emulation.campus import LiveCampus

    net, figures = _up_and_down(partial(LiveCampus, description_of(hosts)))
    phases = net.phases_s
    return {
        **figures,
        "up_phases_s": {k: v for k, v in phases.items() if k not in DOWN_PHASES},
        "down_phases_s": {k: phases[k] for k in DOWN_PHASES},
    }


def _up_and_down(make: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """(what was made, started and stopped, the times and the memory that it took)."""
    before, begin_s = of_machine(), time.perf_counter()
    net = make()
    try:
        net.start()
        figures = {
            "up_s": time.perf_counter() - begin_s,
            "process_memory_bytes": memory_of_family_bytes(),
            "machine_memory_bytes": before - of_machine(),
        }
    finally:
        down_s = seconds_of(net.stop)
    return net, {**figures, "down_s": down_s}


def stock(hosts: int) -> dict[str, Any]:
    """Mininet's own classes on the same tree: LinuxBridge, plain links."""
    from mininet.net import Mininet
    from mininet.nodelib import LinuxBridge

    from testbed.emulation.kernel.linux import unshare_network
    from topologies.as_mininet import CampusTopo

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(STOCK_DESCRIPTORS, hard), hard))
    unshare_network()
    Mininet.inited = True  # leave the machine's limits as they are
    topo = CampusTopo(description_of(hosts))
    net, figures = _up_and_down(partial(Mininet, topo, switch=LinuxBridge, controller=None))
    left = links_here() - {"lo"}
    return {
        **figures,
        "links_left": sum(any(name.startswith(n) for n in net.nameToNode) for name in left),
    }


def floor(hosts: int) -> dict[str, Any]:
    """Only namespaces and bare veth pairs: what no implementation over this kernel can avoid."""
    from testbed.emulation.kernel.build import in_thread

    return in_thread(lambda: _floor(hosts))


def _floor(hosts: int) -> dict[str, Any]:
    from testbed.emulation.description import link_requests
    from testbed.emulation.description.plan import plan
    from testbed.emulation.kernel import linux, readback
    from testbed.emulation.kernel.holders import Holders
    from testbed.emulation.netlink import NetlinkSocket

    made = plan(description_of(hosts))
    linux.unshare_network()
    begin_s = time.perf_counter()
    holders = Holders(hosts, {})
    try:
        holders.wait_forked()
        holders.release()
        holders.wait_unshared()
        namespaces_s = time.perf_counter() - begin_s
        with NetlinkSocket() as socket:
            socket.send([link_requests.bridge(bridge) for bridge in made.bridges.values()])
            cables = list(made.host_cables.values())[:hosts]
            pairs = [
                link_requests.cable(c, made.bridges[c.a.node], pid)
                for c, pid in zip(cables, holders.pids, strict=False)
            ]
            veths_s = seconds_of(lambda: socket.send(pairs))
            begin_s = time.perf_counter()
            holders.close()
            names = {c.a.name for c in cables}
            while names & {state.name for state in readback.link_states(socket).values()}:
                time.sleep(0.005)
            down_s = time.perf_counter() - begin_s
    finally:
        holders.close()
    phases = {"namespaces": namespaces_s, "veths": veths_s}
    return {"up_s": namespaces_s + veths_s, "down_s": down_s, "up_phases_s": phases}


def memory_of_family_bytes() -> int:
    """Proportional memory of this process's descendants (a page shared by n processes counts 1/n in each)."""
    return sum(pss_bytes(pid) for pid in _descendants(os.getpid()))


def _descendants(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [one for child in children for one in (child, *_descendants(child))]
    return []


def links_here() -> set[str]:
    """Names of the interfaces of this thread's namespace."""
    from testbed.emulation.kernel import readback
    from testbed.emulation.netlink import NetlinkSocket

    with NetlinkSocket() as socket:
        return {state.name for state in readback.link_states(socket).values()}


def draw(result: dict[str, Any], path: Path) -> None:
    """Bars of up and down, ours broken down by phase, on a logarithmic scale beside stock and floor."""
    with canvas(path, 1, 2, (11, 4.2)) as (_, [[totals, parts]]):
        kinds = [kind for kind in ("floor", "ours", "stock") if kind in result]
        for offset, way in ((-0.2, "up"), (0.2, "down")):
            values = [result[kind][f"{way}_s"] for kind in kinds]
            bars = totals.bar([i + offset for i in range(len(kinds))], values, 0.38, label=way)
            totals.bar_label(bars, [f"{v:.2f} s" for v in values])
        totals.set(yscale="log", ylabel="seconds", title=f"{result['hosts']} hosts, up and down")
        totals.set_xticks(range(len(kinds)), kinds)
        totals.margins(y=0.15)
        totals.legend()
        phases = {**result["ours"]["up_phases_s"], **result["ours"]["down_phases_s"]}
        names = list(reversed(phases))
        bars = parts.barh(names, [phases[name] for name in names], color=GOOD)
        parts.bar_label(bars, [f"{phases[name]:.2f}" for name in names], padding=2)
        parts.set(xlabel="seconds", title="ours, by phase (of BPF loading, only the wait)")
        parts.margins(x=0.12)


RUNS: dict[str, Callable[[int], dict[str, Any]]] = {"ours": ours, "stock": stock, "floor": floor}

if __name__ == "__main__":
    from experiments.runtime import ending

    sys.exit(ending.run(lambda: print(json.dumps(RUNS[sys.argv[1]](int(sys.argv[2]))))))
