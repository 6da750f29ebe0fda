"""Actions of the lines of a script.

Hosts: a name, or `@job` (where the job is), `>job` (where it moves to), `^job` (its standby), at that moment; in the
action of `upon`, `it` is the host that it happened to.

    start [HOST ...]                       agents start (all)
    submit JOB steps=100 payload=2000000 budget=900 draw=0 memory=0 step=0.1 gpus=1
    cancel JOB                             its user wants it no more
    reclaim HOST [NOTICE_S] [grace=1]      the owner; without notice at once
    return HOST                            the owner lends it (again); *: all of them do
    kill HOST [COORDINATOR_NOTICES_S]      SIGKILL of the agent
    crash HOST                             the host dies without a message, its disk stays, its clock will begin at zero
    pause HOST FOR_S                       SIGSTOP of the agent; its workloads go on
    cut HOST [AGENT_S [COORDINATOR_S]]     the connection breaks; each side notices after so long
    restart [DOWN_S] [clock=BY_S]          the coordinator's process is killed, and begins again from its journal; its machine was
                                           booted meanwhile, and its clock goes on by so much later (or stands: never back)
    tear [DOWN_S]                          the same while it writes its next event: that is not in the journal
    usurp FOR_S                            SIGSTOP of the coordinator, between writing its next event and sending what follows;
                                           another one goes on with its journal, and the old one wakes after
    link A B FACTOR [FOR_S]                a cable works at a part of its rate; 0: it is down, and if it is a trunk of a campus
                                           with several paths, the coordinator is informed
    drain A B                              a trunk is announced to go down; whatever can leaves it, until it does
    research A B [BYTES_PER_S]             a research flow from A to B begins; greedy without a rate
    background A B BYTES_PER_S             others' traffic from A to B from now on, wire; the coordinator gets it, as by switches
    late HOST BY_S FOR_S                   messages from and to a host (or *) are late, in order
    repeat HOST KIND                       the next message of that kind, to or from the agent, is sent twice
    overtake HOST KIND BY_S                the next message of that kind is so much later, and others pass it
    mute HOST to|from FOR_S                nothing arrives in one direction; what is sent waits
    evade HOST FOR_S                       an agent reports neither started jobs nor stopped ones, and goes on
                                           with its heartbeats: a fault of its own, or a lie
    freeze FOR_S                           SIGSTOP of the coordinator
    step HOST BY_S                         the host's clock jumps ahead
    loss A B SHARE FOR_S                   that part of the packets of a cable is lost
    drag HOST BY_S FOR_S                   each write to its disk takes so much longer
    rot HOST JOB                           the bytes of the job's checkpoints there are wrong; readers notice
    stale HOST AFTER_S                     the host crashes then, and its disk is as it is now
    fail HOST sending|snapshot|workload FOR_S [retry=1]
    oom HOST JOB                           the job's process there is killed by the kernel, not by its agent
    fill HOST | empty HOST                 its disk has no room for more, or has again
    spoil HOST JOB                         its disk loses the job's checkpoints without a message
    clock HOST OFFSET_S RATE               from its agent's next start on
    upon NAME HOST [after=S] VERB ...      when a message, a fact or an agent's event of that name happens to HOST (or *)

A line about something that is not there at that moment (a dead agent, a job that does not move) does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from typing import get_args

import msgspec

from controller.core.model.entities import OVER
from experiments.inputs.scenario import ResearchFlow
from experiments.storms.clock import Clock, SkewedAgent
from experiments.storms.fault_windows import ANY_HOST, OPERATIONS, FaultWindow, Trigger
from experiments.storms.script import Line, Script
from experiments.storms.world import StormWorld
from testbed import messages as m
from testbed.agent.core.stored import StoredCheckpoints
from testbed.messages import JobSpec
from topologies.errors import SpecError
from topologies.spec import DirectedLink

IT = "it"
ABOUT_JOBS = "@>^"
NOT_REPEATED = (m.Hello, m.Welcome, m.Heartbeat, m.HeartbeatAck)  # these begin and keep connections
REPEATABLE = tuple(
    kind.__name__ for side in (m.ToAgent, m.FromAgent) for kind in get_args(side) if kind not in NOT_REPEATED
)
ALLOWED = {"message": REPEATABLE, "operation": OPERATIONS, "direction": ("to", "from")}
NUMBERS = ("seconds", "number", "count", "rate")
# act(world, line, ...) is given the words as they are meant, and returns whether it did anything
Act = Callable[..., bool]


@dataclass(frozen=True, slots=True)
class Verb:
    """The kinds of its words, and what it does. A kind with `?` may be left out, one with `*` may be repeated."""

    act: Act
    kinds: tuple[str, ...]

    @property
    def least(self) -> int:
        """Return the number of words that must be there."""
        return sum(kind[-1] not in "?*" for kind in self.kinds)

    def kind(self, number: int) -> str:
        """Return the kind of a word, by its place."""
        return self.kinds[min(number, len(self.kinds) - 1)].rstrip("?*")

    def takes(self, count: int) -> bool:
        """Return whether it can have so many words."""
        most = inf if self.kinds and self.kinds[-1].endswith("*") else len(self.kinds)
        return self.least <= count <= most


VERBS: dict[str, Verb] = {}


def _verb(kinds: str = "") -> Callable[[Act], Act]:
    """Enter a function into `VERBS` under its own name."""

    def add(act: Act) -> Act:
        VERBS[act.__name__.strip("_")] = Verb(act, tuple(kinds.split()))
        return act

    return add


def perform(world: StormWorld, line: Line, it: str = "") -> None:
    """Do the action of a line, now; `it` is the host of the occurrence that it waited for. SpecError: it cannot be read."""
    verb, words = VERBS[line.verb], []
    for number, word in enumerate(line.positional):
        kind = verb.kind(number)
        meant = _host(world, word, it) if kind in ("host", "any") else _meant(line, kind, word)
        if meant is None:
            return
        words.append(meant)
    if verb.act(world, line, *words):
        world.noticed(line.verb, str(words[0]) if words else "")


def check(script: Script, hosts: Sequence[str]) -> None:
    """Check a line for a campus with these hosts. SpecError: no storm can play it."""
    for line in script.lines:
        _check(line, set(hosts))


def action_of(line: Line) -> Line:
    """Return what an `upon` line does when its time has come."""
    _, _, *rest = [word for word in line.words if not word.startswith("after=")]
    return Line(line.at_s, rest[0], tuple(rest[1:]))


def _check(line: Line, hosts: set[str]) -> None:
    verb = VERBS.get(line.verb)
    if verb is None:
        raise SpecError("verb", line.verb, f"one of {', '.join(VERBS)}")
    words = line.positional
    if not verb.takes(len(words)):
        raise SpecError(
            str(line), len(words), f"arguments: {' '.join(verb.kinds) or 'none'} after {line.verb}"
        )
    for number, word in enumerate(words):
        kind = verb.kind(number)
        if kind in ("host", "any"):
            named = hosts | {IT} | ({ANY_HOST} if kind == "any" else set())
            if word[0] not in ABOUT_JOBS and word not in named:
                raise SpecError(str(line), word, "a host of the campus, or @job, >job, ^job")
        else:
            _meant(line, kind, word)
    for key in ("after", "clock"):
        value = _number(line, line.options.get(key, "0"), f"{key}=SECONDS")
        if not isfinite(value) or (key == "after" and value < 0.0):
            raise SpecError(str(line), line.options[key], f"{key}=SECONDS")
    if line.verb == "submit":
        _job_of(line)
    if line.verb == "upon":
        _check(action_of(line), hosts)


def _meant(line: Line, kind: str, word: str) -> str | float:
    """Return the value of a word that is no host's. SpecError: it has none."""
    if word not in ALLOWED.get(kind, (word,)):
        raise SpecError(str(line), word, f"one of {', '.join(ALLOWED[kind])}")
    if kind not in NUMBERS:
        return word
    value = _number(line, word, "a number")
    if kind == "count" and not (word.isascii() and word.isdecimal() and len(word) < 10):
        raise SpecError(str(line), word, "a whole number of events")
    if kind == "rate" and not 0.0 < value < inf:
        raise SpecError(str(line), word, "a rate above 0")
    if kind == "number" and not isfinite(value):
        raise SpecError(str(line), word, "a number")
    return max(0.0, value) if kind == "seconds" else value


def _number(line: Line, word: str, allowed: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise SpecError(str(line), word, allowed) from None


def _host(world: StormWorld, name: str, it: str) -> str | None:
    if name == IT:
        return it if it in world.machines else None
    if name[0] not in ABOUT_JOBS:
        return name
    job = world.jobs.get(name[1:])
    if job is None:
        return None
    return {"@": job.host, ">": job.move.destination if job.move else None, "^": job.standby}[name[0]]


# ---------------------------------------------------------------- jobs and owners


@_verb("host*")
def _start(world: StormWorld, line: Line, *names: str) -> bool:
    dead = [name for name in names or world.machines if world.machines[name].core is None]
    world.start(*dead)
    return bool(dead)


@_verb("job")
def _submit(world: StormWorld, line: Line, name: str) -> bool:
    world.submit(_job_of(line), float(line.options.get("draw", 0.0)))
    return True


def _job_of(line: Line) -> JobSpec:
    """Return the job that a line submits. SpecError: a word of it is none of a job's."""
    given = line.options
    try:
        if not 0.0 <= float(given.get("draw", 0.0)) < 1.0:
            raise SpecError(str(line), f"draw={given['draw']}", "draw from 0 to 1")
        spec = JobSpec(
            line.positional[0],
            int(given.get("steps", 100)),
            float(given.get("step", 0.1)),
            int(given.get("payload", 2_000_000)),
            params={"dirty_fraction": float(given.get("dirty", 0.1))},
            loss_budget_s=float(given.get("budget", 900.0)),
            memory_bytes=float(given.get("memory", 0.0)),
            gpus=int(given.get("gpus", 1)),
        )
        return msgspec.convert(msgspec.to_builtins(spec), JobSpec)
    except (ValueError, OverflowError, msgspec.ValidationError) as error:
        raise SpecError(str(line), " ".join(line.words), f"a job ({error})") from None


@_verb("job")
def _cancel(world: StormWorld, line: Line, name: str) -> bool:
    job = world.jobs.get(name)
    world.cancel(name)
    return job is not None and job.phase not in OVER


@_verb("host seconds?")
def _reclaim(world: StormWorld, line: Line, host: str, notice_s: float = 0.0) -> bool:
    if host not in world.owned:
        return False
    world.reclaim(host, notice_s, grace="grace" in line.options)
    return True


@_verb("any")
def _return(world: StormWorld, line: Line, host: str) -> bool:
    away = [name for name in (world.owned if host == ANY_HOST else (host,)) if world.is_away(name)]
    for name in away:
        world.give_back(name)
    return bool(away)


# ---------------------------------------------------------------- processes and connections


@_verb("host seconds?")
def _kill(world: StormWorld, line: Line, host: str, notices_s: float = 0.004) -> bool:
    alive = world.machines[host].core is not None
    world.kill(host, notices_s)
    return alive


@_verb("host")
def _crash(world: StormWorld, line: Line, host: str) -> bool:
    return world.crash(host)


@_verb("host seconds")
def _pause(world: StormWorld, line: Line, host: str, for_s: float) -> bool:
    machine = world.machines[host]
    if machine.core is None or machine.paused:
        return False
    world.pause(host, for_s)
    world.disturb("an agent stood still", for_s, host=host)
    return True


@_verb("host seconds? seconds?")
def _cut(world: StormWorld, line: Line, host: str, agent_s: float = 0.0, coordinator_s: float = 0.0) -> bool:
    link = world.machines[host].link
    open_ = link is not None and link.agent_open and not link.cut
    world.cut(host, agent_s, coordinator_s)
    return open_


@_verb("seconds?")
def _restart(world: StormWorld, line: Line, down_s: float = 0.1) -> bool:
    return world.restart(down_s, float(line.options.get("clock", 0.0)))


@_verb("seconds?")
def _tear(world: StormWorld, line: Line, down_s: float = 0.1) -> bool:
    world.torn_for_s = down_s
    return False  # counted when it happens


@_verb("seconds")
def _usurp(world: StormWorld, line: Line, for_s: float) -> bool:
    world.usurped_for_s = for_s
    return False  # counted when it happens


@_verb("seconds")
def _freeze(world: StormWorld, line: Line, for_s: float) -> bool:
    """Stop the coordinator's process: it reads its messages, in order, when it goes on.

    Until it has read the Hello of an agent that connected again, its messages to that host go to the connection before.
    """
    connections = world.connections
    if world.quiet or connections.unread is not None or connections.refused:
        return False
    unread: list[Callable[[], None]] = []
    connections.unread = unread
    world.disturb("the coordinator stood still", for_s)

    def go_on() -> None:
        if connections.unread is unread:  # not killed meanwhile
            connections.unread, connections.catches_up = None, True
            for act in unread:
                act()
            connections.catches_up = False

    world.after(for_s, go_on)
    return True


# ---------------------------------------------------------------- links and messages


@_verb("end end seconds seconds?")
def _link(world: StormWorld, line: Line, a: str, b: str, factor: float, for_s: float = inf) -> bool:
    if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s:
        return False
    world.set_link(a, b, factor)
    if world.links.is_told(a, b):  # the coordinator knows of a trunk that is down
        world.noticed("trunk died", ANY_HOST)
        for name in world.cut_off():
            world.disturb("every trunk of a host was down", for_s, host=name)
    else:
        cause = "a cable was slow" if factor > 0.0 else "a cable was down"
        world.disturb(cause, for_s, links=(DirectedLink(a, b), DirectedLink(b, a)))
    if for_s < inf:
        world.after(for_s, lambda: world.set_link(a, b, 1.0))
    return True


@_verb("end end seconds seconds")
def _loss(world: StormWorld, line: Line, a: str, b: str, share: float, for_s: float) -> bool:
    """Leave TCP less of a cable: a half at 1 % of loss, an eighth at 5 % (no more than a plausible curve)."""
    return _link(world, line, a, b, max(0.05, 1.0 / (1.0 + (share / 0.01) ** 1.2)), for_s)


@_verb("end end")
def _drain(world: StormWorld, line: Line, a: str, b: str) -> bool:
    if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s or world.links.is_told(a, b):
        return False
    world.drain_link(a, b)
    return True


@_verb("end end seconds?")
def _research(world: StormWorld, line: Line, source: str, target: str, rate: float = inf) -> bool:
    world.research.add(ResearchFlow(source, target, rate))
    return True


@_verb("end end seconds")
def _background(world: StormWorld, line: Line, source: str, target: str, rate: float) -> bool:
    world.set_background(source, target, rate)
    return True


@_verb("any seconds seconds")
def _late(world: StormWorld, line: Line, host: str, by_s: float, for_s: float) -> bool:
    world.weather.add(FaultWindow("message", host, world.now_s + for_s, by_s))
    world.disturb("messages were late", for_s + by_s, host=host)
    return True


@_verb("host message")
def _repeat(world: StormWorld, line: Line, host: str, message: str) -> bool:
    world.repeats.add((message, host))
    return False  # counted when it happens


@_verb("host message seconds")
def _overtake(world: StormWorld, line: Line, host: str, message: str, by_s: float) -> bool:
    world.overtaken[message, host] = by_s
    world.disturb("a message was overtaken", inf, host=host)
    return False  # counted when it happens


@_verb("host direction seconds")
def _mute(world: StormWorld, line: Line, host: str, direction: str, for_s: float) -> bool:
    to_host = direction == "to"
    if not world.connections.mute(host, to_host=to_host):
        return False
    if (link := world.machines[host].link) is not None:
        world.env.broken_off(link)
    world.disturb("one direction was dead", for_s, host=host)
    world.after(for_s, lambda: world.connections.unmute(host, to_host=to_host))
    return True


@_verb("host seconds")
def _evade(world: StormWorld, line: Line, host: str, for_s: float) -> bool:
    world.disturb("an agent did not answer", for_s, host=host)
    if not world.quiet:
        world.evasive[host] = world.now_s + for_s
    return not world.quiet


# ---------------------------------------------------------------- operations, disks, clocks


@_verb("any operation seconds")
def _fail(world: StormWorld, line: Line, host: str, what: str, for_s: float) -> bool:
    world.weather.add(FaultWindow(what, host, world.now_s + for_s, retryable="retry" in line.options))
    world.disturb(f"a {what} failed", for_s, host=host)
    return False


@_verb("host job")
def _oom(world: StormWorld, line: Line, host: str, job: str) -> bool:
    killed = world.workloads.kill_from_outside(world.machines[host], job)
    if killed:
        world.disturb("a process was killed", 2.0 * world.protocol.restart_s, job=job)
    return killed


@_verb("host")
def _fill(world: StormWorld, line: Line, host: str) -> bool:
    return world.fill(host, full=True)


@_verb("host")
def _empty(world: StormWorld, line: Line, host: str) -> bool:
    return world.fill(host, full=False)


@_verb("host seconds seconds")
def _drag(world: StormWorld, line: Line, host: str, by_s: float, for_s: float) -> bool:
    disk = world.machines[host].disk
    disk.slow_s = by_s
    world.disturb("a disk was slow", for_s + by_s, host=host)

    def recover() -> None:
        disk.slow_s = 0.0

    world.after(for_s, recover)
    return True


@_verb("host job")
def _rot(world: StormWorld, line: Line, host: str, job: str) -> bool:
    disk = world.machines[host].disk
    keys = [(job, sequence) for sequence in disk.stored.of(job)]
    disk.rotten.update(keys)
    if had := bool(keys):
        world.disturb("a checkpoint was rotten", inf, host=host, job=job)
    return had


@_verb("host job")
def _spoil(world: StormWorld, line: Line, host: str, job: str) -> bool:
    had = any(name == job for name, _ in world.machines[host].store)
    world.spoil(host, job)
    if had:
        world.disturb("a checkpoint was gone", inf, host=host, job=job)
    return had


@_verb("host seconds")
def _stale(world: StormWorld, line: Line, host: str, after_s: float) -> bool:
    world.disturb("a disk was stale", inf, host=host)
    disk = world.machines[host].disk
    before = dict(disk.stored)

    def lose() -> None:
        world.crash(host)
        disk.stored = StoredCheckpoints(before)
        disk.partial.clear()

    world.after(after_s, lose)
    return True


@_verb("host seconds")
def _step(world: StormWorld, line: Line, host: str, by_s: float) -> bool:
    world.disturb("a clock jumped", world.protocol.lease_s, host=host)
    machine = world.machines[host]
    core = machine.core
    if not isinstance(core, SkewedAgent):
        return False
    core.clock = world.clocks[host] = Clock(core.clock.offset_s + by_s, core.clock.rate)
    if not machine.paused:
        world.arm(machine)
    return True


@_verb("host number rate")
def _clock(world: StormWorld, line: Line, host: str, offset_s: float, rate: float) -> bool:
    world.clocks[host] = Clock(offset_s, rate)
    return not world.quiet


@_verb("step any word word*")
def _upon(world: StormWorld, line: Line, step: str, host: str, *_: str) -> bool:
    action, after_s = action_of(line), float(line.options.get("after", 0.0))

    def act(it: str) -> None:
        world.noticed(f"upon {step}", it)
        world.after(after_s, partial(later, replace(action, at_s=world.now_s), it))

    def later(fault: Line, it: str) -> None:
        if not world.is_calm:
            perform(world, fault, it)

    world.weather.await_(Trigger(step, host, act))
    return False
