"""What a line of a script does. Hosts: a name, or `@job` (where the job is), `>job` (where it moves to), `^job` (its standby),
at that moment; in the action of `upon`, `it` is the host that it happened to.

    start [HOST ...]                       agents start (all)
    submit JOB steps=100 payload=2000000 budget=900 draw=0 memory=0 step=0.1
    cancel JOB                             its user wants it no more
    reclaim HOST [NOTICE_S] [grace=1]      the owner; without notice at once
    return HOST                            the owner lends it (again); *: all of them do
    kill HOST [COORDINATOR_NOTICES_S]      SIGKILL of the agent
    crash HOST                             the host dies without a word, its disk stays, its clock will begin at zero
    pause HOST FOR_S                       SIGSTOP of the agent; its workloads go on
    cut HOST [AGENT_S [COORDINATOR_S]]     the connection breaks; each side notices after so long
    restart [DOWN_S] [clock=BY_S]          the coordinator's process is killed, and begins again from its journal; its machine was
                                           booted meanwhile, and its clock goes on by so much later (or stands: never back)
    tear [DOWN_S]                          the same while it writes its next event: that is not in the journal
    forget EVENTS [DOWN_S]                 the same, and the last so many events are cut off its journal (`--up-to`)
    usurp FOR_S                            SIGSTOP of the coordinator, between writing its next event and telling what follows;
                                           another one goes on with its journal, and the old one wakes after
    link A B FACTOR [FOR_S]                a cable works at a part of its rate; 0: it is down, and if it is a trunk of a campus
                                           with several paths, the coordinator is told
    drain A B                              a trunk is announced to go down; whatever can leaves it, until it does
    research A B [BYTES_PER_S]             a research flow from A to B begins; greedy without a rate
    background A B BYTES_PER_S             what others send from A to B from now on, wire; the coordinator is told, as by switches
    late HOST BY_S FOR_S                   messages from and to a host (or *) are late, in order
    repeat HOST KIND                       the next message of that kind, to or from the agent, is said twice
    overtake HOST KIND BY_S                the next message of that kind is so much later, and others pass it
    mute HOST to|from FOR_S                nothing arrives in one direction; what is sent waits
    evade HOST FOR_S                       an agent says neither that a job has started nor that it has stopped one, and goes on
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
    spoil HOST JOB                         its disk loses the job's checkpoints without a word
    clock HOST OFFSET_S RATE               from its agent's next start on
    upon NAME HOST [after=S] VERB ...      when a message, a fact or an agent's event of that name happens to HOST (or *)

A line about something that is not there at that moment (a dead agent, a job that does not move) does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, nan
from typing import get_args

import msgspec

from controller.core.model.entities import OVER
from experiments.inputs.scenario import ResearchFlow
from experiments.storms.clock import Clock
from experiments.storms.fault_windows import (
    ANY_HOST,
    OPERATIONS,
    FaultWindow,
    Trigger,
)
from experiments.storms.script import Line, Script
from experiments.storms.world import StormWorld
from testbed import messages as m
from testbed.messages import JobSpec
from topologies.errors import SpecError
from topologies.spec import DirectedLink

IT = "it"
FOR_ANY_HOST = ("return", "late", "fail")
NOT_REPEATED = (m.Hello, m.Welcome, m.Heartbeat, m.HeartbeatAck)  # these begin and keep connections
REPEATABLE = tuple(
    kind.__name__ for side in (m.ToAgent, m.FromAgent) for kind in get_args(side) if kind not in NOT_REPEATED
)
Act = Callable[[StormWorld, Line, str], bool]


@dataclass(frozen=True, slots=True)
class Verb:
    """`act(world, line, host)` says whether it did anything; `host` is that of the first word, if `names_host`."""

    act: Act
    least: int  # positional words
    most: int
    names_host: bool = True


VERBS: dict[str, Verb] = {}


def _verb(least: int, most: int, *, names_host: bool = True) -> Callable[[Act], Act]:
    """Enter a function into `VERBS` under its own name."""

    def add(act: Act) -> Act:
        VERBS[act.__name__.strip("_")] = Verb(act, least, most, names_host)
        return act

    return add


def perform(world: StormWorld, line: Line, it: str = "") -> None:
    """Do what a line says, now; `it` is the host of the occurrence that it waited for. SpecError: it cannot be read."""
    verb, host = VERBS[line.verb], ""
    if verb.names_host:
        found = _host(world, line.positional[0], it)
        if found is None:
            return
        host = found
    if verb.act(world, line, host):
        world.noticed(line.verb, host)


def check(script: Script, hosts: Sequence[str]) -> None:
    """SpecError: a line that no storm can play on a campus with these hosts."""
    for line in script.lines:
        _check(line, set(hosts))


def action_of(line: Line) -> Line:
    """What an `upon` line does when its time has come."""
    _, _, *rest = [word for word in line.words if not word.startswith("after=")]
    return Line(line.at_s, rest[0], tuple(rest[1:]))


def hosts_named(line: Line) -> set[str]:
    """Hosts that a line names, or may name: its words."""
    return set(line.positional)


def _check(line: Line, hosts: set[str]) -> None:
    verb = VERBS.get(line.verb)
    if verb is None:
        raise SpecError("verb", line.verb, f"one of {', '.join(VERBS)}")
    words = line.positional
    if not verb.least <= len(words) <= verb.most:
        raise SpecError(str(line), len(words), f"{verb.least} to {verb.most} arguments after {line.verb}")
    allowed = hosts | {IT} | ({ANY_HOST} if line.verb in FOR_ANY_HOST else set())
    if verb.names_host and words[0][0] not in "@>^" and words[0] not in allowed:
        raise SpecError(str(line), words[0], "a host of the campus, or @job, >job, ^job")
    if (why := _WORDS[line.verb](line, hosts) if line.verb in _WORDS else None) is not None:
        raise SpecError(str(line), why[0], why[1])
    if line.verb == "upon":
        _check(action_of(line), hosts)


# ---------------------------------------------------------------- words

Wrong = tuple[str, str] | None  # (what it is, what is allowed)


def _hosts_of_start(line: Line, hosts: set[str]) -> Wrong:
    strange = [name for name in line.positional if name not in hosts]
    return (strange[0], "hosts of the campus") if strange else None


def _words_of_submit(line: Line, hosts: set[str]) -> Wrong:
    try:
        _job_of(line)
        draw = float(line.options.get("draw", 0.0))
    except (ValueError, OverflowError, msgspec.ValidationError) as error:
        return " ".join(line.words), f"a job ({error})"
    return None if 0.0 <= draw < 1.0 else (f"draw={draw:g}", "draw from 0 to 1")


def _words_of_forget(line: Line, hosts: set[str]) -> Wrong:
    count = line.positional[0]
    return (
        None
        if count.isascii() and count.isdecimal() and len(count) < 10
        else (count, "a whole number of events")
    )


def _words_of_clock(line: Line, hosts: set[str]) -> Wrong:
    try:
        offset_s, rate = (float(word) for word in line.positional[1:3])
    except ValueError:
        offset_s = rate = nan
    good = isfinite(offset_s) and 0.0 < rate < inf
    return None if good else (" ".join(line.positional[1:3]), "seconds, and a rate above 0")


def _words_of_upon(line: Line, hosts: set[str]) -> Wrong:
    name, after = line.positional[1], line.options.get("after", "0")
    if name[0] not in "@>^" and name not in (*hosts, ANY_HOST):
        return name, "a host of the campus, *, @job, >job, or ^job"
    try:
        return None if 0.0 <= float(after) < inf else (after, "after=SECONDS")
    except ValueError:
        return after, "after=SECONDS"


_WORDS: dict[str, Callable[[Line, set[str]], Wrong]] = {
    "start": _hosts_of_start,
    "submit": _words_of_submit,
    "forget": _words_of_forget,
    "clock": _words_of_clock,
    "upon": _words_of_upon,
}


def _host(world: StormWorld, name: str, it: str) -> str | None:
    if name == ANY_HOST:
        return name
    if name == IT:
        return it if it in world.machines else None
    if name[0] not in "@>^":
        return name
    job = world.jobs.get(name[1:])
    if job is None:
        return None
    return {"@": job.host, ">": job.move.destination if job.move else None, "^": job.standby}[name[0]]


def _seconds(line: Line, n: int, default: float = 0.0) -> float:
    words = line.positional
    if n >= len(words):
        return default
    try:
        return max(0.0, float(words[n]))
    except ValueError:
        raise SpecError(str(line), words[n], "a number") from None


# ---------------------------------------------------------------- jobs and owners


@_verb(0, 10_000, names_host=False)
def _start(world: StormWorld, line: Line, host: str) -> bool:
    names = line.positional or tuple(world.machines)
    dead = [name for name in names if world.machines[name].core is None]
    world.start(*dead)
    return bool(dead)


@_verb(1, 1, names_host=False)
def _submit(world: StormWorld, line: Line, host: str) -> bool:
    world.submit(_job_of(line), float(line.options.get("draw", 0.0)))
    return True


def _job_of(line: Line) -> JobSpec:
    """The job that a line submits. ValueError, or msgspec's, where a word is none."""
    given = line.options
    spec = JobSpec(
        line.positional[0],
        int(given.get("steps", 100)),
        float(given.get("step", 0.1)),
        int(given.get("payload", 2_000_000)),
        params={"dirty_fraction": float(given.get("dirty", 0.1))},
        loss_budget_s=float(given.get("budget", 900.0)),
        memory_bytes=float(given.get("memory", 0.0)),
    )
    return msgspec.convert(msgspec.to_builtins(spec), JobSpec)


@_verb(1, 1, names_host=False)
def _cancel(world: StormWorld, line: Line, host: str) -> bool:
    job = world.jobs.get(line.positional[0])
    world.cancel(line.positional[0])
    return job is not None and job.phase not in OVER


@_verb(1, 2)
def _reclaim(world: StormWorld, line: Line, host: str) -> bool:
    if host not in world.owned:
        return False
    world.reclaim(host, _seconds(line, 1), grace="grace" in line.options)
    return True


@_verb(1, 1)
def _return(world: StormWorld, line: Line, host: str) -> bool:
    away = [name for name in (world.owned if host == ANY_HOST else (host,)) if world.is_away(name)]
    for name in away:
        world.give_back(name)
    return bool(away)


# ---------------------------------------------------------------- processes and connections


@_verb(1, 2)
def _kill(world: StormWorld, line: Line, host: str) -> bool:
    alive = world.machines[host].core is not None
    world.kill(host, _seconds(line, 1, 0.004))
    return alive


@_verb(1, 1)
def _crash(world: StormWorld, line: Line, host: str) -> bool:
    return world.crash(host)


@_verb(2, 2)
def _pause(world: StormWorld, line: Line, host: str) -> bool:
    machine = world.machines[host]
    if machine.core is None or machine.paused:
        return False
    world.pause(host, _seconds(line, 1))
    world.disturb("an agent stood still", _seconds(line, 1), host=host)
    return True


@_verb(1, 3)
def _cut(world: StormWorld, line: Line, host: str) -> bool:
    link = world.machines[host].link
    open_ = link is not None and link.agent_open and not link.cut
    world.cut(host, _seconds(line, 1), _seconds(line, 2))
    return open_


@_verb(0, 1, names_host=False)
def _restart(world: StormWorld, line: Line, host: str) -> bool:
    try:
        clock_s = float(line.options.get("clock", 0.0))
    except ValueError:
        raise SpecError(str(line), line.options["clock"], "clock=SECONDS") from None
    return world.restart(_seconds(line, 0, 0.1), clock_s)


@_verb(1, 2, names_host=False)
def _forget(world: StormWorld, line: Line, host: str) -> bool:
    return world.restart(_seconds(line, 1, 0.1), given_up=int(_seconds(line, 0)))


@_verb(0, 1, names_host=False)
def _tear(world: StormWorld, line: Line, host: str) -> bool:
    world.torn_for_s = _seconds(line, 0, 0.1)
    return False  # counted when it happens


@_verb(1, 1, names_host=False)
def _usurp(world: StormWorld, line: Line, host: str) -> bool:
    world.usurped_for_s = _seconds(line, 0)
    return False  # counted when it happens


# ---------------------------------------------------------------- links, disks, clocks


@_verb(3, 4, names_host=False)
def _link(world: StormWorld, line: Line, host: str) -> bool:
    a, b = line.positional[:2]
    factor, for_s = _seconds(line, 2), _seconds(line, 3, inf)
    if not world.slow(a, b, factor):
        return False
    if world.links.is_told(a, b):  # of a trunk that is down the coordinator knows
        world.noticed("trunk died", "*")
        for name in world.cut_off():
            world.disturb("every trunk of a host was down", for_s, host=name)
    else:
        cause = "a cable was slow" if factor > 0.0 else "a cable was down"
        world.disturb(cause, for_s, links=(DirectedLink(a, b), DirectedLink(b, a)))
    if for_s < inf:
        world.after(for_s, lambda: world.set_link(a, b, 1.0))
    return True


@_verb(2, 2, names_host=False)
def _drain(world: StormWorld, line: Line, host: str) -> bool:
    a, b = line.positional[:2]
    if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s or world.links.is_told(a, b):
        return False
    world.drain_link(a, b)
    return True


@_verb(2, 3, names_host=False)
def _research(world: StormWorld, line: Line, host: str) -> bool:
    source, target = line.positional[:2]
    world.research.add(ResearchFlow(source, target, _seconds(line, 2, inf)))
    return True


@_verb(3, 3, names_host=False)
def _background(world: StormWorld, line: Line, host: str) -> bool:
    source, target = line.positional[:2]
    world.set_background(source, target, _seconds(line, 2))
    return True


@_verb(3, 3)
def _late(world: StormWorld, line: Line, host: str) -> bool:
    by_s, for_s = _seconds(line, 1), _seconds(line, 2)
    world.weather.add(FaultWindow("message", host, world.now_s + for_s, by_s))
    world.disturb("messages were late", for_s + by_s, host=host)
    return True


@_verb(2, 2)
def _repeat(world: StormWorld, line: Line, host: str) -> bool:
    if line.positional[1] not in REPEATABLE:
        raise SpecError(str(line), line.positional[1], f"one of {', '.join(REPEATABLE)}")
    world.repeat(line.positional[1], host)
    return False  # counted when it happens


@_verb(3, 3)
def _overtake(world: StormWorld, line: Line, host: str) -> bool:
    if line.positional[1] not in REPEATABLE:
        raise SpecError(str(line), line.positional[1], f"one of {', '.join(REPEATABLE)}")
    world.overtake(line.positional[1], host, _seconds(line, 2))
    world.disturb("a message was overtaken", inf, host=host)
    return False  # counted when it happens


@_verb(3, 3)
def _mute(world: StormWorld, line: Line, host: str) -> bool:
    to_host, for_s = line.positional[1] == "to", _seconds(line, 2)
    if not world.connections.mute(host, to_host=to_host):
        return False
    if (link := world.machines[host].link) is not None:
        world.env.broken_off(link)
    world.disturb("one direction was dead", for_s, host=host)
    world.after(for_s, lambda: world.connections.unmute(host, to_host=to_host))
    return True


@_verb(2, 2)
def _evade(world: StormWorld, line: Line, host: str) -> bool:
    for_s = _seconds(line, 1)
    world.disturb("an agent did not answer", for_s, host=host)
    return world.evade(host, for_s)


@_verb(1, 1, names_host=False)
def _freeze(world: StormWorld, line: Line, host: str) -> bool:
    return not world.quiet and world.freeze(_seconds(line, 0))


@_verb(2, 2)
def _step(world: StormWorld, line: Line, host: str) -> bool:
    world.disturb("a clock jumped", world.settings.lease_s, host=host)
    return world.step_clock(host, _seconds(line, 1))


@_verb(4, 4, names_host=False)
def _loss(world: StormWorld, line: Line, host: str) -> bool:
    """A cable of which TCP gets less: a half at 1 % of loss, an eighth at 5 % (no more than a plausible curve)."""
    factor = max(0.05, 1.0 / (1.0 + (_seconds(line, 2) / 0.01) ** 1.2))
    slowed = replace(line, words=(*line.words[:2], str(factor), *line.words[3:]))
    return _link(world, slowed, host)


@_verb(3, 3)
def _drag(world: StormWorld, line: Line, host: str) -> bool:
    by_s, for_s, disk = _seconds(line, 1), _seconds(line, 2), world.machines[host].disk
    disk.slow_s = by_s
    world.disturb("a disk was slow", for_s + by_s, host=host)

    def recover() -> None:
        disk.slow_s = 0.0

    world.after(for_s, recover)
    return True


@_verb(2, 2)
def _rot(world: StormWorld, line: Line, host: str) -> bool:
    had = world.rot(host, line.positional[1])
    if had:
        world.disturb("a checkpoint was rotten", inf, host=host, job=line.positional[1])
    return had


@_verb(2, 2)
def _stale(world: StormWorld, line: Line, host: str) -> bool:
    world.disturb("a disk was stale", inf, host=host)
    return world.roll_back(host, _seconds(line, 1))


@_verb(3, 3)
def _fail(world: StormWorld, line: Line, host: str) -> bool:
    what, for_s = line.positional[1], _seconds(line, 2)
    if what not in OPERATIONS:
        raise SpecError(str(line), what, f"one of {', '.join(OPERATIONS)}")
    world.weather.add(FaultWindow(what, host, world.now_s + for_s, retryable="retry" in line.options))
    world.disturb(f"a {what} failed", for_s, host=host)
    return False


@_verb(2, 2)
def _oom(world: StormWorld, line: Line, host: str) -> bool:
    job = line.positional[1]
    killed = world.workloads.kill_from_outside(world.machines[host], job)
    if killed:
        world.disturb("a process was killed", 2.0 * world.settings.restart_s, job=job)
    return killed


@_verb(1, 1)
def _fill(world: StormWorld, line: Line, host: str) -> bool:
    return world.fill(host, full=True)


@_verb(1, 1)
def _empty(world: StormWorld, line: Line, host: str) -> bool:
    return world.fill(host, full=False)


@_verb(2, 2)
def _spoil(world: StormWorld, line: Line, host: str) -> bool:
    store = world.machines[host].store
    had = any(job == line.positional[1] for job, _ in store)
    world.spoil(host, line.positional[1])
    if had:
        world.disturb("a checkpoint was gone", inf, host=host, job=line.positional[1])
    return had


@_verb(3, 3)
def _clock(world: StormWorld, line: Line, host: str) -> bool:
    offset_s, rate = (float(word) for word in line.positional[1:3])
    world.clocks[host] = Clock(offset_s, rate)
    return not world.quiet


# ---------------------------------------------------------------- triggers


@_verb(3, 10, names_host=False)
def _upon(world: StormWorld, line: Line, host: str) -> bool:
    action, after_s = action_of(line), float(line.options.get("after", 0.0))

    def act(it: str) -> None:
        world.noticed(f"upon {line.positional[0]}", it)
        world.after(after_s, partial(later, replace(action, at_s=world.now_s), it))

    def later(fault: Line, it: str) -> None:
        if not world.is_calm:
            perform(world, fault, it)

    named = line.positional[1]
    found = _host(world, named, "")
    if found is not None:
        world.weather.await_(Trigger(line.positional[0], found, act))
    return False
