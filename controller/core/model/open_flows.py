"""Open flows by key, and what is derived from them: ends, paths, streams of checkpoints, counts of each link.

A flow comes by `put` and goes by `take`; each keeps, mends or drops exactly what it changes of what is derived.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np

from controller.core.model.entities import CheckpointFlow, JobState
from controller.core.network.links import Network, Paths
from controller.core.network.routing import Ends, PathCache, RouteInstallation
from controller.core.network.sharing import ShareMemo
from controller.numerics.arrays import Floats
from topologies.spec import TrafficClass

UNASKED: tuple[int, ...] = (-1,)  # in place of the links of a flow

_NAME_HOST_STANDBY = attrgetter("spec.name", "host", "standby")


class OpenFlows(dict[str, CheckpointFlow]):
    """Open flows by key, in the order of their opening. It changes by `put` and `take` alone."""

    def __init__(
        self,
        jobs: Mapping[str, JobState],
        network: Network,
        paths: PathCache,
        installation: RouteInstallation,
    ) -> None:
        super().__init__()
        self._jobs, self._network, self._cache, self._installation = jobs, network, paths, installation
        self.shares = ShareMemo()
        # keys of all flows, in order, and the flow and the links of each (UNASKED: not asked for yet)
        self._keys: list[str] = []
        self._flows: list[CheckpointFlow] = []
        self._links: list[tuple[int, ...]] = []
        self._some_unasked = False
        self._between: dict[tuple[str, str | None, str | None], CheckpointFlow] = {}
        self._from: dict[str, dict[str, CheckpointFlow]] = {}
        self._to: dict[str, dict[str, CheckpointFlow]] = {}
        self._paths: Paths | None = None
        self._crossing: Floats | None = None
        self._firm: list[CheckpointFlow] | None = None

    # ------------------------------------------------------------ changes

    def put(self, flow: CheckpointFlow) -> None:
        """Open the flow, in place of one of its key."""
        key = flow.key
        row, before = bisect_left(self._keys, key), self.get(key)
        if before is not None:
            self._changes(row, before, -1)
            self._flows[row] = flow
        else:
            self._keys.insert(row, key)
            self._flows.insert(row, flow)
            self._links.insert(row, self._crossed(flow))
            if self._paths is not None:
                self._paths = self._paths.inserted(row, self._links[row])
        self[key] = self._between[flow.job, flow.source, flow.destination] = flow
        self._from.setdefault(flow.source, {})[key] = flow
        self._to.setdefault(flow.destination, {})[key] = flow
        self._changes(row, flow, 1)

    def take(self, key: str) -> bool:
        """Close the flow; return whether it was open."""
        flow = self.pop(key, None)
        if flow is None:
            return False
        del self._between[flow.job, flow.source, flow.destination]
        del self._from[flow.source][key], self._to[flow.destination][key]
        row = bisect_left(self._keys, key)
        self._changes(row, flow, -1)
        del self._keys[row], self._flows[row], self._links[row]
        if self._paths is not None:
            self._paths = self._paths.without(row)
        return True

    def _changes(self, row: int, flow: CheckpointFlow, sign: int) -> None:
        """Mend what follows from a flow that comes or goes.

        Copies to vaults, which do so with every checkpoint, are neither streams nor firm.
        """
        if flow.reservation is not None or flow.floor_bytes_per_s > 0.0:
            self._firm = None
        if self._is_stream(flow) and self._crossing is not None:
            for link in self._links[row]:
                self._crossing[link] += sign

    def job_moved(self) -> None:
        """Drop what depends on the hosts of jobs."""
        self._crossing = None

    def rerouted(self, ends: Ends | None = None) -> None:
        """Drop the links of flows between these hosts, or of all."""
        for row, flow in enumerate(self._flows):
            if ends is None or (flow.source, flow.destination) == ends:
                self._links[row], self._some_unasked = UNASKED, True
        self._paths, self._crossing = None, None

    # ------------------------------------------------------------ by their ends

    def from_host(self, source: str) -> list[CheckpointFlow]:
        """Return the flows that a host sends, in the order of their opening."""
        return list(self._from.get(source, {}).values())

    def to_host(self, destination: str) -> list[CheckpointFlow]:
        """Return the flows that are sent to a host, in the order of their opening."""
        return list(self._to.get(destination, {}).values())

    def to_standbys(self, jobs: Sequence[JobState]) -> list[CheckpointFlow | None]:
        """The open flow of each job from its host to its standby."""
        return list(map(self._between.get, map(_NAME_HOST_STANDBY, jobs)))

    def firm(self) -> list[CheckpointFlow]:
        """Flows for which something is reserved, or was, in the order of their opening."""
        if self._firm is None:
            flows = self.values()
            self._firm = [f for f in flows if f.reservation is not None or f.floor_bytes_per_s > 0.0]
        return self._firm

    # ------------------------------------------------------------ in the order of their keys

    def in_order(self) -> list[CheckpointFlow]:
        """Return the flows in the order of their keys."""
        return self._flows

    def paths(self) -> tuple[list[str], Paths]:
        """The keys of all flows, in order, and their paths."""
        if self._paths is None:
            self._paths = Paths.of(self.links())
        return self._keys, self._paths

    def links(self) -> list[tuple[int, ...]]:
        """The numbers of the links that each flow is shared on, in the order of their keys."""
        if self._some_unasked:
            self._some_unasked = False
            for row in [row for row, links in enumerate(self._links) if links == UNASKED]:
                self._links[row] = self._crossed(self._flows[row])
        return self._links

    def _crossed(self, flow: CheckpointFlow) -> tuple[int, ...]:
        """Return the links that a flow is shared on: its route, and those that it may still take while that is being changed."""
        held = self._installation.held.get((flow.source, flow.destination))
        path = self._cache.of(flow.source, flow.destination)
        return path if held is None else tuple(dict.fromkeys((*path, *self._network.path(held.links))))

    # ------------------------------------------------------------ streams of checkpoints

    def _is_stream(self, flow: CheckpointFlow) -> bool:
        """Return whether it comes from where its job runs."""
        return flow.traffic_class is TrafficClass.PRESYNC and self._jobs[flow.job].host == flow.source

    def streams_of(self, job: str) -> list[CheckpointFlow]:
        """Return the streams of one job."""
        begins, found = f"{job}:", list[CheckpointFlow]()
        for row in range(bisect_left(self._keys, begins), len(self._keys)):
            if not self._keys[row].startswith(begins):
                break
            if self._flows[row].job == job and self._is_stream(self._flows[row]):
                found.append(self._flows[row])
        return found

    def crossing(self) -> Floats:
        """Count the streams of checkpoints that cross each link, by its number."""
        if self._crossing is None:
            stand = np.array([self._is_stream(flow) for flow in self._flows], dtype=float)
            self._crossing = self.paths()[1].load(stand, len(self._network))
        return self._crossing
