"""Switches of a campus: kernel bridges beside Open vSwitch, in one run on one machine.

The same tree (two buildings, three switches between any two hosts of different ones) is built of both; its links are too fast to
bind, so throughput is the machine's forwarding. Then, on a leaf-spine campus of Open vSwitch, trunks are cut while a datagram of
the testbed's own class is sent every half millisecond. A *local* cut is seen by the sender's switch, which turns by itself; a
*remote* one lies behind the spine, and only the controller can change the sender's switch. The gap is the longest silence at the
receiver less the usual one. The same cuts are made as planned ones, the trunk being drained first: nothing may be lost. Then the
pair is pinned to one way and the other, as migrations are. Last the controller is killed and started again under the probe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.table import Table

from experiments.benchmarks.attacks import greedy_tcp
from experiments.benchmarks.frame import Goal, Result, Run, at_least, at_most, in_ms, quantiles, table_of
from experiments.benchmarks.one_trunk import START_S, WINDOW_S, forked, play, round_trips
from testbed.emulation.campus import LiveCampus
from testbed.emulation.processes import ForkRequest
from testbed.namespaces import NetworkNamespace
from topologies.openflow import FromController, WantedWays, WayPin, WaysInForce
from topologies.paths import Routes
from topologies.presets import leaf_spine, three_tier
from topologies.spec import Campus, Fabric, TrafficClass
from topologies.units import GBIT_PER_S, format_rate

FAST = 40 * GBIT_PER_S
PROBE_INTERVAL_S, PING_INTERVAL_S = 0.0005, 0.002
BEFORE_S, AFTER_S = 0.4, 0.8  # of a probe: before the cut, and until the gap is over
PROBED = leaf_spine(3, 2, 2)
# trunks on the probe's way from h1 to h3, each cut at its first end
CUTS = {"local": ("l1", "s1"), "remote": ("l2", "s1")}
PORT = 7100
WARM_S = 0.5  # of TCP flows
LAST_S = 0.3  # until the last probe has arrived
ROOM_BYTES = 64 << 20  # for the probes of a trial
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35  # of <asm-generic/socket.h>
SENT, ENDED = 0, 1  # places in the memory that the probe's process shares
PAIR_BYTES_PER_S, FAILOVER_S = 2 * GBIT_PER_S, 0.05  # goals
THROUGHPUT = {
    "one pair": "one_pair_bytes_per_s",
    "eight pairs together": "eight_pairs_bytes_per_s",
    "the slowest of eight": "least_of_eight_bytes_per_s",
}


def measure(run: Run) -> dict[str, Any]:
    """Measure both fabrics, then failures. SetupError where Open vSwitch or root is missing."""
    seconds, pings, trials = (1, 300, 5) if run.quick else (4, 3000, 100)
    tree = three_tier(
        16, 2, hosts_per_access=8, access_bytes_per_s=FAST, uplink_bytes_per_s=FAST, core_bytes_per_s=FAST
    )
    return {
        **{each.value: forwarding(dataclasses.replace(tree, fabric=each), seconds, pings) for each in Fabric},
        "failover": failover(trials),
        "planned": planned_cuts(2 if run.quick else 100),
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield throughput, gaps, and losses of planned cuts of Open vSwitch."""
    pair = result["openvswitch"]["one_pair_bytes_per_s"]
    yield at_least("Open vSwitch, one pair", pair, PAIR_BYTES_PER_S, format_rate)
    for name in ("local", "remote"):
        gap_s = result["failover"][name]["gap_s"]["p99"]
        yield at_most(f"gap after a {name} cut, p99", gap_s, FAILOVER_S, in_ms)
    yield at_most("packets lost by planned cuts", result["planned"]["lost"], 0, "{:.0f}".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield bridges and Open vSwitch side by side, then the cost of failures."""
    both = result["bridge"], result["openvswitch"]
    rows: list[tuple[str, ...]] = []
    rows += [(words, *(format_rate(each[key]) for each in both)) for words, key in THROUGHPUT.items()]
    rows += [(f"round trip, {q}", *(in_ms(each["round_trip_s"][q]) for each in both)) for q in ("p50", "p99")]
    shares = (f"{each['switch_cpu_share']:.2f}" for each in both)
    rows.append(("processors of the switches, one pair", *shares))
    yield table_of("Two fabrics", ("", *(fabric.value for fabric in Fabric)), rows)
    cuts, planned = result["failover"], result["planned"]
    timed = [
        *((f"gap after a {name} cut", cuts[name]["gap_s"]) for name in ("local", "remote")),
        ("a trunk drained and cut", planned["drained_s"]),
        ("another way in force", planned["way_s"]),
        ("all switches programmed anew", cuts["programmed_s"]),
    ]
    yield table_of(
        f"Open vSwitch, {cuts['local']['trials']} cuts",
        ("", "p50", "p99", "max"),
        ((words, *(in_ms(of[q]) for q in ("p50", "p99", "max"))) for words, of in timed),
        f"packets lost: {planned['lost']} by {planned['trials']} planned cuts and {planned['way_changes']} other ways, "
        f"{cuts['controller_restarted_lost']} while the controller restarts",
    )


def forwarding(campus: Campus, seconds: int, pings: int) -> dict[str, Any]:
    """Return bytes/s of one and of eight pairs across the core, round trips, processor time of switches."""
    with LiveCampus(campus, enforcement=False) as net:
        pairs = [(f"h{n}", f"h{n + 8}") for n in range(1, 9)]
        a, b = pairs[0]
        trips = round_trips(net, a, b, pings, PING_INTERVAL_S)
        one, switches = _throughput(net, pairs[:1], seconds)
        eight, _ = _throughput(net, pairs, seconds)
    return {
        "one_pair_bytes_per_s": sum(one),
        "eight_pairs_bytes_per_s": sum(eight),
        "least_of_eight_bytes_per_s": min(eight),
        "round_trip_s": trips,
        "switch_cpu_share": switches,
    }


def failover(trials: int) -> dict[str, Any]:
    """Return gaps and losses of a cut or a restart, and times of programming.

    Gaps in s are of local and remote cuts; packets are lost by a restart of the controller. The times, in s, are to
    program all switches and to change one entry.
    """
    with LiveCampus(PROBED, enforcement=False) as net:
        assert net.openflow
        result: dict[str, Any] = {}
        for name, (a, b) in CUTS.items():
            gaps, lost = [], []
            for _ in range(trials):
                port = net.get(a).connectionsTo(net.get(b))[0][0].name
                with _probing(net) as seen:
                    time.sleep(BEFORE_S)
                    net.get(a).cmd(f"ip link set {port} down")
                steps = np.diff([at_s for _, at_s in seen["came"]])
                gaps.append(float(max(0.0, steps.max() - np.median(steps))))
                lost.append(seen["sent"] - len(seen["came"]))
                events = len(net.openflow.read_events())
                net.get(a).cmd(f"ip link set {port} up")
                net.openflow.wait_programmed(after=events)
            result[name] = {"gap_s": quantiles(gaps), "lost": statistics.median(lost), "trials": trials}
        with _probing(net) as seen:
            net.openflow.stop_controller()
            events = len(net.openflow.read_events())
            net.openflow.start_controller(net.plan)
            net.openflow.wait_programmed(after=events)
        result["controller_restarted_lost"] = seen["sent"] - len(seen["came"])
        took = [e["took_s"] for e in net.openflow.read_events() if e["event"] == "programmed"]
        result["programmed_s"] = quantiles(took[1:])
    return result


def planned_cuts(trials: int) -> dict[str, Any]:
    """Return packets lost, and seconds, of planned changes of the network.

    Trunks are drained and cut, in turn near and far from the sender, and the pair's way changes.
    """
    ways = [[way[0].source, *(link.target for link in way)] for way in Routes(PROBED).choices("h1", "h3")]
    lost, drained_s, pinned_s = [], list[float](), list[float]()
    with LiveCampus(PROBED, enforcement=False) as net:
        assert net.openflow
        for trial in range(trials):
            a, b = ("l1" if trial % 2 else "l2"), "s1"
            with _probing(net) as seen:
                time.sleep(BEFORE_S)
                begin_s = time.perf_counter()
                net.set_link(a, b, up=False, drain=True)
                drained_s.append(time.perf_counter() - begin_s)
            lost.append(seen["sent"] - len(seen["came"]))
            events = len(net.openflow.read_events())
            net.set_link(a, b, up=True)
            net.openflow.wait_programmed(after=events)
        with socket.socket(socket.AF_UNIX) as coordinator:
            coordinator.connect(str(net.openflow.socket))
            answers = coordinator.makefile("rb")
            with _probing(net) as seen:
                for number in range(1, 2 * trials + 1):
                    begin_s = time.perf_counter()
                    wanted = WantedWays(number, (WayPin(number, tuple(ways[number % 2])),))
                    coordinator.sendall(msgspec.json.encode(wanted) + b"\n")
                    while msgspec.json.decode(answers.readline(), type=FromController) != WaysInForce(number):
                        pass
                    pinned_s.append(time.perf_counter() - begin_s)
            lost.append(seen["sent"] - len(seen["came"]))
    return {
        "lost": sum(lost),
        "trials": trials,
        "drained_s": quantiles(drained_s),
        "way_changes": len(pinned_s),
        "way_s": quantiles(pinned_s),
    }


def _throughput(net: LiveCampus, pairs: list[tuple[str, str]], seconds: int) -> tuple[list[float], float]:
    """Return payload bytes/s of one greedy flow a pair, all at once, and the processors that switches used meanwhile."""
    senders = [ForkRequest(source, partial(greedy_tcp, net.get(target).IP()), "sender") for source, target in pairs]
    look, begin_s = partial(_switch_cpu_s, net), time.monotonic() + START_S + WARM_S
    seen, counted = play(net, "throughput", [b for _, b in pairs], senders, (), look, begin_s, seconds)
    rates = [sum(map(sum, of.values())) / (seconds * WINDOW_S) for of in counted]
    return rates, (seen[-1] - seen[0]) / (seconds * WINDOW_S)


def _switch_cpu_s(net: LiveCampus) -> float:
    """Return processor time of the campus's switch daemon so far; 0 with bridges, which have no process."""
    if net.openflow is None or (pid := net.openflow.pid("ovs-vswitchd")) is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _probing(net: LiveCampus) -> Iterator[dict[str, Any]]:
    """Probe from h1 to h3 while the block runs and `AFTER_S` longer; then fill in "sent" and "came", (number, time) of each."""
    seen: dict[str, Any] = {}
    host = NetworkNamespace.of_process(net.kernel.holder_pids["h3"])
    assert host.fd is not None
    with host.entered():
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    os.close(host.fd)
    shared = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
    probe = ForkRequest("h1", partial(_probe, net.get("h3").IP(), shared), "probe")
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        listener.bind(("", PORT))
        with forked(net, [probe]) as (process,):
            yield seen
            time.sleep(AFTER_S)
            shared[ENDED] = 1
            process.wait(AFTER_S + LAST_S)
        listener.setblocking(False)
        seen["sent"], seen["came"] = shared[SENT], []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, [(_, _, stamp), *_], _, _ = listener.recvmsg(64, 64)
                seconds, nanoseconds = struct.unpack("@qq", stamp)
                seen["came"].append((int(data), seconds + nanoseconds * 1e-9))


def _probe(address: str, shared: memoryview) -> None:
    """Send a number every PROBE_INTERVAL_S until the end is asked for, and wait until the last has arrived."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TrafficClass.EMERGENCY.dscp << 2)
        sock.connect((address, PORT))
        next_s = time.perf_counter()
        while not shared[ENDED]:
            while (now_s := time.perf_counter()) < next_s:
                pass
            sock.send(str(shared[SENT]).encode())
            shared[SENT] += 1
            next_s = max(next_s, now_s) + PROBE_INTERVAL_S  # a process that stood still sends no burst
    time.sleep(LAST_S)
