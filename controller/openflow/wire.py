"""Flow and group tables as messages of OpenFlow 1.3, of os-ken's classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as protocol
from os_ken.ofproto import ofproto_v1_3_parser as parser

from controller.openflow.tables import Action, AnswerArp, Drop, FlowRule, GotoTable, Group, Output, ToGroup, Update

OPEN, COMMIT, DISCARD = (
    protocol.ONF_BCT_OPEN_REQUEST,
    protocol.ONF_BCT_COMMIT_REQUEST,
    protocol.ONF_BCT_DISCARD_REQUEST,
)
BUNDLED = protocol.ONF_BF_ATOMIC | protocol.ONF_BF_ORDERED


def rule_mod(datapath: Any, rule: FlowRule) -> Any:
    """Return the message that adds a rule, or replaces one with its match and priority."""
    return parser.OFPFlowMod(
        datapath,
        cookie=rule.cookie,
        table_id=rule.table,
        priority=rule.priority,
        match=parser.OFPMatch(**dict(rule.match)),
        instructions=_instructions(rule.action),
    )


def bundle_control(datapath: Any, kind: int, bundle: int) -> Any:
    """Return the message that opens, commits or discards a bundle (ONF's extension 230).

    The bundle's messages take effect at once, or none does.
    """
    return parser.ONFBundleCtrlMsg(datapath, bundle, kind, BUNDLED, [])


def bundled(datapath: Any, bundle: int, message: Any) -> Any:
    """Return the message that puts another one into a bundle."""
    return parser.ONFBundleAddMsg(datapath, bundle, BUNDLED, message, [])


def messages(datapath: Any, update: Update) -> Iterator[tuple[str, Any]]:
    """Yield the messages of an update, each with words for it."""
    changes = ((protocol.OFPGC_ADD, update.groups_added), (protocol.OFPGC_MODIFY, update.groups_changed))
    for command, groups in changes:
        for number, group in groups.items():
            buckets = _buckets(group)
            made = parser.OFPGroupMod(datapath, command, group.kind, number, buckets)
            yield f"group {number}: {group}", made
    for rule in update.rules_added:
        yield f"rule {rule.cookie:#x}: {rule}", rule_mod(datapath, rule)
    for cookie in update.cookies_deleted:
        deletion = parser.OFPFlowMod(
            datapath,
            cookie=cookie,
            cookie_mask=(1 << 64) - 1,
            table_id=protocol.OFPTT_ALL,
            command=protocol.OFPFC_DELETE,
            out_port=protocol.OFPP_ANY,
            out_group=protocol.OFPG_ANY,
        )
        yield f"rule {cookie:#x}: delete", deletion
    for number in update.groups_deleted:
        gone = parser.OFPGroupMod(datapath, protocol.OFPGC_DELETE, protocol.OFPGT_SELECT, number)
        yield f"group {number}: delete", gone


def _buckets(group: Group) -> list[Any]:
    return [
        parser.OFPBucket(
            weight=bucket.weight,
            watch_port=bucket.port,
            watch_group=protocol.OFPG_ANY,
            actions=[parser.OFPActionOutput(bucket.port)],
        )
        for bucket in group.buckets
    ]


def _instructions(action: Action) -> list[Any]:
    match action:
        case Drop():
            return []
        case GotoTable(table):
            return [parser.OFPInstructionGotoTable(table)]
        case Output(port):
            actions = [parser.OFPActionOutput(port)]
        case ToGroup(group):
            actions = [parser.OFPActionGroup(group)]
        case AnswerArp(mac, address):
            moved = (("eth_src", "eth_dst", 48), ("arp_sha", "arp_tha", 48), ("arp_spa", "arp_tpa", 32))
            answer = ({"eth_src": mac}, {"arp_op": 2}, {"arp_sha": mac}, {"arp_spa": address})
            actions = [parser.NXActionRegMove(*each) for each in moved]
            actions += [parser.OFPActionSetField(**each) for each in answer]
            actions.append(parser.OFPActionOutput(protocol.OFPP_IN_PORT))
    return [parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)]
