"""The coordinator's journal in a virtual world, and recovery of the coordinator from it.

Live, the journal is a file (`persistence.journal`), and `recovery` reads it; here it is a list. In both cases the new
coordinator handles the events of the dead one again: same events, same effects. It is an error if one of the facts
differs.

A quiet world also records the changes that it makes in place of heartbeats (`heartbeat_elision`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model.cluster import Cluster
from testbed.errors import InvariantBroken

Told = Callable[[Cluster], None]  # sets in a coordinator's state what a heartbeat would have set


class MemoryJournal:
    """Record of all that a coordinator was handed, with the time of it."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, ev.Event | Told]] = []

    @property
    def last_s(self) -> float:
        """The time of the last entry."""
        return self._entries[-1][0] if self._entries else 0.0

    def keep(self, at_s: float, entry: ev.Event | Told) -> None:
        """Append an entry."""
        self._entries.append((at_s, entry))

    def events(self) -> Iterator[tuple[float, ev.Event]]:
        """Return the entries that a live journal would hold: all but those in place of heartbeats."""
        return ((at_s, entry) for at_s, entry in self._entries if not callable(entry))

    def recall(self, fresh: Coordinator, facts: list[tuple[float, Any]]) -> Coordinator:
        """Make a new coordinator the one that died. InvariantBroken: it records other facts than those."""
        recorded = iter(facts)
        for at_s, entry in self._entries:
            if callable(entry):
                entry(fresh.cluster)
                continue
            for effect in fresh.handle(entry, at_s):
                if isinstance(effect, do.Record):
                    _compare((at_s, effect.fact), next(recorded, None))
        if (left := next(recorded, None)) is not None:
            _compare(None, left)
        return fresh


def _compare(again: tuple[float, Any] | None, before: tuple[float, Any] | None) -> None:
    if again != before:
        raise InvariantBroken(
            "journal", "a coordinator that is handed the same events decides otherwise", [str(before), str(again)]
        )
