"""The coordinator's trio side: sockets in, effects out. It decides nothing.

Every event takes the same way: journal it, let the core handle it, journal what followed, commit, and only then tell anybody.
The core runs to its end without an await, so events have one order, the journal's. Its time is the journal's, seconds since the
first start, to the bit: whoever hands the journal's events to another core gets the same decisions (see `recovery`).

A peer that breaks the protocol, resets its connection at whatever moment, or does not read what it is sent, loses that connection
and nothing else. Until it has introduced itself it has few connections, short frames and little time, and each host of the campus
keeps a connection, however many come from elsewhere. What is raised while a peer is served and is not one of PEER_ERRORS is a
fault of the coordinator's own and ends the run: a plain OSError too, since a disk's would be taken for a peer's.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from time import perf_counter

import trio

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.membership import not_yet
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.persistence.journal import Journal
from controller.persistence.snapshot import freeze, program
from testbed import messages as m
from testbed.errors import ProtocolError, RemoteProtocolError
from testbed.peers import Admission, Allotment, Occasions
from testbed.wire import MAX_BYTES, Channel, Codec
from testbed.workloads.submission import cannot_run

AGENT_PORT = 7100
HELLO_TIMEOUT_S = 5.0  # a connection that does not introduce itself in this time is closed
HELLO_BYTES = 1 << 18  # a frame before Hello is taken, and Hello: a thousand stored checkpoints
# connections without a Hello: an agent has one, and perhaps an old one; all together hold 64 MB of frames, or one frame a host
UNKNOWN, UNKNOWN_OF_ONE = 256, 4
# of them, from addresses that are no host's: these only hear why they are refused
STRANGERS = 16
OPERATORS = 64  # connections of operators: commands, a page or two that watch
# LocalProtocolError is one of them: an answer that is too long for a frame
PEER_ERRORS = (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError)
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
    _unknown: Admission = field(init=False)
    _operators: Allotment = field(default_factory=lambda: Allotment(OPERATORS, OPERATORS))
    _occasions: Occasions = field(default_factory=lambda: Occasions(LOG))

    def __post_init__(self) -> None:
        addresses = {str(host.spec.address) for host in self.core.cluster.hosts.values()}
        self._unknown = Admission(
            lambda: addresses,
            Allotment(UNKNOWN_OF_ONE, max(UNKNOWN, len(addresses))),
            Allotment(UNKNOWN_OF_ONE, STRANGERS),
        )

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

    async def _listen(
        self,
        serve: Callable[[trio.SocketStream, str], Awaitable[None]],
        listeners: list[trio.SocketListener],
    ) -> None:
        async def serve_one(stream: trio.SocketStream) -> None:
            """One connection, from its first byte to its last: what goes wrong with the peer ends here."""
            peer = "a peer that has left"
            try:
                peer = _address(stream)
                await serve(stream, peer)
            except* PEER_ERRORS as group:
                self._occasions.warn("connection", f"{peer}: {_words(group)}")
            finally:
                await trio.aclose_forcefully(stream)

        await trio.serve_listeners(serve_one, listeners)

    # ------------------------------------------------------------ the one way of every event

    @property
    def now_s(self) -> float:
        """Time of the journal; it never goes back."""
        return max(self.last_s, trio.current_time() - self.started_s)

    def handle(self, event: ev.Event, source: str) -> None:
        """Journal, decide, journal, commit, perform. What cannot be decided or written ends the run, and is in no journal."""
        at_s = self.last_s = self.now_s
        try:
            effects, observed = self._decide(event, source, at_s)
        except BaseException:
            self.ending = True  # connections that end with it decide nothing more
            self.journal.undo()
            raise
        self._perform(effects)
        self._show(observed)
        self._changed.set()
        self.submitted += isinstance(event, ev.JobSubmitted)
        if self.spent_s >= SAVE_AFTER_S:
            self._save()

    def _decide(self, event: ev.Event, source: str, at_s: float) -> tuple[list[do.Effect], list[m.Observed]]:
        """What follows, and what of it is in the journal now, in one transaction with the event."""
        self.journal.begin()
        self.journal.append_input(at_s, source, event)
        began_s = perf_counter()
        effects = self.core.handle(event, at_s)
        self.spent_s += perf_counter() - began_s
        facts = [effect.fact for effect in effects if isinstance(effect, do.Record)]
        observed = [m.Observed(at_s, self.journal.append_fact(at_s, fact)) for fact in facts]
        self.journal.commit()
        return effects, observed

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

    async def _serve_agent(self, stream: trio.SocketStream, address: str) -> None:
        channel, out = Channel(stream, AGENT_IN, HELLO_BYTES), Channel(stream, AGENT_OUT)
        with trio.CancelScope() as scope, ExitStack() as unknown:
            if not unknown.enter_context(self._unknown.connection(address)):
                raise RemoteProtocolError("too many connections without a Hello")
            try:
                hello = await self._introduction(channel, address)
            except ProtocolError as error:
                await _send_quietly(out, m.Refused(str(error)))
                raise
            unknown.close()
            channel.allow(MAX_BYTES)
            await self._talk_with_agent(hello, channel, out, scope)

    async def _introduction(self, channel: Channel[m.FromAgent], address: str) -> m.Hello:
        with trio.move_on_after(HELLO_TIMEOUT_S):
            hello = await channel.receive()
            if hello is None:
                raise trio.BrokenResourceError("it closed before its Hello")
            if not isinstance(hello, m.Hello):
                raise RemoteProtocolError(f"the first message is Hello, not {type(hello).__name__}")
            known = self.core.cluster.hosts.get(hello.host)  # the coordinator's own host has no agent
            if known is None or known.spec.address != ip_address(address):
                raise RemoteProtocolError(f"no host {hello.host!r} of this campus has the address {address}")
            if why := not_yet(self.core.cluster, known, hello, self.now_s):
                raise RemoteProtocolError(why)
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
        except* ProtocolError as group:
            reason = f"broke the protocol: {_words(group)}"
            self._occasions.warn("agent", f"agent {hello.host} {reason}")
        except* PEER_ERRORS:
            reason = "connection lost"
        finally:
            self._agent_gone(hello.host, peer, reason)

    def _agent_gone(self, host: str, peer: Peer, reason: str) -> None:
        if self.agents.get(host) is peer:
            del self.agents[host]
            if not self.ending:
                self.handle(ev.AgentGone(host, reason), host)

    # ------------------------------------------------------------ operators

    async def _serve_operator(self, stream: trio.SocketStream, address: str) -> None:
        out = Channel(stream, OPERATOR_OUT)
        self._operator_count += 1
        number = self._operator_count
        with trio.CancelScope() as scope, self._operators.take(address) as granted:
            if not granted:
                raise RemoteProtocolError("too many connections of operators")
            peer, unsent = _peer(f"operator {number}", scope)
            self.operators[number] = peer
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_send_all, unsent, out)
                    await self._answer_operator(number, peer, Channel(stream, OPERATOR_IN))
                    nursery.cancel_scope.cancel()
            except* ProtocolError as group:
                self._occasions.warn("operator", f"operator {number}: {_words(group)}")
                await _send_quietly(out, m.Refused(_words(group)))
            except* PEER_ERRORS:
                pass  # it left
            finally:
                del self.operators[number]

    async def _answer_operator(self, number: int, peer: Peer, channel: Channel[m.FromOperator]) -> None:
        while (message := await channel.receive()) is not None:
            match message:
                case m.Submit(job) if why := cannot_run(job):
                    peer.tell(m.Rejected(job.name, why))
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
    with trio.move_on_after(1.0), suppress(*PEER_ERRORS):
        await channel.send(message)


def _address(stream: trio.SocketStream) -> str:
    """Where a connection comes from. BrokenResourceError: it was reset already, and has no other end."""
    try:
        name = stream.socket.getpeername()
    except OSError as error:
        raise trio.BrokenResourceError(str(error)) from error
    return str(name[0]) if isinstance(name, tuple) else "a local process"


def _words(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group, in words."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first) or type(first).__name__
