"""Messages in bytes, compared with os-ken's of the same meaning; and what is made of them in bundles."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.openflow import wire
from controller.openflow.routes import tables
from controller.openflow.tables import (
    AnswerArp,
    Drop,
    FlowRule,
    GotoTable,
    Group,
    GroupKind,
    Output,
    ToGroup,
)
from tests.test_openflow_routes import topologies
from topologies.openflow import Topology

THEIRS, PROTOCOL = ofproto_v1_3_parser, ofproto_v1_3
DATAPATH = ProtocolDesc(version=PROTOCOL.OFP_VERSION)


def serialized(message: Any) -> bytes:
    message.set_xid(0)
    message.serialize()
    return bytes(message.buf)


def their_rule(rule: FlowRule) -> bytes:
    match rule.action:
        case Drop():
            instructions = []
        case GotoTable(table):
            instructions = [THEIRS.OFPInstructionGotoTable(table)]
        case Output(port):
            actions = [THEIRS.OFPActionOutput(port)]
        case ToGroup(group):
            actions = [THEIRS.OFPActionGroup(group)]
        case AnswerArp(mac, address):
            actions = [
                THEIRS.NXActionRegMove("eth_src", "eth_dst", 48),
                THEIRS.NXActionRegMove("arp_sha", "arp_tha", 48),
                THEIRS.NXActionRegMove("arp_spa", "arp_tpa", 32),
                THEIRS.OFPActionSetField(eth_src=mac),
                THEIRS.OFPActionSetField(arp_op=2),
                THEIRS.OFPActionSetField(arp_sha=mac),
                THEIRS.OFPActionSetField(arp_spa=address),
                THEIRS.OFPActionOutput(PROTOCOL.OFPP_IN_PORT),
            ]
    if isinstance(rule.action, Output | ToGroup | AnswerArp):
        instructions = [THEIRS.OFPInstructionActions(PROTOCOL.OFPIT_APPLY_ACTIONS, actions)]
    return serialized(
        THEIRS.OFPFlowMod(
            DATAPATH,
            cookie=rule.cookie,
            table_id=rule.table,
            priority=rule.priority,
            match=THEIRS.OFPMatch(**dict(rule.match)),
            instructions=instructions,
        )
    )


def their_group(command: int, number: int, group: Group) -> bytes:
    kinds = {GroupKind.SELECT: PROTOCOL.OFPGT_SELECT, GroupKind.FAST_FAILOVER: PROTOCOL.OFPGT_FF}
    buckets = [
        THEIRS.OFPBucket(
            weight=b.weight, watch_port=b.port, watch_group=PROTOCOL.OFPG_ANY, actions=[THEIRS.OFPActionOutput(b.port)]
        )
        for b in group.buckets
    ]  # fmt: skip
    return serialized(THEIRS.OFPGroupMod(DATAPATH, command, kinds[group.kind], number, buckets))


@given(topologies())
def test_rules_and_groups_are_os_kens_to_the_byte(topology: Topology) -> None:
    for switch in tables(topology).values():
        for rule in switch.rules.values():
            assert wire.rule_mod(rule) == their_rule(rule), rule
        for number, group in switch.groups.items():
            for command in (PROTOCOL.OFPGC_ADD, PROTOCOL.OFPGC_MODIFY):
                assert wire.group_mod(command, number, group) == their_group(command, number, group)


def test_deletions_barriers_and_bundles_are_os_kens_to_the_byte() -> None:
    deletion = THEIRS.OFPFlowMod(
        DATAPATH,
        cookie=7,
        priority=0,
        cookie_mask=(1 << 64) - 1,
        table_id=PROTOCOL.OFPTT_ALL,
        command=PROTOCOL.OFPFC_DELETE,
        out_port=PROTOCOL.OFPP_ANY,
        out_group=PROTOCOL.OFPG_ANY,
    )
    assert wire.rule_deletion(7) == serialized(deletion)
    group = THEIRS.OFPGroupMod(DATAPATH, PROTOCOL.OFPGC_DELETE, PROTOCOL.OFPGT_SELECT, 5)
    assert wire.group_deletion(5) == serialized(group)
    assert wire.barrier() == serialized(THEIRS.OFPBarrierRequest(DATAPATH))
    flags = PROTOCOL.ONF_BF_ATOMIC | PROTOCOL.ONF_BF_ORDERED
    for kind, theirs in (
        (wire.OPEN, PROTOCOL.ONF_BCT_OPEN_REQUEST),
        (wire.COMMIT, PROTOCOL.ONF_BCT_COMMIT_REQUEST),
        (wire.DISCARD, PROTOCOL.ONF_BCT_DISCARD_REQUEST),
    ):
        control = THEIRS.ONFBundleCtrlMsg(DATAPATH, 9, theirs, flags, [])
        assert wire.bundle_control(kind, 9) == serialized(control)
    add = THEIRS.ONFBundleAddMsg(DATAPATH, 9, flags, THEIRS.OFPBarrierRequest(DATAPATH), [])
    assert wire.bundle_add(9, wire.barrier()) == serialized(add)
    assert wire.with_number(wire.barrier(), 0x1234)[4:8] == (0x1234).to_bytes(4)
