"""Hosts and the jobs on them as sets and columns, so that no decision looks at all of them, and the ends of leases and fences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from operator import attrgetter

import numpy as np

from controller.core.model.entities import LEAST_SENT, HostState, JobState
from controller.core.network.links import Network
from controller.core.placement.tree_rates import Places
from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled
from topologies.paths import Routes
from topologies.spec import Campus

_step, _sent_bytes = attrgetter("step"), attrgetter("sent_bytes")


@compiled
def checkpoint_bytes(payload_bytes: Floats, sent_bytes: Floats) -> Floats:
    """`JobState.checkpoint_bytes` of each; `sent_bytes` is NaN where it is not known."""
    counted = payload_bytes.copy()
    for job in range(len(counted)):
        if not np.isnan(sent_bytes[job]):
            counted[job] = max(sent_bytes[job], payload_bytes[job] * LEAST_SENT)
    return counted


class Occupants:
    """Jobs on volunteers, or with a GPU reserved there, in the order of volunteers' numbers and then of names.

    A job that has GPUs of two stands there twice. Columns are of one length; what changes from message to message is read
    when it is asked for.
    """

    def __init__(self) -> None:
        self._keys: list[tuple[int, str]] = []
        self.jobs: list[JobState] = []
        self.place: Numbers = np.empty(0, dtype=np.intp)  # of the volunteer
        self._fixed: Floats = np.empty((4, 0))

    @property
    def payload_bytes(self) -> Floats:
        """Bytes of each whole checkpoint."""
        column: Floats = self._fixed[0]
        return column

    @property
    def loss_budget_s(self) -> Floats:
        """The loss budget of each job; infinite where it has none."""
        column: Floats = self._fixed[1]
        return column

    @property
    def checkpoint_bytes(self) -> Floats:
        """`JobState.checkpoint_bytes` of each."""
        return checkpoint_bytes(self.payload_bytes, np.array(list(map(_sent_bytes, self.jobs)), dtype=float))

    @property
    def remaining_s(self) -> Floats:
        """`JobState.remaining_s` of each."""
        column: Floats = (self._fixed[2] - np.array(list(map(_step, self.jobs)), dtype=float)) * self._fixed[
            3
        ]
        return column

    def beside(self, job: JobState, hosts: tuple[str, ...]) -> Mask:
        """Mask the jobs other than this one that are not about to leave the volunteer; `hosts`: of the campus, by number."""
        stay = [
            other is not job and (other.move is None or other.host != hosts[place])
            for other, (place, _) in zip(self.jobs, self._keys, strict=True)
        ]
        return np.array(stay, dtype=bool)

    def add(self, place: int, job: JobState) -> None:
        """The job has a GPU there."""
        key = (place, job.name)
        at = bisect_left(self._keys, key)
        if self._keys[at : at + 1] == [key]:
            return
        spec = job.spec
        fixed = np.array(
            [[spec.payload_bytes], [spec.loss_budget_s], [spec.steps], [spec.step_s]], dtype=float
        )
        self._keys.insert(at, key)
        self.jobs.insert(at, job)
        self.place = np.concatenate((self.place[:at], np.array([place], dtype=np.intp), self.place[at:]))
        self._fixed = np.concatenate((self._fixed[:, :at], fixed, self._fixed[:, at:]), axis=1)

    def remove(self, place: int, job: JobState) -> None:
        """Take its checkpoint away from there."""
        key = (place, job.name)
        at = bisect_left(self._keys, key)
        if self._keys[at : at + 1] != [key]:
            return
        del self._keys[at], self.jobs[at]
        self.place = np.concatenate((self.place[:at], self.place[at + 1 :]))
        self._fixed = np.concatenate((self._fixed[:, :at], self._fixed[:, at + 1 :]), axis=1)


class HostIndex:
    """Sets of hosts by name, and volunteers by their number in `places`; `note` follows each change of a host."""

    places: Places  # the volunteers, by number, and their places in the tree of routes

    def __init__(
        self, campus: Campus, hosts: Mapping[str, HostState], network: Network, routes: Routes
    ) -> None:
        self._campus, self._network, self._routes = campus, network, routes
        self._names = [name for name, host in hosts.items() if host.is_volunteer]
        self.rerouted()
        self.volunteers = [hosts[name] for name in self.places.hosts]  # in the order of their numbers
        by_name = sorted(hosts.items())
        self.ownerless = [host for _, host in by_name if not host.is_volunteer]  # the others, by name
        self.usable_column: Mask = np.array([host.usable for host in self.volunteers], dtype=bool)
        # GPUs that are used or reserved
        self.taken_column: Floats = np.array([host.taken_gpus for host in self.volunteers], dtype=float)
        self.occupants = Occupants()  # jobs that have these GPUs
        self.usable = {name for name, host in hosts.items() if host.usable}
        self.apart = {name for name, host in hosts.items() if not host.connected}  # not connected

    def rerouted(self) -> None:
        """Derive the places of volunteers again: routes have changed."""
        self.places = Places(self._campus, self._names, self._network, self._routes)

    def note(self, host: HostState) -> None:
        """Bring sets and columns up to date with the host."""
        name, usable = host.name, host.usable
        (self.usable.add if usable else self.usable.discard)(name)
        (self.apart.discard if host.connected else self.apart.add)(name)
        number = self.places.number.get(name)
        if number is not None:
            self.usable_column[number], self.taken_column[number] = usable, host.taken_gpus

    def hold(self, job: JobState, host: HostState) -> None:
        """Note that the job has its GPUs of the host."""
        self.note(host)
        if (number := self.places.number.get(host.name)) is not None:
            self.occupants.add(number, job)

    def let_go(self, job: JobState, host: HostState) -> None:
        """Note that the job has no GPU of the host any more."""
        self.note(host)
        if (number := self.places.number.get(host.name)) is not None:
            self.occupants.remove(number, job)


class LeaseTimers:
    """The time at which the lease of each connected host, or its fence, ends. A lease counts as over after a margin."""

    def __init__(self, hosts: Mapping[str, HostState], margin_s: float) -> None:
        self._hosts, self._margin_s = list(hosts.values()), margin_s
        self._number = {host.name: number for number, host in enumerate(self._hosts)}
        # time and number of the host: a heap, in which only those entries count that still hold
        self._ends: list[tuple[float, int]] = []

    def watch(self, host: HostState) -> None:
        """Follow a change of the host's lease or fence."""
        at_s = self._ends_s(host)
        if at_s < inf:
            heappush(self._ends, (at_s, self._number[host.name]))

    def next_s(self) -> float:
        """Return the end of the first lease of a connected host, or of the first fence; inf: none ends."""
        ends = self._ends
        while ends and ends[0][0] != self._ends_s(self._hosts[ends[0][1]]):
            heappop(ends)
        return ends[0][0] if ends else inf

    def ended(self, now_s: float) -> list[tuple[HostState, float]]:
        """Hosts whose lease or fence has ended by now, in order, and the time of that."""
        found: dict[int, float] = {}
        while (since_s := self.next_s()) <= now_s:
            found[heappop(self._ends)[1]] = since_s
        hosts = [(self._hosts[number], found[number]) for number in sorted(found)]
        for host, _ in hosts:
            self.watch(host)
        return hosts

    def _ends_s(self, host: HostState) -> float:
        """Return the time at which the host's silence has a consequence; inf: it has none."""
        lapses_s = host.lease_until_s + self._margin_s if host.connected else inf
        return min(lapses_s, host.fence_at_s)
