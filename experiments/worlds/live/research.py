"""Research traffic: real TCP flows between hosts, and what their receivers took in, window by window.

A flow is a sender and a receiver, each a process in its host's namespace. The receiver appends (time, bytes) of each
window to a file, which may be read while the flow runs and after it was killed.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from experiments.inputs.scenario import ResearchFlow
from experiments.results.history import Timed
from experiments.results.link_rates import LinkRates, RoutesThen
from experiments.results.run_context import ResearchSample
from topologies.paths import Routes
from topologies.spec import Campus

PORT = 7300  # and up: one for each flow
WINDOW_S = 1.0
WARM_UP_S = 3.0  # slow start, and the queue that the first burst leaves
TOLD_S = 0.5  # the kernel changes a link this long before the coordinator's journal records it, at most
CONNECT_S = 10.0
CHUNK = bytes(256 << 10)
TCP_CONGESTION = 13  # linux/tcp.h
SO_MAX_PACING_RATE = 47  # asm-generic/socket.h
_RECORD = struct.Struct("<dQ")  # end of the window (CLOCK_MONOTONIC), bytes taken in during it


@dataclass(frozen=True, slots=True)
class Measured:
    """A flow with its receiver's address and record. `sender`: the only address that it accepts."""

    flow: ResearchFlow
    port: int
    address: str
    record: Path
    sender: str

    def receive(self) -> None:
        """Run the receiver's process: one sender after another, for ever."""
        with socket.create_server((self.address, self.port)) as server:
            while True:
                peer, (source, *_) = server.accept()
                if source != self.sender:  # it would be measured, or keep the flow waiting
                    peer.close()
                    continue
                with peer, self.record.open("ab", buffering=0) as record:
                    for end_s, taken in _windows(peer):
                        record.write(_RECORD.pack(end_s, taken))

    def send(self) -> None:
        """Run the sender's process: connect again whenever it is cut off, for ever."""
        while True:
            try:
                with socket.create_connection((self.address, self.port), timeout=CONNECT_S) as sock:
                    sock.settimeout(None)
                    # CUBIC, as a file transfer of a user would be; a flow with a rate is paced at it
                    sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"cubic")
                    if not self.flow.greedy:
                        pace = struct.pack("@Q", int(self.flow.rate_bytes_per_s))
                        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, pace)
                    while True:
                        sock.sendall(CHUNK)
            except OSError:
                time.sleep(0.2)

    def windows(self) -> Iterator[tuple[float, int]]:
        """Return (end of window, bytes) so far."""
        data = self.record.read_bytes() if self.record.exists() else b""
        whole = len(data) - len(data) % _RECORD.size
        yield from _RECORD.iter_unpack(data[:whole])


def plan_flows(campus: Campus, flows: Sequence[ResearchFlow], directory: Path) -> list[Measured]:
    """Return ports and record files for the flows of a scenario."""
    return [
        Measured(
            flow,
            PORT + number,
            str(campus.host_by_name[flow.target].address),
            directory / f"research-{number}.bin",
            str(campus.host_by_name[flow.source].address),
        )
        for number, flow in enumerate(flows)
    ]


def samples(
    campus: Campus, measured: Sequence[Measured], started_s: float, until_s: float, facts: Sequence[Timed] = ()
) -> list[ResearchSample]:
    """Return windows of the greedy flows, on the narrowest link of each.

    The first WARM_UP_S of each flow are left out; windows around a change of rate on its path are not judged. ECMP
    choices are not observable, so a flow is judged against the narrowest link of all its paths.
    """
    described, rates = Routes(campus), LinkRates(campus, facts)
    history, crossed = RoutesThen(campus, facts).history, cache(Routes.shortest_links)
    found = []
    for each in measured:
        if not each.flow.greedy:
            continue
        windows = list(each.windows())
        first_s = windows[0][0] if windows else math.inf
        for end_s, taken in windows:
            if first_s + WARM_UP_S <= end_s - WINDOW_S and end_s <= until_s:
                at_s, source, target = end_s - started_s, each.flow.source, each.flow.target
                before_s, told_s = at_s - WINDOW_S - WARM_UP_S, at_s + TOLD_S
                then = history.at(at_s)
                shared = crossed(then, source, target)
                route = [link for link in then.route(source, target) if link in shared]
                links = [*route, *sorted(shared.difference(route))]
                seen = [rates.extremes(link, before_s, told_s) for link in links]
                narrowest, (capacity, _) = min(zip(links, seen, strict=True), key=lambda pair: pair[1][0])
                during = history.during(before_s, told_s)
                moved = any(crossed(routes, source, target) != shared for routes in during)
                if moved or any(least < greatest for least, greatest in seen):
                    capacity = 0.0
                reserve = campus.research_reserve.reserve_bytes_per_s(capacity)
                payload_bytes = float(taken)
                as_described = narrowest == described.bottleneck(source, target)[1]
                sample = ResearchSample(at_s, WINDOW_S, source, target, capacity, reserve, payload_bytes)
                found.append(sample if as_described else replace(sample, narrowest=narrowest))
    return sorted(found, key=lambda sample: sample.at_s)


def _windows(peer: socket.socket, clock: Callable[[], float] = time.monotonic) -> Iterator[tuple[float, int]]:
    """Yield bytes taken in during each second, until the sender is gone."""
    buffer = bytearray(256 << 10)
    peer.settimeout(WINDOW_S / 4)
    end_s, taken = clock() + WINDOW_S, 0
    while True:
        try:
            got = peer.recv_into(buffer)
            if got == 0:
                return
            taken += got
        except TimeoutError:
            got = 0
        except OSError:
            return
        while clock() >= end_s:
            yield end_s, taken
            end_s, taken = end_s + WINDOW_S, 0
