"""An agent's connection to its coordinator, over streams in memory and a clock that jumps."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import trio
import trio.testing

from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import events as ev
from testbed.agent.io.coordinator_link import IN, OUT, SILENT_HEARTBEATS, SILENT_S, CoordinatorLink
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.wire import Channel

Told = list[tuple[float, ev.Event]]


def connected_to(serve: object, until_s: float, *, every_s: float = 1.0, slow_sender: bool = False) -> Told:
    """What an agent that says a heartbeat so often is told until then; `serve(stream)` is its coordinator. `slow_sender`: whoever
    sends goes on only once all that it led to has happened, as may be on a busy machine.
    """
    told: Told = []

    async def main() -> None:
        async def opened() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve, theirs)
            deliver = ours.send_stream.send_all_hook

            async def hook() -> None:
                await deliver()
                await trio.testing.wait_all_tasks_blocked()

            if slow_sender:
                ours.send_stream.send_all_hook = hook
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


async def answering(stream: trio.abc.Stream) -> None:
    hearing, saying = Channel(stream, OUT), Channel(stream, IN)
    while isinstance(beat := await hearing.receive(), m.Heartbeat):
        await saying.send(m.HeartbeatAck(beat.number))


async def welcoming(stream: trio.abc.Stream) -> None:
    await Channel(stream, IN).send(m.Welcome(6.0 * SILENT_S, 1.0))
    await answering(stream)


def test_an_idle_host_that_says_a_heartbeat_in_half_a_lease_keeps_its_connection() -> None:
    told = connected_to(welcoming, 10.0 * SILENT_S, every_s=3.0 * SILENT_S)
    assert not [event for _, event in told if isinstance(event, ev.Disconnected)]


def test_an_answer_that_comes_before_its_heartbeat_counts_as_sent_is_an_answer() -> None:
    """Else an idle host, whose next heartbeat is half a lease away, hung up on a coordinator that had answered at once."""
    told = connected_to(welcoming, 10.0 * SILENT_S, every_s=3.0 * SILENT_S, slow_sender=True)
    assert not [event for _, event in told if isinstance(event, ev.Disconnected)]


def test_coordinator_that_wants_heartbeats_seldom_is_waited_for_longer() -> None:
    async def slow(stream: trio.abc.Stream) -> None:
        await Channel(stream, IN).send(m.Welcome(60.0, SILENT_S))
        await trio.sleep_forever()

    told = connected_to(slow, (SILENT_HEARTBEATS + 0.5) * SILENT_S)
    (lost_s,) = [at_s for at_s, event in told if isinstance(event, ev.Disconnected)]
    assert lost_s == SILENT_HEARTBEATS * SILENT_S + 1.0  # since the first heartbeat
