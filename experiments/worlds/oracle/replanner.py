"""An oracle at play: it plans a window when the window begins, and has the virtual world do what is planned.

The world is the same as for every other system: the same coordinator, agents, network and accounting. Only two columns
of the policy are the oracle's (`adapters`), and checkpoints are ordered here, at the moment that the plan has for them.
The plan does not foresee a job that waited in the queue, nor one whose first host is not the plan's to choose. Such a
job is planned for when it runs, beside what stands already.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf

from controller.core.lifecycle.grants import committed, open_flow, planned, presync_flow, reservations, settle
from controller.core.lifecycle.protection import forget_standby
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from controller.core.model.entities import OVER, JobState, Phase
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.worlds.oracle.adapters import Columns
from experiments.worlds.oracle.choices import Choices
from experiments.worlds.oracle.future import class_budgets_of, future_of
from experiments.worlds.oracle.problem import Booking, Handover, RunningJob, SchedulePlan, Window
from experiments.worlds.oracle.program import solve
from experiments.worlds.oracle.transfer_times import TransferTimes
from experiments.worlds.virtual import VirtualWorld
from experiments.worlds.virtual.run import BEGIN_S
from experiments.worlds.virtual.scheduler import Priority
from testbed.messages import Protect
from topologies.spec import TrafficClass

WINDOW_S = 86_400.0
OVERLAP_S = (
    3600.0  # of the next window that is planned for, too: longer than any checkpoint before the end of a stay takes
)
NO_TIMER_S = 1e9  # the longest that a message can hold
SAFETY_S = 0.05  # messages between the hosts and the coordinator, on top of what is computed
LATE = 0.005  # of a job's remaining time: how much later than computed it may be over


class Replanner:
    """The oracle of one run of a scenario and a trace (in real units), by windows that are solved within `time_limit_s`.

    `watch` is called after each event of the world.
    """

    def __init__(self, scenario: Scenario, trace: Trace, time_limit_s: float) -> None:
        self._trace, self._research = scenario.scale.apply(trace), scenario.played().research
        self._window_s, self._overlap_s = (each * scenario.scale.time for each in (WINDOW_S, OVERLAP_S))
        self._time_limit_s = time_limit_s
        self._read = 0  # facts
        self._until_s = 0.0  # up to when ends of stays are planned for
        self.windows: list[Window] = []

    # ------------------------------------------------------------ the world

    def _begin(self, world: VirtualWorld) -> None:
        """Take the oracle's seat."""
        self._world, self._until_s, costs, cluster = (world, BEGIN_S, world.env.costs, world.coordinator.cluster)
        delay_s = sum(sorted((link.delay_s for link in world.env.campus.links), reverse=True)[:6])
        # the longest part of a checkpoint's time that is neither writing nor wire: order, handshake, commit, report
        overhead_s = costs.snapshot_s[1] + costs.connect_s + costs.commit_s
        overhead_s += 4.0 * (costs.message_s + delay_s) + SAFETY_S
        self._transfer_times = TransferTimes(
            world.env.routes,
            class_budgets_of(cluster, self._trace.background, self._research, BEGIN_S),
            overhead_s,
            max(costs.start_s[1], cluster.protocol.restart_s),
            cluster.protocol.writes_s,
            costs.snapshot_bytes_per_s,
        )
        self._plan = SchedulePlan(future_of(world.env.campus, self._trace, BEGIN_S))
        cluster.policy = Columns(self._plan, self._transfer_times, lambda: world.now_s).seated(cluster)
        world.at(BEGIN_S, self._begin_window)

    def watch(self, world: VirtualWorld) -> None:
        """Read the new facts; plan again where they are not as planned."""
        if self._until_s == 0.0:
            self._begin(world)
        while self._read < len(world.facts):
            _, fact = world.facts[self._read]
            self._read += 1
            if self._differs(fact):
                self._plan_all(amends=True)

    def _differs(self, fact: object) -> bool:
        """Note a fact; return whether it calls for another plan."""
        plan, now_s, jobs = self._plan, self._world.now_s, self._cluster.jobs
        match fact:
            case facts.JobDispatched(job=name, host=host):
                if (stay := plan.future.at(host, now_s)) is not None:
                    plan.where[name] = stay
            case facts.JobRunning(job=name):
                # whether the plan holds for where it runs now
                job, stay, way = jobs[name], plan.where.get(name), plan.way_of(name)
                if stay is not None and job.phase is Phase.RUNNING and job.host == stay.host:
                    late = way is not None and min(way.begins_s, default=inf) < now_s
                    return late or (name, stay) not in plan.on_way
        return False

    @property
    def _cluster(self) -> Cluster:
        return self._world.coordinator.cluster

    def _post(self) -> None:
        """Perform the effects in the coordinator's outbox."""
        effects, self._cluster.outbox = self._cluster.outbox, []
        for effect in effects:
            match effect:
                case do.Tell(host, message):
                    self._world.connections.tell(host, message)
                case do.Record(fact):
                    self._world.facts.append((self._world.now_s, fact))
        self._world.decide(ev.Woke())

    # ------------------------------------------------------------ planning

    def _begin_window(self) -> None:
        end_s = self._world.now_s + self._window_s
        self._until_s = end_s + self._overlap_s
        self._plan_all(amends=False)
        self._world.at(end_s, self._begin_window)

    def _plan_all(self, *, amends: bool) -> None:
        """Plan everything again but for what has begun."""
        now_s, jobs = self._world.now_s, self._cluster.jobs
        self._world.heartbeats.freshen()
        runners = [runner for _, job in sorted(jobs.items()) if (runner := self._runner(job)) is not None]
        begun = [
            replace(way, bookings=()) if way.migrates else way  # P3 decides when it travels
            for way in self._plan.ways.values()
            if way.firm_s <= now_s < way.stay.until_s
            and (not way.migrates or (way.job in jobs and jobs[way.job].phase is Phase.MOVING))
        ]
        stores = [host.name for host in self._cluster.ownerless if host.usable and self._cluster.policy.vault]
        campus = self._world.env.campus
        store = max(stores, key=lambda name: campus.access_link(name).rate_bytes_per_s, default=None)
        choices = Choices(campus, self._plan.future, self._transfer_times, now_s, self._until_s, store)
        answer = solve(choices.problem(runners, self._reserved(), begun), self._time_limit_s)
        self.windows.append(replace(answer, from_s=now_s, amends=amends))
        self._plan.enter(runners, answer.chosen)
        for way in answer.chosen:
            if way in begun:
                continue
            for begin_s in way.begins_s:
                self._world.at(begin_s, partial(self._send, way), Priority.TIMER)
            if not way.migrates and way.bookings:
                changes_s = [taken.from_s for taken in way.bookings[1:]]
                for at_s in (*changes_s, way.bookings[-1].until_s):
                    self._world.at(at_s, partial(self._regrant, way), Priority.TIMER)

    def _reserved(self) -> list[Booking]:
        """Return all that P3 has admitted, planned or not, as it will travel."""
        cluster, found = self._cluster, list[Booking]()
        timetable = planned(cluster, committed(cluster))
        for flow, _ in reservations(cluster):
            links = cluster.routes.way(flow.source, flow.destination)
            for each in timetable.spans.get(flow.key, ()):
                found.append(Booking(links, each.from_s, each.until_s, each.rate_bytes_per_s, migrates=True))
        return found

    # ------------------------------------------------------------ jobs

    def _runner(self, job: JobState) -> RunningJob | None:
        """Return a job that has a volunteer host, as the program sees it."""
        now_s, restart_s, spec = self._world.now_s, self._transfer_times.restart_s, job.spec
        stay = self._plan.future.at(job.move.destination if job.move is not None else job.host, now_s)
        if job.phase in OVER or stay is None:
            return None
        since_s = now_s if job.phase is Phase.RUNNING else now_s + restart_s
        finish_s = since_s + (spec.steps - job.step) * spec.step_s * (1.0 + LATE) + 2.0 * restart_s
        return RunningJob(spec, since_s, finish_s, stay, job.step * spec.step_s)

    # ------------------------------------------------------------ playing

    def _send(self, way: Handover) -> None:
        """Begin a checkpoint of the plan, at its rate, to its holder: if it is still the plan, and can still be done."""
        self._world.decide(ev.Woke())  # so that the coordinator knows what time it is
        cluster, holder = self._cluster, way.holder
        job = cluster.jobs.get(way.job)
        if (
            job is None
            or holder is None
            or self._plan.ways.get((way.job, way.stay)) is not way
            or job.phase is not Phase.RUNNING
            or job.host != way.stay.host
            or not cluster.hosts[way.stay.host].connected
            or not cluster.hosts[holder].usable
        ):
            return
        rate = self._plan.granted_bytes_per_s[way.job] = way.rate_at(self._world.now_s)
        if job.standby != holder:
            forget_standby(cluster, job)
        job.standby = holder
        flow = presync_flow(way.job, job.host, holder, rate)
        flow.floor_bytes_per_s = rate
        open_flow(cluster, flow)
        settle(cluster)
        opened = cluster.flows[flow.key]
        order = Protect(way.job, job.attempt, cluster.endpoint(opened), opened.rate_bytes_per_s, NO_TIMER_S, 0.0)
        cluster.tell(job.host, order)
        self._post()

    def _regrant(self, way: Handover) -> None:
        """Change the rate that it is sure of; or do nothing, if it is no longer the plan."""
        flow = self._cluster.flows.get(f"{way.job}:{way.stay.host}>{way.holder}")
        if flow is None or flow.traffic_class is not TrafficClass.PRESYNC:  # or a migration goes there by now
            return
        self._world.decide(ev.Woke())
        now = self._plan.ways.get((way.job, way.stay))
        is_planned = now is not None and now.holder == way.holder and not now.migrates
        rate = now.rate_at(self._world.now_s) if now is not None and is_planned else 0.0
        flow.floor_bytes_per_s = flow.cap_bytes_per_s = self._plan.granted_bytes_per_s[way.job] = rate
        if rate > 0.0:
            flow.rate_bytes_per_s = 0.0  # so that its sender learns of it however little it rises
        self._cluster.flows.put(flow)
        settle(self._cluster)
        self._post()
