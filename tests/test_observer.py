"""The observer against the kernel's other counters, in a namespace of its own."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from bpf.observer import Histogram, Observation, Observer, bucket_end_us, inode_of
from testbed.emulation.fidelity import observed_figures
from testbed.emulation.safety.observation import MACHINE, SWITCHES, DisturbedWindow, cause_of
from testbed.linux import CLONE_NEWNET, unshare
from tests.bpf_machine import in_own_namespace, loaded_or_skip
from tests.patience import wait_until

pytestmark = pytest.mark.stock_kernel
kernel = pytest.mark.kernel
DATAGRAMS = 300


@pytest.fixture(scope="module", autouse=True)
def _may_load() -> None:
    loaded_or_skip().close()


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def cable() -> None:
    """lo up; a cable v0 - v1, with 10.9.0.1/24 on v0."""
    for command in (
        "link set lo up",
        "link add v0 type veth peer name v1",
        "link set v0 up",
        "link set v1 up",
        "addr add 10.9.0.1/24 dev v0",
    ):
        ip(command)


@kernel
def test_packets_that_a_full_queue_dropped_are_as_many_as_the_queue_says() -> None:
    def body() -> None:
        cable()
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0")
        shaper = "tc qdisc add dev v0 root tbf rate 1mbit burst 2kb limit 3kb"
        subprocess.run(shaper.split(), check=True)
        with Observer({"here": inode_of("self")}) as observer, socket.socket(type=socket.SOCK_DGRAM) as udp:
            for _ in range(DATAGRAMS):
                udp.sendto(bytes(1000), ("10.9.0.2", 9))
            shown = subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", "v0"], capture_output=True, check=True)
            [queue] = json.loads(shown.stdout)
            assert observer.read()["here"].queue_drops == queue["drops"] > 0

    in_own_namespace(body)


@kernel
def test_datagrams_that_nobody_hears_and_segments_sent_again_are_counted() -> None:
    def body() -> None:
        cable()
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0")
        with Observer({"here": inode_of("self")}) as observer, socket.socket(type=socket.SOCK_DGRAM) as udp:
            for _ in range(DATAGRAMS):
                udp.sendto(b"?", ("127.0.0.1", 9))
            assert observer.read()["here"].dropped["no socket"] == DATAGRAMS
        with Observer({"here": inode_of("self")}) as observer, socket.socket() as tcp:
            tcp.setblocking(False)
            tcp.connect_ex(("10.9.0.2", 9))  # answered by no one: SYNs are sent again, first after a second
            seen = wait_until(lambda: observer.read()["here"].retransmitted)
            text = Path("/proc/thread-self/net/snmp").read_text()
            names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
            assert 1 <= seen <= int(values[names.index("RetransSegs")])

    in_own_namespace(body)


@kernel
def test_round_trips_and_waits_are_seen_of_the_namespace_that_was_named_and_of_no_other() -> None:
    def body() -> None:
        there = os.open("/proc/self/ns/net", os.O_RDONLY)  # this child's: in the machine's, others may be talking
        unshare(CLONE_NEWNET)
        ip("link set lo up")
        with Observer({"here": inode_of("self"), "there": os.fstat(there).st_ino}) as observer:
            before, began_s = observer.read(), time.monotonic()
            with socket.create_server(("127.0.0.1", 0)) as server:
                client = socket.create_connection(server.getsockname())
                peer, _ = server.accept()
                for _ in range(100):  # a sleep that is over before the thread is off its processor is no wait
                    client.sendall(b"ping")
                    peer.sendall(peer.recv(4))
                    client.recv(4)
                    time.sleep(0.001)
            seen = observer.read()
            observer.close()  # and again, at the end
            window = seen["here"] - before["here"]
            assert window.round_trip.total >= 50
            assert 0.0 < window.round_trip.quantile_s(0.5) < time.monotonic() - began_s
            assert window.run_delay.total >= 50
            assert not seen["there"].round_trip.total

    in_own_namespace(body)


def test_a_bucket_holds_what_is_at_most_a_quarter_below_its_end() -> None:
    for bucket in range(123):
        lowest, highest = bucket_end_us(bucket) + 1, bucket_end_us(bucket + 1)
        assert lowest <= highest <= max(lowest, 1.25 * lowest)


def test_the_quantile_of_a_histogram_is_the_end_of_the_bucket_that_holds_it() -> None:
    counts = np.zeros(124, np.uint64)
    counts[[3, 40]] = 99, 1
    histogram = Histogram(counts)
    assert histogram.quantile_s(0.5) == 3e-6
    assert histogram.quantile_s(0.99) == 3e-6
    assert histogram.quantile_s(1.0) == bucket_end_us(40) / 1e6
    assert Histogram(counts * 0).quantile_s(0.5) == 0.0


def test_a_late_move_is_told_whether_the_processor_was_busy_or_a_queue_was_full() -> None:
    seen = [
        DisturbedWindow("h1", 0.0, 1.0, 0.04, 0),
        DisturbedWindow("h2", 5.0, 6.0, 0.0, 7),
        DisturbedWindow(SWITCHES, 5.0, 6.0, 0.0, 3),
        DisturbedWindow(MACHINE, 9.0, 10.0, 0.5, 0),
    ]
    assert cause_of(seen, ("h1", "h2"), 0.5, 2.0) == "tasks of h1 waited 40 ms for a processor"
    assert cause_of(seen, ("h1", "h2"), 5.5, 7.0) == "full queues dropped 10 packets (h2, the switches)"
    assert cause_of(seen, ("h3", "h4"), 0.0, 2.0) == "no task waited for a processor, no queue dropped"
    assert cause_of(seen, ("h3", "h4"), 0.0, 20.0).startswith(
        "tasks of the machine waited 500 ms for a processor; full"
    )


def test_observations_of_two_hosts_add_up() -> None:
    one = Observation(np.arange(1, 506, dtype=np.uint64))
    assert ((one + one) - one).words.tolist() == one.words.tolist()
    assert observed_figures({"h1": one, SWITCHES: one, MACHINE: one})["retransmitted"] == one.retransmitted > 0
