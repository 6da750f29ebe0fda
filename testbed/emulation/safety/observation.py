"""Disturbances of a campus by its machine, looked at once a second: the reason for something late.

A move that misses its deadline on a busy machine is the machine's doing, not the protocol's. The fidelity verdict
judges a whole run so. This does it for one host in one second: its tasks waited for a processor, or a queue dropped its
packets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bpf.observer import Observation, Observer, inode_of

SWITCHES = "the switches"  # bridges or Open vSwitch, and their side of every cable
MACHINE = "the machine"  # coordinator, pools of agents
# A task that waits for so long misses a tenth of the agents' period of 100 ms.
WAIT_S = 0.01


@dataclass(frozen=True, slots=True)
class DisturbedWindow:
    """A window in which a host (or the switches, or the machine) was disturbed; times by CLOCK_MONOTONIC."""

    where: str
    from_s: float
    to_s: float
    # of a host's tasks for a processor, 99th percentile
    waited_s: float
    queue_drops: int


class CampusObserver:
    """Observer of every namespace of a campus until `close`; `look` ends a window. BpfError as `Observer`.

    `pids`: a process in the network of each host, by name, and of the switches, by "".
    """

    def __init__(self, pids: Mapping[str, int], now_s: float) -> None:
        inodes = {name or SWITCHES: inode_of(pid) for name, pid in pids.items()}
        self._observer = Observer(inodes | {MACHINE: inode_of("self")})
        self._before, self._looked_s = self._observer.read(), now_s
        self.disturbances: list[DisturbedWindow] = []

    def look(self, now_s: float) -> dict[str, Observation]:
        """Return counts since the beginning; the window since the last look is judged."""
        seen = self._observer.read()
        for where, whole in seen.items():
            window = whole - self._before[where]
            waited_s, drops = window.run_delay.quantile_s(0.99), window.queue_drops
            if waited_s > WAIT_S or drops:
                self.disturbances.append(DisturbedWindow(where, self._looked_s, now_s, waited_s, drops))
        self._before, self._looked_s = seen, now_s
        return seen

    def close(self) -> None:
        """Take the programs off; safe to repeat."""
        self._observer.close()


def cause_of(disturbances: Sequence[DisturbedWindow], hosts: Sequence[str], from_s: float, to_s: float) -> str:
    """Return why something between `hosts` was late from `from_s` to `to_s`, in words: the worst that happened there."""
    found = [
        each
        for each in disturbances
        if each.where in (*hosts, SWITCHES, MACHINE) and each.from_s < to_s and each.to_s > from_s
    ]
    words = []
    if waiting := max((each for each in found if each.waited_s > WAIT_S), key=lambda d: d.waited_s, default=None):
        words.append(f"tasks of {waiting.where} waited {waiting.waited_s * 1e3:.0f} ms for a processor")
    if drops := sum(each.queue_drops for each in found):
        where = ", ".join(dict.fromkeys(each.where for each in found if each.queue_drops))
        words.append(f"full queues dropped {drops} packets ({where})")
    return "; ".join(words) or "no task waited for a processor, no queue dropped"


def shifted(disturbances: Sequence[DisturbedWindow], start_s: float) -> list[DisturbedWindow]:
    """Return the same disturbances, with times since `start_s`."""
    return [replace(each, from_s=each.from_s - start_s, to_s=each.to_s - start_s) for each in disturbances]
