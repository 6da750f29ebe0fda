"""Links of a live campus: delay, jitter and loss, what is said of them, and changes at random."""

import hashlib
import os
import random
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bpf.layout import DELAY_BUCKETS
from bpf.observer import Histogram
from testbed.emulation import capabilities
from testbed.emulation.campus import LiveCampus
from testbed.emulation.fidelity import Bounds, FidelityMonitor, judge, judged, line_figures
from testbed.emulation.kernel.delay_line.process import LineStatistics
from testbed.emulation.processes import ForkRequest
from testbed.errors import SetupError, SpecError
from tests.emulation_campuses import kernel, machine, needs_root, put_back, read_back, small_campus
from tests.patience import wait_until
from topologies.units import GBIT_PER_S, MBIT_PER_S

PORT = 7001


@pytest.fixture
def delayed(campus: LiveCampus) -> Iterator[LiveCampus]:
    """Its h1 is 5 ms away."""
    with put_back(campus):
        for name in ("h1", "h2", "h3"):
            campus.set_link(name, switch_of(campus, name), rate=GBIT_PER_S, delay=0.005 * (name == "h1"))
        yield campus


def counted(frames: int, late: int = 0, overflown: int = 0, lateness: tuple[int, ...] = ()) -> LineStatistics:
    counts = np.array(lateness + (0,) * (DELAY_BUCKETS - len(lateness)), np.uint64)
    return LineStatistics(frames, late, 0, overflown, 0, 0, 0, Histogram(counts))


def reasons(line: dict[tuple[str, int], LineStatistics]) -> list[str]:
    return judge(judged({}, [], line, Bounds()))


def test_frames_that_are_late_or_lost_for_want_of_room_make_a_run_invalid() -> None:
    good, late, full = counted(2000, late=20), counted(2000, late=21), counted(1980, overflown=30)
    few = counted(10, late=1)
    assert reasons({("a", 0): good, ("b", 1): few}) == [
        "delay line, all cables together, share of 2010 frames late by more than a tenth of the delay, or lost: "
        "0.0104, allowed 0.01"
    ]
    assert reasons({("a", 0): good}) == reasons({}) == []
    said = reasons({("a", 0): good, ("b", 0): late, ("c", 1): full})
    assert [words.split(", share")[0] for words in said] == [
        "delay line, b out",
        "delay line, c back",
        "delay line, all cables together",
    ]


def test_lateness_is_read_at_the_end_of_its_bucket() -> None:
    assert line_figures({("a", 0): counted(100, lateness=(0, 98, 1, 1))})["delay_line_late_p99_s"] == 2e-6
    assert line_figures({}) == {}


class TestKernel:
    pytestmark = [*kernel, pytest.mark.stock_kernel]

    def test_packet_takes_the_declared_time_also_when_it_changes_for_one_direction_or_both(
        self, delayed: LiveCampus
    ) -> None:
        assert 10.0 <= least_rtt_ms(delayed, "h1", "h2") < 20.0
        assert least_rtt_ms(delayed, "h3", "h2") < 5.0
        read_back(delayed)
        delayed.get("h2").intf().config(delay="20ms")
        assert 30.0 <= least_rtt_ms(delayed, "h1", "h2") < 40.0
        delayed.set_link(switch_of(delayed, "h2"), "h2", delay=0.001, jitter="1 ms")
        assert 10.0 <= least_rtt_ms(delayed, "h1", "h2") < 20.0
        read_back(delayed)

    def test_bytes_that_cross_a_lossy_cable_are_those_that_were_sent(self, delayed: LiveCampus) -> None:
        """Super-packets lose segments in their middle: what is left of them must be right to the last byte."""
        delayed.set_link("h3", switch_of(delayed, "h3"), delay="1 ms", loss=0.02)
        before = line_of(delayed, "h3")
        data = os.urandom(1 << 20) * 16
        digest = transfer(delayed, "h3", "h2", data)
        after = line_of(delayed, "h3").since(before)
        assert digest == hashlib.sha256(data).hexdigest()
        # drawn for each segment: some 11 700, with resent ones, of which many came in one frame
        segments = len(data) / 1448
        assert after.frames < segments * 0.7, "no super-packets: this tests nothing"
        assert 0.5 * 0.02 * segments < after.lost < 2.0 * 0.02 * segments
        assert after.refused == after.overflown == after.unheard == 0

    def test_tagged_frame_keeps_its_tag(self, delayed: LiveCampus) -> None:
        """The kernel takes a VLAN tag out of a frame that it hands to a packet socket."""
        tag, words = bytes.fromhex("81000007"), b"a tagged frame of no protocol" * 3
        macs = [delayed.plan.host_cables[name].b.mac for name in ("h2", "h1")]
        frame = macs[0] + macs[1] + tag + b"\x88\xb5" + words

        def listen() -> bytes:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as hears:
                hears.settimeout(60)
                hears.setsockopt(263, 8, 1)  # PACKET_AUXDATA
                while True:
                    heard, ancillary, _, _ = hears.recvmsg(2000, 200)
                    if words in heard:
                        tci = int.from_bytes(ancillary[0][2][16:18], "little")
                        return tci.to_bytes(2) + heard[12:14]

        def speak() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
                out.bind(("h1-eth0", 0))
                while True:  # until it was heard, and this process is ended
                    out.send(frame)
                    time.sleep(0.05)

        assert answer_of(delayed, "h2", listen, "h1", speak) == b"\x00\x07\x88\xb5"

    def test_monitor_judges_what_happened_while_it_watched(self, delayed: LiveCampus) -> None:
        with FidelityMonitor(delayed) as monitor:
            assert received(delayed, "h1", "h2") > 0
        figures = monitor.verdict().figures
        assert 0 < figures["delay_line_frames"] < 200
        assert 0 < figures["delay_line_late_p50_s"] <= figures["delay_line_late_p99_s"]

    def test_killed_delay_line_is_started_again_and_the_run_is_invalid(self) -> None:
        before = machine()
        with LiveCampus(small_campus(2, delay_s=0.001), enforcement=False, cut=[("h1", "s1")]) as net:
            net.set_link("h1", "s1", delay="5 ms")
            with FidelityMonitor(net) as monitor:
                killed = net.kernel.line.pid
                assert killed
                os.kill(killed, signal.SIGKILL)
                wait_until(lambda: net.kernel.line.pid not in (None, killed))
                read_back(net)
                assert 10.0 <= least_rtt_ms(net, "h1", "h2") < 20.0
                net.set_link("h1", "s1", delay="2 ms")
                assert 4.0 <= least_rtt_ms(net, "h1", "h2") < 10.0
            verdict = monitor.verdict()
            assert "deaths of the delay line" in " ".join(verdict.reasons), verdict
            assert verdict.figures["delay_line_frames"] > 0
        assert machine() == before


@pytest.mark.kernel
def test_delay_is_refused_before_anything_exists_where_nothing_can_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        raise SetupError("no C compiler")

    monkeypatch.setattr(capabilities, "compiled", refused)
    before = machine()
    with pytest.raises(SetupError, match=r"delay line is missing \(no C compiler\).*h1-s1"):
        LiveCampus(small_campus(1, delay_s=0.01), enforcement=False).start()
    assert machine() == before


def switch_of(net: LiveCampus, host: str) -> str:
    return net.plan.host_cables[host].a.node


def line_of(net: LiveCampus, host: str) -> LineStatistics:
    """What leaves the host."""
    return net.kernel.line.statistics()[net.plan.host_cables[host].name, 1]


def least_rtt_ms(net: LiveCampus, a: str, b: str) -> float:
    text = net.get(a).cmd(f"ping -c6 -i0.05 -W2 -q {net.get(b).IP()}")
    found = re.search(r"= ([0-9.]+)/", text)
    assert found, text
    return float(found[1])


def received(net: LiveCampus, a: str, b: str) -> int:
    text = net.get(a).cmd(f"ping -c3 -i0.05 -W0.3 -q {net.get(b).IP()}")
    return int(re.findall(r"(\d+) received", text)[0])


def answer_of(
    net: LiveCampus, listener: str, listen: Callable[[], bytes], speaker: str, speak: Callable[[], None]
) -> bytes:
    """What `listen` returns in one host, while `speak` goes on in another."""
    read_fd, write_fd = os.pipe()

    def tell() -> None:
        os.write(write_fd, listen())

    children = net.fork_all([
        ForkRequest(listener, tell, "listener", keep=(write_fd,)), ForkRequest(speaker, speak, "speaker")
    ])  # fmt: skip
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as answer:
        heard = answer.read()
    for child in children:
        child.kill()
        child.wait()
    return heard


def transfer(net: LiveCampus, source: str, target: str, data: bytes) -> str:
    """Hash of what arrived of a TCP connection that carried `data`."""

    def listen() -> bytes:
        digest = hashlib.sha256()
        with socket.create_server((net.get(target).IP(), PORT)) as server:
            connection, _ = server.accept()
            while piece := connection.recv(1 << 16):
                digest.update(piece)
        return digest.hexdigest().encode()

    return answer_of(net, target, listen, source, partial(send, net.get(target).IP(), data)).decode()


def send(address: str, data: bytes) -> None:
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection((address, PORT)) as connection:
            return connection.sendall(data)
        time.sleep(0.02)


SEEDS = tuple(map(int, os.environ.get("LINK_SEEDS", "1").split()))
CHANGES = 15
# of each kind: usual ones, and those at the ends of what is allowed
RATES_BYTES_PER_S = (12.5e3, 125e3, 4.6875e6, GBIT_PER_S, 10 * GBIT_PER_S, 40 * GBIT_PER_S)
DELAYS_S = (0.0, 0.0, 1e-6, 0.0003, 0.002, 0.02, 0.1)
LOSSES = (0.0, 0.0, 1e-6, 0.01, 0.5, 0.999)
WRONG = (
    {"rate": 0},
    {"rate": "-1 Mbit/s"},
    {"rate": "fast"},
    {"rate": float("nan")},
    {"delay": -0.001},
    {"delay": "5 parsecs"},
    {"delay": float("inf")},
    {"jitter": 3600.0},
    {"loss": 1.0},
    {"loss": -0.1},
    {"rate": "10 Mbit/s", "loss": 2.0},
    {"up": False, "delay": "-5 ms"},
)
HOSTS = ("h1", "h2", "h3")
Cable = tuple[str, str]


@dataclass
class Asked:
    """What was asked of one direction of a cable last."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    up: bool = True


class Links:
    """A campus, and what was asked of it."""

    def __init__(self, net: LiveCampus, draws: random.Random) -> None:
        self.net, self.draws = net, draws
        self.cables: list[Cable] = [(link.a, link.b) for link in net.spec.links]
        self.asked = {way: Asked() for a, b in self.cables for way in ((a, b), (b, a))}

    def change(self) -> str:
        """One change at random: of both directions, of one of them by Mininet's words, or one that cannot be."""
        draws = self.draws
        a, b = draws.choice(self.cables)
        if draws.random() < 0.5:
            a, b = b, a
        if draws.random() < 0.15:
            wrong = draws.choice(WRONG)
            with pytest.raises(SpecError):
                self.net.set_link(a, b, **wrong)
            return f"{a}-{b}: {wrong} refused"
        wanted: dict[str, Any] = {}
        if draws.random() < 0.5:
            wanted["delay"] = draws.choice(DELAYS_S)
            wanted["jitter"] = wanted["delay"] * draws.choice((0.0, 0.5, 1.0))
        if draws.random() < 0.3:
            wanted["loss"] = draws.choice(LOSSES)
        if draws.random() < 0.4:
            wanted["rate"] = draws.choice(RATES_BYTES_PER_S)
        if draws.random() < 0.3:
            self._config(a, b, wanted)
            ways = [(a, b)]
        else:
            if draws.random() < 0.25 or not wanted:
                wanted["up"] = draws.random() < 0.6
            self.net.set_link(a, b, **wanted)
            ways = [(a, b), (b, a)]
        for way in ways:
            asked = self.asked[way]
            asked.delay_s = wanted.get("delay", asked.delay_s)
            asked.jitter_s = wanted.get("jitter", asked.jitter_s)
            asked.loss = wanted.get("loss", asked.loss)
            asked.up = wanted.get("up", asked.up)
        return f"{ways}: {wanted}"

    def _config(self, a: str, b: str, wanted: dict[str, Any]) -> None:
        for link in self.net.links:
            for interface, other in ((link.intf1, link.intf2), (link.intf2, link.intf1)):
                if (interface.node.name, other.node.name) == (a, b):
                    words = {key: f"{1e3 * wanted[key]!r} ms" for key in ("delay", "jitter") if key in wanted}
                    interface.config(
                        **words,
                        **({"loss": 100.0 * wanted["loss"]} if "loss" in wanted else {}),
                        **({"bw": wanted["rate"] / MBIT_PER_S} if "rate" in wanted else {}),
                    )

    def judge(self, story: list[str]) -> None:
        """The kernel has what was asked for, and a ping between two hosts finds the same."""
        read_back(self.net)
        source, target = self.draws.sample(HOSTS, 2)
        nodes = [source, *dict.fromkeys((self._switch(source), "core", self._switch(target))), target]
        if self._switch(source) == self._switch(target):
            nodes = [source, self._switch(source), target]
        there = [self.asked[way] for way in pairwise(nodes)]
        back = [self.asked[way] for way in pairwise(nodes[::-1])]
        # an address is asked for first, and half a second is for the machine
        wait_s = 0.5 + 2.0 * sum(each.delay_s + each.jitter_s for each in there + back)
        text = self.net.get(source).cmd(f"ping -c2 -i0.01 -W{wait_s:.2f} -q {self.net.get(target).IP()}")
        found = re.search(r"(\d+) received", text)  # none: its own cable is down, and it says so at once
        heard = int(found[1]) if found else 0
        if not all(each.up for each in there + back):
            assert heard == 0, (nodes, text, story)
        elif max(each.loss for each in there + back) <= 1e-6:
            assert heard > 0, (nodes, text, story)
        if heard:
            least_ms = float(re.findall(r"= ([0-9.]+)/", text)[0])
            assert least_ms >= 1e3 * sum(each.delay_s - each.jitter_s for each in there + back) - 0.01, (nodes, story)

    def _switch(self, host: str) -> str:
        return self.net.plan.host_cables[host].a.node


@pytest.mark.kernel
@needs_root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_links_that_change_at_random_are_what_was_asked_for_last(campus: LiveCampus, seed: int) -> None:
    draws, story = random.Random(f"{seed} links"), list[str]()
    with put_back(campus):
        links = Links(campus, draws)
        for _ in range(CHANGES):
            story.append(links.change())
            print(story[-1])
            links.judge(story)
    for _ in range(6):
        Links(campus, draws).judge(story)
    data = os.urandom(1 << 20)
    assert transfer(campus, "h1", "h3", data) == hashlib.sha256(data).hexdigest(), story
