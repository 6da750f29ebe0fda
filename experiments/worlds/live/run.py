"""A live run: build the campus, let jobs arrive and owners reclaim, watch, and return the result."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from operator import attrgetter
from pathlib import Path

import msgspec
import trio

from bpf.observer import Observation
from controller.core.policies.table import Policy
from controller.persistence.journal import facts_before_damage
from experiments.inputs.job_file import check_runs
from experiments.inputs.scenario import OwnerEvent, Scenario
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces import Trace, announced
from experiments.results.events_file import write_events
from experiments.results.live_lines import Show
from experiments.results.measurements import measured_curves
from experiments.results.run_context import COMPLETED, INTERRUPTED, Death, FidelityRecord, SwitchProbe
from experiments.worlds.live import research
from experiments.worlds.live.network import LOOK_S, NetworkWatch
from experiments.worlds.live.operator import JOB_LOGS, JOURNAL, Operator, connected
from experiments.worlds.live.owners import OwnersAtWork
from experiments.worlds.live.usage import Usage
from experiments.worlds.live.world import WATCH_PERIOD_S, LiveWorld, Owners, live_row, live_world
from experiments.worlds.played import Played, agents_registered_s, context_of
from testbed import messages as m
from testbed.clock import MonotonicClock
from testbed.emulation.campus import check_change
from testbed.emulation.description.plan import Cable
from testbed.emulation.fidelity import Fidelity, FidelityMonitor, probe_link_rates
from testbed.emulation.safety.observation import DisturbedWindow, shifted
from testbed.errors import SetupError
from testbed.logs import logger
from topologies.errors import SpecError
from topologies.scale import Scale

LOG = logger("run")
AGAIN_S = 0.1  # pause before a coordinator that does not answer is tried again
REGISTER_S, REGISTER_PER_HOST_S = 15.0, 0.05  # agents must have registered by then
ASK_PER_HOST_S = 0.001


@dataclass
class LiveRun:
    """A run in progress. `scenario` and `trace` are as played."""

    scenario: Scenario
    trace: Trace
    world: LiveWorld
    show: Show
    ended: str = COMPLETED
    ended_at_s: float = 0.0
    kills: Sequence[bool] = ()
    used: dict[str, float] = field(default_factory=dict)  # see `Usage`; of a run that was not cut short

    def __post_init__(self) -> None:
        self.owners = OwnersAtWork(self.world)
        self.world.habits.held = self.owners.away
        self.network = NetworkWatch(self.world.campus)
        self._rates, self._rates_to_send = trio.open_memory_channel[list[tuple[str, str, float]]](inf)

    async def main(self) -> None:
        """Run until the time is over, or a signal interrupts."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_on_signal, nursery.cancel_scope)
            nursery.start_soon(self._watch_processes)
            if self.world.leads:
                await self._wait_for_agents()
            self.world.start_research()
            self.world.start_prober()
            begin_s, duration_s = await self._begin(), self.scenario.duration_s
            usage = Usage(self.world)
            if self.world.leads:
                nursery.start_soon(self._watch_facts)
                nursery.start_soon(self._submit_all, begin_s)
                nursery.start_soon(self._send_rates)
                nursery.start_soon(self._kill_leaders, begin_s)
            away = (OwnerEvent(0.0, host) for host in self.trace.away)
            here = [each for each in (*away, *self.trace.owner_events) if each.host in self.world.owner_hosts]
            nursery.start_soon(self.owners.play, here, begin_s)
            nursery.start_soon(self._change_links, begin_s)
            nursery.start_soon(self._watch_network)
            await trio.sleep_until(begin_s + duration_s)
            self.used = usage.shares() | usage.memory_bytes()
            nursery.cancel_scope.cancel()
        self.ended_at_s = time.monotonic() - self.world.started_s

    # ------------------------------------------------------------ tasks

    async def _begin(self) -> float:
        """Return the moment at which the scenario begins."""
        return trio.current_time()

    def _tell_rates(self, rates: list[tuple[str, str, float]]) -> None:
        """Have rates of links, as they are now, sent to the coordinator, behind earlier ones."""
        self._rates.send_nowait(rates)

    async def _send_rates(self) -> None:
        async for rates in self._rates_to_send:
            await self._talk(partial(Operator.change_links, rates=rates))

    async def _wait_for_agents(self) -> None:
        """Wait until every agent has registered; SetupError if they do not in time."""
        hosts = len(self.world.agent_hosts)
        began_s = trio.current_time()
        limit_s = REGISTER_S + REGISTER_PER_HOST_S * hosts
        while trio.current_time() - began_s < limit_s:
            with suppress(OSError, trio.BrokenResourceError):
                async with connected(self.world.operator_socket) as operator:
                    while any(h.state == "absent" for h in (await operator.status()).hosts):
                        # the coordinator has Hellos to answer: what it reports of all hosts is asked for the less often
                        await trio.sleep(ASK_PER_HOST_S * hosts)
                    return
            await trio.sleep(0.02)
        raise SetupError(f"not all {hosts} agents registered within {limit_s:.0f} s; see {self.world.out}/logs")

    async def _talk(self, talk: Callable[[Operator], Awaitable[None]]) -> None:
        """Talk to the coordinator; once more if it dies meanwhile: a job that is submitted again is not another."""
        while True:
            try:
                async with connected(self.world.operator_socket) as operator:
                    await talk(operator)
                    return
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.sleep(AGAIN_S)  # `_watch_processes` starts it again

    async def _submit_all(self, begin_s: float) -> None:
        left = deque(self.trace.arrivals)

        async def submit_them(operator: Operator) -> None:
            while left:
                await trio.sleep_until(begin_s + left[0].at_s)
                await self._submit(operator, left[0].job.spec())
                left.popleft()

        await self._talk(submit_them)

    async def _change_links(self, begin_s: float) -> None:
        """Apply the scenario's events to the kernel's links, each at its time."""
        one_at_a_time = trio.Lock()
        async with trio.open_nursery() as nursery:
            for event in self.scenario.events:
                if self.world.carries(event.between):
                    nursery.start_soon(self._change_link, event, begin_s, one_at_a_time)

    async def _change_link(self, event: LinkEvent, begin_s: float, one_at_a_time: trio.Lock) -> None:
        """Apply one event, which is read back; a trunk that is to be drained is left until then.

        The rates to plan with are sent to the coordinator.
        """
        campus, (a, b) = self.world.campus, event.between
        change = partial(
            campus.set_link,
            a,
            b,
            rate=event.rate_bytes_per_s,
            delay=event.delay_s,
            loss=event.loss,
            jitter=event.jitter_s,
            up=event.up,
        )
        with ExitStack() as drained:
            if event.drain_s is not None:
                await trio.sleep_until(begin_s + event.at_s - event.drain_s)
                try:
                    await trio.to_thread.run_sync(drained.enter_context, campus.drained(a, b))
                except SetupError as error:  # it is cut all the same
                    LOG.warning("%s", error)
            await trio.sleep_until(begin_s + event.at_s)
            async with one_at_a_time:
                await trio.to_thread.run_sync(change)
        if event.rate_bytes_per_s is None and self.network.hears_of(a, b):
            return  # its controller reports it, when its tables follow
        if event.rate_bytes_per_s is not None or event.up is not None:
            self._tell_rates(present_rates(campus.plan.cable_between(a, b)))

    async def _watch_network(self) -> None:
        """Send the switches' events to the coordinator, as they are seen."""
        while self.network.has_work:
            changed = await trio.to_thread.run_sync(self.network.changed)
            if changed:
                self._tell_rates(changed)
            await trio.sleep(LOOK_S)

    async def _submit(self, operator: Operator, job: m.JobSpec) -> None:
        answer = await operator.submit(job)
        if isinstance(answer, m.Rejected):
            raise SetupError(f"job {answer.job} was refused: {answer.reason}")

    async def _watch_facts(self) -> None:
        async def watch(operator: Operator) -> None:
            async for at_s, fact in operator.watch():
                self.show(at_s, fact)
            raise trio.BrokenResourceError("the coordinator ended")

        await self._talk(watch)

    async def _watch_processes(self) -> None:
        while True:
            self.world.watch_processes()
            self.world.habits.look()
            await trio.sleep(WATCH_PERIOD_S)

    async def _kill_leaders(self, begin_s: float) -> None:
        for number, of_etcd in enumerate(self.kills, 1):
            await trio.sleep_until(begin_s + number / (len(self.kills) + 1) * self.scenario.duration_s)
            self.world.kill_leader(of_etcd=of_etcd)

    async def _end_on_signal(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                self.ended = INTERRUPTED
                scope.cancel()
                return


def present_rates(cable: Cable) -> list[tuple[str, str, float]]:
    """Return a cable's present rates, each way: source, target, wire bytes/s."""
    ends = (cable.a, cable.b)
    up = all(end.is_up for end in ends)
    rates = [float(end.shape.rate_bytes_per_s) if up else 0.0 for end in ends]
    a, b = (end.node for end in ends)
    return [(a, b, rates[0]), (b, a, rates[1])]


def check_user_jobs(scenario: Scenario) -> None:
    """Check that agents here can run and scale the user's own jobs; import their workloads. SpecError: one cannot."""
    for job in (own.job for own in scenario.user_jobs):
        spec, played = job.spec(), scenario.scale.apply(job)
        check_runs(msgspec.structs.replace(spec, payload_bytes=played.payload_bytes), Path.cwd())
        if spec.workload != "synthetic" and scenario.scale != Scale():
            allowed = (
                "a synthetic job, or no [scale]: a job that really computes takes the time and the bytes that it takes"
            )
            raise SpecError(f"jobs.{job.name}", spec.workload, allowed)


@dataclass
class LiveRecord:
    """The records of a run beside its journal, or of the part of it on one machine; times since the coordinator began.

    `started_s`: that moment, by CLOCK_MONOTONIC of the machine. `hosts`: of that machine.
    """

    hosts: frozenset[str]
    started_s: float
    ended: str
    ended_at_s: float
    deaths: list[Death]
    switches: list[SwitchProbe]
    fidelity: Fidelity
    observed: dict[str, Observation]
    disturbances: list[DisturbedWindow]
    down_s: float = 0.0  # how long the campus took to end

    @classmethod
    def of(cls, run: LiveRun, monitor: FidelityMonitor) -> LiveRecord:
        """Return what was recorded of a run that is over, while its campus stands; its coordinator ends before."""
        world = run.world
        world.end_coordinator()
        measured = monitor.verdict()
        phases = {f"up_{phase}_s": seconds for phase, seconds in world.campus.phases_s.items()}
        figures = {**measured.figures, **phases, **run.used, **world.load()}
        return cls(
            frozenset(world.campus.plan.host_cables),
            world.started_s,
            run.ended,
            run.ended_at_s,
            world.deaths,
            run.owners.probes,
            replace(measured, figures=figures),
            monitor.observed,
            shifted(monitor.disturbances, world.started_s),
        )


def prepared(scenario: Scenario, trace: Trace, *, switches_hold: bool = True) -> tuple[Scenario, Trace, Policy]:
    """Return scenario and trace as a live run plays them, and the policy. SpecError: only the virtual world can play them."""
    played, played_trace = scenario.played(), scenario.scale.apply(trace)
    if not switches_hold:  # then nothing would keep research's reserve from checkpoints that borrow it
        played = replace(played, protocol=replace(played.protocol, override={"borrows": False}))
    row = live_row(played)
    if row.weighs_calendars:
        played_trace = replace(played_trace, owner_events=announced(played_trace, played))
    if real := played.campus.own_agents:  # their owners are people
        events = tuple(event for event in played_trace.owner_events if event.host not in real)
        played_trace = replace(played_trace, owner_events=events)
    if played_trace.background is not None:
        allowed = "none: only the virtual world plays the traffic of others (live has [[research]] flows)"
        raise SpecError("background", f"{len(played_trace.background.flows)} flows", allowed)
    for event in played.events:
        check_change(event.rate_bytes_per_s, event.delay_s)
    check_user_jobs(scenario)
    return played, played_trace, row


def told(scenario: Scenario, trace: Trace, row: Policy, out: Path, parts: Sequence[LiveRecord]) -> Played:
    """Return a run of its journal and files in `out` and of what each machine recorded, the coordinator's first."""
    first, played = parts[0], scenario.played()
    facts, damage = facts_before_damage(out / JOURNAL)
    write_events(out / "events.jsonl", facts)
    flows = research.plan_flows(played.campus, played.research, out, played.seed)
    samples, completions = [], []
    for part in parts:
        ended_s = part.started_s + first.ended_at_s
        received = [flow for flow in flows if flow.flow.target in part.hosts]
        samples += research.samples(played.campus, received, part.started_s, ended_s, facts)
        sent = [flow for flow in flows if flow.flow.source in part.hosts]
        completions += [each for flow in sent for each in flow.completed(part.started_s, ended_s)]
    figures = {
        **first.fidelity.figures,
        "agents_registered_s": agents_registered_s(facts),
        "down_s": max(part.down_s for part in parts),
    }
    context = replace(
        context_of(scenario, trace, row),
        research=sorted(samples, key=attrgetter("at_s")),
        completions=tuple(completions),
        switches=tuple(each for part in parts for each in part.switches),
        fidelity=FidelityRecord(
            first.fidelity.valid and not damage,
            [*first.fidelity.reasons, *damage],
            figures,
            first.observed,
            [each for part in parts for each in part.disturbances],
        ),
        ended=first.ended,
        ended_at_s=first.ended_at_s,
        deaths=tuple(each for part in parts for each in part.deaths),
        measured=measured_curves(out / "logs" / JOB_LOGS),
    )
    return Played(facts, context)


def run_live(
    scenario: Scenario,
    trace: Trace,
    out: Path,
    show: Show,
    *,
    owners: Owners | None = None,
    agents_per_process: int | None = None,
    switches_hold: bool = True,
    kills: Sequence[bool] = (),
) -> Played:
    """Play a scenario (in real units) on the kernel of this machine; everything it made is gone when it returns.

    Writes the journal, `events.jsonl` and logs into `out`; calls `show` with each fact. `owners` as in `owners_of`;
    `agents_per_process` and `switches_hold` as in `live_world`. `kills`: of the coordinator that leads, as many, evenly;
    True is one of etcd's leader, too. SetupError: the machine cannot play it. SpecError: only the virtual world can
    play the system, or the trace's background.
    """
    played, played_trace, row = prepared(scenario, trace, switches_hold=switches_hold)
    # a path inside a building and one across the core, where there are such
    first, *others = played.volunteers
    same = [host for host in others if host.building == first.building]
    elsewhere = [host for host in others if host.building != first.building]
    probed = [(first.name, group[-1].name) for group in (same, elsewhere) if group]
    with live_world(
        played, out, owners=owners, agents_per_process=agents_per_process, switches_hold=switches_hold
    ) as world:
        monitor = FidelityMonitor(world.campus)
        monitor.add_rates(probe_link_rates(world.campus, probed))
        with monitor:
            run = LiveRun(played, played_trace, world, show, kills=kills)
            trio.run(run.main, clock=MonotonicClock())
        recorded = LiveRecord.of(run, monitor)
        going_s = time.monotonic()
    recorded.down_s = time.monotonic() - going_s
    return told(scenario, trace, row, out, [recorded])
