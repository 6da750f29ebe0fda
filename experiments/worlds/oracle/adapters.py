"""An oracle as columns of a policy: planned destinations, planned checkpoints, and migrations that leave these their time.

Where the plan has no answer (a job that came out of the queue, a host that is not there after all), eq. (11) chooses a
destination. In the place of the survival it takes the truth: 1 if the host stays until the job is over, else 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import inf

import numpy as np

from controller.core.admission.admission import Admission, Commitments, LinkShares, Reason, Refusal, Requests, fluid_edf
from controller.core.admission.schedule import MigrationRequest
from controller.core.checkpointing.planner import CheckpointJobs, CheckpointPlans
from controller.core.model.cluster import Cluster
from controller.core.placement.select import (
    Candidates,
    DestinationChoice,
    Missing,
    NoDestination,
    PlacementRequest,
    select,
)
from controller.core.policies.table import Policy
from experiments.worlds.oracle.problem import Booking, SchedulePlan
from experiments.worlds.oracle.transfer_times import TransferTimes
from topologies.spec import DirectedLink


@dataclass(frozen=True, slots=True)
class OraclePolicy(Policy):
    """A row whose P3 answers with a timetable."""

    @property
    def rates_vary(self) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True)
class Columns:
    """The oracle's P1, P2 and P3, by its plan."""

    plan: SchedulePlan
    transfer_times: TransferTimes
    now_s: Callable[[], float]

    def seated(self, cluster: Cluster) -> Policy:
        """Return the row that a cluster has, with these columns in place of its own."""
        columns = {each.name: getattr(cluster.policy, each.name) for each in fields(Policy)}
        return OraclePolicy(**columns | {"plan": self.checkpoints, "select": self.destination, "admit": self.admit})

    def checkpoints(self, jobs: CheckpointJobs, *_: object) -> CheckpointPlans:
        """Return plans as a `Planner` does, without timers: only checkpoints that the plan has begun have a rate."""
        rates = np.array([self.plan.granted_bytes_per_s.get(name, 0.0) for name in jobs.names], dtype=float)
        return CheckpointPlans(rates, np.full(len(rates), inf), np.zeros(len(rates), dtype=bool))

    def destination(
        self, request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
    ) -> DestinationChoice | NoDestination:
        """Choose the plan's destination; a new job's as P2 on line; never a standby, which the plan's checkpoints bring."""
        if request.source is not None and request.notice_s is None:
            return NoDestination(Missing.CANDIDATE)
        now_s, way = self.now_s(), self.plan.way_of(request.job)
        if way is not None and way.to is not None:
            # only the host of the plan; a migration has the links at its own time, whichever job has them now
            wanted = way.to.host
            which = candidates.hosts == wanted
            planned = Candidates(*(getattr(candidates, each.name)[which] for each in fields(Candidates)))
            if request.source is not None and request.source != wanted and len(planned):
                links = self.transfer_times.routes.route(request.source, wanted)
                rate = self.transfer_times.budgets.migrations.path(links, now_s)
                planned = replace(planned, bandwidth_bytes_per_s=np.array([rate]))
            found = select(request, planned, as_printed=True)
            if isinstance(found, DestinationChoice):
                return found
        elif request.job not in self.plan.where:
            return select(request, candidates, as_printed=True)
        stays = [self.plan.future.at(str(host), now_s) for host in candidates.hosts]
        ends = np.array([-inf if stay is None else stay.until_s for stay in stays], dtype=float)
        survives = np.where(ends >= now_s + request.remaining_s / candidates.speed, 1.0, 0.0)
        known = replace(candidates, survival=survives, expected_reclaims=1.0 - survives)
        return select(request, known, as_printed=True)

    def admit(self, requests: Requests, now_s: float, share: LinkShares, committed: Commitments = ()) -> Admission:
        """Admit as `admission.fluid_edf` does, beside the plan's checkpoints, and beside its migrations before their notices.

        Both are commitments for exactly their time; of checkpoints, what they take of the share, since all that may be
        lent beside it is taken.
        """
        ways = (way for way in self.plan.ways.values() if not way.migrates)
        mine = {f"{way.job}:{way.stay.host}>{way.holder}" for way in ways}
        others = [p for p in committed if isinstance(p, MigrationRequest) or p.key not in mine]
        dues = [p.due_s for p in (*requests, *others) if isinstance(p, MigrationRequest)]
        until_s = max(dues, default=now_s)
        # a job that is planned to go by checkpoint would take the time that is planned for others
        planned = [each for each in requests if (way := self.plan.way_of(each.key)) is None or way.migrates]
        answer = fluid_edf(planned, now_s, share, [*others, *self._booked(now_s, until_s, share)])
        if not requests and answer.timetable.late:
            # a migration that came late for its turn is a promise, checkpoints are none
            return fluid_edf((), now_s, share, others)
        refused = {each.key: Refusal(Reason.NO_ROOM) for each in requests if each not in planned}
        return replace(answer, refused=answer.refused | refused)

    def _booked(self, now_s: float, until_s: float, share: LinkShares) -> Iterator[MigrationRequest]:
        """Yield the part of each link's share that the plan takes until then, piece by piece."""
        budgets = self.transfer_times.budgets
        sending: defaultdict[DirectedLink, list[Booking]] = defaultdict(list)
        for way in self.plan.ways.values():
            for booking in () if way.migrates and way.stay.notice_s <= now_s else way.bookings:
                if now_s < booking.until_s and booking.from_s < until_s:
                    for link in booking.links:
                        sending[link].append(booking)
        for link, bookings in sending.items():
            edges_s = {edge_s for each in bookings for edge_s in (each.from_s, each.until_s)}
            edges_s.update(budgets.together.changes_s(now_s, max(edges_s)))
            for from_s, end_s in pairwise(sorted({now_s, *(at_s for at_s in edges_s if at_s > now_s)})):
                rates = [(b.migrates, b.rate_bytes_per_s) for b in bookings if b.holds_at(from_s)]
                moved, copied = (sum(rate for migrates, rate in rates if migrates is of) for of in (True, False))
                both, one = budgets.together.path((link,), from_s), budgets.migrations.path((link,), from_s)
                taken = min(moved + max(0.0, copied - (both - one)), share[link])
                if from_s < until_s and taken > 0.0:
                    size, key = taken * (end_s - from_s), f"{link} {from_s}"
                    yield MigrationRequest(key, size, end_s, 0.0, (link,), from_s, cap_bytes_per_s=taken)
