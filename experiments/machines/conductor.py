"""The operator's side of a run over several machines: a live run whose parts are played by workers of a Dask scheduler.

Before the scenario begins, trunks between the machines are measured and clocks are read. A machine that is lost after is a fault
of the run, which goes on without it, unless the coordinator is there. When the scheduler is lost, Dask's workers and their
parts end.
"""

from __future__ import annotations

import math
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.machines import clocks
from experiments.machines.actor import END_S, PartActor, machine_facts
from experiments.machines.part import Order
from experiments.machines.trunks import Crossing, crossings
from experiments.results.live_display import Live
from experiments.results.run_context import Death
from experiments.runtime import revision
from experiments.worlds.live.run import LiveRecord, prepared, told
from experiments.worlds.live.usage import PARTS
from experiments.worlds.live.world import Owners, authority_of, clear
from experiments.worlds.played import Played
from testbed.emulation.fidelity import Bounds, Fidelity, Judged, LinkRate, judge
from testbed.errors import SetupError
from testbed.trust.channel import SKEW_S
from topologies.errors import SpecError
from topologies.plugins import PROJECT
from topologies.spec import Campus

if TYPE_CHECKING:
    from distributed import Client
    from distributed.actor import Actor, ActorFuture

CONNECT_S = 30.0  # a scheduler may just be starting
WORKERS_S = 60.0  # until all machines have a worker
# for a command, which may have to compile first, and for what takes longer with more hosts
ANSWER_S, PER_HOST_S = 120.0, 0.2
PATIENCE_S = 15.0  # for an answer of an actor: then its machine is lost
LOOK_S = 0.05
AHEAD_S = 0.3  # the scenario begins so long after all were told when
USED = "processors_"  # figure of a machine: how many its part kept busy
SUMMED = (
    "cpu_builder",
    "cpu_coordinator",
    "cpu_agents",
    "cpu_jobs",
    "cpu_research",
    "memory_",
)  # figures of all machines


@dataclass
class RemoteMachine:
    """A machine of the run, and what its part has answered so far, by command."""

    name: str
    actor: Actor
    answers: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    lost: str = ""  # why
    lost_s: float = 0.0
    _read: int = 0
    _asked: ActorFuture[list[bytes]] | None = None
    _asked_s: float = 0.0

    def look(self) -> list[tuple[Any, ...]]:
        """Return what is new. Notes why the machine is lost, if it is."""
        if self.lost:
            return []
        try:
            if self._asked is None:
                self._asked, self._asked_s = self.actor.said(self._read), time.monotonic()
            if not self._asked.done():
                if time.monotonic() - self._asked_s > PATIENCE_S:
                    raise TimeoutError
                return []
            new: list[tuple[Any, ...]] = list(map(pickle.loads, self._asked.result()))
            self._asked = None
        except Exception as error:  # noqa: BLE001 - Dask raises what it likes of a worker that is gone
            self._lose(f"its worker was lost ({type(error).__name__})")
            return []
        self._read += len(new)
        for words in new:
            self.answers[words[0]] += words[1:2] or (None,)
        if self.answers["ended"] and not self.answers["down"]:
            ended = f"its part ended with status {self.answers['ended'][0]}: its worker's log says why"
            self._lose((self.answers["failed"] or [ended])[0])
        return new

    def _lose(self, why: str) -> None:
        self.lost, self.lost_s = why, time.monotonic()

    def tell(self, *words: object) -> None:
        """Give a command, if there is anybody."""
        if not self.lost:
            with suppress(Exception):  # it is lost just now, and `look` will say so
                self.actor.tell(pickle.dumps(words))


@dataclass
class Conductor:
    """A run over several machines, the coordinator's first."""

    client: Client
    machines: list[RemoteMachine]
    display: Live | None = None

    @property
    def first(self) -> RemoteMachine:
        """The machine of the coordinator."""
        return self.machines[0]

    @property
    def left(self) -> list[RemoteMachine]:
        """The machines that are not lost."""
        return [machine for machine in self.machines if not machine.lost]

    def look(self) -> None:
        """Read the answers of the parts, show them, and forward what the coordinator is to know. SetupError: it is lost."""
        time.sleep(LOOK_S)
        for machine in self.machines:
            for words in machine.look():
                match words:
                    case ("event", at_s, fact) if self.display:
                        self.display.event(at_s, fact)
                    case ("status", status) if self.display:
                        self.display.update(status)
                    case ("rates", _):
                        self.first.tell(*words)
        if self.client.status != "running":
            raise SetupError("the Dask scheduler was lost: its workers end, and with them the parts of the campus")
        if self.first.lost:
            raise SetupError(f"machine {self.first.name}, which carries the coordinator: {self.first.lost}")

    def wait(self, machines: Sequence[RemoteMachine], what: str, limit_s: float) -> None:
        """Wait until all of these have answered something once more than before. SetupError: not in time, or one was lost."""
        before, end_s = [len(machine.answers[what]) for machine in machines], time.monotonic() + limit_s
        for machine, count in zip(machines, before, strict=True):
            while len(machine.answers[what]) == count:
                if machine.lost:
                    raise SetupError(f"machine {machine.name}: {machine.lost}")
                if time.monotonic() > end_s:
                    raise SetupError(f"machine {machine.name} has not answered for {limit_s:.0f} s ({what})")
                self.look()

    def ask(self, machine: RemoteMachine, *words: object) -> Any:
        """Return the answer to a command."""
        machine.tell(*words)
        self.wait([machine], str(words[0]), ANSWER_S)
        return machine.answers[str(words[0])][-1]

    def offsets(self) -> dict[str, clocks.Offset]:
        """Return the clocks of the machines that are left."""
        found = {}
        for machine in self.left:
            with suppress(Exception):  # it is lost just now, and `look` will say so
                found[machine.name] = clocks.read_offset(lambda: machine.actor.clocks().result(PATIENCE_S))  # noqa: B023
        return found

    def measure(self, crossing: Crossing, campus: Campus) -> tuple[LinkRate, float]:
        """Return a trunk's rate, and the round trip of a whole frame over it. SetupError: none gets through."""
        by_name = {machine.name: machine for machine in self.machines}
        near, far = (by_name[campus.machine_of[end]] for end in (crossing.link.a, crossing.link.b))
        pairs = [(source, str(campus.host_by_name[target].address)) for source, target in crossing.pairs]
        if (rtt_s := self.ask(near, "ping", *pairs[0])) is None:
            between = f"from machine {near.name} to {far.name}"
            raise SetupError(f"frames of 1500 bytes do not get {between}: the way needs an MTU of 1550, and UDP 4789")
        self.ask(far, "receive", [target for _, target in crossing.pairs])
        self.ask(near, "send", pairs)
        taken = self.ask(far, "received")
        for machine in (near, far):
            self.ask(machine, "silence")
        return crossing.rate(sum(taken)), rtt_s

    def answer(self, machine: RemoteMachine, asked: ActorFuture[Any]) -> Any:
        """Return what an actor answers. SetupError: its machine was lost."""
        try:
            return asked.result(ANSWER_S)
        except Exception as error:
            raise SetupError(f"machine {machine.name} was lost before its files were here ({error})") from error

    def fetch(self, out: Path) -> None:
        """Bring the files of all machines that are left; a name that two have gets the machine's before it on the second."""
        for machine in self.left:
            for name, size in self.answer(machine, machine.actor.files()):
                if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                    raise SetupError(f"machine {machine.name} offers a file of another folder: {name}")
                path = out / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path = path.with_name(f"{machine.name}-{path.name}") if path.exists() else path
                with path.open("wb") as file:
                    while file.tell() < size and (
                        piece := self.answer(machine, machine.actor.piece(name, file.tell()))
                    ):
                        file.write(piece)

    def end(self) -> float:
        """Let all parts end; return how long the slowest took. What is lost ends by itself, as all do without a scheduler."""
        if self.client.status != "running":
            return 0.0
        for machine in self.left:
            with suppress(Exception):
                machine.actor.end().result(PATIENCE_S)
        end_s = time.monotonic() + END_S
        while time.monotonic() < end_s and any(not machine.answers["ended"] for machine in self.left):
            time.sleep(LOOK_S)
            for machine in self.left:
                machine.look()
        for machine in self.left:
            with suppress(Exception):
                machine.actor.remove().result(PATIENCE_S)
        return max((seconds for machine in self.machines for seconds in machine.answers["down"]), default=0.0)


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to the scheduler, by the certificates of Dask's configuration. SetupError: none answers."""
    if not address.startswith("tls://"):
        allowed = "tls://HOST:PORT (certificates: Dask's configuration): workers run as root what a scheduler sends"
        raise SpecError("--dask", address, allowed)
    from distributed import Client
    from distributed.security import Security

    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False, security=Security(), name="reclaimnet")
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise SetupError(f"{address}: no Dask scheduler answers there, by these certificates ({error})") from None
    with client, client.as_current():
        yield client


def found_workers(client: Client, campus: Campus) -> dict[str, str]:
    """Return a worker's address for each machine, the coordinator's first. SetupError: a machine has none, or another program."""
    home = campus.machine_of[campus.coordinator.name]
    machines = sorted(campus.machines, key=lambda machine: machine.name != home)
    end_s = time.monotonic() + WORKERS_S
    while True:
        try:
            facts = client.run(machine_facts, on_error="raise")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in PROJECT:
                raise
            raise SetupError(f"a worker has no {error.name}: install reclaimnet-testbed there") from None
        found = {
            each.name: worker
            for each in machines
            for worker, (_, here) in sorted(facts.items())
            if each.address in here
        }
        if len(found) == len(machines):
            break
        if time.monotonic() > end_s:
            lack = ", ".join(f"{each.name} ({each.address})" for each in machines if each.name not in found)
            raise SetupError(
                f"for {WORKERS_S:.0f} s the scheduler has had no worker with the address of machine {lack}"
            )
        time.sleep(10.0 * LOOK_S)
    for name, worker in found.items():
        if facts[worker][0] != revision.program():
            raise SetupError(f"machine {name} has another text of the project: install there what is here")
    if len(set(found.values())) < len(found):
        raise SetupError(f"one worker has the addresses of several machines: {found}")
    return found


def run_on_machines(
    scenario: Scenario,
    trace: Trace,
    out: Path,
    display: Callable[[], Live],
    *,
    address: str,
    owners: Owners | None = None,
    agents_per_process: int | None = None,
    kills: Sequence[bool] = (),
) -> Played:
    """Play a scenario as `run_live` does, over the workers of the Dask scheduler at an address.

    SetupError: a machine, or the scheduler, cannot play it or was lost before the scenario began; later the coordinator's.
    """
    played, played_trace, row = prepared(scenario, trace)
    campus = played.campus
    if not campus.machines:
        raise SpecError("campus", campus.name, "one with [machines], to be run by --dask")
    for event in played.events:
        if len({campus.machine_of[node] for node in event.between}) > 1:
            raise SpecError("events.between", list(event.between), "a link both of whose ends are on one machine")
    out.mkdir(parents=True, exist_ok=True)
    clear(out)
    keys = authority_of(played).read_bytes() if played.trust.transfers != "plain" else b""
    with connected(address) as client:
        workers = found_workers(client, campus)
        machines = []
        for name, worker in workers.items():
            order = Order(name, played, played_trace, keys, owners or {}, agents_per_process, kills)
            actor = client.submit(PartActor, pickle.dumps(order), workers=[worker], actor=True, pure=False)
            machines.append(RemoteMachine(name, actor.result()))
        try:
            with display() as shown:
                conductor = Conductor(client, machines, shown)
                parts = _conducted(conductor, played)
            conductor.fetch(out)
        finally:
            down_s = Conductor(client, machines).end()
    parts[0].down_s = down_s
    return told(scenario, trace, row, out, parts)


def _conducted(conductor: Conductor, played: Scenario) -> list[LiveRecord]:
    """Play the scenario; return what each machine recorded, the first with figures and faults of all of them together."""
    campus, machines, first = played.campus, conductor.machines, conductor.first
    limit_s = ANSWER_S + PER_HOST_S * len(campus.hosts)
    conductor.wait(machines, "stands", limit_s)
    figures, bounds = {}, Bounds()
    judged = []
    for crossing in crossings(campus):
        rate, rtt_s = conductor.measure(crossing, campus)
        figures[f"rate_{rate.source}_{rate.target}"] = rate.ratio
        figures[f"round_trip_{rate.source}_{rate.target}_s"] = rtt_s
        words = f"trunk {rate.source} to {rate.target} between machines, measured over declared rate"
        judged.append(Judged(words, rate.ratio, bounds.rate_high, bounds.rate_low))
    before = conductor.offsets()
    for machine in machines:
        if machine.name not in before:
            raise SetupError(f"machine {machine.name} was lost before its clock was read")
        if abs(off_s := before[machine.name].wall_s - before[first.name].wall_s) > SKEW_S:
            raise SetupError(
                f"machine {machine.name}: its wall clock is {off_s:.0f} s off the coordinator's: set it by NTP"
            )
    began_s = first.answers["stands"][0]  # by its clock
    for machine in machines:
        machine.tell("play", began_s + before[machine.name].monotonic_s - before[first.name].monotonic_s)
    conductor.wait(machines, "ready", limit_s)
    begins_s = time.monotonic() + AHEAD_S
    for machine in machines:
        machine.tell("begin", begins_s + before[machine.name].monotonic_s)
    is_interrupted = False
    while any(not machine.answers["play"] for machine in conductor.left):
        try:
            conductor.look()
        except (KeyboardInterrupt, SystemExit):
            if is_interrupted:
                raise
            is_interrupted = True
            for machine in conductor.left:
                machine.tell("interrupt")
    figures |= clocks.figures(before, conductor.offsets(), first.name)
    here_s = began_s - before[first.name].monotonic_s  # by the clock of this process
    reasons = judge([*judged, *clocks.judged(figures)])
    parts: list[LiveRecord] = [machine.answers["play"][0] for machine in conductor.left]
    for machine, part in zip(conductor.left, parts, strict=True):
        reasons += [f"machine {machine.name}: {reason}" for reason in part.fidelity.reasons]
    for machine in machines:
        if machine.lost:
            at_s = machine.lost_s - here_s
            parts[0].deaths.append(Death(at_s, f"machine {machine.name}", machine.lost))
            reasons.append(f"machine {machine.name} was lost after {at_s:.1f} s, with what it measured: {machine.lost}")
    figures |= together([part.fidelity.figures for part in parts])
    for machine, part in zip(conductor.left, parts, strict=True):
        figures[f"{USED}{machine.name}"] = math.fsum(part.fidelity.figures.get(f"cpu_{kind}", 0.0) for kind in PARTS)
    parts[0].fidelity = Fidelity(not reasons, tuple(reasons), figures)
    for part in parts[1:]:
        for where, seen in part.observed.items():
            parts[0].observed[where] = parts[0].observed[where] + seen if where in parts[0].observed else seen
    return parts


def together(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return figures of several machines as of one: what their parts used is added, of all else the largest counts."""
    found: dict[str, float] = {}
    for each in figures:
        for key, value in each.items():
            found[key] = found.get(key, 0.0) + value if key.startswith(SUMMED) else max(found.get(key, value), value)
    return found
