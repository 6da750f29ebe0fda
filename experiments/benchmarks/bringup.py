"""Bring-up and teardown of a campus, beside stock Mininet on the same tree, in one run.

`live` is the whole campus: links shaped on both ends, addresses, BPF programs loaded and attached, every setting read back.
`stock` is Mininet with LinuxBridge and plain links, unshaped; shaping would make it slower still. Each run has a process of its
own, and stock has a network namespace of its own, which removes its bridges. `floor` is the kernel's part on this machine today:
processes with namespaces, bare veth pairs, and removing them.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_least, in_fresh_process, seconds_of, table_of
from testbed.workloads.memory import of_machine, pss_bytes
from topologies.presets import campus54, three_tier
from topologies.spec import Campus as Description

STOCK_DESCRIPTORS = 16384  # what Mininet's own fixLimits asks for
SETTLE_S = 2.0  # before each run: the kernel removes the last one's empty namespaces in the background
DOWN_PHASES = ("end_agents", "end_programs", "cables_gone", "kill", "remove_files")
TARGETS = {"up": 4.0, "down": 8.0}


def measure(run: Run) -> dict[str, Any]:
    """Build `hosts` hosts as a live campus, with stock Mininet, and bare (54 hosts: paper A's campus).

    Of 3 runs of each (2 above 100 hosts) the fastest is kept: others disturb, nothing speeds up. A minute at 500 hosts.
    """
    return {"runs": [_compared(hosts) for hosts in run.hosts or (100 if run.quick else 500,)]}


def _compared(hosts: int) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for kind in RUNS:
        tries = []
        for _ in range(3 if hosts <= 100 else 2):
            time.sleep(SETTLE_S)
            tries.append(in_fresh_process(__name__, kind, hosts))
        kinds[kind] = min(tries, key=lambda each: float(each["up_s"]))
    faster = {way: kinds["stock"][f"{way}_s"] / kinds["live"][f"{way}_s"] for way in TARGETS}
    return {"hosts": hosts, **kinds, "times_faster": faster}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the speed-up over stock Mininet."""
    for each in result["runs"]:
        for way, target in TARGETS.items():
            what = f"{each['hosts']} hosts {way}, against stock Mininet"
            yield at_least(what, each["times_faster"][way], target, "{:.3g}x".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield up and down of each kind, then the phases of the live campus."""
    for each in result["runs"]:
        rows = [
            (
                name,
                f"{of['up_s']:.2f} s",
                f"{of['down_s']:.2f} s",
                f"{of['process_memory_bytes'] / 1e6:.0f} MB",
            )
            for name, of in ((name, each[name]) for name in RUNS)
        ]
        phases = sorted(each["live"]["up_phases_s"].items(), key=lambda item: -item[1])
        heads = ("", "up", "down", "memory of processes")
        yield table_of(
            f"{each['hosts']} hosts", heads, [*rows, (), *((f"  {k}", f"{v:.3f} s") for k, v in phases)]
        )


def description_of(hosts: int) -> Description:
    """Return the campus that is built."""
    return campus54() if hosts == 54 else three_tier(hosts=hosts, buildings=4)


def live(hosts: int) -> dict[str, Any]:
    """Build the testbed's campus, complete."""
    from testbed.emulation.campus import LiveCampus

    net, figures = _up_and_down(partial(LiveCampus, description_of(hosts)))
    phases = net.phases_s
    return {
        **figures,
        "up_phases_s": {k: v for k, v in phases.items() if k not in DOWN_PHASES},
        "down_phases_s": {k: phases[k] for k in DOWN_PHASES},
    }


def _up_and_down(make: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Start and stop the network that `make` returns; return it with its times and memory."""
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
    """Build the same tree with Mininet's own classes: LinuxBridge, plain links."""
    from mininet.net import Mininet
    from mininet.nodelib import LinuxBridge

    from testbed.linux import CLONE_NEWNET, unshare
    from topologies.as_mininet import CampusTopo

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(STOCK_DESCRIPTORS, hard), hard))
    unshare(CLONE_NEWNET)
    Mininet.inited = True  # leave the machine's limits as they are
    topo = CampusTopo(description_of(hosts))
    net, figures = _up_and_down(partial(Mininet, topo, switch=LinuxBridge, controller=None))
    left = links_here() - {"lo"}
    return {**figures, "links_left": sum(any(name.startswith(n) for n in net.nameToNode) for name in left)}


def floor(hosts: int) -> dict[str, Any]:
    """Build namespaces and bare veth pairs alone, which no implementation over this kernel can avoid."""
    from testbed.emulation.kernel.build import in_thread

    return in_thread(lambda: _floor(hosts))


def _floor(hosts: int) -> dict[str, Any]:
    from testbed import linux
    from testbed.emulation.description import link_requests
    from testbed.emulation.description.plan import plan
    from testbed.emulation.kernel import readback
    from testbed.emulation.kernel.holders import Holders
    from testbed.emulation.netlink import NetlinkSocket

    made = plan(description_of(hosts))
    linux.unshare(linux.CLONE_NEWNET)
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
    return {
        "up_s": namespaces_s + veths_s,
        "down_s": down_s,
        "process_memory_bytes": 0,
        "up_phases_s": phases,
    }


def memory_of_family_bytes() -> int:
    """Return the proportional memory of this process's descendants: a page shared by n processes counts 1/n in each."""
    return sum(pss_bytes(pid) for pid in _descendants(os.getpid()))


def _descendants(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [one for child in children for one in (child, *_descendants(child))]
    return []


def links_here() -> set[str]:
    """Return the names of the interfaces of this thread's namespace."""
    from testbed.emulation.kernel import readback
    from testbed.emulation.netlink import NetlinkSocket

    with NetlinkSocket() as socket:
        return {state.name for state in readback.link_states(socket).values()}


RUNS: dict[str, Callable[[int], dict[str, Any]]] = {"live": live, "stock": stock, "floor": floor}

if __name__ == "__main__":
    from experiments.runtime import exit_status

    sys.exit(exit_status.run(lambda: print(json.dumps(RUNS[sys.argv[1]](int(sys.argv[2]))))))
