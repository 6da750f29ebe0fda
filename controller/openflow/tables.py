"""Flow and group tables as data, and what changes one state of a switch into another without a moment that loses packets.

A rule is known by its cookie, a hash of all that it says: what a switch reports after a restart of the controller is compared by
cookies, without parsing it. Order of an update: groups are made or changed, rules that need them added (an added rule replaces
one with the same match and priority), rules that are no longer wanted deleted, and last the groups that nothing uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b


class GroupKind(StrEnum):
    """How a group chooses among its buckets."""

    SELECT = (
        "select"  # by a hash of the connection, in proportion to the weights, among those whose port is up
    )
    FAST_FAILOVER = "fast_failover"  # the first whose port is up


@dataclass(frozen=True, slots=True)
class GroupBucket:
    """One way out: a port, which the switch watches itself. `weight`: 0 in a group that does not share."""

    port: int
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A group of an OpenFlow switch."""

    kind: GroupKind
    buckets: tuple[GroupBucket, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """Send through a port (never back through the one it came by)."""

    port: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Send through a group."""

    group: int


@dataclass(frozen=True, slots=True)
class GotoTable:
    """Go on in another table."""

    table: int


@dataclass(frozen=True, slots=True)
class AnswerArp:
    """Turn an ARP request into its answer, and send it back through the port it came by."""

    mac: str
    address: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Forward nowhere."""


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
    """All that a switch is told. `rules` by cookie, `groups` by number.

    `stages`: of rules by cookie and of groups by number, how many switches a packet still passes behind this one, 0 if it is not
    there. Changed in that order, tables lead every packet by old ways up to some switch, and by new ones from there to its end.
    """

    rules: Mapping[int, FlowRule]
    groups: Mapping[int, Group]
    stages: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Installed:
    """What a switch reports: cookies of its rules, and its groups (None: one that this controller cannot have made)."""

    cookies: frozenset[int] = frozenset()
    groups: Mapping[int, Group | None] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Steps from what is installed to what is wanted, to be sent in this order."""

    groups_added: dict[int, Group]
    groups_changed: dict[int, Group]
    rules_added: list[FlowRule]
    cookies_deleted: list[int]
    groups_deleted: list[int]

    def __len__(self) -> int:
        """Number of messages."""
        changed = len(self.groups_added) + len(self.groups_changed) + len(self.rules_added)
        return changed + len(self.cookies_deleted) + len(self.groups_deleted)


def staged(update: Update, wanted: SwitchTables) -> list[Update]:
    """The same update in parts, by stage; the last, which takes away what is no longer wanted, is for when no packet is on an old
    way any more. (Numbers of groups and cookies do not meet: a cookie is a hash of 64 bits.)"""
    last = max(wanted.stages.values(), default=0)
    parts = []
    for stage in range(last + 1):

        def of(numbers: Iterable[int], stage: int = stage) -> list[int]:
            return [number for number in numbers if wanted.stages.get(number, 0) == stage]

        parts.append(
            Update(
                {number: update.groups_added[number] for number in of(update.groups_added)},
                {number: update.groups_changed[number] for number in of(update.groups_changed)},
                [wanted.rules[cookie] for cookie in of(rule.cookie for rule in update.rules_added)],
                [],
                [],
            )
        )
    return [*parts, Update({}, {}, [], update.cookies_deleted, update.groups_deleted)]


def after(installed: Installed, update: Update) -> Installed:
    """What a switch reports that has taken an update."""
    groups = {**(installed.groups or {}), **update.groups_added, **update.groups_changed}
    cookies = installed.cookies | {rule.cookie for rule in update.rules_added}
    return Installed(
        cookies - set(update.cookies_deleted),
        {number: group for number, group in groups.items() if number not in update.groups_deleted},
    )


def difference(installed: Installed, wanted: SwitchTables) -> Update:
    """The least update: what is as it should be is not touched. A group of another kind is changed like one of other buckets."""
    groups = installed.groups or {}
    return Update(
        groups_added={n: g for n, g in wanted.groups.items() if n not in groups},
        groups_changed={n: g for n, g in wanted.groups.items() if n in groups and groups[n] != g},
        rules_added=[rule for cookie, rule in wanted.rules.items() if cookie not in installed.cookies],
        cookies_deleted=sorted(installed.cookies - wanted.rules.keys()),
        groups_deleted=sorted(groups.keys() - wanted.groups.keys()),
    )


def as_installed(tables: SwitchTables) -> Installed:
    """What a switch reports that has taken these tables."""
    return Installed(frozenset(tables.rules), dict(tables.groups))
