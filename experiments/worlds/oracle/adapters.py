"""An oracle as columns of a policy: destinations are looked up, checkpoints are the plan's alone, and no
migration is admitted at their cost.

Where the plan has nothing to say (a job that came out of the queue, a host that is not there after all), a destination is chosen
by eq. (11) with the truth in the place of the survival: 1 if the host stays until the job is over, else 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import inf

import numpy as np

from controller.core.admission import admission
from controller.core.admission.admission import (
    Admission,
    Commitments,
    LinkShares,
    MigrationRequest,
    Reason,
    Refusal,
    Requests,
    fluid_edf,
)
from controller.core.checkpointing.intervals import (
    BETA,
    CheckpointJob,
    CheckpointSchedule,
    Interval,
    RateBound,
)
from controller.core.model.cluster import Cluster
from controller.core.network.max_min import Wants
from controller.core.placement import select
from controller.core.placement.select import (
    Candidates,
    DestinationChoice,
    Missing,
    NoDestination,
    PlacementRequest,
)
from controller.core.policies.table import Policy
from controller.numerics.arrays import Floats, Numbers
from experiments.worlds.oracle.link_budgets import ClassBudgets
from experiments.worlds.oracle.plan import Plan
from experiments.worlds.oracle.problem import Booking
from experiments.worlds.oracle.transfer_times import TransferTimes
from topologies.spec import DirectedLink

NEVER = Interval(inf, RateBound.YOUNG, False, 0.0)


@dataclass(frozen=True)
class Destinations:
    """P2 of jobs that the plan moves; a new job begins on the host that P2 chooses on line."""

    plan: Plan
    transfer_times: TransferTimes
    now_s: Callable[[], float]

    def __call__(
        self, request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
    ) -> DestinationChoice | NoDestination:
        """A standby is never chosen here: the plan's checkpoints bring theirs."""
        if request.source is not None and request.notice_s is None:
            return NoDestination(Missing.CANDIDATE)
        now_s, wanted = self.now_s(), self.plan.wanted(request.job)
        if wanted is not None:
            # only the host of the plan; a migration has the links at its own time, whichever job has them now
            which = candidates.hosts == wanted
            planned = Candidates(*(getattr(candidates, each.name)[which] for each in fields(Candidates)))
            if request.source is not None and request.source != wanted and len(planned):
                links = self.transfer_times.links(request.source, wanted)
                rate = self.transfer_times.budgets.migrations.path(links, now_s)
                planned = replace(planned, bandwidth_bytes_per_s=np.array([rate]))
            found = select.select(request, planned, as_printed=True)
            if isinstance(found, DestinationChoice):
                return found
        elif request.job not in self.plan.where:
            return select.select(request, candidates, as_printed=True)
        stays = [self.plan.future.at(str(host), now_s) for host in candidates.hosts]
        ends = np.array([-inf if stay is None else stay.until_s for stay in stays], dtype=float)
        survives = np.where(ends >= now_s + request.remaining_s, 1.0, 0.0)
        return select.select(
            request,
            replace(candidates, survival=survives, expected_reclaims=1.0 - survives),
            as_printed=True,
        )


@dataclass(frozen=True)
class PlannedCheckpoints:
    """P1. No timers; the rate of a checkpoint that the plan has begun is the plan's, and all others have none."""

    plan: Plan

    def __call__(
        self, jobs: Sequence[CheckpointJob], capacity: Mapping[DirectedLink, float], beta: float = BETA
    ) -> dict[str, CheckpointSchedule]:
        """Called like `checkpointing.plan`."""
        granted = self.plan.granted_bytes_per_s
        return {job.key: CheckpointSchedule(granted.get(job.key, 0.0), NEVER) for job in jobs}


@dataclass(frozen=True)
class PlannedMigrations:
    """P3: fluid EDF beside the plan's checkpoints, and beside its migrations before the notices that they are for. Both are
    commitments for exactly their time; of checkpoints, what they take of the share, since all that may be lent beside it is
    taken."""

    plan: Plan
    budgets: ClassBudgets

    def __call__(
        self, requests: Requests, now_s: float, share: LinkShares, committed: Commitments = ()
    ) -> Admission:
        """Called like `admission.fluid_edf`."""
        ways = (way for way in self.plan.ways.values() if not way.migrates)
        mine = {f"{way.job}:{way.stay.host}>{way.holder}" for way in ways}
        others = [p for p in committed if isinstance(p, MigrationRequest) or p.key not in mine]
        dues = [p.due_s for p in (*requests, *others) if isinstance(p, MigrationRequest)]
        until_s = max(dues, default=now_s)
        # who is planned to go by checkpoint would take the time that is planned for others
        planned = [each for each in requests if (way := self.plan.way_of(each.key)) is None or way.migrates]
        answer = fluid_edf(planned, now_s, share, [*others, *self._booked(now_s, until_s, share)])
        if not requests and answer.timetable.late:
            # a migration that came late for its turn is a promise, checkpoints are none
            return fluid_edf((), now_s, share, others)
        refused = {each.key: Refusal(Reason.NO_ROOM) for each in requests if each not in planned}
        return replace(answer, refused=answer.refused | refused)

    def _booked(self, now_s: float, until_s: float, share: LinkShares) -> Iterator[MigrationRequest]:
        """What the plan takes of each link's share until then, piece by piece."""
        sending: defaultdict[DirectedLink, list[Booking]] = defaultdict(list)
        for way in self.plan.ways.values():
            for booking in () if way.migrates and way.stay.notice_s <= now_s else way.bookings:
                if now_s < booking.until_s and booking.from_s < until_s:
                    for link in booking.links:
                        sending[link].append(booking)
        for link, bookings in sending.items():
            edges_s = {edge_s for each in bookings for edge_s in (each.from_s, each.until_s)}
            edges_s.update(self.budgets.together.changes_s(now_s, max(edges_s)))
            for from_s, end_s in pairwise(sorted({now_s, *(at_s for at_s in edges_s if at_s > now_s)})):
                there = [each for each in bookings if each.from_s <= from_s < each.until_s]
                moved, copied = (
                    sum(each.rate_bytes_per_s for each in there if each.migrates is which)
                    for which in (True, False)
                )
                lent = self.budgets.together.at(link, from_s) - self.budgets.migrations.at(link, from_s)
                taken = min(moved + max(0.0, copied - lent), share[link])
                if from_s < until_s and taken > 0.0:
                    size, key = taken * (end_s - from_s), f"{link} {from_s}"
                    yield MigrationRequest(key, size, end_s, 0.0, (link,), from_s, cap_bytes_per_s=taken)


@dataclass(frozen=True)
class SharesThatFit:
    """P3's sharing with floors that fit on every link: what the plan wants for a checkpoint yields to admitted migrations.

    The plan's rates fit together as planned. A checkpoint or a migration that takes longer than that meets the next one on
    its links, and floors that do not fit would be granted in full, beyond the links' shares.
    """

    share: admission.Share
    # Of each flow, in the order of the demands: whether P3 reserved its floor.
    reserved: Callable[[], Sequence[bool]]

    def __call__(self, wants: Wants, capacity: Floats) -> tuple[Floats, Numbers]:
        """Called like `admission.share_totals`."""
        reserved = np.array(self.reserved(), dtype=bool)
        floor, left = np.zeros_like(wants.floor), capacity
        for mine in (reserved, ~reserved):
            wanted = np.where(mine, wants.floor, 0.0)
            load = wants.paths.load(wanted, len(wants.network))
            # a rounding error below is a link that is full, and that nothing needs
            left = np.maximum(left, 0.0)
            fits = np.divide(left, load, out=np.ones_like(load), where=load > left)
            floor = floor + wanted * wants.paths.least(fits, 1.0)
            left = capacity - wants.paths.load(floor, len(wants.network))
        return self.share(replace(wants, floor=floor), capacity)


@dataclass(frozen=True, slots=True)
class OraclePolicy(Policy):
    """A row whose P3 is `PlannedMigrations`."""

    @property
    def rates_vary(self) -> bool:
        """True: it answers with a timetable."""
        return True


def seated(cluster: Cluster, plan: Plan, transfer_times: TransferTimes, now_s: Callable[[], float]) -> Policy:
    """The row that a cluster has, with the oracle's columns in place of its own."""

    def reserved() -> list[bool]:
        keys, _ = cluster.flow_paths()
        return [cluster.flows[key].reservation is not None for key in keys]

    row = cluster.policy
    columns = {each.name: getattr(row, each.name) for each in fields(Policy)}
    columns["plan"] = PlannedCheckpoints(plan)
    columns["admit"] = PlannedMigrations(plan, transfer_times.budgets)
    columns["select"] = Destinations(plan, transfer_times, now_s)
    columns["share"] = SharesThatFit(row.share, reserved)
    return OraclePolicy(**columns)
