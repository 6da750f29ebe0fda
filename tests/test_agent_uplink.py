"""An agent's loops by a clock that jumps: its connection to the coordinator, and what it looks at of a host."""

import os
import socket
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from bpf.layout import ClassId
from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import events as ev
from testbed.agent.host import IDLE_SAMPLE_S, SAMPLE_S, watch
from testbed.agent.io import coordinator_link
from testbed.agent.io.coordinator_link import IN, OUT, PARK_WITHIN_S, SILENT_HEARTBEATS, SILENT_S, CoordinatorLink
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.wire import Channel

TCP_REPAIR = 19
Told = list[tuple[float, ev.Event]]


def connected_to(serve: object, until_s: float, *, every_s: float = 1.0) -> Told:
    """What an agent that says a heartbeat so often is told until then; `serve(stream)` is its coordinator."""
    told: Told = []

    async def main() -> None:
        async def opened() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve, theirs)
            return ours

        def handle(event: ev.Event) -> None:
            told.append((trio.current_time() - began_s, event))

        edge = KernelMaps(AgentConfig("h1", IPv4Address("127.0.0.1"), ("", 0), Path()))
        uplink = CoordinatorLink(("", 0), edge, handle, opened)
        began_s = trio.current_time()
        with trio.move_on_after(until_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(uplink.stay_connected)
                for number in range(1, int(until_s / every_s) + 1):
                    await trio.sleep(every_s)
                    uplink.say(m.Heartbeat(number, []))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))
    return told


def test_coordinator_that_hears_and_never_answers_is_given_up_and_called_again() -> None:
    """Its process stands still: its kernel takes every heartbeat, and no error ever comes."""

    async def deaf(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    told = connected_to(deaf, SILENT_S + 2.0)
    assert [type(event) for _, event in told] == [ev.Connected, ev.Disconnected, ev.Connected]
    assert told[1][0] == SILENT_S
    assert told[2][0] <= SILENT_S + 1.0


async def welcoming(stream: trio.abc.Stream) -> None:
    hearing, saying = Channel(stream, OUT), Channel(stream, IN)
    await saying.send(m.Welcome(6.0 * SILENT_S, 1.0))
    while isinstance(beat := await hearing.receive(), m.Heartbeat):
        await saying.send(m.HeartbeatAck(beat.number))


def test_an_idle_host_that_says_a_heartbeat_in_half_a_lease_keeps_its_connection() -> None:
    told = connected_to(welcoming, 10.0 * SILENT_S, every_s=3.0 * SILENT_S)
    assert not [event for _, event in told if isinstance(event, ev.Disconnected)]


def test_coordinator_that_wants_heartbeats_seldom_is_waited_for_longer() -> None:
    async def slow(stream: trio.abc.Stream) -> None:
        await Channel(stream, IN).send(m.Welcome(60.0, SILENT_S))
        await trio.sleep_forever()

    told = connected_to(slow, 8.0 * SILENT_S)
    (lost_s,) = [at_s for at_s, event in told if isinstance(event, ev.Disconnected)]
    assert lost_s == SILENT_HEARTBEATS * SILENT_S + 0.5 * 60.0


def test_coordinator_is_called_once_a_second_while_it_is_gone_and_soon_after_a_connection() -> None:
    called: list[float] = []

    async def main() -> None:
        async def opened() -> trio.abc.Stream:
            called.append(trio.current_time())
            if len(called) <= 6:
                raise OSError("refused")
            ours, theirs = trio.testing.memory_stream_pair()
            await theirs.aclose()
            return ours

        edge = KernelMaps(AgentConfig("h1", IPv4Address("127.0.0.1"), ("", 0), Path()))
        with trio.move_on_after(5.0):
            await CoordinatorLink(("", 0), edge, lambda _: None, opened).stay_connected()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))
    assert [round(b - a, 3) for a, b in pairwise(called)][:8] == [0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 0.2, 0.2]


def test_an_agent_follows_the_coordinator_that_leads_and_none_of_a_lower_epoch() -> None:
    """Two connections, one conversation: it moves when the other announces that it leads."""
    told: list[ev.Event] = []
    hellos: list[int] = []
    closed: list[int] = []

    async def main() -> None:
        ends: list[trio.StapledStream] = []

        async def opened() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            ends.append(theirs)
            nursery.start_soon(listen, len(ends) - 1)
            return ours

        async def listen(number: int) -> None:
            hearing = Channel(ends[number], OUT)
            while await hearing.receive() is not None:
                hellos.append(number)
            closed.append(number)

        def handle(event: ev.Event) -> None:
            told.append(event)
            if isinstance(event, ev.Connected):
                link.say(m.Hello("h1", 1, 7200, [], [], [], True))

        async def says(number: int, message: m.FromCoordinator) -> None:
            await Channel(ends[number], IN).send(message)
            await trio.testing.wait_all_tasks_blocked()

        edge = KernelMaps(AgentConfig("h1", IPv4Address("127.0.0.1"), ("a", 0), Path()))
        link = CoordinatorLink(("a", 0), edge, handle, opened, standby=("b", 0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.stay_connected)
            await trio.sleep(1.0)
            assert (len(ends), told, hellos) == (2, [], []), "both are parked"
            await says(0, m.Leads(4))
            assert ([type(event) for event in told], hellos) == ([ev.Connected], [0])
            await says(0, m.Welcome(30.0, 1.0, 4))
            await says(1, m.Leads(5))
            assert [type(event) for event in told[2:]] == [ev.Disconnected, ev.Connected]
            assert (hellos, closed) == ([0, 1], [0])
            await trio.sleep(PARK_WITHIN_S + 1.0)  # it is parked at the first again
            await says(2, m.Leads(4))  # who has not noticed
            assert (hellos, closed) == ([0, 1], [0, 2])
            await says(1, m.Welcome(30.0, 1.0, 4))
            assert closed == [0, 2, 1], "nor from one that led once"
            assert isinstance(told[-1], ev.Disconnected)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))
    assert [type(event) for event in told] == [
        ev.Connected,
        ev.Received,
        ev.Disconnected,
        ev.Connected,
        ev.Disconnected,
    ]


class Seen:
    """A host in memory, which notes what is seen of it, and when."""

    def __init__(self) -> None:
        self.switch, self.data = bytearray(32), bytearray(96)
        self.owner: list[float] = []
        self.counts: list[tuple[float, float]] = []  # when, and when nothing had left since the last
        self.bounded = 0
        self.sends: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.kernel = self.transfers = self.jobs = self

    def memory(self) -> tuple[memoryview, memoryview]:
        return memoryview(self.switch), memoryview(self.data)

    def see_owner(self) -> None:
        self.owner.append(round(trio.current_time() - self.began_s, 3))

    def count(self, lag_s: float, idle_at_s: float) -> None:
        now_s = trio.current_time()
        self.counts.append((round(now_s - self.began_s, 3), round(now_s - idle_at_s, 3)))

    def bound_outputs(self) -> None:
        self.bounded += 1


def watched(for_s: float, *acts: tuple[float, Any]) -> Seen:
    """What is seen of a host in that time; each act is done to it then."""
    seen = Seen()

    async def main() -> None:
        seen.began_s = trio.current_time()
        hosts: Any = [seen]
        with trio.move_on_after(for_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch, hosts)
                for at_s, act in acts:
                    await trio.sleep_until(seen.began_s + at_s)
                    act(seen)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))
    return seen


def test_an_idle_host_is_counted_every_two_seconds() -> None:
    seen = watched(3 * IDLE_SAMPLE_S + 0.05)
    assert [at_s for at_s, _ in seen.counts] == [SAMPLE_S + n * IDLE_SAMPLE_S for n in range(3)]
    assert len(seen.owner) == 1
    assert seen.bounded == 0


def test_a_look_that_comes_late_counts_an_idle_host_too_and_the_next_is_not_early() -> None:
    def stands_still(_: Seen) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(0.8)

    seen = watched(1.6, (0.55, stands_still))
    assert [at_s for at_s, _ in seen.counts] == [0.1, 1.35]


def test_a_host_that_sends_is_counted_at_every_look_and_what_leaves_it_as_left_since_the_last() -> None:
    def leaves(seen: Seen) -> None:
        seen.data[8] += 1

    seen = watched(1.0, (0.55, leaves), (0.65, leaves))
    assert [at_s for at_s, _ in seen.counts] == [0.1, 0.6, 0.7]
    assert [since_s for _, since_s in seen.counts[1:]] == [0.1, 0.1]
    sending = ((0.45, lambda seen: seen.sends.update({("job", "h2"): ""})), (0.95, lambda seen: seen.sends.clear()))
    seen = watched(1.5, *sending)  # though nothing leaves
    assert [at_s for at_s, _ in seen.counts] == [0.1, 0.5, 0.6, 0.7, 0.8, 0.9]


async def test_what_left_after_a_silence_is_counted_apart_from_it(autojump_clock: object) -> None:
    kernel: Any = KernelMaps(AgentConfig("h1", IPv4Address("127.0.0.1"), ("", 0), Path()))
    counts, found = [0] * 4 * len(ClassId), []
    kernel.maps = SimpleNamespace(counters=SimpleNamespace(read_words=lambda: [*counts]))
    for wait_s, left_bytes, idle_at_s in ((0.0, 0, 0.0), (2.0, 300, 1.9), (1.0, 0, 3.0), (1.0, 500, 0.0)):
        await trio.sleep(wait_s)
        counts[4 * ClassId.PLANNED] += left_bytes
        samples = [each.sample for each in kernel.sample([], 0.0, idle_at_s)]
        found += [(round(sample.period_s, 9), sample.migration_bytes) for sample in samples if sample]
    assert found == [(1.9, 0), (0.1, 300), (1.0, 0), (1.0, 500)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lets the end of a connection go silently")
async def test_a_parked_connection_whose_other_end_is_gone_without_a_word_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator began again while the host's cable was cut: else nothing would ever be sent on it."""
    monkeypatch.setattr(coordinator_link, "UNHEARD_MS", 1000)
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    edge = KernelMaps(AgentConfig("h1", IPv4Address("127.0.0.1"), ("", 0), Path()))
    address = "127.0.0.1", listener.socket.getsockname()[1]
    link = CoordinatorLink(address, edge, lambda _: None, standby=("127.0.0.1", 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.stay_connected)
        with trio.fail_after(60.0):
            parked = await listener.accept()
            parked.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            await trio.aclose_forcefully(parked)
            await (await listener.accept()).aclose()
        nursery.cancel_scope.cancel()
