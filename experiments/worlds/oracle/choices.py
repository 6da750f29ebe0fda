"""Lists of destinations, times and rates to choose from in a window; time is relaxed to them, nowhere else.

For each job the stays that it can come to and that end under it before it is over are its *nodes*; at each it needs one
handover. Destinations are the `MOST_TARGETS` that look best when no other job is there; only a store that no owner takes
may hold its checkpoints while it waits. What has begun on the links is not changed, and all else is laid out beside it. A
chain of checkpoints (see `transfer_times`) ends with the stay, at the full rate of its path, unless others may need the
links then: the nearest of those *rivals*, up to `MOST_RIVALS`, are packed before the end of the stay, and the chain may
end where they begin. By exchange, transfers one after the other at the full rate lose less than transfers side by side.
Migrations likewise: at once, or when rivals have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from controller.core.admission.schedule import GOODPUT, LAG_S, MARGIN_S
from experiments.worlds.oracle.future import Future, Stay
from experiments.worlds.oracle.problem import Booking, Handover, RunningJob, WindowProblem
from experiments.worlds.oracle.transfer_times import PlannedSending, TransferTimes
from topologies.spec import Campus

MOST_TARGETS = 4
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
    busy_s: float  # of the links, by its checkpoints, if it goes to the first of them, or to a store

    @property
    def at_s(self) -> float:
        """The moment when it must be gone."""
        return self.stay.until_s


@dataclass(frozen=True)
class Choices:
    """Writer of all choices of a window; nothing can begin before `now_s`.

    `store` may hold checkpoints too, and has no owner; `beside`: what has begun on links, and is not to be changed.
    """

    campus: Campus
    future: Future
    transfer_times: TransferTimes
    now_s: float
    horizon_s: float
    store: str | None = None
    beside: tuple[Booking, ...] = ()

    def problem(
        self, runners: Sequence[RunningJob], bookings: Sequence[Booking] = (), begun: Sequence[Handover] = ()
    ) -> WindowProblem:
        """Return all choices. `begun`: handovers whose first checkpoint has begun; they are the only ones of their nodes."""
        nodes = [node for runner in runners for node in self._nodes(runner)]
        kept = {(each.job, each.stay): each for each in begun}
        under_way = [kept.pop((node.runner.name, node.stay), None) for node in nodes]
        taken = [*bookings, *(taken for way in kept.values() for taken in way.bookings)]
        firm = (*taken, *(taken for way in under_way if way is not None for taken in way.bookings))
        free, handovers = replace(self, beside=firm), list[Handover]()
        for node, way in zip(nodes, under_way, strict=True):
            handovers += free._handovers(node, nodes, firm) if way is None else [way]
            # or it loses all that it has done
            name, lost_s = node.runner.name, node.runner.done_s + node.at_s - node.runner.since_s
            handovers.append(Handover(name, node.stay, None, None, False, (), lost_s, lost_s + WAIT_S))
        return WindowProblem(
            tuple(runners),
            tuple(handovers),
            {host.name: host.gpus for host in self.campus.hosts},
            self.transfer_times.budgets,
            tuple(taken),
        )

    # ------------------------------------------------------------ where to

    def _nodes(self, runner: RunningJob) -> Iterator[ChoiceNode]:
        """Yield each stay once, breadth first, from the moment when it can be reached first."""
        since, todo = {runner.stay: runner.since_s}, [runner.stay]
        for stay in todo:  # grows while it is walked
            end_s = stay.until_s
            if end_s >= min(self.horizon_s, runner.finish_s):
                continue
            # where it can go on, and stay long enough to be carried away again
            reached: list[tuple[float, str, Stay]] = []
            for target in self.future.open_at(end_s):
                if target.host != stay.host and self._fits(runner, target.host):
                    sending = self._sending(runner, stay.host, target.host, end_s)
                    if sending and target.until_s - end_s > self.transfer_times.restart_s + sending.lead_s:
                        outlook_s = self._outlook_s(runner, target) + sending.lead_s
                        reached.append((outlook_s, target.host, target))
            ranked = sorted(reached, key=lambda each: each[:2])
            targets = [target for _, _, target in ranked[:MOST_TARGETS]]
            first = self._nearest(runner, stay, targets, end_s)
            busy_s = 0.0 if first is None else end_s - first.begins_s[0]
            yield ChoiceNode(runner, stay, since[stay], tuple(targets), busy_s)
            for target in targets:
                if target not in since:
                    since[target] = end_s
                    todo.append(target)

    def _fits(self, runner: RunningJob, host: str) -> bool:
        """Return True if the host's GPU can run the job."""
        gpu, spec = self.campus.gpu_by_name.get(self.campus.host_by_name[host].gpu_model or ""), runner.spec
        return (
            gpu is not None and gpu.memory_bytes >= spec.memory_bytes and gpu.compute_capability >= spec.min_capability
        )

    # ------------------------------------------------------------ what it costs

    def _sending(self, runner: RunningJob, source: str, destination: str, end_s: float) -> PlannedSending | None:
        links = self.transfer_times.routes.route(source, destination)
        return self.transfer_times.sending(runner.spec, links, end_s, self.beside)

    def _nearest(self, runner: RunningJob, stay: Stay, targets: Sequence[Stay], end_s: float) -> PlannedSending | None:
        """Return checkpoints to the best target, or to the store where there is none."""
        nearest = targets[0].host if targets else self.store
        return None if nearest is None else self._sending(runner, stay.host, nearest, end_s)

    def _outlook_s(self, runner: RunningJob, stay: Stay) -> float:
        """Return the cost of its end for a job that is alone: none if the job is over, little with a long notice."""
        if stay.until_s >= runner.finish_s:
            return 0.0
        transfer_times = self.transfer_times
        root = transfer_times.routes.root
        links = transfer_times.routes.route(stay.host, root) if stay.host != root else ()
        migration_s = self._migration_s(runner, transfer_times.budgets.migrations.path(links, stay.notice_s))
        if migration_s <= stay.announced_s:
            return DOWNTIME_WEIGHT * migration_s
        sending = transfer_times.sending(runner.spec, links, stay.until_s)
        return runner.finish_s - runner.since_s if sending is None else sending.lead_s

    def _migration_s(self, runner: RunningJob, rate_bytes_per_s: float) -> float:
        """Return the shortest notice that P3 accepts: see `controller.core.admission.schedule`."""
        if rate_bytes_per_s <= 0.0:
            return inf
        carried_s = runner.spec.payload_bytes / (GOODPUT * rate_bytes_per_s)
        return carried_s + self._lead_in_s(runner) + MARGIN_S + self.transfer_times.restart_s

    def _lead_in_s(self, runner: RunningJob) -> float:
        times, payload_bytes = self.transfer_times, runner.spec.payload_bytes
        return 2.0 * times.allowed_s(payload_bytes) + LAG_S + times.beside_s(payload_bytes)

    # ------------------------------------------------------------ how

    def _handovers(self, node: ChoiceNode, nodes: Sequence[ChoiceNode], taken: Sequence[Booking]) -> Iterator[Handover]:
        """Yield handovers to each target: migrations within the notice, checkpoints that end where others need the links."""
        rivals = [
            other
            for other in nodes
            if other.runner.name != node.runner.name
            and abs(other.at_s - node.at_s) < FAR * max(other.busy_s, node.busy_s) + other.stay.announced_s
        ]
        rivals.sort(key=lambda other: (abs(other.at_s - node.at_s), other.stay.host, other.runner.name))
        groups = [rivals[:size] for size in range(min(MOST_RIVALS, len(rivals)) + 1)]
        ends_s = {r.from_s for r in taken if node.at_s - FAR * node.busy_s < r.from_s < node.at_s}
        ends_s.update(min(node.at_s, self._begin_s(group)) for group in groups)
        after_s = {sum(rival.busy_s for rival in group) for group in groups}
        last_first_s = sorted(ends_s, reverse=True)
        for target in node.targets:
            yield from self._migrations(node, target, after_s, taken)
            for end_s in last_first_s:
                yield from self._checkpoints(node, target.host, target, end_s)
        if self.store is not None:
            for end_s in last_first_s:
                yield from self._checkpoints(node, self.store, None, end_s)

    def _begin_s(self, group: Iterable[ChoiceNode]) -> float:
        """Return when the first of these begins, each to its best target, as late as can be and no two at once."""
        begin_s = inf
        for node in sorted(group, key=lambda node: -node.at_s):
            end_s = min(begin_s, node.at_s)
            first = self._nearest(node.runner, node.stay, node.targets, end_s)
            begin_s = end_s if first is None else min(end_s, first.begins_s[0])
        return begin_s

    def _checkpoints(self, node: ChoiceNode, holder: str, to: Stay | None, end_s: float) -> Iterator[Handover]:
        """Yield a chain that ends there, if there is time for it; else its last checkpoint alone, whole.

        `to` None: the job waits in the queue.
        """
        runner, stay, transfer_times = node.runner, node.stay, self.transfer_times
        earliest_s = max(self.now_s, node.since_s, -inf if to is None else to.from_s + LENT_FOR_S)
        sending = self._sending(runner, stay.host, holder, end_s)
        if sending is None or sending.begins_s[0] < earliest_s:
            links = transfer_times.routes.route(stay.host, holder)
            sending = transfer_times.whole(runner.spec.payload_bytes, links, end_s, self.beside)
        if sending is None or sending.begins_s[0] < earliest_s:
            return
        loss_s = node.at_s - end_s + sending.lead_s
        cost_s = loss_s + (WAIT_S if to is None else DOWNTIME_WEIGHT * transfer_times.restart_s)
        yield Handover(runner.name, stay, to, holder, False, sending.begins_s, loss_s, cost_s, sending.bookings)

    def _migrations(
        self, node: ChoiceNode, target: Stay, after_s: Iterable[float], taken: Iterable[Booking]
    ) -> Iterator[Handover]:
        """Yield migrations within the notice: at once, after rivals that have one too (`after_s`), or after firm bookings."""
        stay, runner = node.stay, node.runner
        links = self.transfer_times.routes.route(stay.host, target.host)
        grant = self.transfer_times.budgets.migrations.path(links, stay.notice_s)
        spare_s = stay.announced_s - self._migration_s(runner, grant)
        if spare_s < 0.0 or not target.takes_at(stay.notice_s) or stay.notice_s < self.now_s:
            return
        lasts_s = runner.spec.payload_bytes / (GOODPUT * grant)
        weight_s = DOWNTIME_WEIGHT * (lasts_s + self.transfer_times.restart_s)
        first_s = stay.notice_s + self._lead_in_s(runner)
        begins_s = {first_s + wait_s for wait_s in after_s} | {each.until_s for each in taken}
        if len(begins_s) > 1:
            begins_s.add(first_s + spare_s)
        for from_s in sorted(at_s for at_s in begins_s if first_s <= at_s <= first_s + spare_s):
            booked = (Booking(links, from_s, from_s + lasts_s, grant, migrates=True),)
            yield Handover(runner.name, stay, target, target.host, True, (), 0.0, weight_s, booked)
