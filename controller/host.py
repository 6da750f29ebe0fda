"""The coordinator's trio side: sockets in, effects out.

It decides nothing.

Every event takes the same way (`testbed.driver`): let the core handle it, journal it with the facts that follow, and
only then send messages. The core runs to its end without an await, so events have one order, the journal's. Its time is
the journal's, seconds since the first start, to the bit: another core that handles the journal's events decides the
same (`recovery`).

A peer that breaks the protocol, resets its connection at any moment, or does not read its messages, loses that
connection and nothing else. An agent is known by the name in its certificate, never by its address (`testbed.trust`).
Until its Hello it has few connections and little time, and peers from elsewhere keep no host out. Agents' messages are
handled in turn, one by one. An agent that sends more than any honest one has to is delayed (`WORDS_PER_S`). An error
while a peer is served that is not one of PEER_ERRORS is a fault of the coordinator's own and ends the run: a plain
OSError too, since a disk's would be taken for a peer's.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Generic, TypeVar

import msgspec
import trio

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.reconcile import not_yet
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model.cluster import keyed
from controller.load import Load
from controller.network_link import NetworkLink
from controller.persistence.group_commit import GroupCommit
from controller.persistence.journal import Journal, encoded
from controller.persistence.lines import Entry
from controller.persistence.snapshot import Freezing, program
from controller.registrar import Registrar
from testbed import messages as m
from testbed.bounds import quoted
from testbed.driver import Driver
from testbed.errors import ProtocolError, RemoteProtocolError
from testbed.logs import logger
from testbed.peers import Allotment, Budget, Occasions
from testbed.trust.channel import Identity, PartyRole
from testbed.trust.door import HANDSHAKES, Door, Refusals, address_in, source_of
from testbed.wire import Channel, Codec, MessageStream
from testbed.workloads.submission import cannot_run, cannot_save, is_saved_from_outside
from topologies.spec import DirectedLink

AGENT_PORT = 710  # below 1024, as is DATA_PORT: no user of the host takes it while its program is being started again
DESK_PORT = AGENT_PORT + 5  # for operators of other machines, and for parties that join
HELLO_TIMEOUT_S = 5.0  # a connection that does not introduce itself in this time is closed
# handshakes and Hellos under way, of one address (an agent may have an old connection)
UNKNOWN_OF_ONE = 4
# and of all addresses that are no host's
STRANGERS = 16
# What an agent may send, over all its connections: a message is 1, and 1 for each KiB of it, a Hello HELLO_COST. A busy host says
# ten a second, the standby of 500 jobs some fifty; each costs a decision, and a line of the journal.
WORDS_PER_S, WORDS_AT_ONCE, BYTES_A_WORD, HELLO_COST = 200.0, 2000.0, 1024.0, 20.0
OPERATORS = 64  # connections of one operator: commands, a page or two that watch; none keeps out who is to revoke it
# LocalProtocolError is one of them: an answer that is too long for a frame
PEER_ERRORS = (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError)
OUTBOX_MESSAGES = 4096  # a peer with more than this unread is closed: it has stopped reading
SAVE_AFTER_S = 1.0  # of decisions: a successor spends as long on them, and that is less than a lease
TRY_AGAIN_AFTER_S = 0.1  # of decisions, where the core had no bytes: a try takes as long as a snapshot does
BEAT_S = 0.1  # without a line, until a sign of life is written for the coordinator that follows
FOLD_IN_S = 5.0  # between two: the log beside the journal grows by some 300 kB a second with 500 hosts
LOG = logger("controller")
ToPeer = TypeVar("ToPeer", m.FromCoordinator, m.ToOperator)

AGENT_IN: Codec[m.ToCoordinator] = Codec(m.ToCoordinator)
AGENT_OUT: Codec[m.FromCoordinator] = Codec(m.FromCoordinator)
OPERATOR_IN: Codec[m.FromOperator] = Codec(m.FromOperator)
OPERATOR_OUT: Codec[m.ToOperator] = Codec(m.ToOperator)


class Peer(Generic[ToPeer]):
    """A connection: its queue of messages, and the scope that ends it."""

    def __init__(self, channel: Channel[ToPeer], scope: trio.CancelScope) -> None:
        self.channel: Channel[ToPeer] = channel
        self.scope = scope
        self.watching = False  # an operator that is to see every fact
        self._outbox: trio.MemorySendChannel[ToPeer]
        self._unsent: trio.MemoryReceiveChannel[ToPeer]
        self._outbox, self._unsent = trio.open_memory_channel[ToPeer](OUTBOX_MESSAGES)

    def tell(self, message: ToPeer) -> None:
        """Queue a message; a peer whose outbox is full is closed."""
        try:
            self._outbox.send_nowait(message)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self.scope.cancel()

    async def send_all(self) -> None:
        """Send queued messages, for ever."""
        await self.channel.send_each(self._unsent)

    async def refuse(self, reason: str) -> None:
        """Send the reason why the connection is being closed, if the peer still reads."""
        with trio.move_on_after(1.0), suppress(*PEER_ERRORS):
            await self.channel.send(m.Refused(quoted(reason)))


@dataclass
class CoordinatorHost(Driver[ev.Event, do.Effect]):
    """The coordinator's core, run over sockets. `draws` decides which jobs join the queue at its brim (paper B)."""

    core: Coordinator
    journal: Journal
    draws: random.Random
    agents: dict[str, Peer[m.FromCoordinator]] = field(default_factory=dict)
    operators: dict[int, Peer[m.ToOperator]] = field(default_factory=dict)
    started_s: float = field(default_factory=trio.current_time)  # time 0 of the journal
    last_s: float = 0.0  # time of its last event
    submitted: int = 0  # jobs, accepted or not: as many draws were made
    spent_s: float = 0.0  # on decisions since the last snapshot
    # connections end with this process: a successor will find out which agents come back
    ending: bool = False
    load: Load = field(default_factory=Load)
    identity: Identity | None = None  # None: conversations without certificates, and agents are who they say
    group: GroupCommit | None = None  # of a log whose lines take time to stand
    paired: bool = False  # another coordinator follows, and agents have a connection to each
    leads: trio.Event | None = None  # until then agents wait, and nothing is decided; None: from the start
    authority: Path | None = None  # that gives names; None: nobody gets any
    network_socket: Path | None = None  # of the switches' controller, where this project's programs them
    network: NetworkLink | None = field(init=False, default=None)
    _operator_count: int = 0
    _freezing: tuple[Freezing, tuple[int, int], int] | None = None  # the next snapshot: see `Journal.save`
    _stood_s: float = 0.0  # time of the last event that stands
    _waiting: dict[str, Peer[m.FromCoordinator]] = field(default_factory=dict)  # of agents, until their Hello counts
    _budgets: dict[str, Budget] = field(default_factory=dict)  # of each host that ever registered
    _refusals: Refusals = field(init=False)
    _operators: Allotment = field(default_factory=lambda: Allotment(OPERATORS, sys.maxsize))
    _occasions: Occasions = field(default_factory=lambda: Occasions(LOG))

    def __post_init__(self) -> None:
        self._addresses = {host.address for host in self.core.cluster.hosts.values()}
        self._refusals = Refusals(lambda *refused: self.handle(ev.StrangersRefused(*refused)))
        self._registrar: Registrar | None = None
        if self.identity is not None and self.authority is not None:
            names = self.core.cluster.names
            self._registrar = Registrar(self.authority, self.identity, names, self.handle, self._tell_agents)
        self._desk = Door(self.identity, PartyRole.OPERATOR, refusals=self._refusals, for_joiners=True)
        door = partial(Door, self.identity, PartyRole.HOST, refusals=self._refusals, of_one=UNKNOWN_OF_ONE)
        # all hosts at once: in a shorter line each would wait for the processors of those before it
        self._door = door(in_all=max(HANDSHAKES, len(self._addresses)))
        self._strangers_door = door(in_all=STRANGERS)
        if self.network_socket is not None:
            near = self.core.cluster.campus.neighbours
            self.network = NetworkLink(self.network_socket, self.handle, lambda a, b: b in near.get(a, {}))

    async def serve(
        self,
        agent_listeners: list[trio.SocketListener],
        operator_listeners: list[trio.SocketListener],
        desk_listeners: Sequence[trio.SocketListener] = (),
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled. Raises what the core raises: a broken invariant ends the run."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, self._serve_agent, agent_listeners)
            if self._registrar is not None:
                nursery.start_soon(self._registrar.keep_renewed)
            if self.leads is not None:
                await self.leads.wait()
                if self._registrar is not None:  # before an agent that waited says Hello
                    self._registrar.take_over()
            if self.group is not None or self.paired:
                nursery.start_soon(self._write_all)
            nursery.start_soon(self._listen, self._serve_operator, operator_listeners)
            if self._registrar is not None:
                nursery.start_soon(self._listen, self._serve_desk, list(desk_listeners))
            nursery.start_soon(self.wake, ev.Woke())
            nursery.start_soon(self._fold_in)
            nursery.start_soon(self._refusals.report)
            if self.network is not None:
                nursery.start_soon(self.network.serve)
            task_status.started()

    async def _fold_in(self) -> None:
        """Carry the journal's log into it in a thread, for ever.

        Otherwise 500 hosts' events would wait for the disk: 0.1 s every ten seconds and 0.6 s now and then.
        """
        self.journal.fold_elsewhere()
        while True:
            await trio.sleep(FOLD_IN_S)
            await trio.to_thread.run_sync(self.journal.fold_in)

    async def _listen(
        self, serve: Callable[[trio.abc.Stream, str], Awaitable[None]], listeners: list[trio.SocketListener]
    ) -> None:
        async def serve_one(accepted: trio.SocketStream) -> None:
            """Serve a connection, from its first byte to its last; the peer's errors end here."""
            peer = "a peer that has left"
            stream: trio.abc.Stream = accepted
            try:
                peer = source_of(accepted)
                if isinstance(accepted, trio.SocketStream):  # it is none in a test's memory
                    stream = MessageStream.take_over(accepted)
                await serve(stream, peer)
            except* PEER_ERRORS as group:
                self._occasions.warn("connection", f"{peer}: {_words(group)}")
            finally:
                await trio.aclose_forcefully(stream)

        await trio.serve_listeners(serve_one, listeners)

    # ------------------------------------------------------------ the one way of every event

    def handle(self, event: ev.Event) -> None:
        """Journal, decide, journal, commit, perform. What cannot be decided or written ends the run, and is in no journal."""
        super().handle(event)
        self.submitted += isinstance(event, ev.SubmitAsked)
        self.save_if_due()

    def save_if_due(self) -> None:
        """Save a snapshot now and then, so that a successor has little to decide again."""
        if self._freezing is not None:
            freezing, counts, submitted = self._freezing
            if (body := freezing.body()) is not None:
                self._freezing = None
                if body:
                    self.journal.save(counts, submitted, program(), body)
                else:
                    self.spent_s = max(self.spent_s, SAVE_AFTER_S - TRY_AGAIN_AFTER_S)
        elif self.spent_s >= SAVE_AFTER_S and (self.group is None or self.group.idle):
            self._freezing, self.spent_s = (Freezing(self.core), self.journal.counts(), self.submitted), 0.0

    async def _write_all(self) -> None:
        """Write what is decided, and signs of life for the coordinator that follows."""
        try:
            if self.group is not None:
                await self.group.write_all(BEAT_S if self.paired else inf)
            while True:
                number = self.journal.number
                await trio.sleep(BEAT_S)
                if number == self.journal.number:
                    self.journal.append([])
        except BaseException:
            self.ending = True
            raise

    def decide(self, event: ev.Event, at_s: float) -> list[do.Effect]:
        """Return the effects of an event that is in the journal now; none, where they wait for its line to stand."""
        try:
            began_s = perf_counter()
            effects = self.core.handle(event, at_s)
            took_s = perf_counter() - began_s
            self.spent_s += took_s
            self.load.decisions.add(took_s)
            entry = Entry(at_s, event, [effect.fact for effect in effects if isinstance(effect, do.Record)])
            if self.group is not None:
                for fact in entry.facts:
                    encoded(fact)  # before its event is in a log that others read
                self.group.add(entry, partial(self._perform_all, effects, at_s))
                return []
            self.journal.append([entry])
            self._stood_s = at_s
            self.load.writes.add(perf_counter() - began_s - took_s)
        except BaseException:
            self.ending = True  # connections that end with it decide nothing more
            raise
        return effects

    def _perform_all(self, effects: list[do.Effect], at_s: float) -> None:
        """Perform what followed from an event that stands now."""
        self._stood_s = at_s
        for effect in effects:
            self.perform(effect)
        self.save_if_due()

    def _answer(self, peer: Peer[m.ToOperator], message: m.ToOperator) -> None:
        """Answer when all that was decided so far stands."""
        self._when_all_stands(partial(peer.tell, message))

    def _when_all_stands(self, then: Callable[[], None]) -> None:
        if self.group is None or self.group.idle:
            then()
        else:
            self.group.add(None, then)

    async def _stands(self) -> None:
        """Wait until all that was decided so far stands."""
        stands = trio.Event()
        self._when_all_stands(stands.set)
        await stands.wait()

    def perform(self, effect: do.Effect) -> None:
        """Send messages to connected peers; send journalled facts to the operators that watch."""
        match effect:
            case do.Tell(host, message) if host in self.agents:
                if isinstance(message, m.Welcome):
                    message = msgspec.structs.replace(message, epoch=self.journal.epoch)
                self.agents[host].tell(message)
            case do.Disconnect(host) if host in self.agents:
                self.agents[host].scope.cancel()
            case do.SetWays() if self.network is not None:
                self.network.want(effect)
            case do.SetLoads() if self.network is not None:
                self.network.weigh(effect)
            case do.Answer(operator, message) if operator in self.operators:
                self.operators[operator].tell(message)
            case do.Record(fact):
                watching = [one for one in self.operators.values() if one.watching]
                if watching:
                    observed = m.Observed(self._stood_s, encoded(fact))
                    for one in watching:
                        one.tell(observed)

    # ------------------------------------------------------------ agents

    async def _serve_agent(self, stream: trio.abc.Stream, source: str) -> None:
        door = self._door if address_in(source) in self._addresses else self._strangers_door
        with trio.CancelScope() as scope:
            async with AsyncExitStack() as entering:
                words, name = await entering.enter_async_context(door.entering(stream, source))
                channel, peer = Channel(words, AGENT_IN), Peer(Channel(words, AGENT_OUT), scope)
                if self.paired and name:
                    await entering.aclose()  # its name is proved: it waits beside the line
                try:
                    with self._alone(peer, name):
                        if self.paired:
                            await self._until_it_leads(peer)
                        hello = await self._introduction(channel, name)
                except ProtocolError as error:
                    if self.paired and name:  # its place in line, where refusals are counted, was left
                        self._refusals.count(source, str(error))
                    await peer.refuse(str(error))
                    raise
            if previous := self.agents.get(hello.host):
                previous.scope.cancel()
                self._agent_gone(hello.host, previous, "replaced by a newer connection")
            self.agents[hello.host] = peer
            reason = "closed by the agent"
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(peer.send_all)
                    message: m.ToCoordinator | None = hello
                    if self._registrar is not None:
                        peer.tell(self._registrar.trust)
                    while message is not None:
                        if isinstance(message, m.Heartbeat):
                            self.load.reports.add(message.answered_s)
                        if isinstance(message, m.Renew):
                            # of a coordinator that another follows no more: a name may have been revoked there
                            self._when_all_stands(partial(peer.tell, self._names.renewed(hello.host, message)))
                        else:
                            self.handle(ev.AgentSaid(hello.host, message))
                        heard_bytes = channel.received_bytes
                        message = await channel.receive()
                        await self._turn_of(hello.host, 1.0, channel.received_bytes - heard_bytes)
                    nursery.cancel_scope.cancel()
            except* ProtocolError as group:
                reason = f"broke the protocol: {_words(group)}"
                self._occasions.warn("agent", f"agent {hello.host} {reason}")
            except* PEER_ERRORS:
                reason = "connection lost"
            finally:
                self._agent_gone(hello.host, peer, reason)

    async def _until_it_leads(self, peer: Peer[m.FromCoordinator]) -> None:
        """Keep an agent's connection until this coordinator leads, and announce that."""
        if self.leads is not None:
            await self.leads.wait()
        await peer.channel.send(m.Leads(self.journal.epoch))

    @contextmanager
    def _alone(self, peer: Peer[m.FromCoordinator], name: str) -> Iterator[None]:
        """End an older connection of its name that waits, for its turn too: its Hello would be the older one."""
        key = name or str(id(peer))
        if previous := self._waiting.get(key):
            previous.scope.cancel()
        self._waiting[key] = peer
        try:
            yield
        finally:
            if self._waiting.get(key) is peer:
                del self._waiting[key]

    async def _introduction(self, channel: Channel[m.ToCoordinator], name: str) -> m.Hello:
        """Return the Hello of the agent of this name that may come in now. RemoteProtocolError: it may not, or sends none."""
        message = None
        with trio.move_on_after(HELLO_TIMEOUT_S) as patience:
            message = await channel.receive()
            if message is None:
                raise trio.BrokenResourceError("it closed before its Hello")
        if patience.cancelled_caught:
            raise RemoteProtocolError(f"no Hello within {HELLO_TIMEOUT_S} s")
        if not isinstance(message, m.Hello):
            raise RemoteProtocolError(f"the first message is Hello, not {type(message).__name__}")
        if name and name != message.host:
            raise RemoteProtocolError(f"{name} introduces itself as {message.host}")
        known = self.core.cluster.hosts.get(message.host)  # the coordinator's own host has no agent
        if known is None:
            raise RemoteProtocolError(f"no host {message.host!r} of this campus has an agent")
        # a number by which to know the agent again, and by which no reader of the journal can pass for it
        message = msgspec.structs.replace(message, incarnation=keyed(self.core.cluster.secret, message.incarnation))
        await self._turn_of(message.host, HELLO_COST, channel.received_bytes)
        if why := not_yet(self.core.cluster, known, message, self.now_s):
            raise RemoteProtocolError(why)
        return message

    async def _turn_of(self, host: str, words: float, size_bytes: int) -> None:
        """Wait for the turn of an agent's message: after others' in any case, later if it sends too much."""
        budget = self._budgets.setdefault(host, Budget(WORDS_PER_S, WORDS_AT_ONCE))
        cost = words + size_bytes / BYTES_A_WORD
        try:
            await trio.sleep(budget.spend(cost, trio.current_time()))
        except trio.Cancelled:  # it is not handled: whoever speaks for the host next does not wait for it
            budget.spend(-cost, trio.current_time())
            raise

    def _agent_gone(self, host: str, peer: Peer[m.FromCoordinator], reason: str) -> None:
        if self.agents.get(host) is peer:
            del self.agents[host]
            if not self.ending:
                self.handle(ev.AgentGone(host, reason))

    # ------------------------------------------------------------ operators, and who joins

    @property
    def _names(self) -> Registrar:
        """The registrar. RemoteProtocolError: conversations are without certificates."""
        if self._registrar is None:
            raise RemoteProtocolError('this campus has no names: its scenario has [trust] transfers = "plain"')
        return self._registrar

    def _tell_agents(self, message: m.Trust) -> None:
        for agent in self.agents.values():
            agent.tell(message)

    async def _serve_desk(self, stream: trio.abc.Stream, source: str) -> None:
        """Serve an operator of another machine, or a peer that joins, which keeps its place in line."""
        async with self._desk.entering(stream, source) as (words, operator):
            if not operator:
                await self._names.serve_joiner(words, self._stands)
        if operator:
            await self._serve_operator(words, f"operator {operator}")

    async def _serve_operator(self, stream: trio.abc.Stream, source: str) -> None:
        self._operator_count += 1
        number, channel = self._operator_count, Channel(stream, OPERATOR_IN)
        with trio.CancelScope() as scope, self._operators.take(source) as granted:
            if not granted:
                raise RemoteProtocolError("too many connections of operators")
            peer = self.operators[number] = Peer(Channel(stream, OPERATOR_OUT), scope)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(peer.send_all)
                    while (message := await channel.receive()) is not None:
                        match message:
                            case m.Submit(job):
                                why = cannot_run(job)
                                if not why and is_saved_from_outside(job):
                                    why = await trio.to_thread.run_sync(cannot_save, job)
                                if why:
                                    peer.tell(m.Rejected(job.name, quoted(why)))
                                else:
                                    self.handle(ev.SubmitAsked(job, self.draws.random(), number))
                            case m.Cancel(name):
                                self.handle(ev.CancelAsked(name, number))
                            case m.JobRequest(name):
                                known = self.core.cluster.jobs.get(name)
                                unknown = m.Rejected(name, "no job of this name was submitted")
                                self._answer(peer, m.SubmittedJob(known.spec, known.phase.value) if known else unknown)
                            case m.StatusRequest():
                                self._answer(peer, self.core.status(self.now_s))
                            case m.ChangeLinks(rates):
                                self._check_links(rates)
                                self.handle(ev.LinksChanged(rates))
                                self._answer(peer, m.Noted())
                            case m.Watch():
                                peer.watching = True
                            case m.MakeToken():
                                self._answer(peer, self._names.make_token(message))
                            case m.Revoke() | m.RotateAuthority():
                                self._names.obey(message)
                                self._answer(peer, m.Noted())
                    nursery.cancel_scope.cancel()
            except* ProtocolError as group:
                self._occasions.warn("operator", f"operator {number}: {_words(group)}")
                await peer.refuse(_words(group))
            except* PEER_ERRORS:
                pass  # it left
            finally:
                del self.operators[number]

    def _check_links(self, told: list[tuple[str, str, float]]) -> None:
        """Raise RemoteProtocolError for a link that this campus does not have."""
        for source, target, _ in told:
            if DirectedLink(source, target) not in self.core.cluster.capacity.share:
                raise RemoteProtocolError(f"this campus has no link {source}-{target}")


def _words(group: BaseExceptionGroup[BaseException]) -> str:
    """Return the first error of a group, in words."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first) or type(first).__name__
