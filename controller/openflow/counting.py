"""Counters of switches, requested once. Ports: what the kernel or the datapath knows at that moment. Rules and groups: what
Open vSwitch has taken from its caches by then, which is half a second old, or older on a busy machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from controller.openflow.clients import Client
from controller.openflow.tables import GroupKind, SwitchTables
from topologies.openflow import Counted, Topology, TrunkCount, WayPin


class CounterReading:
    """Answers of all switches to one client's question."""

    def __init__(self, client: Client, topology: Topology, pins: Iterable[WayPin]) -> None:
        self._client, self._topology = client, topology
        # at the first switch of each pin: cookie of its rule -> the pin's number
        self._pins = {(next((n for n in p.nodes if n in topology.switches), ""), p.number): p for p in pins}
        self._cookies: dict[tuple[str, int], int] = {}
        self._waiting: set[tuple[str, int]] = set()
        self._neighbours = {
            (switch, port): neighbour
            for switch, ports in topology.ports.items()
            for neighbour, port in ports.items()
        }
        self._hosts = {number: station.host for number, station in enumerate(topology.stations, 1)}
        self._selects: dict[str, dict[int, list[int]]] = {}
        self._sent: dict[tuple[str, int], int] = {}
        self._research: Counter[tuple[str, int]] = Counter()
        self._ways: Counter[int] = Counter()
        self._held: Counter[str] = Counter()

    def ask(self, switch: str, datapath: Any, has: SwitchTables) -> None:
        """Send a switch the questions; `has`: its tables."""
        parser, protocol = datapath.ofproto_parser, datapath.ofproto
        self._selects[switch] = {
            number: [bucket.port for bucket in group.buckets]
            for number, group in has.groups.items()
            if group.kind is GroupKind.SELECT
        }
        questions = [
            parser.OFPPortStatsRequest(datapath, 0, protocol.OFPP_ANY),
            parser.OFPGroupStatsRequest(datapath, 0, protocol.OFPG_ALL),
        ]
        if has.meters:
            questions.append(parser.OFPMeterStatsRequest(datapath, 0, protocol.OFPM_ALL))
        for pin in [pin for (first, _), pin in self._pins.items() if first == switch]:
            source, target = (self._topology.station_of[pin.nodes[end]] for end in (0, -1))
            ends = {("ipv4_src", source.address), ("ipv4_dst", target.address)}
            for cookie in (rule.cookie for rule in has.rules.values() if ends <= set(rule.match)):
                self._cookies[switch, cookie] = pin.number
                every = (protocol.OFPTT_ALL, protocol.OFPP_ANY, protocol.OFPG_ANY)
                questions.append(parser.OFPFlowStatsRequest(datapath, 0, *every, cookie, (1 << 64) - 1))
        for question in questions:
            self._waiting.add((switch, datapath.set_xid(question)))
            datapath.send_msg(question)

    def asked(self, switch: str, xid: int) -> bool:
        """Return True if this is the number of a request that the switch has not answered."""
        return (switch, xid) in self._waiting

    def waits_for(self, switch: str, reply: Any) -> bool:
        """Return True if it answers an open request; its last part closes the request."""
        if not self.asked(switch, reply.xid):
            return False
        if not reply.flags & reply.datapath.ofproto.OFPMPF_REPLY_MORE:
            self._waiting.discard((switch, reply.xid))
        return True

    def forget(self, switch: str) -> None:
        """Wait no more for a switch that is gone."""
        self._waiting = {question for question in self._waiting if question[0] != switch}

    def take_ports(self, switch: str, ports: Iterable[Any]) -> None:
        """Take what a switch has sent through its ports."""
        for port in ports:
            self._sent[switch, port.port_no] = port.tx_bytes

    def take_groups(self, switch: str, groups: Iterable[Any]) -> None:
        """Take what the buckets of research's groups have led out."""
        for group in groups:
            ports = self._selects[switch].get(group.group_id, [])
            for port, bucket in zip(ports, group.bucket_stats, strict=False):
                self._research[switch, port] += bucket.byte_count

    def take_meters(self, switch: str, meters: Iterable[Any]) -> None:
        """Take what guards have dropped."""
        for meter in meters:
            if host := self._hosts.get(meter.meter_id):
                self._held[host] += sum(band.byte_band_count for band in meter.band_stats)

    def take_rules(self, switch: str, rules: Iterable[Any]) -> None:
        """Take what a pin's rule has led."""
        for rule in rules:
            self._ways[self._cookies[switch, rule.cookie]] += rule.byte_count

    def tell_if_whole(self) -> bool:
        """Tell the client, if all have answered; whether they have."""
        if self._waiting:
            return False
        trunks = (
            TrunkCount(switch, neighbour, self._sent[switch, port], self._research[switch, port])
            for (switch, port), neighbour in self._neighbours.items()
            if (switch, port) in self._sent
        )
        self._client.tell(Counted(tuple(trunks), dict(self._ways), dict(self._held)))
        return True
