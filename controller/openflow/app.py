"""OpenFlow 1.3 through os-ken: gives every switch the tables of `routes`, and keeps them with the trunks' state.

On connection a switch says which ports are up, which rules and groups it has; it is sent the difference, then a barrier. A trunk
whose end goes down or comes back changes the routes of all: groups of other switches that led there are changed (GROUP_MOD),
while the switch at the trunk has already turned to its next live bucket by itself. What happens is written as a line of JSON.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

from controller.openflow.routes import tables
from controller.openflow.tables import (
    Action,
    AnswerArp,
    Drop,
    GotoTable,
    Group,
    GroupBucket,
    GroupKind,
    Installed,
    Output,
    SwitchTables,
    ToGroup,
    as_installed,
    difference,
)
from topologies.openflow import Topology

log = logging.getLogger("reclaimnet.openflow")


@dataclass(slots=True)
class _Session:
    """A connected switch. `installed` is None until both of its answers, rules and groups, are there."""

    name: str
    datapath: Any
    cookies: set[int] | None = None
    groups: dict[int, Group | None] | None = None
    installed: Installed | None = None
    # transaction numbers of barriers that have not been answered
    barriers: set[int] = field(default_factory=set)


class FabricController(OSKenApp):  # type: ignore[misc]
    """The os-ken application. `configure` comes before the first switch connects."""

    OFP_VERSIONS: ClassVar[list[int]] = [ofproto_v1_3.OFP_VERSION]
    topology: ClassVar[Topology]
    tell: ClassVar[Callable[[str], object]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names = {number: name for name, number in self.topology.switches.items()}
        self._sessions: dict[str, _Session] = {}
        # (switch, port) that its switch has reported down
        self._down: set[tuple[str, int]] = set()
        self._dead: frozenset[frozenset[str]] = frozenset()
        self._wanted: dict[str, SwitchTables] = tables(self.topology)
        self._began_s = time.monotonic()
        self._was_programmed = False

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, [CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def switch_connected(self, event: Any) -> None:
        """Ask a new switch for its ports, rules and groups."""
        datapath = event.msg.datapath
        name = self._names.get(datapath.id)
        if name is None:
            log.warning("datapath %x is not of this campus: left alone", datapath.id)
            return
        self._sessions[name] = _Session(name, datapath)
        parser, protocol = datapath.ofproto_parser, datapath.ofproto
        datapath.send_msg(parser.OFPPortDescStatsRequest(datapath, 0))
        datapath.send_msg(
            parser.OFPFlowStatsRequest(datapath, 0, protocol.OFPTT_ALL, protocol.OFPP_ANY, protocol.OFPG_ANY)
        )
        datapath.send_msg(parser.OFPGroupDescStatsRequest(datapath, 0))

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
        """Collect the cookies of the rules that a new switch has."""
        session = self._session(event)
        if session:
            session.cookies = (session.cookies or set()) | {rule.cookie for rule in event.msg.body}
            self._begin(session, event.msg)

    @set_ev_cls(ofp_event.EventOFPGroupDescStatsReply, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def groups_reported(self, event: Any) -> None:
        """Collect the groups that a new switch has; None for one of a form that `_update` never sends."""
        session = self._session(event)
        if not session:
            return
        protocol = event.msg.datapath.ofproto
        kinds = {protocol.OFPGT_SELECT: GroupKind.SELECT, protocol.OFPGT_FF: GroupKind.FAST_FAILOVER}
        session.groups = session.groups or {}
        for group in event.msg.body:
            ways = [
                (b.weight, b.watch_port, [getattr(a, "port", None) for a in b.actions]) for b in group.buckets
            ]
            known = group.type in kinds and all(ports == [watched] for _, watched, ports in ways)
            buckets = tuple(GroupBucket(port, weight) for weight, port, _ in ways)
            session.groups[group.group_id] = Group(kinds[group.type], buckets) if known else None
        self._begin(session, event.msg)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [MAIN_DISPATCHER])  # type: ignore[untyped-decorator]
    def barrier_passed(self, event: Any) -> None:
        """Say so when the last switch has taken all that it was sent."""
        session = self._session(event)
        if session:
            session.barriers.discard(event.msg.xid)
            self._tell_if_programmed()

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [MAIN_DISPATCHER, CONFIG_DISPATCHER])  # type: ignore[untyped-decorator]
    def refused(self, event: Any) -> None:
        """Report a message that a switch refused: the tables there are not what was wanted."""
        session = self._session(event)
        self._tell(
            "refused", switch=session.name if session else "?", type=event.msg.type, code=event.msg.code
        )

    def _session(self, event: Any) -> _Session | None:
        session = self._sessions.get(self._names.get(event.msg.datapath.id, ""))
        return session if session and session.datapath is event.msg.datapath else None

    def _port_is(self, session: _Session, port: Any, *, deleted: bool = False) -> None:
        protocol = session.datapath.ofproto
        down = port.state & protocol.OFPPS_LINK_DOWN or port.config & protocol.OFPPC_PORT_DOWN or deleted
        (self._down.add if down else self._down.discard)((session.name, port.port_no))

    def _follow_trunks(self) -> None:
        dead = frozenset(
            t.ends for t in self.topology.trunks if {(t.a, t.a_port), (t.b, t.b_port)} & self._down
        )
        if dead == self._dead:
            return
        for ends in sorted(dead ^ self._dead, key=sorted):
            self._tell("trunk", between=sorted(ends), up=ends not in dead)
        self._dead, self._wanted = dead, tables(self.topology, dead)
        self._began_s, self._was_programmed = time.monotonic(), False
        for session in self._sessions.values():
            self._update(session)
        self._tell_if_programmed()

    def _begin(self, session: _Session, reply: Any) -> None:
        """Start programming a switch once its last answer is there."""
        more = reply.flags & reply.datapath.ofproto.OFPMPF_REPLY_MORE
        if more or session.cookies is None or session.groups is None or session.installed is not None:
            return
        session.installed = Installed(frozenset(session.cookies), session.groups)
        self._was_programmed = False
        self._update(session)
        self._tell_if_programmed()

    def _update(self, session: _Session) -> None:
        if session.installed is None:
            return
        wanted = self._wanted[session.name]
        update = difference(session.installed, wanted)
        session.installed = as_installed(wanted)
        if not len(update):
            return
        datapath = session.datapath
        parser, protocol = datapath.ofproto_parser, datapath.ofproto
        kinds = {
            GroupKind.SELECT: protocol.OFPGT_SELECT,
            GroupKind.FAST_FAILOVER: protocol.OFPGT_FF,
        }

        def group_mod(command: int, number: int, group: Group) -> Any:
            buckets = [
                parser.OFPBucket(
                    weight=bucket.weight,
                    watch_port=bucket.port,
                    actions=[parser.OFPActionOutput(bucket.port)],
                )
                for bucket in group.buckets
            ]
            return parser.OFPGroupMod(datapath, command, kinds[group.kind], number, buckets)

        for number, group in update.groups_added.items():
            datapath.send_msg(group_mod(protocol.OFPGC_ADD, number, group))
        for number, group in update.groups_changed.items():
            datapath.send_msg(group_mod(protocol.OFPGC_MODIFY, number, group))
        for rule in update.rules_added:
            datapath.send_msg(
                parser.OFPFlowMod(
                    datapath,
                    cookie=rule.cookie,
                    table_id=rule.table,
                    priority=rule.priority,
                    match=parser.OFPMatch(**dict(rule.match)),
                    instructions=_instructions(datapath, rule.action),
                )
            )
        for cookie in update.cookies_deleted:
            datapath.send_msg(
                parser.OFPFlowMod(
                    datapath,
                    cookie=cookie,
                    cookie_mask=(1 << 64) - 1,
                    table_id=protocol.OFPTT_ALL,
                    command=protocol.OFPFC_DELETE,
                    out_port=protocol.OFPP_ANY,
                    out_group=protocol.OFPG_ANY,
                )
            )
        for number in update.groups_deleted:
            datapath.send_msg(
                parser.OFPGroupMod(datapath, protocol.OFPGC_DELETE, protocol.OFPGT_SELECT, number)
            )
        barrier = parser.OFPBarrierRequest(datapath)
        datapath.set_xid(barrier)
        session.barriers.add(barrier.xid)
        datapath.send_msg(barrier)
        self._tell("updated", switch=session.name, messages=len(update))

    def _tell_if_programmed(self) -> None:
        sessions = self._sessions
        ready = len(sessions) == len(self.topology.switches) and all(
            s.installed is not None and not s.barriers for s in sessions.values()
        )
        if ready and not self._was_programmed:
            self._was_programmed = True
            # what a controller that died had said of trunks may be no more so: the tables stand for these
            dead = sorted(sorted(ends) for ends in self._dead)
            self._tell("programmed", took_s=round(time.monotonic() - self._began_s, 4), dead=dead)

    def _tell(self, event: str, **facts: Any) -> None:
        type(self).tell(msgspec.json.encode({"event": event, "at_s": time.monotonic(), **facts}).decode())


def _instructions(datapath: Any, action: Action) -> list[Any]:
    parser, protocol = datapath.ofproto_parser, datapath.ofproto
    match action:
        case GotoTable(table):
            return [parser.OFPInstructionGotoTable(table)]
        case Drop():
            return []
        case Output(port):
            actions = [parser.OFPActionOutput(port)]
        case ToGroup(group):
            actions = [parser.OFPActionGroup(group)]
        case AnswerArp(mac, address):
            move = parser.NXActionRegMove
            actions = [
                move("eth_src", "eth_dst", 48),
                move("arp_sha", "arp_tha", 48),
                move("arp_spa", "arp_tpa", 32),
                parser.OFPActionSetField(eth_src=mac),
                parser.OFPActionSetField(arp_op=2),
                parser.OFPActionSetField(arp_sha=mac),
                parser.OFPActionSetField(arp_spa=address),
                parser.OFPActionOutput(protocol.OFPP_IN_PORT),
            ]
    return [parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)]
