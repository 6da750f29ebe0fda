"""The description of one run: everything that decides its events, and nothing about the world in which it is played.

A scenario is written in real units. `played()` is the same one at its `scale`: what the testbed builds and runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core.parameters import Protocol, Queue
from controller.core.policies.overrides import with_overrides
from controller.user_policies import find_policy
from experiments.inputs.scenario.job import JobArrival
from experiments.inputs.scenario.owners import Owners, check_order
from experiments.inputs.scenario.parts import BackgroundLaw, Jobs, LinkEvent, ResearchFlow, Trust
from experiments.inputs.scenario.user_jobs import check_names
from topologies.dimension import DURATION, Dimension
from topologies.errors import SpecError
from topologies.fields import make_plain
from topologies.keys import number, whole
from topologies.scale import Scale
from topologies.spec import Campus, GpuModel, Host, Link, Role
from topologies.units import format_duration, format_size

MAX_EVENTS = 2_000_000  # jobs, or reclaims, expected in one run
MAX_STEPS = 1e9  # of one job: more are shorter than what a clock that counts days in seconds resolves
MAX_SEED = 2**63 - 1
HEARTBEAT_S = 1.0  # counters are sent on at 1 Hz; a shorter lease needs more
# of all hosts together, as Nomad's servers bound them: each costs the coordinator some half a millisecond of a processor
HEARTBEATS_PER_S = 250.0
SECTIONS: dict[str, type[Any]] = {"queue": Queue, "protocol": Protocol, "jobs": Jobs, "owners": Owners, "trust": Trust}
LISTS: dict[str, type] = {"user_jobs": JobArrival, "research": ResearchFlow, "events": LinkEvent}


@dataclass(frozen=True)
class Scenario:
    """Inputs of one run, complete. Construction checks it as a whole; SpecError names the values that do not fit together."""

    name: str
    campus: Campus
    seed: int = 1
    duration_s: float = field(default=3600.0, metadata=DURATION)
    queue: Queue = field(default_factory=Queue)
    protocol: Protocol = field(default_factory=Protocol)
    jobs: Jobs = field(default_factory=Jobs)
    user_jobs: tuple[JobArrival, ...] = ()  # beside the generated ones
    owners: Owners = field(default_factory=Owners)
    research: tuple[ResearchFlow, ...] = ()
    events: tuple[LinkEvent, ...] = ()
    trust: Trust = field(default_factory=Trust)
    background: BackgroundLaw | None = None  # none: links carry nothing else
    scale: Scale = field(default_factory=Scale)

    def __post_init__(self) -> None:
        make_plain(self)
        if not (isinstance(self.name, str) and self.name.isprintable() and 1 <= len(self.name) <= 64):
            raise SpecError("name", f"{self.name}"[:80], "1 to 64 printable characters")
        for key, kind, value in (
            ("seed", whole(0, MAX_SEED), self.seed),
            ("duration", number(Dimension.DURATION, above=True), self.duration_s),
        ):
            if allowed := kind.wrong(value):
                raise SpecError(key, value, allowed)
        parts: dict[str, type] = {"campus": Campus, **SECTIONS, "scale": Scale}
        for key, part in parts.items():
            value = getattr(self, key)
            if not isinstance(value, part):
                raise SpecError(key, f"{value}"[:80], f"a {part.__name__}")
        for key, part in LISTS.items():
            value = getattr(self, key)
            if not (isinstance(value, tuple) and all(isinstance(each, part) for each in value)):
                raise SpecError(key, f"{value}"[:80], f"a tuple of {part.__name__}")
        self._complete_protocol()
        self._check_hosts()
        self._check_events()
        self._check_fit()

    @property
    def generates_jobs(self) -> bool:
        """True if jobs are drawn."""
        return self.jobs.count != 0

    @property
    def volunteers(self) -> tuple[Host, ...]:
        """The hosts whose owners lend them."""
        return tuple(self.campus.hosts_of(Role.VOLUNTEER))

    def played(self) -> Scenario:
        """Return the scenario as it is run: scaled, once. Its own scale is 1: playing it again changes nothing."""
        return replace(self.scale.apply(self), scale=Scale())

    def _complete_protocol(self) -> None:
        """Make overrides part of the policy's name, and add to the protocol what follows from campus and owners."""
        given = self.protocol
        policy = given.policy if given.override is None else with_overrides(given.policy, given.override)
        find_policy(policy, "protocol.policy")
        protocol = replace(
            given,
            policy=policy,
            override=None,
            heartbeat_s=heartbeat_s(len(self.campus.hosts), given.lease_s),
            day_s=self.owners.day_s,
            day_start_s=self.owners.day_start_s,
            first_weekday=self.owners.first_weekday,
        )
        object.__setattr__(self, "protocol", protocol)

    def _check_hosts(self) -> None:
        volunteers = {host.name for host in self.volunteers}
        if not volunteers:
            raise SpecError("campus.hosts", [], "at least one host with the role volunteer")
        check_order(self.owners.script, "owners.script")
        scripted = {event.host for event in self.owners.script}
        _known("owners.script", scripted, volunteers)
        _known("owners.loyal", self.owners.loyal, volunteers)
        both = sorted(scripted.intersection(self.owners.loyal))
        if both:
            raise SpecError("owners.loyal", both, "hosts that are not in owners.script")
        if calendars := [host.name for host in self.volunteers if host.lent is not None]:
            if self.owners.count is not None:
                raise SpecError("owners.count", self.owners.count, f"none: {calendars[0]} has a calendar (lent)")
            if both := sorted({*calendars}.intersection(self.owners.loyal)):
                raise SpecError("owners.loyal", both, "hosts without a calendar (lent)")
        for flow in self.research:
            _known(f"research.{flow.source}-{flow.target}", (flow.source, flow.target), self.campus.host_by_name)
            if flow.source == flow.target:
                raise SpecError("research", flow.source, "a flow between two different hosts")
            if self.duration_s * flow.rate_bytes_per_s / (flow.mean_size_bytes or math.inf) > MAX_EVENTS:
                raise SpecError("research.rate", flow.rate_bytes_per_s, f"less: at most {MAX_EVENTS} flows in a run")

    def _check_events(self) -> None:
        """Check that events are in order of time, of links that there are, and each possible after those before."""
        state: dict[frozenset[str], Link] = {frozenset((link.a, link.b)): link for link in self.campus.links}
        before_s = 0.0
        for event in self.events:
            ends = frozenset(event.between)
            if ends not in state:
                near = [f"{link.a}-{link.b}" for link in self.campus.links if ends & {link.a, link.b}][:12]
                allowed = f"the two ends of a link{': ' + ', '.join(near) if near else ''}"
                raise SpecError("events.between", list(event.between), allowed)
            if not before_s <= event.at_s:
                raise SpecError("events.at", event.at_s, f"in order of time: at {before_s:g} s or later")
            before_s = event.at_s
            state[ends] = replace(state[ends], **{k: v for k, v in event.changes.items() if k != "up"})  # type: ignore[arg-type]

    def _check_fit(self) -> None:
        """Check that the hungriest job fits somewhere, in spot capacity and (if there is any) in on-demand capacity.

        Everything that happens must lie within the run, too.
        """
        check_names(self.user_jobs, beside_generated=self.generates_jobs)
        for role in (Role.VOLUNTEER, Role.ON_DEMAND):
            named = [(h.gpus, h.gpu_model) for h in self.campus.hosts_of(role) if h.gpu_model]
            hosts = [(gpus, self.campus.gpu_by_name[model]) for gpus, model in named]
            if hosts:
                self._check_own_fit(role, hosts)
                if self.generates_jobs:
                    self._check_generated_fit(role, [model for _, model in hosts])
        if known := {name for gpu in self.campus.gpu_models for name, _ in gpu.speeds}:
            given = (own.job.given.workload_class for own in self.user_jobs if own.job.given is not None)
            _known("jobs.workload_classes", {*self.jobs.workload_classes, *(name for name in given if name)}, known)
        for own in self.user_jobs:
            if not own.at_s < self.duration_s:
                allowed = f"before the run's end, duration = {format_duration(self.duration_s)}"
                raise SpecError(f"jobs.{own.job.name}.at", format_duration(own.at_s), allowed)
        if self.generates_jobs:
            self._check_amounts()

    def _check_own_fit(self, role: Role, hosts: Sequence[tuple[int, GpuModel]]) -> None:
        for job in (own.job for own in self.user_jobs):
            memory, capability = job.memory_bytes, job.min_capability
            fitting = [gpus for gpus, m in hosts if m.compute_capability >= capability and m.memory_bytes >= memory]
            if not fitting:
                models = sorted({model for _, model in hosts}, key=lambda model: model.name)
                has = [f"{m.name} {format_size(m.memory_bytes)}, {m.compute_capability:g}" for m in models]
                asked = f"{format_size(memory)} of memory, capability {capability:g}"
                raise SpecError(f"jobs.{job.name}", asked, f"what some {role} GPU has: {'; '.join(has[:12])}")
            if job.given is not None and job.given.gpus > max(fitting):
                allowed = f"at most {max(fitting)}: no {role} host has more such GPUs"
                raise SpecError(f"jobs.{job.name}.gpus", job.given.gpus, allowed)

    def _check_generated_fit(self, role: Role, models: Sequence[GpuModel]) -> None:
        memory, largest = self.jobs.memory, max(model.memory_bytes for model in models)
        hungriest = memory.quantile(1.0 - 1e-9) if math.isinf(memory.maximum) else memory.maximum
        if hungriest > largest:
            allowed = f"at most {largest:g} bytes: the largest {role} GPU"
            raise SpecError("jobs.memory.maximum", hungriest, allowed)
        most = max(model.compute_capability for model in models if model.memory_bytes >= hungriest)
        for capability in self.jobs.min_capabilities:
            if capability > most:
                allowed = f"a capability that some {role} GPU with {hungriest:g} bytes of memory has"
                raise SpecError("jobs.min_capabilities", capability, allowed)

    def _check_amounts(self) -> None:
        if self.scale.bytes * self.jobs.payload.typical < 1.0:
            allowed = f"at least {1.0 / self.jobs.payload.typical:.2g}: less than one byte of a payload would be played"
            raise SpecError("scale.bytes", self.scale.bytes, allowed)
        jobs = self.jobs.initial + self.duration_s / self.jobs.interarrival.mean()
        steps = self.jobs.run_time.quantile(1.0 - 1e-9) / self.jobs.step_s
        factor = max((peak.factor for peak in self.owners.peaks), default=1.0)
        reclaims = self.duration_s * self.owners.hazard_per_s * max(1.0, factor) * len(self.volunteers)
        for key, value, expected, most, what in (
            ("jobs.interarrival", self.jobs.interarrival.typical, jobs, MAX_EVENTS, "jobs in a run"),
            ("jobs.step", self.jobs.step_s, steps, MAX_STEPS, "steps in a job"),
            ("owners.hazard", self.owners.hazard_per_s, reclaims, MAX_EVENTS, "reclaims in a run"),
        ):
            if expected > most:
                raise SpecError(key, value, f"at most {most:.0f} {what}")


def _known(key: str, names: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SpecError(key, unknown[0], f"one of {', '.join(sorted(known)[:12])}, ...")


def heartbeat_s(hosts: int, lease_s: float) -> float:
    """Return the pause between two heartbeats of a busy host, in a campus of so many; a lease has three of them at least."""
    return min(max(HEARTBEAT_S, hosts / HEARTBEATS_PER_S), lease_s / 3.0)
