"""Trials on live campuses: processes on hosts that send and count, pings, and a campus of two buildings and one trunk."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from experiments.benchmarks.attacks import PORT, SendingHost
from experiments.benchmarks.frame import quantiles
from testbed.emulation.campus import LiveCampus
from testbed.emulation.processes import ForkedProcess, ForkRequest
from testbed.enforcement import Enforcement, payload_rate
from testbed.errors import SetupError
from topologies.spec import Building, Campus, GpuModel, Host, Link, ResearchReserve, Role, Switch, Tier
from topologies.units import GBIT_PER_S

START_S = 0.15  # until all processes of a trial run
WINDOW_S = 1.0  # in which received bytes are counted together


def one_trunk(
    first: Mapping[str, float],
    second: Mapping[str, float],
    trunk_bytes_per_s: float,
    reserve: ResearchReserve,
    models: Mapping[str, GpuModel],
) -> Campus:
    """Return two buildings, hosts with the rates of their cables at switches s1 and s2, the trunk, coordinator c0 at s2.

    `models`: the first letters of a host's name after its building's -> its GPU; the rest have the model of "".
    """
    hosts, links = [], [Link("s1", "s2", trunk_bytes_per_s), Link("c0", "s2", GBIT_PER_S)]
    for building, sides in enumerate((first, second), start=1):
        for n, (name, rate) in enumerate(sides.items(), start=1):
            address = ipaddress.IPv4Address(f"10.{building}.0.{n}")
            model = models.get(name.removeprefix(f"b{building}")[0], models[""])
            hosts.append(Host(name, f"b{building}", Role.VOLUNTEER, address, model.name, 1))
            links.append(Link(name, f"s{building}", rate))
    hosts.append(Host("c0", "b2", Role.COORDINATOR, ipaddress.IPv4Address("10.0.0.1")))
    switches = (Switch("s1", Tier.ACCESS, "b1"), Switch("s2", Tier.ACCESS, "b2"))
    buildings, kinds = (Building("b1"), Building("b2")), tuple(dict.fromkeys(models.values()))
    return Campus("trunk", buildings, tuple(hosts), switches, tuple(links), kinds, reserve)


def sending_host(
    net: LiveCampus,
    host: str,
    target: str,
    grant_bytes_per_s: float,
    enforcement: Enforcement,
    congestion: str | None,
    neighbour: str = "",
) -> SendingHost:
    """Return a host of a campus as its senders know it; `neighbour`: whose address they forge."""
    here, there = (net.plan.host_cables[name].b for name in (host, target))
    return SendingHost(
        interface=here.name,
        mac=here.mac,
        address=net.get(host).IP(),
        target=net.get(target).IP(),
        target_mac=there.mac,
        rate_bytes_per_s=here.shape.rate_bytes_per_s,
        grant_bytes_per_s=grant_bytes_per_s,
        share_bytes_per_s=payload_rate(here.shape.unreserved_bytes_per_s),
        pins=net.pin_dir / host,
        enforcement=enforcement,
        congestion=congestion,
        neighbour=net.get(neighbour or host).IP(),
    )


def receive_windows(write_fd: int, address: str, begin_s: float, windows: int) -> None:
    """Receive over TCP; write payload bytes by sender in each window as JSON to `write_fd`; then go on receiving."""
    counted: dict[str, list[int]] = {}
    room = bytearray(1 << 20)
    with socket.create_server((address, PORT), backlog=256) as server, selectors.DefaultSelector() as selector:
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ, None)
        written = False
        while True:
            for key, _ in selector.select(WINDOW_S / 20):
                if key.data is None:
                    sock, peer = server.accept()
                    sock.setblocking(False)
                    selector.register(sock, selectors.EVENT_READ, peer[0])
                    counted.setdefault(peer[0], [0] * windows)
                    continue
                try:
                    # MSG_TRUNC: thrown away inside the kernel
                    taken = key.fileobj.recv_into(room, len(room), socket.MSG_TRUNC)  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError:  # a connection that was reset
                    taken = 0
                if not taken:
                    selector.unregister(key.fileobj)
                window = int((time.monotonic() - begin_s) // WINDOW_S)
                if 0 <= window < windows:
                    counted[key.data][window] += taken
            if not written and time.monotonic() >= begin_s + windows * WINDOW_S:
                os.write(write_fd, json.dumps(counted).encode())
                os.close(write_fd)
                written = True


def play(
    net: LiveCampus,
    what: str,
    receivers: Sequence[str],
    others: Sequence[ForkRequest],
    granted: Sequence[str],
    look: Callable[[], Any],
    begin_s: float,
    windows: int,
) -> tuple[list[Any], list[dict[str, list[int]]]]:
    """Play one trial: a process at each of `receivers` counts while the `others` send; all are killed after the last window.

    Return the values of `look` at each border of a window, and the counts of each receiver (`receive_windows`). The hosts
    `granted` have no flow and no grant after it. SetupError: a process of `what` ended by itself.
    """
    pipes = [os.pipe() for _ in receivers]
    requests = [
        ForkRequest(
            host, partial(receive_windows, write_fd, net.get(host).IP(), begin_s, windows), "receiver", keep=(write_fd,)
        )
        for host, (_, write_fd) in zip(receivers, pipes, strict=True)
    ]
    seen, counted = [], []
    try:
        with forked(net, [*requests, *others]) as processes:
            for _, write_fd in pipes:
                os.close(write_fd)
            for number in range(windows + 1):
                time.sleep(max(0.0, begin_s + number * WINDOW_S - time.monotonic()))
                seen.append(look())
            if died := [each for each in processes if each.poll() is not None]:
                raise SetupError(f"{what}: {died[0].label} on {died[0].host} ended by itself")
            for read_fd, _ in pipes:
                with os.fdopen(read_fd, "rb") as answer:
                    counted.append(json.loads(answer.read()))
    finally:
        for host in granted:
            maps = net.maps(host)
            maps.aggregate.unset()
            for key, _ in list(maps.flows.items()):
                maps.flows.delete(key)
    return seen, counted


@contextmanager
def forked(net: LiveCampus, requests: Sequence[ForkRequest]) -> Iterator[list[ForkedProcess]]:
    """Yield processes on hosts, which are killed after the block."""
    processes = net.fork_all(requests)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            process.close()
            net.forked.remove(process)


def round_trips(net: LiveCampus, source: str, target: str, count: int, interval_s: float) -> dict[str, float]:
    """Return quantiles of ping's round trips in s. SetupError: many were lost."""
    command = f"ping -n -c {count + 1} -i {interval_s} -W 2 {net.get(target).IP()}"
    text = net.get(source).cmd(command)
    found = [float(value) / 1e3 for value in re.findall(r"time=([0-9.]+) ms", text)]
    if len(found) < 0.9 * count:
        raise SetupError(f"of {count} pings {len(found)} came back: {text[-300:]}")
    return quantiles(found[1:])  # the first asks for the address too
