"""What there is to choose from in a window: destinations, times and rates, as lists; time is relaxed to them, nowhere else.

For each job the stays that it can come to and that end under it before it is over are its *nodes*; at each it needs one
handover. Destinations are the `MOST_TARGETS` that look best when nobody else is there. A chain of checkpoints (`carriage`) ends
with the stay, at the full rate of its path, unless others may need the links then: of those *rivals* the nearest
`MOST_RIVALS` are packed before the end of the stay in every combination, and the chain may end where each of these begins. On
one link that is enough for an optimum: by exchange, transfers one after the other at the full rate lose less than transfers
side by side. Migrations
likewise: at once, or when rivals have been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import inf

from controller.core.admission.reservation import GOODPUT, LAG_S, MARGIN_S
from experiments.worlds.oracle.availability import Future, Stay
from experiments.worlds.oracle.problem import (
    Entry,
    Handover,
    Reservation,
    RunningJob,
    Tenancy,
    WindowProblem,
)
from experiments.worlds.oracle.transfer_times import Carriage, PlannedSending, TransferState
from topologies.spec import DirectedLink

MOST_TARGETS = 4
MOST_PARKED = 2  # of these may also only hold the checkpoint, while the job waits in the queue
MOST_RIVALS = 3
FAR = 4.0  # times as long as its own checkpoints take, before its end, others are looked at
DOWNTIME_WEIGHT = 1e-3  # of a second of downtime beside one of lost work: it only decides between equals
WAIT_S = 60.0  # what waiting in the queue is taken to cost
LENT_FOR_S = 0.1  # a host that was lent a moment ago is known to be


@dataclass(frozen=True, slots=True)
class ChoiceNode:
    """A job on a stay that ends before it: the targets it has from there, best first."""

    runner: RunningJob
    stay: Stay
    since_s: float
    targets: tuple[Stay, ...]
    busy_s: float  # of the links, by its checkpoints, if it goes to the first of them

    @property
    def at_s(self) -> float:
        """When it must be gone."""
        return self.stay.until_s


@dataclass(frozen=True)
class Menu:
    """See the module. `fits`: whether a job can run on a host; `now_s`: nothing can begin before."""

    future: Future
    carriage: Carriage
    gpus: Mapping[str, int]
    building: Mapping[str, str]
    fits: Callable[[RunningJob, str], bool]
    now_s: float
    horizon_s: float

    def problem(
        self,
        runners: Sequence[RunningJob],
        tenancies: Sequence[Tenancy] = (),
        reservations: Sequence[Reservation] = (),
        begun: Sequence[Handover] = (),
    ) -> WindowProblem:
        """All choices. `begun`: handovers whose first checkpoint has begun; they are the only ones of their nodes."""
        kept = {(each.job, each.stay): each for each in begun}
        nodes = [node for runner in runners for node in self._nodes(runner)]
        open_ends = [kept.pop((node.runner.name, node.stay), None) for node in nodes]
        going = [taken for way in kept.values() for taken in way.reservations]
        handovers: list[Handover] = []
        for node, way in zip(nodes, open_ends, strict=True):
            if way is None:
                handovers += self._handovers(node, _rivals(node, nodes), [*reservations, *going])
            else:
                handovers += [way, self._none(node)]
        return WindowProblem(
            tuple(runners),
            tuple(entry for runner in runners for entry in self._entries(runner)),
            tuple(handovers),
            self.gpus,
            self.carriage.shares,
            tuple(tenancies),
            (*reservations, *going),
            self.horizon_s,
            frozenset((node.runner.name, node.stay) for node in nodes),
        )

    # ------------------------------------------------------------ where to

    def _entries(self, runner: RunningJob) -> Iterator[Entry]:
        """Hosts for a new job, and the queue."""
        if runner.stay is not None:
            return
        yield Entry(runner.name, None, WAIT_S)
        for stay in self._first_hosts(runner):
            tenancy = Tenancy(stay, runner.since_s, min(runner.finish_s, stay.until_s))
            yield Entry(runner.name, stay, self._after(runner, stay), tenancy)

    def _first_hosts(self, runner: RunningJob) -> list[Stay]:
        able = [stay for stay in self.future.open_at(runner.since_s) if self.fits(runner, stay.host)]
        able.sort(key=lambda stay: (self._outlook_s(runner, stay), stay.host))
        return self._best(able)

    def _nodes(self, runner: RunningJob) -> Iterator[ChoiceNode]:
        """Breadth first: each stay once, since when it can be reached first."""
        starts = [runner.stay] if runner.stay is not None else self._first_hosts(runner)
        since = dict.fromkeys(starts, runner.since_s)
        todo = list(since)
        for stay in todo:  # grows while it is walked
            if not self._ends_under(runner, stay):
                continue
            targets = self._targets(runner, stay)
            busy_s = self._busy_s(runner, stay, targets[0]) if targets else 0.0
            yield ChoiceNode(runner, stay, since[stay], tuple(targets), busy_s)
            for target in targets:
                if target not in since:
                    since[target] = stay.until_s
                    todo.append(target)

    def _ends_under(self, runner: RunningJob, stay: Stay) -> bool:
        return stay.until_s < min(self.horizon_s, runner.finish_s)

    def _targets(self, runner: RunningJob, stay: Stay) -> list[Stay]:
        """Where it can go on, and stay long enough to be carried away again."""
        at_s, ranked = stay.until_s, list[tuple[float, str, Stay]]()
        for target in self.future.open_at(at_s):
            if target.host == stay.host or not self.fits(runner, target.host):
                continue
            sending = self._sending(runner, stay, target, at_s)
            if sending is None or target.until_s - at_s <= self.carriage.restart_s + sending.lead_s:
                continue
            ranked.append((self._outlook_s(runner, target) + sending.lead_s, target.host, target))
        return self._best([target for _, _, target in sorted(ranked, key=lambda each: each[:2])])

    def _best(self, ranked: Sequence[Stay]) -> list[Stay]:
        """The first, and the first in another building, if those are all in one: not all of them behind one link."""
        best = list(ranked[:MOST_TARGETS])
        where = {self.building[stay.host] for stay in best}
        if len(where) == 1:
            best[MOST_TARGETS - 1 :] = [s for s in ranked if self.building[s.host] not in where][:1] or best[
                -1:
            ]
        return best

    # ------------------------------------------------------------ what it costs

    def _sending(self, runner: RunningJob, stay: Stay, target: Stay, end_s: float) -> PlannedSending | None:
        return self.carriage.sending(_state(runner), self.carriage.links(stay.host, target.host), end_s)

    def _busy_s(self, runner: RunningJob, stay: Stay, target: Stay) -> float:
        sending = self._sending(runner, stay, target, stay.until_s)
        return 0.0 if sending is None else stay.until_s - sending.begins_s[0]

    def _after(self, runner: RunningJob, stay: Stay) -> float:
        """What a stay costs that ends after the window; one that ends in it is a node, and has costs of its own."""
        return 0.0 if stay.until_s < self.horizon_s else self._outlook_s(runner, stay)

    def _outlook_s(self, runner: RunningJob, stay: Stay) -> float:
        """What its end would cost a job that was alone: nothing if the job is over, little with a notice that is long enough."""
        if stay.until_s >= runner.finish_s:
            return 0.0
        links = self._first_links(stay.host)
        migration_s = self._migration_s(runner, self.carriage.shares.path(links, stay.notice_s))
        if migration_s <= stay.announced_s:
            return DOWNTIME_WEIGHT * migration_s
        sending = self.carriage.sending(_state(runner), links, stay.until_s)
        return runner.finish_s - runner.since_s if sending is None else sending.lead_s

    def _first_links(self, host: str) -> tuple[DirectedLink, ...]:
        routes = self.carriage.routes
        return self.carriage.links(host, routes.root) if host != routes.root else ()

    def _migration_s(self, runner: RunningJob, rate_bytes_per_s: float) -> float:
        """What P3 asks of a notice at least: see `controller.core.admission.reservation`."""
        if rate_bytes_per_s <= 0.0:
            return inf
        carried_s = runner.payload_bytes / (GOODPUT * rate_bytes_per_s)
        return carried_s + self._lead_in_s(runner.payload_bytes) + MARGIN_S + self.carriage.restart_s

    def _lead_in_s(self, payload_bytes: float) -> float:
        carriage = self.carriage
        return 2.0 * carriage.allowed_s(payload_bytes) + LAG_S + carriage.beside_s(payload_bytes)

    # ------------------------------------------------------------ how

    def _handovers(
        self, node: ChoiceNode, rivals: Sequence[ChoiceNode], taken: Sequence[Reservation]
    ) -> Iterator[Handover]:
        near = [r.from_s for r in taken if node.at_s - FAR * node.busy_s < r.from_s < node.at_s]
        ends_s = sorted({*_ends_s(node, rivals), *near}, reverse=True)
        for rank, target in enumerate(node.targets):
            yield from self._migrations(node, target, rivals, taken)
            for end_s in ends_s:
                yield from self._checkpoints(node, target, end_s, parks=rank < MOST_PARKED)
        yield self._none(node)

    def _none(self, node: ChoiceNode) -> Handover:
        """It loses all that it has done."""
        lost_s = node.runner.done_s + node.at_s - node.runner.since_s
        return Handover(node.runner.name, node.stay, None, None, False, (), lost_s, lost_s + WAIT_S)

    def _checkpoints(
        self, node: ChoiceNode, target: Stay, end_s: float, *, parks: bool
    ) -> Iterator[Handover]:
        """A chain that ends there, if there is time for it; else its last checkpoint alone, whole."""
        runner, links = node.runner, self.carriage.links(node.stay.host, target.host)
        earliest_s = max(self.now_s, node.since_s, target.from_s + LENT_FOR_S)
        for sending in (
            self.carriage.sending(_state(runner), links, end_s),
            self.carriage.whole(runner.payload_bytes, links, end_s),
        ):
            if sending is not None and sending.begins_s[0] >= earliest_s:
                yield from self._held(node, target, sending, end_s, parks=parks)
                return

    def _held(
        self, node: ChoiceNode, target: Stay, sending: PlannedSending, end_s: float, *, parks: bool
    ) -> Iterator[Handover]:
        runner, name, begins = node.runner, node.runner.name, sending.begins_s
        loss_s, taken = node.at_s - end_s + sending.lead_s, sending.reservations
        tenancy = Tenancy(target, node.at_s, min(runner.finish_s, target.until_s))
        cost_s = loss_s + DOWNTIME_WEIGHT * self.carriage.restart_s + self._after(runner, target)
        yield Handover(name, node.stay, target, target.host, False, begins, loss_s, cost_s, taken, tenancy)
        if parks:
            yield Handover(name, node.stay, None, target.host, False, begins, loss_s, loss_s + WAIT_S, taken)

    def _migrations(
        self, node: ChoiceNode, target: Stay, rivals: Sequence[ChoiceNode], taken: Sequence[Reservation]
    ) -> Iterator[Handover]:
        """Within the notice, at the full rate: at once, or after each rival that has one too."""
        stay, runner = node.stay, node.runner
        links = self.carriage.links(stay.host, target.host)
        grant = self.carriage.shares.path(links, stay.notice_s)
        spare_s = stay.announced_s - self._migration_s(runner, grant)
        if spare_s < 0.0 or not target.takes_at(stay.notice_s) or stay.notice_s < self.now_s:
            return
        lasts_s = runner.payload_bytes / (GOODPUT * grant)
        tenancy = Tenancy(target, stay.notice_s, min(runner.finish_s, target.until_s))
        weight_s = DOWNTIME_WEIGHT * (lasts_s + self.carriage.restart_s) + self._after(runner, target)
        for from_s in _turns_s(stay.notice_s + self._lead_in_s(runner.payload_bytes), spare_s, rivals, taken):
            booked = (Reservation(links, from_s, from_s + lasts_s, grant),)
            yield Handover(runner.name, stay, target, target.host, True, (), 0.0, weight_s, booked, tenancy)


def _state(runner: RunningJob) -> TransferState:
    return TransferState(runner.payload_bytes, runner.dirty_fraction, runner.step_s)


def _turns_s(
    first_s: float, spare_s: float, rivals: Sequence[ChoiceNode], taken: Iterable[Reservation]
) -> list[float]:
    """When a migration may begin to send: at once, after any combination of rivals, after others; as long as there is time."""
    after = {first_s + sum(rival.busy_s for rival in some) for some in _combinations(rivals)}
    after |= {each.until_s for each in taken}
    if len(after) > 1:
        after.add(first_s + spare_s)
    return sorted(at_s for at_s in after if first_s <= at_s <= first_s + spare_s)


def _rivals(node: ChoiceNode, nodes: Iterable[ChoiceNode]) -> list[ChoiceNode]:
    """Nodes of other jobs that may need links at the same time, nearest first."""
    others = [
        other
        for other in nodes
        if other.runner.name != node.runner.name
        and abs(other.at_s - node.at_s) < FAR * max(other.busy_s, node.busy_s) + other.stay.announced_s
    ]
    others.sort(key=lambda other: (abs(other.at_s - node.at_s), other.stay.host, other.runner.name))
    return others[:MOST_RIVALS]


def _ends_s(node: ChoiceNode, rivals: Sequence[ChoiceNode]) -> set[float]:
    """When its checkpoints may be complete: with its stay, or before any combination of rivals."""
    return {min(node.at_s, _before_s(some)) for some in _combinations(rivals)}


def _combinations(rivals: Sequence[ChoiceNode]) -> Iterator[tuple[ChoiceNode, ...]]:
    """Every choice of these, from none to all."""
    return chain.from_iterable(combinations(rivals, size) for size in range(len(rivals) + 1))


def _before_s(rivals: Iterable[ChoiceNode]) -> float:
    """When the first of these begins, if each is as late as can be and no two at a time."""
    begin_s = inf
    for rival in sorted(rivals, key=lambda rival: -rival.at_s):
        begin_s = min(begin_s, rival.at_s) - rival.busy_s
    return begin_s
