"""Flow and group tables as data, and what changes one state of a switch into another without a moment that loses packets.

A rule is known by its cookie, a hash of its whole content: what a switch reports after a restart of the controller is
compared by cookies, without parsing it. Order of an update: groups are made or changed, then rules that need them
added (an added rule replaces one with the same match and priority). Then rules that are no longer wanted are deleted,
and last groups that nothing uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b


class GroupKind(IntEnum):
    """Rule by which a group chooses among its buckets, by OpenFlow's number."""

    # by a hash of the connection, in proportion to the weights, among those whose port is up
    SELECT = 1
    FAST_FAILOVER = 3  # the first whose port is up


@dataclass(frozen=True, slots=True)
class GroupBucket:
    """A way out: a port, which the switch watches itself. `weight`: 0 in a group that does not share."""

    port: int
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an OpenFlow switch."""

    kind: GroupKind
    buckets: tuple[GroupBucket, ...]

    def is_weighed_anew(self, before: Group) -> bool:
        """Return True if it leads the same ways in other parts."""
        ports = [{bucket.port for bucket in group.buckets} for group in (self, before)]
        return self.kind is before.kind is GroupKind.SELECT and ports[0] == ports[1] and self != before


@dataclass(frozen=True, slots=True)
class Output:
    """The action of sending through a port (never back through the one it came by)."""

    port: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    """The action of sending through a group."""

    group: int


@dataclass(frozen=True, slots=True)
class GotoTable:
    """The action of going on in another table."""

    table: int


@dataclass(frozen=True, slots=True)
class AnswerArp:
    """The action of turning an ARP request into its answer, and sending it back through the port it came by."""

    mac: str
    address: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The action of forwarding nowhere."""


Action = Output | ToGroup | GotoTable | AnswerArp | Drop


@dataclass(frozen=True)
class FlowRule:
    """A flow entry: which packets (OXM fields), and what happens to them; of several that match, the highest priority."""

    table: int
    priority: int
    match: tuple[tuple[str, int | str], ...]
    action: Action

    @cached_property
    def cookie(self) -> int:
        """64 bits that are the same for equal rules, in every process."""
        text = repr((self.table, self.priority, self.match, self.action))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class SwitchTables:
    """Tables of a switch. `rules` by cookie, `groups` by number.

    `stages`: of rules by cookie and of groups by number, how many switches a packet still passes behind this one, 0 if it is not
    there. Changed in that order, tables lead every packet by old ways up to some switch, and by new ones from there to its end.
    """

    rules: Mapping[int, FlowRule]
    groups: Mapping[int, Group]
    stages: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Installed:
    """Report of a switch: cookies of its rules, and its groups (None: one that this controller cannot have made)."""

    cookies: frozenset[int] = frozenset()
    groups: Mapping[int, Group | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """Steps from what is installed to what is wanted, to be sent in this order."""

    groups_added: dict[int, Group] = field(default_factory=dict)
    groups_changed: dict[int, Group] = field(default_factory=dict)
    rules_added: list[FlowRule] = field(default_factory=list)
    cookies_deleted: list[int] = field(default_factory=list)
    groups_deleted: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of messages."""
        return sum(len(getattr(self, each.name)) for each in fields(self))


def staged(update: Update, wanted: SwitchTables) -> list[Update]:
    """Return the same update in parts, by stage.

    The last part takes away what is no longer wanted, when no packet is on an old way any more. (Numbers of groups
    and cookies do not meet: a cookie is a hash of 64 bits.)
    """
    last = max(wanted.stages.values(), default=0)
    parts = []
    for stage in range(last + 1):

        def of(numbers: Iterable[int], stage: int = stage) -> list[int]:
            return [number for number in numbers if wanted.stages.get(number, 0) == stage]

        part = Update(
            groups_added={number: update.groups_added[number] for number in of(update.groups_added)},
            groups_changed={number: update.groups_changed[number] for number in of(update.groups_changed)},
            rules_added=[wanted.rules[cookie] for cookie in of(rule.cookie for rule in update.rules_added)],
        )
        parts.append(part)
    gone = Update(cookies_deleted=update.cookies_deleted, groups_deleted=update.groups_deleted)
    return [*parts, gone]


def after(installed: Installed, update: Update) -> Installed:
    """Return the report of a switch that has taken an update."""
    groups = {**installed.groups, **update.groups_added, **update.groups_changed}
    cookies = installed.cookies | {rule.cookie for rule in update.rules_added}
    return Installed(
        cookies - set(update.cookies_deleted),
        {number: group for number, group in groups.items() if number not in update.groups_deleted},
    )


def difference(installed: Installed, wanted: SwitchTables) -> Update:
    """Return the least update: what is as it should be is not touched.

    A group of another kind is changed like one of other buckets.
    """
    groups = installed.groups
    return Update(
        groups_added={n: g for n, g in wanted.groups.items() if n not in groups},
        groups_changed={n: g for n, g in wanted.groups.items() if n in groups and groups[n] != g},
        rules_added=[rule for cookie, rule in wanted.rules.items() if cookie not in installed.cookies],
        cookies_deleted=sorted(installed.cookies - wanted.rules.keys()),
        groups_deleted=sorted(groups.keys() - wanted.groups.keys()),
    )
