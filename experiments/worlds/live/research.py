"""Research traffic: real TCP flows and datagrams between hosts, and what arrived at their receivers, window by window.

A flow, or a stream of flows that have sizes, is a sender and a receiver, each a process in its host's namespace. The receiver
appends (time, bytes) of each window to a file, which may be read while the flow runs and after it was killed. So does the sender
of a stream with (time, size, seconds taken) of each flow.

Of a single TCP flow all segments count that arrived. Behind a lost one, TCP holds them back for as long as the queue is that the
flow has filled: that it was not read by then is no fault of the network.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from io import FileIO
from math import inf
from pathlib import Path
from typing import Any, NoReturn, cast

from experiments.inputs.scenario import ResearchFlow
from experiments.inputs.traces.generated import MAX_OPEN, flow_arrivals
from experiments.results.history import Timed
from experiments.results.link_rates import LinkRates, RoutesThen
from experiments.results.run_context import FlowCompletion, ResearchSample
from topologies.paths import Routes
from topologies.spec import Campus

PORT = 7300  # and up: one for each flow
WINDOW_S = 1.0
WARM_UP_S = 3.0  # slow start, and the queue that the first burst leaves
TOLD_S = 0.5  # the kernel changes a link this long before the coordinator's journal records it, at most
CONNECT_S = 10.0
CHUNK = bytes(256 << 10)
TCP_CONGESTION = 13  # linux/tcp.h
TCP_INFO_BYTES, ADVMSS, DATA_SEGS_IN = 160, 84, 152  # of its struct tcp_info: as much as is read, and where these are
SO_MAX_PACING_RATE = 47  # asm-generic/socket.h
DATAGRAM = bytes(1448)  # as TCP's segments
LAG_S, PAUSE_S = 0.1, 0.001  # datagrams that are so late are lost; between two bursts of them
PATIENCE_S = 60.0  # of a flow that has a size: one that stands still for so long is cut
_RECORD = struct.Struct("<dQ")  # end of the window (CLOCK_MONOTONIC), bytes taken in during it
_COMPLETION = struct.Struct("<dQd")  # its end (CLOCK_MONOTONIC), bytes, seconds taken; infinite: it was cut


@dataclass(frozen=True, slots=True)
class Measured:
    """A flow with its receiver's address and record. `sender`: the only address that it accepts."""

    flow: ResearchFlow
    port: int
    address: str
    record: Path
    sender: str
    number: int = 0  # in the scenario
    seed: int = 0  # of a stream's flows

    def receive(self) -> NoReturn:
        """Run the receiver's process for ever; windows of a single flow begin with its connection, and only whole ones count."""
        is_udp, buffer = self.flow.transport == "udp", bytearray(256 << 10)
        is_single = not is_udp and self.flow.sizes is None
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((self.address, self.port))
        if not is_udp:
            server.listen(MAX_OPEN)
        server.setblocking(False)
        with selectors.DefaultSelector() as selector, self.record.open("ab", buffering=0) as record:
            selector.register(server, selectors.EVENT_READ)
            end_s, taken = inf if is_single else time.monotonic() + WINDOW_S, 0
            counted: dict[socket.socket, int] = {}  # bytes that had arrived, of connections of a single flow
            while True:
                for key, _ in selector.select(min(WINDOW_S / 4, max(0.0, end_s - time.monotonic()))):
                    peer, got = cast(socket.socket, key.fileobj), 0
                    with suppress(OSError):
                        if is_udp or peer is not server:
                            got, sender = peer.recvfrom_into(buffer)
                            taken += got if not is_single and (not is_udp or sender[0] == self.sender) else 0
                        else:
                            accepted, (source, *_) = server.accept()
                            if source != self.sender:  # it would be measured
                                accepted.close()
                                continue
                            selector.register(accepted, selectors.EVENT_READ)
                            if is_single:
                                counted[accepted] = 0
                                end_s, taken = time.monotonic() + WINDOW_S, 0
                    if not got and peer is not server:
                        taken += _arrived(peer) - counted.pop(peer, 0) if is_single else 0
                        selector.unregister(peer)
                        peer.close()
                        end_s = inf if is_single and not counted else end_s
                while time.monotonic() >= end_s:
                    for peer, before in counted.items():
                        counted[peer] = _arrived(peer)
                        taken += counted[peer] - before
                    record.write(_RECORD.pack(end_s, taken))
                    end_s, taken = end_s + WINDOW_S, 0

    def send(self) -> None:
        """Run the sender's process: connect again whenever it is cut off, for ever."""
        if self.flow.transport == "udp":
            self._send_datagrams()
        if self.flow.sizes is not None:
            self._send_stream()
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

    def _send_datagrams(self) -> NoReturn:
        """Send at the flow's rate, for ever; what the machine cannot send in time is lost, as on the way."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((self.address, self.port))
            rate, began_s, sent = self.flow.rate_bytes_per_s, time.monotonic(), 0.0
            while True:
                due = (time.monotonic() - began_s) * rate
                sent = max(sent, due - LAG_S * rate - len(DATAGRAM))
                while sent + len(DATAGRAM) <= due:
                    with suppress(OSError):  # its host is closed, or nobody listens there
                        sock.send(DATAGRAM)
                    sent += len(DATAGRAM)
                time.sleep(max(PAUSE_S, (sent + len(DATAGRAM) - due) / rate))

    def _send_stream(self) -> None:
        """Begin each flow of the stream at its time, whether those before are over or not."""
        began_s = time.monotonic()
        with self.completions.open("ab", buffering=0) as record:
            for at_s, size_bytes in flow_arrivals(self.flow, self.number, self.seed):
                time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                if threading.active_count() > MAX_OPEN:
                    record.write(_COMPLETION.pack(time.monotonic(), size_bytes, inf))
                    continue
                threading.Thread(target=self._send_sized, args=(size_bytes, record), daemon=True).start()

    def _send_sized(self, size_bytes: int, record: FileIO) -> None:
        began_s, took_s = time.monotonic(), inf
        with suppress(OSError), socket.create_connection((self.address, self.port), timeout=CONNECT_S) as sock:
            sock.settimeout(PATIENCE_S)
            sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"cubic")
            for left in range(size_bytes, 0, -len(CHUNK)):
                sock.sendall(memoryview(CHUNK)[:left])
            sock.shutdown(socket.SHUT_WR)
            if sock.recv(1) == b"":  # the receiver has read all
                took_s = time.monotonic() - began_s
        record.write(_COMPLETION.pack(time.monotonic(), size_bytes, took_s))

    @property
    def completions(self) -> Path:
        """The record of a stream's flows that are over."""
        return self.record.with_suffix(".flows.bin")

    def windows(self) -> Iterator[tuple[float, int]]:
        """Return (end of window, bytes) so far."""
        return _records(self.record, _RECORD)

    def completed(self, started_s: float, until_s: float) -> Iterator[FlowCompletion]:
        """Yield the stream's flows that were over before a moment."""
        for at_s, size_bytes, took_s in _records(self.completions, _COMPLETION):
            if at_s <= until_s:
                yield FlowCompletion(at_s - started_s, size_bytes, took_s if took_s < inf else None)


def _arrived(sock: socket.socket) -> int:
    """Return the bytes of all segments with data that have arrived at a TCP socket, each taken for a full one."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    segment, count = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (ADVMSS, DATA_SEGS_IN))
    return segment * count


def _records(path: Path, form: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """Return the whole records of a file."""
    data = path.read_bytes() if path.exists() else b""
    return form.iter_unpack(data[: len(data) - len(data) % form.size])


def plan_flows(campus: Campus, flows: Sequence[ResearchFlow], directory: Path, seed: int) -> list[Measured]:
    """Return ports and record files for the flows of a scenario."""
    return [
        Measured(
            flow,
            PORT + number,
            str(campus.host_by_name[flow.target].address),
            directory / f"research-{number}.bin",
            str(campus.host_by_name[flow.source].address),
            number,
            seed,
        )
        for number, flow in enumerate(flows)
    ]


def samples(
    campus: Campus, measured: Sequence[Measured], started_s: float, until_s: float, facts: Sequence[Timed] = ()
) -> list[ResearchSample]:
    """Return windows of all flows, on the narrowest link of each; those of flows that are not greedy are not judged.

    The first WARM_UP_S of each flow are left out; windows around a change of rate on its path are not judged. ECMP
    choices are not observable, so a flow is judged against the narrowest link of all its paths.
    """
    described, rates = Routes(campus), LinkRates(campus, facts)
    history, crossed = RoutesThen(campus, facts).history, cache(Routes.shortest_links)
    found = []
    for each in measured:
        windows = list(each.windows())
        first_s = windows[0][0] if windows else inf
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
                if moved or not each.flow.greedy or any(least < greatest for least, greatest in seen):
                    capacity = 0.0
                reserve = campus.research_reserve.reserve_bytes_per_s(capacity)
                payload_bytes = float(taken)
                as_described = narrowest == described.bottleneck(source, target)[1]
                sample = ResearchSample(at_s, WINDOW_S, source, target, capacity, reserve, payload_bytes)
                found.append(sample if as_described else replace(sample, narrowest=narrowest))
    return sorted(found, key=lambda sample: sample.at_s)
