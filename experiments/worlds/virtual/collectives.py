"""Ranks of one attempt of a gang, which compute in step: what their rendezvous and their collectives do, live.

They begin when the last of them has proved its state, take every snapshot at one step, and stand still as soon as one of them has
gone: no step is done by a part of them. What they send one another is not simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.worlds.virtual.hosts import Machine, Process
from testbed.ranks import Rank


@dataclass(eq=False)
class Collective:
    """The processes of one attempt, by job, once each has proved its state."""

    size: int
    ranks: dict[str, tuple[Machine, Process]] = field(default_factory=dict)
    sequence: int = 0  # of the last snapshot that was begun,
    taken_step: int = 0  # and its step: while ranks stand still for it, they are at no other
    runs: bool = False

    def join(self, machine: Machine, process: Process, now_s: float) -> bool:
        """Note a rank that is ready. Whether it was the last, so that all compute from now on."""
        self.ranks[process.spec.name] = (machine, process)
        if len(self.ranks) < self.size:
            return False
        self.runs = True
        pace = max(process.pace for _, process in self.ranks.values())
        for _, other in self.ranks.values():
            other.pace, other.running_from_s = pace, now_s  # the slowest holds up all
        return True

    def begin_snapshot(self, sequence: int, step: int) -> int:
        """All ranks take one of that number; the step that it is of."""
        self.sequence, self.taken_step = sequence, max(self.taken_step, step)
        return self.taken_step

    def stand_still(self, now_s: float) -> None:
        """No rank does another step."""
        self.runs = False
        for _, process in self.ranks.values():
            process.stand_still(now_s)
            process.halted_step = max(process.halted_step, self.taken_step)


class Collectives:
    """All that there are, by gang and attempt."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Collective] = {}

    def of(self, rank: Rank, attempt: int) -> Collective:
        """The collective of a rank's attempt."""
        return self._known.setdefault((rank.gang, attempt), Collective(rank.ranks))

    def leave(self, rank: Rank, process: Process, now_s: float) -> None:
        """A process has gone; the others wait to be stopped."""
        collective = self.of(rank, process.attempt)
        collective.stand_still(now_s)
        collective.ranks.pop(process.spec.name, None)
        if not collective.ranks:
            del self._known[rank.gang, process.attempt]
