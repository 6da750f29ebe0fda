"""Bring-up and teardown of a campus, beside stock Mininet on the same tree, in one run.

`live` is the whole campus: links shaped on both ends, addresses, BPF programs loaded and attached, every setting read back.
`openvswitch` is the same with programmed switches, where Open vSwitch is installed.
`stock` is Mininet with LinuxBridge and plain links, unshaped; shaping would make it slower still. Each run has a process of its
own, and stock has a network namespace of its own, which removes its bridges.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from rich.table import Table

from experiments.benchmarks.frame import (
    Goal,
    Result,
    Run,
    at_least,
    at_most,
    at_size,
    in_fresh_process,
    seconds_of,
    table_of,
)
from topologies.files import campus54
from topologies.presets import three_tier
from topologies.spec import Campus as Description
from topologies.spec import Fabric

STOCK_DESCRIPTORS = 16384  # what Mininet's own fixLimits asks for
SETTLE_S = 2.0  # before each run: the kernel removes the last one's empty namespaces in the background
DOWN_PHASES = ("end_agents", "end_programs", "cables_gone", "kill", "remove_files")
TARGETS = {"up": 5.0, "down": 8.0}
OPENVSWITCH = 1.5, 3.0  # over bridges: up to 100 hosts, above


def measure(run: Run) -> dict[str, Any]:
    """Build `hosts` hosts as a live campus, and with stock Mininet (54 hosts: paper A's campus).

    Of 3 runs of each (2 above 100 hosts) the fastest is kept: others disturb, nothing speeds up. A minute at 500 hosts.
    """
    return {"runs": [_compared(hosts) for hosts in run.each(run.hosts or (100 if run.quick else 500,))]}


def _compared(hosts: int) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for kind in RUNS:
        if kind == "openvswitch" and shutil.which("ovs-vswitchd") is None:
            continue
        tries = []
        for _ in range(3 if hosts <= 100 else 2):
            time.sleep(SETTLE_S)
            tries.append(in_fresh_process(__name__, kind, hosts))
        kinds[kind] = min(tries, key=lambda each: float(each["up_s"]))
    faster = {way: kinds["stock"][f"{way}_s"] / kinds["live"][f"{way}_s"] for way in TARGETS}
    return {"hosts": hosts, **kinds, "times_faster": faster}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the speed-up over stock Mininet, and the cost of Open vSwitch."""
    for each in result["runs"]:
        for way, target in TARGETS.items():
            what = f"{each['hosts']} hosts {way}, against stock Mininet"
            goal = at_least(what, each["times_faster"][way], target, "{:.3g}x".format)
            yield at_size(goal, each["hosts"])
        if "openvswitch" in each:
            times = each["openvswitch"]["up_s"] / each["live"]["up_s"]
            what = f"{each['hosts']} hosts up on Open vSwitch, over bridges"
            yield at_most(what, times, OPENVSWITCH[each["hosts"] > 100], "{:.2f}".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield up and down of each kind, then the phases of the live campus."""
    for each in result["runs"]:
        rows = [(name, *(f"{each[name][f'{way}_s']:.2f} s" for way in TARGETS)) for name in RUNS if name in each]
        phases = sorted(each["live"]["up_phases_s"].items(), key=lambda item: -item[1])
        rows += [(), *((f"  {name}", f"{seconds:.3f} s", "") for name, seconds in phases)]
        yield table_of(f"{each['hosts']} hosts", ("", *TARGETS), rows)


def description_of(hosts: int) -> Description:
    """Return the campus that is built."""
    return campus54() if hosts == 54 else three_tier(hosts=hosts, buildings=4)


def live(hosts: int, fabric: Fabric = Fabric.BRIDGE) -> dict[str, Any]:
    """Build the testbed's campus, complete."""
    from testbed.emulation.campus import LiveCampus

    net, times = _up_and_down(partial(LiveCampus, replace(description_of(hosts), fabric=fabric)))
    return {**times, "up_phases_s": {k: v for k, v in net.phases_s.items() if k not in DOWN_PHASES}}


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
    return _up_and_down(partial(Mininet, topo, switch=LinuxBridge, controller=None))[1]


def _up_and_down(make: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Start and stop the network that `make` returns; return it with its times."""
    begin_s = time.perf_counter()
    net = make()
    try:
        net.start()
        up_s = time.perf_counter() - begin_s
    finally:
        down_s = seconds_of(net.stop)
    return net, {"up_s": up_s, "down_s": down_s}


RUNS: dict[str, Callable[[int], dict[str, Any]]] = {
    "live": live,
    "openvswitch": partial(live, fabric=Fabric.OPENVSWITCH),
    "stock": stock,
}

if __name__ == "__main__":
    from experiments.runtime import exit_status

    sys.exit(exit_status.run(lambda: print(json.dumps(RUNS[sys.argv[1]](int(sys.argv[2]))))))
