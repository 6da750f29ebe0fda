"""OpenFlow 1.3 through os-ken: gives every switch the tables of `routes`, and keeps them with the trunks' state.

On connection a switch reports which ports are up, and which rules and groups it has; it is sent the difference, then
a barrier. Messages that are sent together take effect at once: they go in a bundle (ONF's extension 230), which is
committed when the switch has taken every message of it, and else discarded. After a refusal the switch is read again,
and the change under way is given up.

A trunk whose end goes down or comes back changes the routes of all: groups of other switches that led there are
changed (GROUP_MOD). The switch at the trunk has already turned to its next live bucket by itself. What happens is
written as a line of JSON.

A change that is planned (ways that the coordinator wants, a trunk that is to be drained) loses no packet: switches get it stage
by stage, those nearest to where packets go first, each stage when packets follow the one before (`tables.staged`, `caches`). What
is not wanted any more goes when no packet is on an old way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.event import EventBase
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

from controller.openflow import wire
from controller.openflow.caches import wait_until_followed
from controller.openflow.clients import Client, Clients
from controller.openflow.routes import tables, tables_meanwhile
from controller.openflow.tables import (
    Group,
    GroupBucket,
    GroupKind,
    Installed,
    SwitchTables,
    Update,
    after,
    difference,
    staged,
)
from testbed.logs import logger
from topologies.decoding import UNDECODABLE
from topologies.openflow import (
    Drained,
    HaveDrained,
    ToController,
    ToDrain,
    Topology,
    TrunkLoads,
    WantedWays,
    WaysInForce,
)

log = logger("reclaimnet.openflow")

LEFT_S = 0.1  # after this no packet is on an old way: several times what queues of trunks hold
ALONE_S = 0.5  # a coordinator that has not planned around a trunk to be drained by then is not waited for
CUT_WITHIN_S = 1.0  # a client that had a trunk drained and leaves has cut it, or the trunk is used again


class Posted(EventBase):  # type: ignore[misc]
    """Work that another thread leaves to the application's own."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.act = act


@dataclass(slots=True)
class _Session:
    """A connected switch. `installed` is None until all of its answers are there, as the end of its `reading` barrier shows."""

    name: str
    datapath: Any
    cookies: set[int] = field(default_factory=set)
    groups: dict[int, Group | None] = field(default_factory=dict)
    installed: Installed | None = None
    reading: int = 0
    # by transaction number: words for what it has not answered for yet, and the bundle that holds it (0: none)
    sent: dict[int, tuple[str, int]] = field(default_factory=dict)
    # transaction numbers of barriers that have not been answered
    barriers: set[int] = field(default_factory=set)
    # by the barrier after its last message: number of a bundle
    open_bundles: dict[int, int] = field(default_factory=dict)
    bundles: int = 0  # so far
    spoilt: set[int] = field(default_factory=set)  # bundles of which it refused a message
    was_refused: bool = False  # and is to be read again
    is_short: bool = False  # of what it should have, and has not been sent anything since

    def write(self, messages: Iterable[tuple[str, Any]], bundle: int = 0) -> None:
        """Send messages, and remember what they were."""
        written = []
        for words, inner in messages:
            message = wire.bundled(self.datapath, bundle, inner) if bundle else inner
            self.sent[self.datapath.set_xid(message)] = words, bundle
            message.serialize()
            written.append(message.buf)
        if written:
            self.datapath.send(b"".join(written))

    def control_bundle(self, kind: int, bundle: int) -> None:
        """Open, commit or discard a bundle."""
        self.write([("bundle", wire.bundle_control(self.datapath, kind, bundle))])

    def write_barrier(self) -> int:
        """Request a barrier, answered when all that was sent is done; return its transaction number."""
        self.write([("barrier", self.datapath.ofproto_parser.OFPBarrierRequest(self.datapath))])
        self.barriers.add(self.datapath.xid)
        return int(self.datapath.xid)


class FabricController(OSKenApp):  # type: ignore[misc]
    """The os-ken application. `configure` comes before the first switch connects."""

    OFP_VERSIONS: ClassVar[list[int]] = [ofproto_v1_3.OFP_VERSION]
    topology: ClassVar[Topology]
    tell: ClassVar[Callable[[str], object]]
    # socket of the switch daemon, which reports when its caches follow its tables
    control: ClassVar[Path | None] = None
    # where clients find it, and where it keeps what the coordinator wants while it is dead; None: it has no clients
    socket: ClassVar[Path | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names = {number: name for name, number in self.topology.switches.items()}
        self._sessions: dict[str, _Session] = {}
        # (switch, port) that its switch has reported down
        self._down: set[tuple[str, int]] = set()
        self._dead: frozenset[frozenset[str]] = frozenset()
        self._began_s = time.monotonic()
        self._was_programmed = False
        self._coordinator: Client | None = None
        # what it wants, what the switches have of that, and what they are being given, if they are
        self._ways = self._have = self._kept_ways()
        self._setting: WantedWays | None = None
        # what grants take of trunks, by the coordinator that last reported it
        self._loads: dict[tuple[str, str], float] = {}
        self._again = False  # other ways are wanted already
        self._stages: deque[dict[str, Update]] = deque()  # of what they are being given, still to be sent
        self._changes, self._change_began_s = 0, 0.0
        self._has_sent = self._is_waiting = False  # what packets do not follow yet; for them to
        # trunks that are to be drained, and the clients that want it; those that no coordinator is waited for; those left by now
        self._to_drain: dict[frozenset[str], list[Client]] = {}
        self._alone: set[frozenset[str]] = set()
        self._left: frozenset[frozenset[str]] = frozenset()
        self._wanted: dict[str, SwitchTables] = tables(self.topology, (), self._ways.pins)

    def start(self) -> None:
        """Start as any application does, and listen to clients."""
        super().start()
        if self.socket is not None:
            Clients(self.socket, lambda client, message: self._post(partial(self._hear, client, message)))

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, [CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def switch_connected(self, event: Any) -> None:
        """Ask a new switch for its ports and for what it has."""
        datapath = event.msg.datapath
        name = self._names.get(datapath.id)
        if name is None:
            log.warning("datapath %x is not of this campus: left alone", datapath.id)
            return
        session = self._sessions[name] = _Session(name, datapath)
        parser = datapath.ofproto_parser
        datapath.send_msg(parser.OFPPortDescStatsRequest(datapath, 0))
        self._read(session)

    def _read(self, session: _Session) -> None:
        """Ask a switch for what it has."""
        datapath = session.datapath
        parser, protocol = datapath.ofproto_parser, datapath.ofproto
        session.cookies, session.groups, session.installed = set(), {}, None
        datapath.send_msg(
            parser.OFPFlowStatsRequest(datapath, 0, protocol.OFPTT_ALL, protocol.OFPP_ANY, protocol.OFPG_ANY)
        )
        datapath.send_msg(parser.OFPGroupDescStatsRequest(datapath, 0))
        session.reading = session.write_barrier()

    @set_ev_cls(ofp_event.EventOFPStateChange, [DEAD_DISPATCHER])  # type: ignore[untyped-decorator]
    def switch_lost(self, event: Any) -> None:
        """Forget a connection; the switch goes on with the tables that it has (fail_mode=secure)."""
        name = self._names.get(event.datapath.id)
        if name and (session := self._sessions.get(name)) and session.datapath is event.datapath:
            del self._sessions[name]
            self._tell("lost", switch=name)

    @set_ev_cls(ofp_event.EventOFPPortDescStatsReply, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def ports_reported(self, event: Any) -> None:
        """Learn which ports of a new switch are down."""
        session = self._session(event)
        if session:
            for port in event.msg.body:
                self._port_is(session, port)
            self._follow_trunks()

    @set_ev_cls(ofp_event.EventOFPPortStatus, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def port_changed(self, event: Any) -> None:
        """Change every switch's tables if a trunk died or came back."""
        session = self._session(event)
        if session:
            deleted = event.msg.reason == event.msg.datapath.ofproto.OFPPR_DELETE
            self._port_is(session, event.msg.desc, deleted=deleted)
            self._follow_trunks()

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def rules_reported(self, event: Any) -> None:
        """Collect the cookies of the rules that a switch has."""
        session = self._session(event)
        if session:
            session.cookies |= {rule.cookie for rule in event.msg.body}

    @set_ev_cls(ofp_event.EventOFPGroupDescStatsReply, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def groups_reported(self, event: Any) -> None:
        """Collect the groups that a switch has; None for one of a form that is never sent."""
        session = self._session(event)
        if not session:
            return
        for group in event.msg.body:
            ways = [(b.weight, b.watch_port, [getattr(a, "port", None) for a in b.actions]) for b in group.buckets]
            known = group.type in set(GroupKind) and all(ports == [watched] for _, watched, ports in ways)
            buckets = tuple(GroupBucket(port, weight) for weight, port, _ in ways)
            session.groups[group.group_id] = Group(GroupKind(group.type), buckets) if known else None

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def barrier_passed(self, event: Any) -> None:
        """Go on where all that was sent has been done; report when the last switch has taken all that it was sent."""
        session, xid = self._session(event), event.msg.xid
        if not session or xid not in session.barriers:
            return
        session.barriers.discard(xid)
        if xid == session.reading:
            self._begin(session)
            return
        if (number := session.open_bundles.pop(xid, None)) is not None:
            session.control_bundle(wire.DISCARD if number in session.spoilt else wire.COMMIT, number)
            session.write_barrier()
            return
        if not session.barriers:
            session.sent.clear()
            if session.was_refused:
                self._read(session)
                return
        self._tell_if_programmed()
        self._go_on()

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def refused(self, event: Any) -> None:
        """Report a message that a switch refused.

        The switch's tables are not what was wanted, and are read again; a planned change is given up.
        """
        session, msg = self._session(event), event.msg
        words, bundle = session.sent.get(msg.xid, ("?", 0)) if session else ("?", 0)
        name = session.name if session else "?"
        self._tell("refused", switch=name, message=words, type=msg.type, code=msg.code)
        if session:
            session.spoilt.add(bundle)
            session.was_refused = session.is_short = True
            self._was_programmed = False
            self._give_up()

    def _session(self, event: Any) -> _Session | None:
        session = self._sessions.get(self._names.get(event.msg.datapath.id, ""))
        return session if session and session.datapath is event.msg.datapath else None

    def _port_is(self, session: _Session, port: Any, *, deleted: bool = False) -> None:
        protocol = session.datapath.ofproto
        down = port.state & protocol.OFPPS_LINK_DOWN or port.config & protocol.OFPPC_PORT_DOWN or deleted
        (self._down.add if down else self._down.discard)((session.name, port.port_no))

    def _follow_trunks(self) -> None:
        dead = frozenset(t.ends for t in self.topology.trunks if {(t.a, t.a_port), (t.b, t.b_port)} & self._down)
        if dead == self._dead:
            return
        for ends in sorted(dead ^ self._dead, key=sorted):
            self._tell("trunk", between=sorted(ends), up=ends not in dead)
        for ends in dead & self._to_drain.keys():  # what was to happen has happened
            self._say_drained(ends)
            del self._to_drain[ends]
        self._dead = dead
        self._left = dead | self._draining
        self._wanted = tables(self.topology, self._left, self._ways.pins, self._loads)
        self._began_s, self._was_programmed = time.monotonic(), False
        # all at once: stages of a planned change that is under way are overtaken
        self._stages.clear()
        self._begin_change()
        for session in self._sessions.values():
            self._update(session)
        self._tell_if_programmed()
        self._go_on()

    # ------------------------------------------------------------ what clients want

    @set_ev_cls(Posted)  # type: ignore[untyped-decorator]
    def posted(self, event: Posted) -> None:
        """Do what another thread has left to this one."""
        event.act()

    def _post(self, act: Callable[[], None]) -> None:
        self.send_event(self.name, Posted(act))

    def _hear(self, client: Client, message: ToController | None) -> None:
        """Take what a client wants: ways, loads heeded, a trunk drained; None: the client is gone."""
        match message:
            case WantedWays() as ways:
                self._ways = ways
                self._keep_ways()
                is_new, self._coordinator = self._coordinator is not client, client
                if is_new:
                    self._tell_to_drain()
                self._change()
            case TrunkLoads(loads):
                self._weigh({(a, b): load for a, b, load in loads})
            case HaveDrained(a, b):
                ends = frozenset((a, b))
                if ends not in self.topology.rate_bytes_per_s:
                    client.tell(Drained(f"{a}-{b} is no trunk of this network"))
                elif ends in self._dead:
                    client.tell(Drained())
                else:
                    self._to_drain.setdefault(ends, []).append(client)
                    self._tell_to_drain()
                    self._after(ALONE_S if self._coordinator else 0.0, lambda: self._drain_alone(ends))
            case None:
                if client is self._coordinator:
                    self._coordinator = None
                self._after(CUT_WITHIN_S, lambda: self._forget(client))

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        timer = threading.Timer(delay_s, self._post, [act])
        timer.daemon = True
        timer.start()

    @property
    def _draining(self) -> frozenset[frozenset[str]]:
        wanted = self._alone | {frozenset(ends) for ends in self._ways.draining}
        return frozenset(wanted & self._to_drain.keys())

    def _tell_to_drain(self) -> None:
        if self._coordinator is not None:
            trunks = [(a, b) for a, b in sorted(sorted(ends) for ends in self._to_drain)]
            self._coordinator.tell(ToDrain(tuple(trunks)))

    def _drain_alone(self, ends: frozenset[str]) -> None:
        """Leave a trunk that the coordinator, if there is one, has not planned around: no packet is to be lost all the same."""
        if ends in self._to_drain and ends not in self._draining:
            self._alone.add(ends)
            self._change()

    def _say_drained(self, ends: frozenset[str]) -> None:
        for client in self._to_drain[ends]:
            client.tell(Drained())
        self._alone.discard(ends)

    def _forget(self, client: Client) -> None:
        """Use trunks again that only this client wanted drained, and that were not cut."""
        for ends, clients in list(self._to_drain.items()):
            if client in clients:
                clients.remove(client)
                if not clients:
                    del self._to_drain[ends]
                    self._alone.discard(ends)
                    self._tell_to_drain()
                    self._change()

    def _kept_ways(self) -> WantedWays:
        """Read the ways wanted by a controller that died: its rules are in the switches."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=WantedWays) if self._file else WantedWays()
        except (OSError, *UNDECODABLE):
            return WantedWays()

    def _keep_ways(self) -> None:
        if self._file is not None:
            new = self._file.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(self._ways))
            new.replace(self._file)

    @property
    def _file(self) -> Path | None:
        return None if self.socket is None else self.socket.with_name("ways.json")

    def _weigh(self, loads: dict[tuple[str, str], float]) -> None:
        """Share research by what grants leave of trunks, at once: no group gets another way by that.

        Groups that a planned change has not reached yet get it with the end of that.
        """
        self._loads, has_sent = loads, self._has_sent
        pins = (self._setting or self._have).pins
        self._wanted = tables(self.topology, self._left, pins, loads)
        for session in self._sessions.values():
            if session.installed is not None:
                has = session.installed.groups
                wanted = self._wanted[session.name].groups.items()
                changed = {n: g for n, g in wanted if (old := has.get(n)) is not None and g.is_weighed_anew(old)}
                self._send(session, Update(groups_changed=changed))
        self._has_sent = has_sent  # a planned change need not wait until connections are shared again

    # ------------------------------------------------------------ planned changes

    def _begin_change(self) -> None:
        self._setting, self._again = self._ways, False
        self._changes, self._change_began_s = self._changes + 1, time.monotonic()

    def _change(self) -> None:
        """Lead packets as is wanted now, stage by stage; after the change that is under way, if one is."""
        if self._setting is not None:
            self._again = True
            return
        self._begin_change()
        self._left = self._dead | self._draining
        self._wanted = tables(self.topology, self._left, self._ways.pins, self._loads)
        meanwhile = tables_meanwhile(self.topology, self._left, self._ways.pins, self._have.pins, self._loads)
        parts = {}
        for name, session in self._sessions.items():
            if session.installed is not None:
                its = meanwhile[name]
                parts[name] = staged(difference(session.installed, its), its)[:-1]
        for stage in range(max(map(len, parts.values()), default=0)):
            self._stages.append({n: some[stage] for n, some in parts.items() if stage < len(some) and len(some[stage])})
        self._go_on()

    def _go_on(self) -> None:
        """Send the next stage, if packets follow the one before; after the last, report that it is done."""
        if self._setting is None or self._is_waiting or not self._all_programmed():
            return
        if self._has_sent:
            self._has_sent = False
            if self.control is not None:
                self._is_waiting = True
                threading.Thread(target=self._wait_for_caches, args=(self.control,), daemon=True).start()
                return
        while self._stages and not self._has_sent:
            for name, update in self._stages.popleft().items():
                self._send(self._sessions[name], update)
        if self._has_sent:
            return
        self._have, self._setting = self._setting, None
        took_s = round(time.monotonic() - self._change_began_s, 4)
        self._tell("ways", number=self._have.number, pins=len(self._have.pins), took_s=took_s)
        if self._coordinator is not None:
            self._coordinator.tell(WaysInForce(self._have.number))
        changes = self._changes
        self._after(LEFT_S, lambda: self._clear(changes))
        if self._again:
            self._change()

    def _give_up(self) -> None:
        """Give the planned change up: a switch lacks what it should have, and later stages would lead packets to nowhere.

        What switches have by now leads every packet; the next change begins from there.
        """
        self._stages.clear()
        if self._setting is not None:
            self._tell("given_up", number=self._setting.number)
            self._setting, self._has_sent = None, False
            self._changes += 1

    def _wait_for_caches(self, control: Path) -> None:
        """Go on when packets follow the tables. A daemon looks through its caches when a switch is sent a rule that it has."""

        def touch() -> None:
            session = next(iter(self._sessions.values()), None)
            rule = next(iter(self._wanted[session.name].rules.values())) if session else None  # of CLASSIFY
            if session and rule and session.installed and rule.cookie in session.installed.cookies:
                message = wire.rule_mod(session.datapath, rule)
                message.set_xid(0)  # numbers are of the application's own thread
                message.serialize()
                session.datapath.send(message.buf)

        def go_on() -> None:
            self._is_waiting = False
            self._go_on()

        wait_until_followed(control, touch)
        self._post(go_on)

    def _clear(self, changes: int) -> None:
        """Take away what only old ways needed, now that no packet is on one; trunks may be cut."""
        if self._setting is not None or changes != self._changes:
            return  # the next change ends with this, too
        for session in self._sessions.values():
            self._update(session)
        for ends in self._left & self._to_drain.keys():
            self._say_drained(ends)

    def _begin(self, session: _Session) -> None:
        """Program a switch, for all of its answers are there; one that refused a message stays as it is until another change."""
        session.installed = Installed(frozenset(session.cookies), session.groups)
        self._was_programmed = False
        if not session.was_refused:
            self._tell("connected", switch=session.name)
        if not session.was_refused or self._setting is not None:
            self._update(session)
        session.was_refused = False
        if self._again and self._setting is None:
            self._change()
        self._tell_if_programmed()
        self._go_on()

    def _update(self, session: _Session) -> None:
        if session.installed is not None:
            self._send(session, difference(session.installed, self._wanted[session.name]))

    def _send(self, session: _Session, update: Update) -> None:
        if session.installed is None or not len(update):
            return
        session.installed, session.is_short = after(session.installed, update), False
        session.bundles += 1
        session.control_bundle(wire.OPEN, session.bundles)
        session.write(wire.messages(session.datapath, update), session.bundles)
        session.open_bundles[session.write_barrier()] = session.bundles
        self._has_sent = True
        self._tell("updated", switch=session.name, messages=len(update))

    def _all_programmed(self) -> bool:
        sessions = self._sessions
        return len(sessions) == len(self.topology.switches) and all(
            s.installed is not None and not s.barriers for s in sessions.values()
        )

    def _tell_if_programmed(self) -> None:
        is_short = any(session.is_short for session in self._sessions.values())
        if self._all_programmed() and not self._was_programmed and not is_short:
            self._was_programmed = True
            # what a controller that died had reported of trunks may be out of date: the tables stand for these
            dead = sorted(sorted(ends) for ends in self._dead)
            self._tell("programmed", took_s=round(time.monotonic() - self._began_s, 4), dead=dead)

    def _tell(self, event: str, **facts: Any) -> None:
        type(self).tell(msgspec.json.encode({"event": event, "at_s": time.monotonic(), **facts}).decode())
