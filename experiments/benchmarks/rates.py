"""Goodput of granted flows over their grants: pacing, paper A's drop bucket, HTB classes at the bottleneck, and nothing.

One flow is granted 5, 50 and 400 Mbit/s over a trunk of 1 Gbit/s. Seven flows of unequal grants share a trunk of 100
Mbit/s, whose queue holds 100 ms, with one unlimited research flow. Research is once on BBR and once on CUBIC. Each setting has
two live campuses of two buildings (`one_trunk`): one whose switches serve marked classes first, one with one queue a port.
Goodput is payload that arrived in the measured seconds, after the warm-up. The goal for every flow is 0.97 to 1.00 of its
grant. No bucket is to drop a packet, and research is to get the rest of the trunk.

Reasons of the settings, as measured:
- pacing half a percent under the grant, so that goodput cannot exceed it; a guard 5 % over it, four super-packets deep;
- small super-packets (`smooth_pacing`): with the kernel's default, a flow of 4 Mbit/s with short round trips sends 64
  KiB every 130 ms. Goodput over some seconds is then off by up to 3 %;
- on one queue for all, no sender holds its grant beside research: 0.2 to 1.0, whichever of BBR and CUBIC either has.
  Research fills the queue. CUBIC takes its tail drops. Paced BBR takes the round trip of the empty trunk for the true
  one and holds its window to twice that;
- a trunk that serves the marked classes first, from a queue of their own and up to their share (1 - beta). The four
  classes of paper A, section VII-A, mean this ("marked first"). Every grant is then met, under BBR or CUBIC, whatever
  research runs.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

from mininet.log import setLogLevel
from rich.table import Table

from controller.core.admission.schedule import LAG_S
from experiments.benchmarks.attacks import CHUNK, SendingHost, granted_socket, granted_tcp, greedy_tcp
from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_ms, table_of
from experiments.benchmarks.one_trunk import START_S, WINDOW_S, one_trunk, play, sending_host
from testbed.agent.io.paced_send import AHEAD_S, MIN_AHEAD_BYTES
from testbed.emulation.campus import LiveCampus
from testbed.emulation.processes import ForkRequest
from testbed.enforcement import TSO_RTT_LOG, Enforcement, payload_rate, wire_rate
from testbed.errors import SetupError
from testbed.transfer import unacknowledged_bytes
from topologies.spec import GpuModel, ResearchReserve
from topologies.units import GBIT_PER_S, MBIT_PER_S

GOAL: Final = (0.97, 1.0)
RISING_GRANTS: Final = tuple(rate * MBIT_PER_S for rate in (5, 50, 400))
BEFORE_S: Final = 0.5  # of the grant before and after it is nothing
NOTHING_S: Final = 0.5
RISE_WINDOWS: Final = 3  # seconds for all of that, and the delay
DEFAULT: Final = "paced, BBR, marked first"
HOSTS, RESEARCH, SINK = tuple(f"p{n}" for n in range(1, 8)), "r1", "d"
SHARED_GRANTS: Final = tuple(rate * MBIT_PER_S for rate in (2, 4, 6, 8, 10, 12, 14))


@dataclass(frozen=True, slots=True)
class EnforcementSystem:
    """A means to hold flows at their grants."""

    name: str
    enforcement: Enforcement
    congestion: str
    has_trunk_classes: bool = False
    serves_marked_first: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """Grants (payload bytes/s) over a trunk (wire bytes/s), and the congestion control of an unlimited flow beside them."""

    name: str
    trunk_bytes_per_s: float
    grants_bytes_per_s: tuple[float, ...]
    research_congestion: str | None = None

    @property
    def rest_bytes_per_s(self) -> float:
        """Payload bytes/s of the trunk beyond all grants."""
        return payload_rate(self.trunk_bytes_per_s - wire_rate(sum(self.grants_bytes_per_s)))


SYSTEMS: Final = (
    EnforcementSystem("paced, BBR", Enforcement.PACE, "bbr"),
    EnforcementSystem("paced, CUBIC", Enforcement.PACE, "cubic"),
    EnforcementSystem("paced, BBR, marked first", Enforcement.PACE, "bbr", serves_marked_first=True),
    EnforcementSystem("paced, CUBIC, marked first", Enforcement.PACE, "cubic", serves_marked_first=True),
    EnforcementSystem("drop bucket", Enforcement.DROP, "cubic"),
    EnforcementSystem("nothing", Enforcement.NONE, "cubic"),
    EnforcementSystem("HTB classes", Enforcement.NONE, "cubic", has_trunk_classes=True),  # last: they stay
)
SETTINGS: Final = (
    Setting("one flow, 5 Mbit/s", GBIT_PER_S, (5 * MBIT_PER_S,)),
    Setting("one flow, 50 Mbit/s", GBIT_PER_S, (50 * MBIT_PER_S,)),
    Setting("one flow, 400 Mbit/s", GBIT_PER_S, (400 * MBIT_PER_S,)),
    Setting("seven flows, research on BBR", 100 * MBIT_PER_S, SHARED_GRANTS, "bbr"),
    Setting("seven flows, research on CUBIC", 100 * MBIT_PER_S, SHARED_GRANTS, "cubic"),
)


def measure(run: Run) -> dict[str, Any]:
    """Measure every system in every setting: 5 minutes, `quick` 90 s. BpfError where BPF is missing."""
    setLogLevel("error")
    warm_s, windows, tries = (1.0, 2, 2) if run.quick else (2.0, 6, 5)
    settings: dict[str, Any] = {}
    for setting in run.each(SETTINGS, lambda each: each.name):
        with ExitStack() as stack:
            campuses = [
                stack.enter_context(_campus(setting.trunk_bytes_per_s, marked_first=first)) for first in (False, True)
            ]
            settings[setting.name] = {
                each.name: _measure(campuses[each.serves_marked_first], setting, each, warm_s, windows)
                for each in SYSTEMS
            }
    rises: list[dict[str, Any]] = []
    with _campus(GBIT_PER_S, marked_first=True) as net:
        for congestion in ("bbr", "cubic"):
            for grant in RISING_GRANTS:
                behind_s = [_rise(net, grant, congestion) for _ in range(tries)]
                rises.append({"congestion": congestion, "grant_bytes_per_s": grant, "behind_s": behind_s})
    return {"warm_s": warm_s, "measured_s": windows * WINDOW_S, "settings": settings, "rises": rises}


def goals(result: Result) -> Iterator[Goal]:
    """Yield, for each setting, the worst goodput over grant of the default; then the delay of a grant that comes back."""
    low, high = GOAL
    for name, systems in result["settings"].items():
        found = systems[DEFAULT]
        met = found["is_exact"] and not found["bucket_drops"]
        worst = f"{found['worst_goodput_over_grant']:.3f}"
        yield Goal(f"goodput over grant, {name}", f"{low} to {high}", worst, met)
    behind_s = max(max(rise["behind_s"]) for rise in result["rises"])
    yield at_most("delay of a grant that follows none", behind_s, LAG_S, in_ms)


def tables(result: Result) -> Iterator[Table]:
    """Yield goodput over grant with drops and research's part of the rest; then the delay of grants that come back."""
    rows: list[tuple[str, ...]] = []
    for setting, systems in result["settings"].items():
        rows += [(), (setting,)]
        for name, found in systems.items():
            ratios = [flow["goodput_over_grant"] for flow in found["flows"]]
            research = found.get("research")
            rest = f"{research['goodput_over_rest']:.2f}" if research else ""
            spread = f"{min(ratios):.3f}" if len(ratios) == 1 else f"{min(ratios):.3f} - {max(ratios):.3f}"
            rows.append((f"  {name}", spread, f"{found['bucket_drops']}", rest))
    heads = ("system", "goodput / grant", "bucket drops", "research / rest")
    yield table_of(f"{result['measured_s']:g} s measured after {result['warm_s']:g} s", heads, rows)
    title = f"A grant, none for {NOTHING_S:g} s, the grant again: delay against half a second's bytes"
    yield table_of(
        title,
        ("grant", "congestion control", "delay"),
        (
            (
                f"{rise['grant_bytes_per_s'] / MBIT_PER_S:g} Mbit/s",
                rise["congestion"],
                f"{in_ms(min(rise['behind_s']))} - {in_ms(max(rise['behind_s']))}",
            )
            for rise in result["rises"]
        ),
    )


def _campus(trunk_bytes_per_s: float, *, marked_first: bool) -> LiveCampus:
    senders = dict.fromkeys((*HOSTS, RESEARCH), GBIT_PER_S)
    reserve, models = ResearchReserve(beta=0.3), {"": GpuModel("gpu", 8e9, 8.6)}
    spec = one_trunk(senders, {SINK: GBIT_PER_S}, trunk_bytes_per_s, reserve, models)
    return LiveCampus(spec, hold_migrations=marked_first, one_queue=not marked_first)


def _measure(
    net: LiveCampus, setting: Setting, system: EnforcementSystem, warm_s: float, windows: int
) -> dict[str, Any]:
    grants, usual = dict(zip(HOSTS, setting.grants_bytes_per_s, strict=False)), TSO_RTT_LOG.read_text()
    if system.has_trunk_classes:
        _make_classes(net, grants)
    requests = []
    for host, grant in grants.items():
        net.get(host).cmd(f"echo {usual.strip()} > {TSO_RTT_LOG}")  # that paced senders have changed
        station = sending_host(net, host, SINK, grant, system.enforcement, system.congestion)
        requests.append(ForkRequest(host, partial(granted_tcp, station), "granted"))
    if setting.research_congestion:
        send = partial(greedy_tcp, net.get(SINK).IP(), congestion=setting.research_congestion)
        requests.append(ForkRequest(RESEARCH, send, "research"))

    def drops() -> int:
        states = (state for host in grants for _, state in net.maps(host).flows.items())
        return sum(state.traffic.dropped_packets for state in states)

    begin_s, what = time.monotonic() + START_S + warm_s, f"{setting.name}, {system.name}"
    seen, (counted,) = play(net, what, (SINK,), requests, tuple(grants), drops, begin_s, windows)

    def goodput(host: str) -> float:
        return sum(counted.get(net.get(host).IP(), ())) / (windows * WINDOW_S)

    flows = [
        {"grant_bytes_per_s": grant, "goodput_over_grant": goodput(host) / grant} for host, grant in grants.items()
    ]
    ratios = [flow["goodput_over_grant"] for flow in flows]
    measured = {
        "flows": flows,
        "worst_goodput_over_grant": max(ratios, key=lambda ratio: max(GOAL[0] - ratio, ratio - GOAL[1])),
        "is_exact": all(GOAL[0] <= ratio <= GOAL[1] for ratio in ratios),
        "bucket_drops": seen[-1],
    }
    if setting.research_congestion:
        measured["research"] = {
            "goodput_bytes_per_s": goodput(RESEARCH),
            "rest_bytes_per_s": setting.rest_bytes_per_s,
            "goodput_over_rest": goodput(RESEARCH) / setting.rest_bytes_per_s,
        }
    return measured


def _make_classes(net: LiveCampus, grants: Mapping[str, float]) -> None:
    """Give each flow a class of its own at the trunk, which gets its grant and no more."""
    switch = net.get("s1")
    port = switch.connectionsTo(net.get("s2"))[0][0].name
    for number, (host, grant) in enumerate(grants.items(), start=0x10):
        rate, match = f"{round(wire_rate(grant) * 8)}bit", f"match ip src {net.get(host).IP()}/32"
        for command in (
            f"class add dev {port} parent 1:1 classid 1:{number:x} htb rate {rate} ceil {rate} quantum 65536",
            f"filter add dev {port} parent 1: protocol ip prio 1 u32 {match} flowid 1:{number:x}",
        ):
            if refused := switch.cmd(f"tc {command}").strip():
                raise SetupError(f"tc {command}: {refused}")


def _rise(net: LiveCampus, grant_bytes_per_s: float, congestion: str) -> float:
    """Run one flow that has its grant, is parked as agents do it, and has its grant again; return its delay in s."""
    station = sending_host(net, HOSTS[0], SINK, grant_bytes_per_s, Enforcement.PACE, congestion)
    read_fd, write_fd = os.pipe()
    with os.fdopen(read_fd) as answer:
        request = ForkRequest(HOSTS[0], partial(_send_again, write_fd, station), "granted", keep=(write_fd,))
        begin_s = time.monotonic() + START_S
        play(net, "a grant again", (SINK,), [request], HOSTS[:1], lambda: None, begin_s, RISE_WINDOWS)
        os.close(write_fd)
        return float(json.load(answer))


def _send_again(write_fd: int, station: SendingHost) -> None:
    """Send by a grant, not at all, by the grant again; write the delay in s after BEFORE_S of the second grant."""
    grant, (sock, guard) = station.grant_bytes_per_s, granted_socket(station)
    ahead_bytes = max(MIN_AHEAD_BYTES, round(grant * AHEAD_S))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, ahead_bytes)
    sock.setblocking(False)

    def send(lasts_s: float, most: float) -> float:
        """Send as much as the socket takes for a time, until `most` bytes are acknowledged; return the seconds that took."""
        began_s, sent = time.monotonic(), -unacknowledged_bytes(sock)
        while (took_s := time.monotonic() - began_s) < lasts_s and sent - unacknowledged_bytes(sock) < most:
            select.select([], [sock], [], 0.002)
            with suppress(BlockingIOError):
                sent += sock.send(CHUNK)
        return took_s

    send(BEFORE_S, inf)
    time.sleep(NOTHING_S)
    guard.park()
    guard.regrant(grant)
    behind_s = send(RISE_WINDOWS * WINDOW_S, grant * BEFORE_S) - BEFORE_S
    os.write(write_fd, json.dumps(behind_s).encode())
    signal.pause()
