"""The coordinator's trio side: sockets in, effects out. It decides nothing.

Every event takes the same way: journal it, let the core handle it, journal what followed, commit, and only then tell anybody.
The core runs to its end without an await, so events have one order, the journal's. Its time is the journal's, seconds since the
first start, to the bit: whoever hands the journal's events to another core gets the same decisions (`controller.restart`).

A peer that breaks the protocol, or does not read what it is sent, loses its own connection and nothing else.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from time import perf_counter

import trio

from controller.core import effects as do
from controller.core import events as ev
from controller.core.coordinator import Coordinator
from controller.journal import Journal
from controller.snapshot import freeze, program
from testbed import messages as m
from testbed.errors import ProtocolError, RemoteProtocolError
from testbed.wire import Channel, Codec

AGENT_PORT = 7100
HELLO_TIMEOUT_S = 5.0  # a connection that does not introduce itself in this time is closed
OUTBOX_MESSAGES = 4096  # a peer with more than this unread is closed: it has stopped reading
SAVE_AFTER_S = 0.5  # of decisions: a successor spends as long on them, and that is less than a lease
LOG = logging.getLogger("controller")

AGENT_IN: Codec[m.FromAgent] = Codec(m.FromAgent)
AGENT_OUT: Codec[m.ToAgent] = Codec(m.ToAgent)
OPERATOR_IN: Codec[m.FromOperator] = Codec(m.FromOperator)
OPERATOR_OUT: Codec[m.ToOperator] = Codec(m.ToOperator)


@dataclass
class Peer:
    """One connection: what is to be sent on it, and how to end it."""

    name: str
    outbox: trio.MemorySendChannel[m.ToAgent | m.ToOperator]
    scope: trio.CancelScope
    watching: bool = False

    def tell(self, message: m.ToAgent | m.ToOperator) -> None:
        """Queue a message; a peer whose outbox is full is closed."""
        try:
            self.outbox.send_nowait(message)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self.scope.cancel()


@dataclass
class CoordinatorHost:
    """Runs a core over sockets. `draws` decides who joins the queue at its brim (paper B)."""

    core: Coordinator
    journal: Journal
    draws: random.Random
    agents: dict[str, Peer] = field(default_factory=dict)
    operators: dict[int, Peer] = field(default_factory=dict)
    started_s: float = field(default_factory=trio.current_time)  # time 0 of the journal
    last_s: float = 0.0  # time of its last event
    submitted: int = 0  # jobs, accepted or not: as many draws were made
    spent_s: float = 0.0  # on decisions since the last snapshot
    ending: bool = False  # connections end with this process: a successor will find out who comes back
    _changed: trio.Event = field(default_factory=trio.Event)
    _operator_count: int = 0

    async def serve(
        self,
        agent_listeners: list[trio.SocketListener],
        operator_listeners: list[trio.SocketListener],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Until cancelled. Raises what the core raises: a broken invariant ends the run."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, self._serve_agent, agent_listeners)
            nursery.start_soon(self._listen, self._serve_operator, operator_listeners)
            nursery.start_soon(self._watch_clock)
            task_status.started()

    @staticmethod
    async def _listen(
        serve: Callable[[trio.SocketStream], Awaitable[None]], listeners: list[trio.SocketListener]
    ) -> None:
        await trio.serve_listeners(serve, listeners)

    # ------------------------------------------------------------ the one way of every event

    @property
    def now_s(self) -> float:
        """Time of the journal; it never goes back."""
        return max(self.last_s, trio.current_time() - self.started_s)

    def handle(self, event: ev.Event, source: str) -> None:
        """Journal, decide, journal, commit, perform."""
        at_s = self.last_s = self.now_s
        self.journal.begin()
        self.journal.append_input(at_s, source, event)
        began_s = perf_counter()
        effects = self.core.handle(event, at_s)
        self.spent_s += perf_counter() - began_s
        observed = [
            m.Observed(at_s, self.journal.append_fact(at_s, effect.fact))
            for effect in effects
            if isinstance(effect, do.Record)
        ]
        self.journal.commit()
        self._perform(effects)
        self._show(observed)
        self._changed.set()
        self.submitted += isinstance(event, ev.JobSubmitted)
        if self.spent_s >= SAVE_AFTER_S:
            self._save()

    def _save(self) -> None:
        """A snapshot, so that a successor has little to decide again."""
        body = freeze(self.core)
        if body is not None:
            self.journal.save(self.submitted, program(), body)
            self.spent_s = 0.0

    def _perform(self, effects: Iterable[do.Effect]) -> None:
        for effect in effects:
            match effect:
                case do.Tell(host, message) if host in self.agents:
                    self.agents[host].tell(message)
                case do.Disconnect(host) if host in self.agents:
                    self.agents[host].scope.cancel()
                case do.Answer(operator, message) if operator in self.operators:
                    self.operators[operator].tell(message)

    def _show(self, observed: Sequence[m.Observed]) -> None:
        for operator in self.operators.values():
            if operator.watching:
                for fact in observed:
                    operator.tell(fact)

    async def _watch_clock(self) -> None:
        while True:
            self._changed = trio.Event()
            with trio.move_on_at(self.started_s + self.core.next_deadline_s()) as waited:
                await self._changed.wait()
            if waited.cancelled_caught:
                self.handle(ev.Woke(), "clock")

    # ------------------------------------------------------------ agents

    async def _serve_agent(self, stream: trio.SocketStream) -> None:
        channel_in = Channel(stream, AGENT_IN)
        with trio.CancelScope() as scope:
            try:
                hello = await self._introduction(channel_in, stream)
                await self._talk_with_agent(hello, channel_in, Channel(stream, AGENT_OUT), scope)
            except ProtocolError as error:
                LOG.warning("agent at %s: %s", stream.socket.getpeername(), error)
                await _send_quietly(Channel(stream, AGENT_OUT), m.Refused(str(error)))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                LOG.info("agent connection ended: %s", error)
        await trio.aclose_forcefully(stream)

    async def _introduction(self, channel: Channel[m.FromAgent], stream: trio.SocketStream) -> m.Hello:
        with trio.move_on_after(HELLO_TIMEOUT_S):
            hello = await channel.receive()
            if not isinstance(hello, m.Hello):
                raise RemoteProtocolError(f"the first message is Hello, not {type(hello).__name__}")
            known = self.core.world.hosts.get(hello.host)  # the coordinator's own host has no agent
            peer = ip_address(stream.socket.getpeername()[0])
            if known is None or known.spec.address != peer:
                raise RemoteProtocolError(f"no host {hello.host!r} of this campus has the address {peer}")
            return hello
        raise RemoteProtocolError(f"no Hello within {HELLO_TIMEOUT_S} s")

    async def _talk_with_agent(
        self,
        hello: m.Hello,
        channel: Channel[m.FromAgent],
        out: Channel[m.ToAgent],
        scope: trio.CancelScope,
    ) -> None:
        if previous := self.agents.get(hello.host):
            previous.scope.cancel()
            self._agent_gone(hello.host, previous, "replaced by a newer connection")
        peer, unsent = _peer(hello.host, scope)
        self.agents[hello.host] = peer
        reason = "closed by the agent"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send_all, unsent, out)
                message: m.FromAgent | None = hello
                while message is not None:
                    self.handle(ev.AgentSaid(hello.host, message), hello.host)
                    message = await channel.receive()
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            reason = "connection lost"
        except* RemoteProtocolError as group:
            reason = f"broke the protocol: {group.exceptions[0]}"
            LOG.warning("agent %s %s", hello.host, reason)
        finally:
            self._agent_gone(hello.host, peer, reason)

    def _agent_gone(self, host: str, peer: Peer, reason: str) -> None:
        if self.agents.get(host) is peer:
            del self.agents[host]
            if not self.ending:
                self.handle(ev.AgentGone(host, reason), host)

    # ------------------------------------------------------------ operators

    async def _serve_operator(self, stream: trio.SocketStream) -> None:
        out = Channel(stream, OPERATOR_OUT)
        self._operator_count += 1
        number = self._operator_count
        with trio.CancelScope() as scope:
            peer, unsent = _peer(f"operator {number}", scope)
            self.operators[number] = peer
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_send_all, unsent, out)
                    await self._answer_operator(number, peer, Channel(stream, OPERATOR_IN))
                    nursery.cancel_scope.cancel()
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # it left
            except* RemoteProtocolError as group:
                await _send_quietly(out, m.Refused(str(group.exceptions[0])))
            finally:
                del self.operators[number]
        await trio.aclose_forcefully(stream)

    async def _answer_operator(self, number: int, peer: Peer, channel: Channel[m.FromOperator]) -> None:
        while (message := await channel.receive()) is not None:
            match message:
                case m.Submit(job):
                    self.handle(ev.JobSubmitted(job, self.draws.random(), number), "operator")
                case m.StatusRequest():
                    peer.tell(self.core.status(self.now_s))
                case m.Watch():
                    peer.watching = True


def _peer(
    name: str, scope: trio.CancelScope
) -> tuple[Peer, trio.MemoryReceiveChannel[m.ToAgent | m.ToOperator]]:
    outbox, unsent = trio.open_memory_channel[m.ToAgent | m.ToOperator](OUTBOX_MESSAGES)
    return Peer(name, outbox, scope), unsent


async def _send_all(
    unsent: trio.MemoryReceiveChannel[m.ToAgent | m.ToOperator],
    channel: Channel[m.ToAgent] | Channel[m.ToOperator],
) -> None:
    async for message in unsent:
        await channel.send(message)  # type: ignore[arg-type]  # an agent's outbox holds messages to agents only


async def _send_quietly(channel: Channel[m.ToAgent] | Channel[m.ToOperator], message: m.Refused) -> None:
    """Tell a peer why it is being closed, if it still listens."""
    with trio.move_on_after(1.0):
        try:
            await channel.send(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            LOG.info("could not say why: %s", error)
