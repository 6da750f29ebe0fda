"""A run told by a script: facts as a coordinator would write them, for tests and pictures of accounting and reports.

It keeps every promise: jobs arrive, wait or go on-demand, run, checkpoint at granted rates, are moved under notice, are
interrupted and resumed. Nothing of it is measured.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from controller.core.model import facts as f
from experiments.results.run_context import (
    WIRE_PER_PAYLOAD,
    FidelityRecord,
    ResearchSample,
    RunContext,
    SwitchProbe,
)
from topologies import presets
from topologies.paths import Routes
from topologies.scale import Scale
from topologies.spec import Campus, DirectedLink, ResearchReserve, Role
from topologies.units import GBIT_PER_S, MBIT_PER_S

STEP_S = 0.25
RESTART_S = 0.4
SCALE = Scale(bytes=1 / 250, time=1 / 40)
Timed = tuple[float, f.AnyFact]


def small_campus(hosts: int = 12, buildings: int = 3) -> Campus:
    """The demo's campus, as it is played."""
    campus = presets.three_tier(
        hosts,
        buildings,
        2,
        uplink_bytes_per_s=2.5 * GBIT_PER_S,
        mix=(presets.GpuShare(presets.RTX3090, 1, 5), presets.GpuShare(presets.A6000, 2, 1)),
        on_demand_slots=8,
        reserve=ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S),
        name="demo",
    )
    return SCALE.apply(campus)


def shares(campus: Campus) -> dict[DirectedLink, float]:
    """What migrations may use of each link, payload bytes/s."""
    kept = campus.research_reserve
    return {
        link: kept.migration_share_bytes_per_s(rate) / WIRE_PER_PAYLOAD
        for link, rate in campus.capacity_bytes_per_s.items()
    }


def context(campus: Campus | None = None, seed: int = 1, until_s: float = 75.0) -> RunContext:
    """A run's context that keeps all promises."""
    campus = campus or small_campus()
    rng = random.Random(seed)
    capacity = campus.access_link("h1").rate_bytes_per_s
    reserve = campus.research_reserve.reserve_bytes_per_s(capacity)
    last = f"h{sum(h.role is Role.VOLUNTEER for h in campus.hosts)}"
    research = [
        ResearchSample(
            second + 1.0,
            1.0,
            "h1",
            last,
            capacity,
            reserve,
            capacity / WIRE_PER_PAYLOAD * rng.uniform(0.42, 0.97),
        )
        for second in range(int(until_s))
    ]
    switches = (
        SwitchProbe("h7", 33.75, "isolate", 1.9e-6, 0.0031, 40, 0),
        SwitchProbe("h10", 45.0, "drain", 2.3e-6, 0.0044, 31, 0),
    )
    return RunContext(
        seed,
        SCALE,
        campus,
        shares(campus),
        10.0,
        1.5,
        research=research,
        switches=switches,
        fidelity=FidelityRecord(True, (), {"cpu_busy": 0.61, "worst_loop_lag_s": 0.011}),
        ended_at_s=until_s,
    )


@dataclass
class _Job:
    name: str
    steps: int
    payload: int
    step: int = 0
    host: str | None = None
    attempt: int = 0
    sequence: int = 0
    on_demand: bool = False
    submitted_s: float = 0.0
    began_s: float = 0.0
    began_step: int = 0
    stopped_s: float | None = None
    kept: tuple[int, int] | None = None  # sequence, step
    running: bool = False
    over: bool = False
    landing: tuple[str, str, float, float] | None = (
        None  # (source, destination, since when, notice) of its move
    )


@dataclass
class Story:
    """`facts` after `tell()`: the journal of a run of `until_s` seconds."""

    campus: Campus = field(default_factory=small_campus)
    jobs: int = 40
    seed: int = 1
    until_s: float = 75.0
    level: float = 1.6
    facts: list[Timed] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.routes = Routes(self.campus)
        self.room = shares(self.campus)
        self.flows: dict[tuple[str, str, str], float] = {}
        self.free = {h.name: h.gpus for h in self.campus.hosts if h.role is not Role.COORDINATOR}
        self.volunteers = [h.name for h in self.campus.hosts if h.role is Role.VOLUNTEER]
        self.lent = set(self.free)
        self.all: dict[str, _Job] = {}
        self.queue: list[str] = []
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0

    # ------------------------------------------------------------ the script

    def tell(self) -> list[Timed]:
        """Run the script."""
        for host in self.free:
            self.say(f.HostJoined(host, 1, True))
        times = sorted(self.rng.uniform(0.2, 0.85 * self.until_s) for _ in range(self.jobs))
        for n, at_s in enumerate(times, 1):
            self.at(at_s, lambda n=n: self.submit(n))
        for _ in range(max(4, len(self.volunteers))):
            host, at_s = self.rng.choice(self.volunteers[1:-1]), self.rng.uniform(5.0, 0.9 * self.until_s)
            self.at(
                at_s, lambda host=host: self.reclaim(host, self.rng.choice([0.0, 0.0, 2.5, 4.0, 6.0, 8.0]))
            )
        for second in range(1, int(self.until_s)):
            self.at(float(second), self.count_bytes)
        while self.heap and self.heap[0][0] <= self.until_s:
            self.now_s, _, act = heapq.heappop(self.heap)
            act()
        return self.facts

    def at(self, at_s: float, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.heap, (at_s, self.count, act))

    def after(self, wait_s: float, act: Callable[[], None]) -> None:
        self.at(self.now_s + wait_s, act)

    def say(self, fact: f.AnyFact) -> None:
        self.facts.append((self.now_s, fact))

    # ------------------------------------------------------------ jobs

    def submit(self, n: int) -> None:
        steps, payload = self.rng.randint(40, 110), int(self.rng.lognormvariate(16.4, 0.6))
        job = self.all[f"job{n}"] = _Job(f"job{n}", steps, payload, submitted_s=self.now_s)
        self.say(f.JobSubmitted(job.name, steps, STEP_S, payload))
        host = self.spot()
        ahead = len(self.queue)
        if host:
            self.start(job, host, 1.0, 0.0)
        elif ahead < self.level:
            self.queue.append(job.name)
            self.say(f.JobQueued(job.name, ahead, self.level))
        else:
            job.on_demand = True
            self.say(f.JobRedirected(job.name, ahead, self.level))
            self.start(job, min(h for h in self.free if h.startswith("od") and self.free[h]), 10.0, 0.0)
        if n % 6 == 0:
            self.level = max(0.4, self.level + self.rng.uniform(-0.3, 0.25))
            self.say(f.LevelLearned(self.level))

    def spot(self, but: str = "") -> str | None:
        found = [h for h in self.volunteers if h in self.lent and self.free[h] and h != but]
        return self.rng.choice(found) if found else None

    def start(self, job: _Job, host: str, cost: float | None = None, delay_s: float | None = None) -> None:
        job.attempt, job.host, job.running = job.attempt + 1, host, False
        self.free[host] -= 1
        sequence, step = job.kept or (None, 0)
        if job.stopped_s is not None and job.step > step:
            lost_s = (job.step - step) * STEP_S
            self.say(f.WorkLost(job.name, job.attempt, "emergency", job.step, step, lost_s))
        job.step = job.began_step = step
        self.say(f.JobDispatched(job.name, job.attempt, host, sequence, step, cost, delay_s))
        attempt = job.attempt
        self.after(self.rng.uniform(0.2, RESTART_S), lambda: self.runs(job, attempt))

    def runs(self, job: _Job, attempt: int) -> None:
        if job.attempt != attempt or job.host is None:
            return
        down = None if job.stopped_s is None else self.now_s - job.stopped_s
        job.running, job.began_s, job.stopped_s = True, self.now_s, None
        sequence = job.kept[0] if job.kept else None
        digest = f"{job.name}@{job.began_step}"
        self.say(f.JobRunning(job.name, attempt, job.host, job.began_step, digest, sequence, down))
        if job.landing is not None and job.landing[1] == job.host:
            source, to, began_s, notice_s = job.landing
            took_s = self.now_s - began_s
            self.say(f.MigrationFinished(job.name, source, to, took_s <= notice_s, took_s, down or 0.0))
        job.landing = None
        self.after((job.steps - job.began_step) * STEP_S, lambda: self.finish(job, attempt))
        self.say(f.CheckpointPlanned(job.name, attempt, "", 4e6, 3.0, 2.0, False, 0.4))
        self.after(self.rng.uniform(1.0, 3.0), lambda: self.protect(job, attempt))

    def progress(self, job: _Job) -> int:
        if job.running:
            job.step = min(job.steps, job.began_step + int((self.now_s - job.began_s) / STEP_S))
        return job.step

    def finish(self, job: _Job, attempt: int) -> None:
        if job.attempt != attempt or not job.running:
            return
        assert job.host is not None
        self.end_flows(job)
        self.say(f.JobFinished(job.name, attempt, job.host, job.steps, f"{job.name}@{job.steps}"))
        job.over, job.running = True, False
        self.leave(job)

    def leave(self, job: _Job) -> None:
        assert job.host is not None
        self.free[job.host] += 1
        host, job.host = job.host, None
        if self.queue and host in self.lent and host in self.volunteers:
            waiting = self.all[self.queue.pop(0)]
            first = waiting.attempt == 0
            wait_s = self.now_s - waiting.submitted_s
            self.start(waiting, host, 1.0 if first else None, wait_s if first else None)

    # ------------------------------------------------------------ checkpoints

    def protect(self, job: _Job, attempt: int) -> None:
        if job.attempt != attempt or not job.running:
            return
        assert job.host is not None
        standby = self.rng.choice([h for h in self.volunteers if h != job.host])
        sequence, step = self.snapshot(job, False)
        rate = self.open_flow(job.name, job.host, standby, "presync", 0.25, 0.0)
        wait_s = job.payload * 0.4 / rate
        self.after(wait_s, lambda: self.stored(job, attempt, sequence, step, job.host or "", standby, wait_s))
        self.after(max(3.0, wait_s + 1.0), lambda: self.protect(job, attempt))

    def snapshot(self, job: _Job, final: bool) -> tuple[int, int]:
        job.sequence += 1
        step = self.progress(job)
        sequence = job.attempt * 1_000_000 + job.sequence
        self.say(f.CheckpointTaken(job.name, job.attempt, sequence, step, job.payload, final))
        return sequence, step

    def stored(
        self, job: _Job, attempt: int, sequence: int, step: int, source: str, to: str, took_s: float
    ) -> None:
        if job.attempt != attempt or job.host is None:
            return
        ratio = None if took_s < 0.2 else self.rng.uniform(0.974, 0.998)
        sent = int(job.payload * 0.4)
        self.say(f.CheckpointCompleted(job.name, sequence, step, to, job.payload))
        saved = job.payload - sent
        self.say(f.TransferFinished(job.name, sequence, source, to, True, sent, saved, took_s, ratio, 0))
        self.close_flow(job.name, source, to)
        job.kept = (sequence, step)

    def open_flow(self, job: str, source: str, to: str, kind: str, part: float, floor: float) -> float:
        self.close_flow(job, source, to)
        route = self.routes.route(source, to)
        link = min(route, key=lambda step: self.room[step])
        rate = part * self.room[link]
        self.flows[job, source, to] = rate
        for step in route:
            self.room[step] -= rate
        self.say(f.Granted(job, source, to, kind, rate, floor * rate, str(link)))
        return rate

    def close_flow(self, job: str, source: str, to: str) -> None:
        rate = self.flows.pop((job, source, to), None)
        if rate is not None:
            for step in self.routes.route(source, to):
                self.room[step] += rate
            self.say(f.GrantEnded(job, source, to))

    def end_flows(self, job: _Job) -> None:
        for name, source, to in [key for key in self.flows if key[0] == job.name]:
            self.close_flow(name, source, to)

    # ------------------------------------------------------------ owners

    def reclaim(self, host: str, notice_s: float) -> None:
        if host not in self.lent:
            return
        self.lent.discard(host)
        here = [job for job in self.all.values() if job.host == host]
        self.say(f.HostReclaimed(host, notice_s, False, [job.name for job in here]))
        self.after(notice_s + self.rng.uniform(6.0, 15.0), lambda: self.give_back(host))
        for job in here:
            if notice_s > 0.0:
                self.move(job, notice_s)
            else:
                self.interrupt(job, "emergency")
        if notice_s > 0.0:
            self.after(notice_s, lambda: self.close(host))

    def close(self, host: str) -> None:
        left = [job for job in self.all.values() if job.host == host]
        self.say(f.HostReclaimed(host, 0.0, False, [job.name for job in left]))
        for job in left:
            self.interrupt(job, "deadline")

    def give_back(self, host: str) -> None:
        self.lent.add(host)
        self.say(f.HostReturned(host))
        while self.queue and self.free[host]:
            self.free[host] -= 1
            waiting = _Job("", 0, 0, host=host)
            self.leave(waiting)

    def move(self, job: _Job, notice_s: float) -> None:
        assert job.host is not None
        source, to = job.host, self.spot(job.host)
        if to is None or not job.running:
            why = "no free GPU" if to is None else "it has not started yet"
            self.say(f.MigrationDegraded(job.name, job.attempt, source, notice_s, why))
            return
        self.free[to] -= 1
        began_s, attempt = self.now_s, job.attempt
        self.end_flows(job)
        self.say(f.MigrationAdmitted(job.name, attempt, source, to, notice_s, job.payload, 4e6, 3.1, 0.93))
        rate = self.open_flow(job.name, source, to, "planned", 0.7, 0.6)
        final_s = min(notice_s * 0.4, job.payload * 0.6 / rate)
        self.after(final_s, lambda: self.final(job, attempt, source, to, rate, began_s, notice_s))

    def final(
        self, job: _Job, attempt: int, source: str, to: str, rate: float, began_s: float, notice_s: float
    ) -> None:
        self.free[to] += 1
        if job.attempt != attempt or not job.running:
            return
        sequence, step = self.snapshot(job, True)
        job.running, job.stopped_s = False, self.now_s
        took_s = min(job.payload * 0.4 / rate, notice_s * 0.4)
        self.free[to] -= 1

        def landed() -> None:
            self.free[to] += 1
            if job.host != source:
                return
            if to not in self.lent:
                self.interrupt(job, "destination_lost")
                return
            self.stored(job, attempt, sequence, step, source, to, took_s)
            self.leave(job)
            self.start(job, to)
            job.landing = (source, to, began_s, notice_s)

        self.after(took_s, landed)

    def interrupt(self, job: _Job, cause: str) -> None:
        assert job.host is not None
        self.say(f.JobStopped(job.name, job.attempt, job.host, cause, self.progress(job)))
        self.end_flows(job)
        job.running, job.stopped_s = False, job.stopped_s or self.now_s
        self.leave(job)
        host = self.spot()
        if host is None:
            self.queue.insert(0, job.name)
            self.say(f.JobWaits(job.name, "no host is free for it"))
        else:
            self.start(job, host)

    def count_bytes(self) -> None:
        for host in self.volunteers:
            sent = sum(rate for (_, source, _), rate in self.flows.items() if source == host)
            if sent:
                wire = sent * WIRE_PER_PAYLOAD
                self.say(
                    f.EgressMeasured(host, 1.0, int(wire * 0.97), 2_000_000, 0, wire, int(wire * 0.97), wire)
                )


def facts(**changes: object) -> list[Timed]:
    """The journal of a story; see `Story` for what can be changed."""
    return replace(Story(), **changes).tell()  # type: ignore[arg-type]
