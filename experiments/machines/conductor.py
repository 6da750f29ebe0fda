"""The operator's side of a run over several machines: a live run whose parts are played by workers of a Dask scheduler.

Before the scenario begins, trunks between the machines are measured and clocks are read. A machine that is lost after is a fault
of the run, which goes on without it, unless the coordinator is there. When the scheduler is lost, Dask's workers and their
parts end.
"""

from __future__ import annotations

import math
import pickle
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.machines import clocks
from experiments.machines.actor import END_S, PartActor, machine_facts
from experiments.machines.clocks import Offset
from experiments.machines.part import Order
from experiments.machines.trunks import Crossing, crossings
from experiments.results.live_lines import Show
from experiments.results.run_context import Death
from experiments.runtime import engines, revision
from experiments.worlds.live.run import LiveRecord, prepared, told
from experiments.worlds.live.usage import PARTS
from experiments.worlds.live.world import Owners, authority_of, clear
from experiments.worlds.played import Played
from testbed.emulation.fidelity import Bounds, Fidelity, Judged, LinkRate, judge
from testbed.errors import SetupError
from testbed.trust.channel import SKEW_S
from topologies.errors import SpecError
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
# of a part that are no answers: its events, rates of links, output of a user's command
NEWS = ("event", "rates", "output")
AHEAD_S = 0.3  # the scenario begins so long after all were told when
USED = "processors_"  # figure of a machine: how many its part kept busy
SUMMED = (*(f"cpu_{part}" for part in PARTS), "memory_")  # figures of all machines


@dataclass
class RemoteMachine:
    """A machine of the run: the answers of its part so far, by command, and commands that are to be sent."""

    name: str
    actor: Actor
    answers: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    lost: str = ""  # why
    lost_s: float = 0.0
    _commands: list[bytes] = field(default_factory=list)
    _asked: ActorFuture[list[bytes]] | None = None
    _asked_s: float = 0.0

    def tell(self, *words: object) -> None:
        """Have a command sent, behind earlier ones, at the next look."""
        self._commands.append(pickle.dumps(words))

    def look(self) -> list[tuple[Any, ...]]:
        """Send commands and return news. Notes why the machine is lost, if it is.

        One exchange at a time: two at once could overtake each other.
        """
        if self.lost:
            return []
        try:
            if self._asked is None:
                self._asked, self._asked_s = self.actor.exchange(self._commands), time.monotonic()
                self._commands = []
            if not self._asked.done():
                if time.monotonic() - self._asked_s > PATIENCE_S:
                    raise TimeoutError
                return []
            told: list[tuple[Any, ...]] = list(map(pickle.loads, self._asked.result()))
        except Exception as error:  # noqa: BLE001 - Dask raises what it likes of a worker that is gone
            self._lose(f"its worker was lost ({type(error).__name__})")
            return []
        for words in told:
            if words[0] not in NEWS:
                self.answers[words[0]] += words[1:2] or (None,)
        self._asked = None  # an interrupt before would have it read again
        if self.answers["ended"] and not self.answers["down"]:
            ended = f"its part ended with status {self.answers['ended'][0]}: its worker's log says why"
            self._lose((self.answers["failed"] or [ended])[0])
        return [words for words in told if words[0] in NEWS]

    def call(self, method: str, *words: object) -> Any:
        """Return what its actor answers. SetupError: the machine is lost."""
        try:
            return getattr(self.actor, method)(*words).result(PATIENCE_S)
        except Exception as error:
            self._lose(f"its worker was lost ({type(error).__name__})")
            raise SetupError(f"machine {self.name}: {self.lost}") from error

    def _lose(self, why: str) -> None:
        self.lost, self.lost_s = why, time.monotonic()


@dataclass
class Conductor:
    """A campus over several machines, the coordinator's first. `on_news` is called with each of NEWS."""

    client: Client
    campus: Campus
    machines: list[RemoteMachine] = field(default_factory=list)
    on_news: Callable[[tuple[Any, ...]], None] = lambda _: None
    figures: dict[str, float] = field(default_factory=dict)  # of trunks
    judged: list[Judged] = field(default_factory=list)
    clocks: dict[str, Offset] = field(default_factory=dict)  # before anything begins
    deaths: list[Death] = field(default_factory=list)
    down_s: float = 0.0  # how long the slowest part took to end

    @property
    def first(self) -> RemoteMachine:
        """The machine of the coordinator."""
        return self.machines[0]

    @property
    def left(self) -> list[RemoteMachine]:
        """The machines that are not lost."""
        return [machine for machine in self.machines if not machine.lost]

    def tell(self, *words: object) -> None:
        """Have a command sent to all machines."""
        for machine in self.machines:
            machine.tell(*words)

    def look(self) -> None:
        """Exchange commands and answers with the parts; forward what the coordinator is to know. SetupError: it is lost."""
        time.sleep(LOOK_S)
        for machine in self.left:
            for words in machine.look():
                if words[0] == "rates":
                    self.first.tell(*words)
                else:
                    self.on_news(words)
            if machine.lost:
                self.on_news(("lost", machine.name, machine.lost))
        if self.client.status != "running":
            raise SetupError("the Dask scheduler was lost: its workers end, and with them the parts of the campus")
        if self.first.lost:
            raise SetupError(f"machine {self.first.name}, which carries the coordinator: {self.first.lost}")

    def wait(self, machines: Sequence[RemoteMachine], what: str) -> None:
        """Wait until all of these have answered something once more than before. SetupError: not in time, or one was lost."""
        limit_s = ANSWER_S + PER_HOST_S * len(self.campus.hosts)
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
        self.wait([machine], str(words[0]))
        return machine.answers[str(words[0])][-1]

    def offsets(self) -> dict[str, Offset]:
        """Return the clocks of the machines that are left."""
        found = {}
        for machine in self.left:
            with suppress(SetupError):  # it is lost just now
                found[machine.name] = clocks.read_offset(partial(machine.call, "clocks"))
        return found

    def stand(self) -> None:
        """Wait until all parts stand; measure trunks and clocks. SetupError: one does not, or they do not reach one another."""
        self.wait(self.machines, "stands")
        bounds = Bounds()
        for crossing in crossings(self.campus):
            rate, rtt_s = self.measure(crossing)
            self.figures[f"trunk_rate_{rate.source}_{rate.target}"] = rate.ratio
            self.figures[f"trunk_round_trip_{rate.source}_{rate.target}_s"] = rtt_s
            words = f"trunk {rate.source} to {rate.target} between machines, measured over declared rate"
            self.judged.append(Judged(words, rate.ratio, bounds.rate_high, bounds.rate_low))
        self.clocks = self.offsets()
        for machine in self.machines:
            if machine.lost:
                raise SetupError(f"machine {machine.name}: {machine.lost}")
            off_s = self.clocks[machine.name].wall_s - self.clocks[self.first.name].wall_s
            if abs(off_s) > SKEW_S:
                raise SetupError(
                    f"machine {machine.name}: its wall clock is {off_s:.0f} s off the coordinator's: set it by NTP"
                )

    def measure(self, crossing: Crossing) -> tuple[LinkRate, float]:
        """Return a trunk's rate, and the round trip of a whole frame over it. SetupError: none gets through."""
        by_name = {machine.name: machine for machine in self.machines}
        near, far = (by_name[self.campus.machine_of[end]] for end in (crossing.link.a, crossing.link.b))
        pairs = [(source, str(self.campus.host_by_name[target].address)) for source, target in crossing.pairs]
        if (rtt_s := self.ask(near, "ping", *pairs[0])) is None:
            between = f"from machine {near.name} to {far.name}"
            raise SetupError(f"frames of 1500 bytes do not get {between}: the way needs an MTU of 1550, and UDP 4789")
        self.ask(far, "receive", [target for _, target in crossing.pairs])
        self.ask(near, "send", pairs)
        taken = self.ask(far, "received")
        self.ask(near, "received")
        return crossing.rate(sum(taken)), rtt_s

    @contextmanager
    def attended(self, out: Path) -> Iterator[None]:
        """Let the parts run what a user types; after, their files are in `out`, and `deaths` has those of processes."""
        self.tell("attend")
        try:
            yield
        finally:
            self.tell("interrupt")
            self.deaths = [death for deaths in self.collect("attend", out) for death in deaths]

    def run(self, place: str, host: str, words: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Run a user's command on the machine of this name, and wait for its end: see `LocalPart`."""
        [machine] = (each for each in self.machines if each.name == place)
        if machine.lost:
            self.on_news(("lost", machine.name, machine.lost))
        machine.tell("run", host, words, files)
        before = len(machine.answers["run"])
        while not machine.lost and len(machine.answers["run"]) == before:
            self.look()

    def collect(self, what: str, out: Path) -> list[Any]:
        """Return the answers of all that give one, once their files are here; an interrupt lets them hurry.

        SetupError: the coordinator's machine is lost. Of another one, the files that came stay.
        """
        hurries = False
        while any(not machine.answers[what] for machine in self.left):
            try:
                self.look()
            except (KeyboardInterrupt, SystemExit):
                if hurries:
                    raise
                hurries = True
                self.tell("interrupt")
        for machine in self.left:
            try:
                self._fetch(machine, out)
            except SetupError:
                if not machine.lost or machine is self.first:
                    raise
        return [machine.answers[what][0] for machine in self.machines if machine.answers[what]]

    def _fetch(self, machine: RemoteMachine, out: Path) -> None:
        """Bring the files of a machine; a name that another had gets the machine's before it."""
        for name, size in machine.call("files"):
            if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                raise SetupError(f"machine {machine.name} offers a file of another folder: {name}")
            path = out / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = path.with_name(f"{machine.name}-{path.name}") if path.exists() else path
            with path.open("wb") as file:
                while file.tell() < size and (piece := machine.call("piece", name, file.tell())):
                    file.write(piece)

    def end(self) -> None:
        """Let all parts end. What is lost ends by itself, as all do without a scheduler."""
        if self.client.status != "running":
            return
        for machine in self.left:
            with suppress(SetupError):
                machine.call("end")
        end_s = time.monotonic() + END_S
        while time.monotonic() < end_s and any(not machine.answers["ended"] for machine in self.left):
            time.sleep(LOOK_S)
            for machine in self.left:
                machine.look()
        for machine in self.left:
            with suppress(SetupError):
                machine.call("remove")
        self.down_s = max((seconds for machine in self.machines for seconds in machine.answers["down"]), default=0.0)


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to the scheduler, by the certificates of Dask's configuration. SetupError: none answers."""
    if not re.fullmatch(r"tls://[^/\s]+:\d+", address):
        allowed = "tls://HOST:PORT (certificates: Dask's configuration): workers run as root what a scheduler sends"
        raise SpecError("--dask", address, allowed)
    from distributed.security import Security

    try:
        security = Security()
        if not security.get_connection_args("client")["ssl_context"]:
            raise ValueError("ca-file or client.cert is not there")
    except (OSError, ValueError) as error:
        found = ", ".join(map(str, (security.tls_ca_file, security.tls_client_cert, security.tls_client_key)))
        where = f"Dask's configuration lacks certificates in distributed.comm.tls ({found})"
        raise SetupError(f"{address}: {where}: {error}") from None
    with engines.scheduler(address, security, CONNECT_S) as client, client.as_current():
        yield client


def found_workers(client: Client, campus: Campus) -> dict[str, str]:
    """Return a worker's address for each machine, the coordinator's first. SetupError: a machine has none, or another program."""
    home = campus.machine_of[campus.coordinator.name]
    machines = sorted(campus.machines, key=lambda machine: machine.name != home)
    end_s = time.monotonic() + WORKERS_S
    while True:
        facts = client.run(machine_facts, on_error="raise")
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
            others = ", ".join(sorted(facts)) or "none"
            raise SetupError(
                f"for {WORKERS_S:.0f} s the scheduler has had no worker with the address of machine {lack}; its workers: {others}"
            )
        time.sleep(10.0 * LOOK_S)
    for name, worker in found.items():
        if facts[worker][0] != revision.program():
            raise SetupError(
                f"machine {name} has another text of the project: install this one, start its worker again"
            )
    if len(set(found.values())) < len(found):
        raise SetupError(f"one worker has the addresses of several machines: {found}")
    return found


@contextmanager
def conducted(order: Order, out: Path, address: str) -> Iterator[Conductor]:
    """Build a campus over the workers of the Dask scheduler at an address, with coordinator and agents; all is gone after.

    `order`: for all machines. SetupError: one, or the scheduler, cannot carry it or is lost, once it stands the coordinator's.
    """
    played = order.played
    campus = played.campus
    if not campus.machines:
        raise SpecError("campus", campus.name, "one with [machines], to be run by --dask")
    keys = authority_of(played).read_bytes() if played.trust.transfers != "plain" else b""
    with connected(address) as client:
        workers = found_workers(client, campus)
        out.mkdir(parents=True, exist_ok=True)
        clear(out)
        conductor = Conductor(client, campus)
        try:
            for name, worker in workers.items():
                own = pickle.dumps(replace(order, machine=name, authority=keys))
                actor = client.submit(PartActor, own, workers=[worker], actor=True, pure=False)
                conductor.machines.append(RemoteMachine(name, actor.result(ANSWER_S)))
            conductor.stand()
            yield conductor
        finally:
            conductor.end()


def run_on_machines(
    scenario: Scenario,
    trace: Trace,
    out: Path,
    show: Show,
    *,
    address: str,
    owners: Owners | None = None,
    agents_per_process: int | None = None,
    kills: Sequence[bool] = (),
) -> Played:
    """Play a scenario as `run_live` does, over the workers of the Dask scheduler at an address. SetupError: as `conducted`."""
    played, played_trace, row = prepared(scenario, trace)
    for event in played.events:
        if len({played.campus.machine_of[node] for node in event.between}) > 1:
            raise SpecError("events.between", list(event.between), "a link both of whose ends are on one machine")
    with conducted(Order(played, played_trace, owners or {}, agents_per_process, kills), out, address) as conductor:

        def hear(news: tuple[Any, ...]) -> None:
            if news[0] == "event":
                show(*news[1:])

        conductor.on_news = hear
        offsets, [began_s] = conductor.clocks, conductor.first.answers["stands"]
        began_s -= offsets[conductor.first.name].monotonic_s  # by the clock of this process
        for machine in conductor.machines:
            machine.tell("play", began_s + offsets[machine.name].monotonic_s)
        conductor.wait(conductor.machines, "ready")
        begins_s = time.monotonic() + AHEAD_S
        for machine in conductor.machines:
            machine.tell("begin", begins_s + offsets[machine.name].monotonic_s)
        parts: list[LiveRecord] = conductor.collect("play", out)
        join_records(conductor, parts, began_s)
    parts[0].down_s = conductor.down_s
    return told(scenario, trace, row, out, parts)


def join_records(conductor: Conductor, parts: list[LiveRecord], began_s: float) -> None:
    """Give the first of what machines recorded the figures and faults of all."""
    of_clocks, judged = clocks.figures(conductor.clocks, conductor.offsets(), conductor.first.name)
    figures, reasons = conductor.figures | of_clocks, judge([*conductor.judged, *judged])
    telling = [machine.name for machine in conductor.machines if machine.answers["play"]]
    for name, part in zip(telling, parts, strict=True):
        reasons += [f"machine {name}: {reason}" for reason in part.fidelity.reasons]
        used = [part.fidelity.figures.get(f"cpu_{kind}", 0.0) for kind in PARTS]
        figures[f"{USED}{name}"] = math.fsum(used)
    for machine in conductor.machines:
        if machine.lost:
            at_s = machine.lost_s - began_s
            lacks = "some of its files" if machine.name in telling else "what it measured"
            parts[0].deaths.append(Death(at_s, f"machine {machine.name}", machine.lost))
            reasons.append(f"machine {machine.name} was lost after {at_s:.1f} s, with {lacks}: {machine.lost}")
    figures |= together([part.fidelity.figures for part in parts])
    parts[0].fidelity = Fidelity(not reasons, tuple(reasons), figures)
    for part in parts[1:]:
        for where, seen in part.observed.items():
            parts[0].observed[where] = parts[0].observed[where] + seen if where in parts[0].observed else seen


def together(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return figures of several machines as of one: what their parts used is added, of all else the largest counts."""
    found: dict[str, float] = {}
    for each in figures:
        for key, value in each.items():
            found[key] = found.get(key, 0.0) + value if key.startswith(SUMMED) else max(found.get(key, value), value)
    return found
