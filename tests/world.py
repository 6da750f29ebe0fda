"""The virtual world as tests of the cores want it: small, loud (every heartbeat is sent, as bytes), checked after every event.

Everything is `experiments.worlds.virtual`; here are a small campus, its parameters, failures at random, and a few questions.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core.model.entities import Phase
from controller.core.parameters import Protocol, Queue
from experiments.results.rules import broken as broken_promises
from experiments.results.rules import not_promised
from experiments.storms import setup
from experiments.storms.play import run_until_over
from experiments.storms.verdict import context_of
from experiments.worlds.virtual import Failure, Faults, Overheads, VirtualWorld
from experiments.worlds.virtual.invariants import Invariants, broken
from testbed.errors import InvariantBroken
from testbed.messages import JobSpec
from topologies import presets
from topologies.spec import Campus, ResearchReserve

PROTOCOL, QUEUE = setup.PROTOCOL, replace(setup.QUEUE, level_start=1.0)
COSTS = replace(setup.COSTS, switch_s=(0.0, 0.1))
STEP_S = 0.1
OPTIONS = ("seed", "checks", "quiet", "costs", "faults", "send_failures", "snapshot_failures", "workload_failures")


def parameters(**changed: Any) -> tuple[Protocol, Queue]:
    """The usual parameters with these fields of either changed."""
    of_queue = {name: changed.pop(name) for name in QUEUE.__slots__ if name in changed}
    return replace(PROTOCOL, **changed), replace(QUEUE, **of_queue)


def small_campus(hosts: int = 6, on_demand: int = 2, buildings: int = 2, slots: int = 2) -> Campus:
    """A few hosts of one and two GPUs with links of 10 MB/s (uplinks 20)."""
    return presets.three_tier(
        hosts,
        buildings,
        on_demand,
        access_bytes_per_s=10e6,
        uplink_bytes_per_s=20e6,
        core_bytes_per_s=40e6,
        mix=(presets.GpuShare(presets.RTX3090, 1, 2), presets.GpuShare(presets.A6000, 2, 1)),
        on_demand_slots=slots,
        reserve=ResearchReserve(beta=0.3),
    )


def job(name: str = "a", steps: int = 1000, payload_bytes: int = 2_000_000, **more: Any) -> JobSpec:
    """A job of steps of STEP_S."""
    return JobSpec(name, steps, STEP_S, payload_bytes, **more)


def a_running_job(world: VirtualWorld, spec: JobSpec, at_s: float = 4.0) -> str:
    """Submit it and let it run; the host."""
    world.submit(spec)
    world.run(at_s)
    job = world.jobs[spec.name]
    assert job.phase is Phase.RUNNING
    assert job.host is not None
    return job.host


class World(VirtualWorld):
    """See the module. The failure rates may be changed while it runs."""

    def __init__(
        self,
        campus: Campus | None = None,
        protocol: Protocol = PROTOCOL,
        terms: Queue = QUEUE,
        seed: int = 4,
        *,
        send_failures: float = 0.0,
        snapshot_failures: float = 0.0,
        workload_failures: float = 0.0,
        checks: bool = True,
        quiet: bool = False,
        costs: Overheads = COSTS,
        faults: Faults | None = None,
        **options: Any,
    ) -> None:
        self.send_failures, self.snapshot_failures = send_failures, snapshot_failures
        self.workload_failures, self.checks = workload_failures, checks
        self.told: list[tuple[float, str, Any]] = []  # messages to agents
        super().__init__(
            campus or small_campus(),
            protocol,
            terms,
            seed,
            costs=costs,
            faults=faults or self._faults(),
            quiet=quiet,
            codec=True,
            tells_story=True,
            after_each=Invariants() if checks else None,
            **options,
        )
        self.env.told = lambda host, message: self.told.append((self.now_s, host, message))

    def _faults(self) -> Faults:
        def happens(purpose: str, share: float) -> bool:
            return self.env.streams.of(purpose).random() < share

        def sending(host: str, order: object) -> Failure | None:
            if not happens("sending", self.send_failures):
                return None
            return Failure("the transfer failed", retryable=happens("retry", 0.7))

        def snapshot(host: str, order: object) -> Failure | None:
            return Failure("it failed") if happens("snapshots", self.snapshot_failures) else None

        def workload(host: str, job: str, attempt: int) -> Failure | None:
            return Failure("it crashed") if happens("workloads", self.workload_failures) else None

        return Faults(sending=sending, snapshot=snapshot, workload=workload)

    def run_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Until it is so, at most to that time; whether it is."""
        while not done() and self.now_s < limit_s:
            self.run(min(limit_s, self.now_s + 1.0))
        return done()

    def broken(self, subject: str, rule: str) -> InvariantBroken:
        """An error that tells what happened last."""
        return broken(self, subject, rule)

    def copies(self, job: str) -> list[str]:
        """Hosts on which the job computes, truly."""
        return [
            f"{machine.name}#{attempt}"
            for machine in self.machines.values()
            for (name, attempt), process in machine.processes.items()
            if name == job and process.alive
        ]

    def disturb(self, rng: random.Random, times: int, until_s: float) -> None:
        """Owners take hosts at random, with notice and without, agents die and stand still; and all are back soon."""
        owned = [host.name for host in self.coordinator.cluster.volunteers]
        for _ in range(times):
            name, at_s, away_s = rng.choice(owned), rng.uniform(2.0, until_s), rng.uniform(0.3, 20.0)
            match rng.choice(["reclaim", "notice", "kill", "pause"]):
                case "reclaim":
                    self.at(at_s, lambda name=name: self.reclaim(name))
                case "notice":
                    self.at(at_s, lambda name=name, away_s=away_s: self.reclaim(name, away_s))
                case "kill":
                    self.at(at_s, lambda name=name, away_s=away_s: self.kill(name, again_after_s=away_s))
                case "pause":
                    self.at(at_s, lambda name=name, away_s=away_s: self.pause(name, away_s))
            self.at(at_s + 2.0 * away_s, lambda name=name: self.give_back(name))

    def of(self, kind: type) -> list[Any]:
        """Facts of one kind."""
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def to(self, host: str, kind: type) -> list[Any]:
        """Messages of one kind that a host was told."""
        return [message for _, name, message in self.told if name == host and isinstance(message, kind)]

    def promises(self) -> list[Any]:
        """What experiments.results.rules says of the journal."""
        waived = not_promised(self.coordinator.cluster.policy)
        return broken_promises(self.facts, context_of(self, waived))

    def running(self, name: str = "a", until_s: float = 12.0, **more: Any) -> str:
        """Submit a job and let it run; its host."""
        return a_running_job(self, job(name, **more), until_s)

    def at_s(self, kind: type) -> list[float]:
        """Times of the facts of one kind."""
        return [at_s for at_s, fact in self.facts if isinstance(fact, kind)]

    def messages(self, kind: type) -> list[Any]:
        """Messages of one kind to any agent."""
        return [message for _, _, message in self.told if isinstance(message, kind)]


def a_world(
    hosts: int = 4, on_demand: int = 1, *, buildings: int = 2, campus: Campus | None = None, **changed: Any
) -> World:
    """A campus whose agents have just started. `changed`: options of a World, and fields of its parameters."""
    options = {name: changed.pop(name) for name in OPTIONS if name in changed}
    given = parameters(**{"level_start": 3.0, **changed})
    world = World(campus or small_campus(hosts, on_demand, buildings), *given, **options)
    world.start()
    world.run(0.5)
    return world


def calm_and_finish(world: World, within_s: float = 240.0) -> None:
    """No more failures, owners return, agents run: every job finishes, within bounds, and all promises were kept."""
    world.send_failures = world.snapshot_failures = world.workload_failures = 0.0
    for name in world.machines:
        world.start(name)
        world.give_back(name)
    if left := run_until_over(world, within_s):
        raise world.broken("liveness", f"not over after {within_s:.0f} s of calm: {left}")
    for breach in world.promises():
        raise world.broken(breach.subject, f"promise: {breach.rule}: {breach.story[-1]}")
