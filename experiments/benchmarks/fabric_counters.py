"""Which counters are to feed B(t): the kernel's, of each class of a trunk's port, or those that switches tell by OpenFlow.

OpenFlow has three: a port counts all classes together, a group of research what it has led out, a rule what it has matched.
Groups and rules are counted from Open vSwitch's caches twice a second, and a group counts from nothing when it gets other
weights, as it does whenever grants have moved. So all are read side by side here, on one campus in the same moments.
"""

from __future__ import annotations

import dataclasses
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec

from controller.core.network.counted import CountedTraffic
from experiments.benchmarks.programs import PORT, SINK, SOURCE, cpu_s, program, said
from experiments.benchmarks.timing import quantiles
from testbed.emulation.campus import LiveCampus
from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.shaping import RESEARCH_CLASS
from topologies.openflow import TrunkLoads
from topologies.presets import campus54, leaf_spine
from topologies.spec import DirectedLink, Fabric, TrafficClass
from topologies.units import PAYLOAD_SHARE

COUNT_EVERY_S = 0.1  # the control period, of which two readings are wanted in 500 ms
TRUNK_BYTES_PER_S, STRANGER_BYTES_PER_S, WATCH_S = 50e6, 12.5e6, 3.0
# counted together: other weights lead a connection by the other trunk
UPLINKS = DirectedLink("l1", "both spines")
RESEARCH, MIGRATION = (traffic.dscp << 2 for traffic in (TrafficClass.RESEARCH, TrafficClass.PLANNED))
# so many payload bytes/s for some seconds, in a class; says when it begins, and when it has ended
_STEADY = """
import socket, sys, time
rate, tos = int(float(sys.argv[4])), int(sys.argv[5])
c = socket.socket()
c.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
c.setsockopt(socket.SOL_SOCKET, 47, rate)  # SO_MAX_PACING_RATE
c.connect((sys.argv[1], int(sys.argv[2])))
print(time.monotonic(), flush=True)
block, end = bytes(1 << 16), time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    c.sendall(block)
print("ended", flush=True)
"""


def counters(readings: int) -> dict[str, Any]:
    """Trunks of 54 hosts read from the kernel and by OpenFlow, in turn, ten times a second.

    First nothing is sent: what a reading takes, and costs the processors (by OpenFlow: controller and switch daemon too).
    Then one host sends research to another for `readings` periods, and a second is waited: what OpenFlow counted as a share of
    what the kernel's classes counted; and in how many periods OpenFlow's groups had counted nothing though bytes passed.
    """
    with LiveCampus(dataclasses.replace(campus54(), fabric=Fabric.OPENVSWITCH), enforcement=False) as net:
        openflow = net.openflow
        assert openflow
        daemons = [openflow.pid(name) for name in ("controller", "ovs-vswitchd")]
        sources: dict[str, tuple[Callable[[], object], list[int | None]]] = {
            "kernel": (net.trunk_counters, []),
            "openflow": (openflow.count, daemons),
        }
        result: dict[str, Any] = {}
        for name, (read, pids) in sources.items():
            took_s, before_s = [], time.process_time() + sum(map(cpu_s, pids))
            for _ in range(readings):
                begin_s = time.perf_counter()
                read()
                took_s.append(time.perf_counter() - begin_s)
                time.sleep(max(0.0, COUNT_EVERY_S - took_s[-1]))
            spent_s = time.process_time() + sum(map(cpu_s, pids)) - before_s
            result[name] = {"read_s": quantiles(took_s), "cpu_s": spent_s / readings}
        trunk = next(
            (t.a.node, t.b.node) for t in net.plan.trunks if {t.a.node, t.b.node} <= net.plan.openflow.keys()
        )
        behind = topology_of(net.plan).stations_at
        first, last = (behind[end][0].host for end in trunk)
        counted: list[tuple[int, int, int]] = []

        def read_all() -> None:
            kernel, switches = net.trunk_counters(), openflow.count()
            crossing = [t for t in switches.trunks if {t.switch, t.neighbour} == set(trunk)]
            classes = [kernel[t.switch, t.neighbour][RESEARCH_CLASS].sent_bytes for t in crossing]
            counted.append(
                (sum(classes), sum(t.sent_bytes for t in crossing), sum(t.research_bytes for t in crossing))
            )

        read_all()
        seconds = readings * COUNT_EVERY_S
        with program(net, last, SINK, PORT, seconds) as sink:
            said(sink)
            with program(net, first, SOURCE, net.get(last).IP(), PORT, seconds):
                for _ in range(readings):
                    read_all()
                    time.sleep(COUNT_EVERY_S)
                said(sink)
        time.sleep(1.0)
        read_all()
    of_classes, of_ports, of_groups = (
        int(last_seen - first_seen) for first_seen, last_seen in zip(counted[0], counted[-1], strict=True)
    )
    moving = [(b[2] - a[2]) for a, b in pairwise(counted[1:-1]) if b[0] > a[0]]
    return result | {
        "ports_over_kernel": of_ports / of_classes,
        "groups_over_kernel": of_groups / of_classes,
        "groups_stood_still": sum(not moved for moved in moving) / len(moving),
    }


def strangers(trials: int) -> dict[str, Any]:
    """What each source makes of a stranger that sends at a steady rate over one of two trunks: read ten times a second, all in
    one pass, and told as a live run tells it (`controller.core.network.counted`).

    Per source: seconds from the first byte until 90 % of the rate are told; what is told then, over what is taken; the same while
    grants change, so that groups get other weights; and what is told of a migration at that rate, which is no stranger.
    """
    campus = leaf_spine(2, 2, 2, access_bytes_per_s=TRUNK_BYTES_PER_S, uplink_bytes_per_s=TRUNK_BYTES_PER_S)
    seen: dict[str, dict[str, list[float]]] = {}
    with LiveCampus(campus, enforcement=False) as net, socket.socket(socket.AF_UNIX) as coordinator:
        assert net.openflow
        coordinator.connect(str(net.openflow.socket))
        weigh = partial(_weigh, coordinator)
        for _ in range(trials):
            for what, options, each in (
                ("steady", (STRANGER_BYTES_PER_S, RESEARCH), None),
                ("weights_change", (STRANGER_BYTES_PER_S, RESEARCH), weigh),
                ("migration", (STRANGER_BYTES_PER_S, MIGRATION), None),
            ):
                for source, (noticed_s, over) in _told(net, options, each).items():
                    of = seen.setdefault(source, {})
                    of.setdefault(f"{what}_noticed_s", []).append(noticed_s)
                    of.setdefault(f"{what}_over_truth", []).append(over)
    return {source: {what: quantiles(values) for what, values in of.items()} for source, of in seen.items()}


def _told(
    net: LiveCampus, options: tuple[float, int], each: Callable[[int], None] | None
) -> dict[str, tuple[float, float]]:
    """Source -> (seconds until nine tenths of a new sender are told, or all of the watch; median of what is told in the second
    half, over what it takes). `each` is called before each reading."""
    assert net.openflow
    feeds = {
        name: CountedTraffic({UPLINKS: 2.0 * TRUNK_BYTES_PER_S}) for name in ("kernel", "ports", "groups")
    }
    told: dict[str, list[tuple[float, float]]] = {name: [] for name in feeds}

    def watch(seconds: float) -> None:
        assert net.openflow
        for number in range(round(seconds / COUNT_EVERY_S)):
            begin_s = time.monotonic()
            if each is not None:
                each(number)
            kernel, read_s = net.trunk_counters(), time.monotonic()
            of_classes = sum(
                classes[RESEARCH_CLASS].sent_bytes for (a, _), classes in kernel.items() if a == "l1"
            )
            switches = [trunk for trunk in net.openflow.count().trunks if trunk.switch == "l1"]
            counted_s = time.monotonic()
            for name, at_s, count in (
                ("kernel", read_s, of_classes),
                ("ports", counted_s, sum(trunk.sent_bytes for trunk in switches)),
                ("groups", counted_s, sum(trunk.research_bytes for trunk in switches)),
            ):
                feeds[name].read(at_s, {UPLINKS: float(count)}, {UPLINKS: float(count)})
                told[name].append((time.monotonic(), feeds[name].taken(UPLINKS)))
            time.sleep(max(0.0, begin_s + COUNT_EVERY_S - time.monotonic()))

    watch(1.0)
    with program(net, "h3", SINK, PORT, 2.0 * WATCH_S) as sink:
        said(sink)
        with program(net, "h1", _STEADY, net.get("h3").IP(), PORT, WATCH_S, *options) as sender:
            begin_s = float(said(sender))
            watch(WATCH_S)
            said(sender)
    truth = options[0] / PAYLOAD_SHARE
    result = {}
    for name, rates in told.items():
        noticed_s = next(
            (at_s - begin_s for at_s, rate in rates if at_s > begin_s and rate >= 0.9 * truth), WATCH_S
        )
        settled = [rate for at_s, rate in rates if begin_s + 0.5 * WATCH_S < at_s < begin_s + 0.9 * WATCH_S]
        result[name] = noticed_s, statistics.median(settled) / truth
    return result


def _weigh(coordinator: socket.socket, number: int) -> None:
    """Tell loads as the coordinator does when it has granted something else."""
    load = 0.3 * TRUNK_BYTES_PER_S * (number % 2)
    coordinator.sendall(msgspec.json.encode(TrunkLoads((("l1", "s1", load),))) + b"\n")
