"""Fidelity of a live run: whether the machine was fast enough to be the campus it pretended to be.

An emulation that shares two cores among fifty hosts can be wrong in silence. When the processor is full, links run
slower than declared and processes answer late, and that looks like a property of the protocol under test. So each live
run is watched (processor use, how late a timer fires), and its shapers are read back at the end. The rates of
chosen paths may be measured against what was declared. A run outside the bounds is invalid, with the reasons recorded.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bpf.errors import BpfError
from bpf.observer import Observation
from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.build import in_thread
from testbed.emulation.kernel.delay_line.process import LineStatistics, together
from testbed.emulation.processes import ForkRequest
from testbed.emulation.safety.observation import MACHINE, SWITCHES, CampusObserver, DisturbedWindow
from testbed.errors import KernelMismatch, SetupError
from topologies.paths import Routes
from topologies.units import PAYLOAD_SHARE

PERIOD_S = 0.02  # of the watching thread's timer
WINDOW_S = 1.0  # processor use is judged over windows of this length
MIN_FRAMES = 1000  # of a direction through the delay line: fewer are judged only together with all others
LAG_SAMPLES = 200_000  # kept: over an hour at 50 a second
WARM_UP_S = 0.25  # slow start and the class's burst are over
PROBE_PORT = 7979
CONNECT_ATTEMPTS, CONNECT_PAUSE_S = 200, 0.02  # until the receiver listens


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a valid run."""

    # of a one-second window's processor time; a window above it is busy
    busy_share: float = 0.97
    # share of busy windows: a short peak (a checkpoint being hashed) is the workload's own, a steady one starves the network
    busy_windows: float = 0.5
    # of processor time, taken by the machine below this one
    steal_share: float = 0.05
    # of a timer: the paper's agents report every 100 ms, so it may be a quarter of that late
    lag_p99_s: float = 0.025
    # of a direction's frames through the delay line: late by more than a tenth of the delay, or lost for want of time or room
    delay_wrong_share: float = 0.01
    # measured over declared payload rate
    rate_low: float = 0.90
    rate_high: float = 1.02


@dataclass(frozen=True, slots=True)
class LinkRate:
    """A greedy TCP flow's payload rate at its receiver, and what the path's slowest link declares, in bytes per second."""

    source: str
    target: str
    declared_bytes_per_s: float
    measured_bytes_per_s: float

    @property
    def ratio(self) -> float:
        """Ratio of measured over declared."""
        return self.measured_bytes_per_s / self.declared_bytes_per_s


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The verdict that goes with a run."""

    valid: bool
    reasons: tuple[str, ...]  # why it is not valid
    figures: dict[str, float]  # for the report


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks of all processors since boot (proc(5), first line of /proc/stat)."""

    busy: int  # user, nice, system, interrupts
    idle: int  # idle, waiting for a disk
    steal: int  # taken by the machine below this one

    @classmethod
    def now(cls) -> CpuTimes:
        """Read them."""
        return cls.parse(Path("/proc/stat").read_text())

    @classmethod
    def parse(cls, text: str) -> CpuTimes:
        """Read the text of /proc/stat."""
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, text.split("\n", 1)[0].split()[1:9])
        return cls(user + nice + system + irq + softirq, idle + iowait, steal)

    def shares_since(self, earlier: CpuTimes) -> tuple[float, float]:
        """Return the (busy or stolen, stolen) share of the time between."""
        busy, steal, idle = self.busy - earlier.busy, self.steal - earlier.steal, self.idle - earlier.idle
        total = max(1, busy + steal + idle)
        return (busy + steal) / total, steal / total


class FidelityMonitor:
    """Watch on the machine from `start` to `stop` (or as a context manager); then ask for the `verdict`."""

    def __init__(self, campus: LiveCampus, bounds: Bounds | None = None) -> None:
        self._campus, self._bounds = campus, bounds or Bounds()
        self._lags_s: deque[float] = deque(maxlen=LAG_SAMPLES)
        self._busy: list[float] = []
        self._steal: list[float] = []
        self._rates: list[LinkRate] = []
        self._line_before: dict[tuple[str, int], LineStatistics] = {}
        self._line_restarts_before = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._observer: CampusObserver | None = None
        self.observed: dict[str, Observation] = {}  # what the kernel did to each host, while it was watched
        self.disturbances: list[DisturbedWindow] = []

    def __enter__(self) -> FidelityMonitor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to watch, in a thread; what the kernel did is observed where it reports it."""
        self._stopping.clear()
        self._line_before, self._line_restarts_before = (
            self._campus.kernel.line.statistics(),
            self._campus.kernel.line.restarts,
        )
        self._thread = threading.Thread(target=self._watch, name="fidelity", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; safe to repeat."""
        self._stopping.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def add_rates(self, rates: Iterable[LinkRate]) -> None:
        """Add results of `probe_link_rates`."""
        self._rates += rates

    def _watch(self) -> None:
        kernel, begin_s = self._campus.kernel, time.monotonic()
        with suppress(
            BpfError, OSError
        ):  # a kernel without typed tracepoints, or without the right (`reclaimnet doctor`)
            self._observer = CampusObserver(kernel.holder_pids | {"": kernel.fabric_pid}, begin_s)
        try:
            self._watch_until_stopped(begin_s)
        finally:
            if self._observer:
                self.disturbances = self._observer.disturbances
                self._observer.close()

    def _watch_until_stopped(self, begin_s: float) -> None:
        window_s, cpu = begin_s, CpuTimes.now()
        due_s = begin_s + PERIOD_S
        while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
            now_s = time.monotonic()
            self._lags_s.append(now_s - due_s)
            due_s = now_s + PERIOD_S
            if now_s - window_s >= WINDOW_S:
                window_s, cpu = now_s, self._close_window(cpu)
        self._close_window(cpu)

    def _close_window(self, since: CpuTimes) -> CpuTimes:
        now = CpuTimes.now()
        busy, steal = now.shares_since(since)
        self._busy.append(busy)
        self._steal.append(steal)
        if self._observer:
            self.observed = self._observer.look(time.monotonic())
        return now

    def verdict(self) -> Fidelity:
        """Judge the run so far; reads every shaper back if the campus still runs."""
        lags_s = np.quantile(self._lags_s or (0.0,), (0.5, 0.99, 1.0), method="inverted_cdf").tolist()
        windows = max(1, len(self._busy))
        figures = {
            "cpu_busy_mean": sum(self._busy) / windows,
            "cpu_busy_windows": sum(b > self._bounds.busy_share for b in self._busy) / windows,
            "cpu_steal_mean": sum(self._steal) / windows,
            **dict(zip(("lag_p50_s", "lag_p99_s", "lag_max_s"), lags_s, strict=True)),
            **{f"rate_{r.source}_{r.target}": r.ratio for r in self._rates},
        }
        line = {
            name: counted.since(self._line_before.get(name))
            for name, counted in self._campus.kernel.line.statistics().items()
        }
        figures |= line_figures(line) | observed_figures(self.observed)
        if line:
            figures["delay_line_restarts"] = float(self._campus.kernel.line.restarts - self._line_restarts_before)
        reasons = judge(judged(figures, self._rates, line, self._bounds))
        if self._campus.running:
            try:
                in_thread(self._campus.kernel.read_back_fabric)
                in_thread(self._campus.kernel.read_back_hosts)
            except KernelMismatch as mismatch:
                reasons.append(str(mismatch))
        return Fidelity(not reasons, tuple(reasons), figures)


class Judged(NamedTuple):
    """A figure that a run is judged by, and between which bounds it must lie."""

    words: str
    found: float
    high: float
    low: float = 0.0


def judge(figures: Iterable[Judged]) -> list[str]:
    """Return the reasons why these figures make a run invalid; none if it is valid."""
    return [
        f"{each.words}: {each.found:.3g}, allowed {f'{each.low:.3g} to ' if each.low else ''}{each.high:.3g}"
        for each in figures
        if not each.low <= each.found <= each.high
    ]


def judged(
    figures: Mapping[str, float],
    rates: Iterable[LinkRate],
    line: Mapping[tuple[str, int], LineStatistics],
    bounds: Bounds,
) -> Iterator[Judged]:
    """Yield what a run is judged by: the machine, measured paths, directions of delayed cables and all of these together."""
    for key, high, words in (
        (
            "cpu_busy_windows",
            bounds.busy_windows,
            f"share of seconds with processors over {bounds.busy_share:.0%} busy",
        ),
        ("cpu_steal_mean", bounds.steal_share, "share of processor time taken by another machine"),
        ("lag_p99_s", bounds.lag_p99_s, "99th percentile of timer lateness in seconds"),
        ("delay_line_restarts", 0.0, "deaths of the delay line, which lost the frames that it held"),
    ):
        yield Judged(words, figures.get(key, 0.0), high)
    for rate in rates:
        words = f"path {rate.source} to {rate.target}, measured over declared rate"
        yield Judged(words, rate.ratio, bounds.rate_high, bounds.rate_low)
    counted = {f"{name} {'back' if side else 'out'}": each for (name, side), each in line.items()}
    counted = {name: each for name, each in counted.items() if each.seen >= MIN_FRAMES}
    for name, each in (counted | {"all cables together": together(line.values())}).items():
        words = f"delay line, {name}, share of {each.seen} frames late by more than a tenth of the delay, or lost"
        yield Judged(words, each.wrong / max(1, each.seen), bounds.delay_wrong_share)


def line_figures(line: Mapping[tuple[str, int], LineStatistics]) -> dict[str, float]:
    """Return the lateness of all frames that went through the delay line, and the share that it treated wrongly.

    Without a delay line there is none.
    """
    if not line:
        return {}
    whole = together(line.values())
    return {
        "delay_line_frames": float(whole.seen),
        "delay_line_late_p50_s": whole.lateness.quantile_s(0.50),
        "delay_line_late_p99_s": whole.lateness.quantile_s(0.99),
        "delay_line_wrong": whole.wrong / max(1, whole.seen),
    }


def observed_figures(observed: Mapping[str, Observation]) -> dict[str, float]:
    """Return delays of all hosts together, and drops of all queues; nothing where nothing was observed."""
    if not observed:
        return {}
    hosts = [seen for where, seen in observed.items() if where not in (SWITCHES, MACHINE)]
    whole = sum(hosts[1:], start=hosts[0])
    return {
        "retransmitted": float(whole.retransmitted),
        "queue_drops": float(sum(seen.queue_drops for seen in observed.values())),
        "round_trip_p50_s": whole.round_trip.quantile_s(0.50),
        "round_trip_p99_s": whole.round_trip.quantile_s(0.99),
        "run_delay_p50_s": whole.run_delay.quantile_s(0.50),
        "run_delay_p99_s": whole.run_delay.quantile_s(0.99),
    }


def probe_link_rates(
    campus: LiveCampus, sample: Sequence[tuple[str, str]], *, duration_s: float = 0.5, warm_up_s: float = WARM_UP_S
) -> list[LinkRate]:
    """Send as fast as TCP can from host to host, one pair after the other, and measure at each receiver.

    Takes about a second a pair and loads the network: use it before or after a run. A path faster than this machine can
    forward (some 10 Gbit/s) measures the machine, and its ratio shows so. Main thread only; SetupError if a probe
    fails.
    """
    routes = Routes(campus.spec)
    rates = []
    for source, target in sample:
        read_fd, write_fd = os.pipe()
        address = str(campus.spec.host_by_name[target].address)
        receiver = partial(receive_probe, write_fd, address, duration_s, warm_up_s)
        processes = campus.fork_all([
            ForkRequest(target, receiver, "rate probe", keep=(write_fd,)),
            ForkRequest(source, partial(send_probe, address), "rate probe"),
        ])  # fmt: skip
        os.close(write_fd)
        try:
            with os.fdopen(read_fd) as answer:
                text = answer.read()
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if not text:
            raise SetupError(f"the rate probe from {source} to {target} failed")
        declared_bytes_per_s = routes.bottleneck(source, target)[0] * PAYLOAD_SHARE
        rates.append(LinkRate(source, target, declared_bytes_per_s, json.loads(text)))
    return rates


def receive_probe(write_fd: int, address: str, duration_s: float, warm_up_s: float = WARM_UP_S) -> None:
    """Write the payload bytes/s that a sender gets through, as JSON. A process of its own, inside a host."""
    buffer = bytearray(1 << 20)
    with socket.create_server((address, PROBE_PORT)) as server:
        server.settimeout(10)
        connection, _ = server.accept()
        _count(connection, buffer, warm_up_s)
        received, elapsed_s = _count(connection, buffer, duration_s)
    os.write(write_fd, json.dumps(received / elapsed_s).encode())


def _count(connection: socket.socket, buffer: bytearray, duration_s: float) -> tuple[int, float]:
    begin_s = now_s = time.monotonic()
    received = 0
    while now_s - begin_s < duration_s:
        count = connection.recv_into(buffer)
        if not count:
            raise SetupError("the sender of the rate probe ended early")
        received += count
        now_s = time.monotonic()
    return received, now_s - begin_s


def send_probe(address: str) -> None:
    """Send until it is killed, or the receiver has counted enough and closed."""
    data = bytes(1 << 18)
    for _ in range(CONNECT_ATTEMPTS):
        with socket.socket() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            if connection.connect_ex((address, PROBE_PORT)) == 0:
                with suppress(ConnectionError):
                    while True:
                        connection.sendall(data)
                return
        time.sleep(CONNECT_PAUSE_S)
    raise SetupError(f"the receiver of the rate probe at {address} does not listen")
