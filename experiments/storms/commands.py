"""Actions of the lines of a script.

Hosts: a name, or `@job` (where the job is), `>job` (where it moves to), `^job` (its standby), at that moment; in the
action of `upon`, `it` is the host that it happened to.

    start [HOST ...]                       agents start (all).
    submit JOB steps=100 payload=2000000 budget=900 draw=0 memory=0 step=0.1 gpus=1 dirty=0.1
                                           a user submits a job; by default with these values.
    cancel JOB                             its user wants it no more.
    reclaim HOST [NOTICE_S] [grace=1]      the owner; without notice at once.
    return HOST                            the owner lends it (again); *: all of them do.
    kill HOST [COORDINATOR_NOTICES_S]      SIGKILL of the agent.
    crash HOST                             the host dies without a message, its disk stays, its clock will begin at zero.
    pause HOST FOR_S                       SIGSTOP of the agent; its workloads go on.
    cut HOST [AGENT_S [COORDINATOR_S]]     the connection breaks; each side notices after so long.
    restart [DOWN_S]                       the coordinator's process is killed, and begins again from its journal.
    tear [DOWN_S]                          the same while it writes its next event: that is not in the journal.
    usurp FOR_S                            SIGSTOP of the coordinator, between writing its next event and sending what follows;
                                           another one goes on with its journal, and the old one wakes after.
    freeze FOR_S                           SIGSTOP of the coordinator.
    link A B FACTOR [FOR_S]                a cable works at a part of its rate; 0: it is down, and if it is a trunk of a campus
                                           with several paths, the coordinator is informed.
    drain A B                              a trunk is announced to go down; whatever can leaves it, until it does.
    research A B [BYTES_PER_S]             a research flow from A to B begins; greedy without a rate.
    background A B BYTES_PER_S             others' traffic from A to B from now on, wire; the coordinator gets it, as by switches.
    late HOST BY_S FOR_S                   messages from and to a host (or *) are late, in order.
    repeat HOST KIND                       the next message of that kind, to or from the agent, is sent twice.
    overtake HOST KIND BY_S                the next message of that kind is so much later, and others pass it.
    mute HOST to|from FOR_S                nothing arrives in one direction; what is sent waits.
    evade HOST FOR_S                       an agent reports neither started jobs nor stopped ones, and goes on
                                           with its heartbeats: a fault of its own, or a lie.
    clock HOST OFFSET_S RATE               from its agent's next start on.
    step HOST BY_S                         the host's clock jumps ahead.
    fail HOST sending|snapshot|workload FOR_S [retry=1]
                                           the operation fails there; with `retry`, another try may succeed.
    oom HOST JOB                           the job's process there is killed by the kernel, not by its agent.
    fill HOST | empty HOST                 its disk has no room for more, or has again.
    drag HOST BY_S FOR_S                   each write to its disk takes so much longer.
    rot HOST JOB                           the bytes of the job's checkpoints there are wrong; readers notice.
    spoil HOST JOB                         its disk loses the job's checkpoints without a message.
    stale HOST AFTER_S                     the host crashes then, and its disk is as it is now.
    upon NAME HOST [after=S] VERB ...      when a message, a fact or an agent's event of that name happens to HOST (or *).

A line about something that is not there at that moment (a dead agent, a job that does not move) does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import Parameter, signature
from math import inf, isfinite
from typing import TypeAlias, get_args

import msgspec

from controller.core.model.entities import OVER
from experiments.inputs.scenario import ResearchFlow
from experiments.storms.script import Line, Script
from experiments.storms.world import ALL, OPERATIONS, Clock, FaultWindow, SkewedAgent, StormWorld, Trigger
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
# kinds of words: a verb's signature has the kind of each
Host: TypeAlias = str
AnyHost: TypeAlias = str  # or *
Node: TypeAlias = str
Job: TypeAlias = str
Message: TypeAlias = str
Operation: TypeAlias = str
Direction: TypeAlias = str
Word: TypeAlias = str
Seconds: TypeAlias = float
Number: TypeAlias = float
Rate: TypeAlias = float
ALLOWED = {"Message": REPEATABLE, "Operation": OPERATIONS, "Direction": ("to", "from")}
JOB_FIELDS = {
    "step": "step_s",
    "payload": "payload_bytes",
    "budget": "loss_budget_s",
    "memory": "memory_bytes",
}
# act(world, line, ...) is given the words as they are meant, and returns whether it did anything
Act = Callable[..., bool]
VERBS: dict[str, Act] = {}


def _verb(act: Act) -> Act:
    """Enter a function into `VERBS` under its own name."""
    VERBS[act.__name__.strip("_")] = act
    return act


def perform(world: StormWorld, line: Line, it: str = "") -> None:
    """Do the action of a line, now; `it` is the host of the occurrence that it waited for. SpecError: it cannot be read."""
    words: list[str | float] = []
    for kind, word in _kinds(line):
        meant = _host(world, word, it) if "Host" in kind else _meant(line, kind, word)
        if meant is None:
            return
        words.append(meant)
    if VERBS[line.verb](world, line, *words):
        world.noticed(line.verb)


def check(script: Script, hosts: Sequence[str]) -> None:
    """Check each line for a campus with these hosts. SpecError: no storm can play it."""
    for line in script.lines:
        _check(line, {*hosts, IT})


def action_of(line: Line) -> Line:
    """Return what an `upon` line does when its time has come."""
    _, _, *rest = [word for word in line.words if not word.startswith("after=")]
    return Line(line.at_s, rest[0], tuple(rest[1:]))


def _kinds(line: Line) -> Iterator[tuple[str, str]]:
    """Yield the kind of each word, and the word. SpecError: no such verb, or another number of words."""
    if line.verb not in VERBS:
        raise SpecError("verb", line.verb, f"one of {', '.join(VERBS)}")
    words, (_, _, *wanted) = line.positional, signature(VERBS[line.verb]).parameters.values()
    repeated = [each for each in wanted if each.kind is Parameter.VAR_POSITIONAL]
    needed = sum(each.default is Parameter.empty for each in wanted if each not in repeated)
    if not needed <= len(words) or not (repeated or len(words) <= len(wanted)):
        allowed = f"arguments: {', '.join(each.name for each in wanted) or 'none'} after {line.verb}"
        raise SpecError(str(line), len(words), allowed)
    for number, word in enumerate(words):
        yield str(wanted[min(number, len(wanted) - 1)].annotation), word


def _check(line: Line, hosts: set[str]) -> None:
    for kind, word in _kinds(line):
        if "Host" not in kind:
            _meant(line, kind, word)
        elif word[0] not in ABOUT_JOBS and word not in hosts | ({ALL} if kind == "AnyHost" else set()):
            raise SpecError(str(line), word, "a host of the campus, or @job, >job, ^job")
    if line.verb == "submit":
        _job_of(line)
    if line.verb == "upon":
        if not 0.0 <= (after_s := _number(line, line.options.get("after", "0"), "after=SECONDS")) < inf:
            raise SpecError(str(line), after_s, "after=SECONDS")
        _check(action_of(line), hosts)


def _meant(line: Line, kind: str, word: str) -> str | float:
    """Return the value of a word that is no host's. SpecError: it has none."""
    if word not in ALLOWED.get(kind, (word,)):
        raise SpecError(str(line), word, f"one of {', '.join(ALLOWED[kind])}")
    match kind:
        case "Seconds":
            return max(0.0, _number(line, word, "seconds"))
        case "Number" if isfinite(value := _number(line, word, "a number")):
            return value
        case "Rate" if 0.0 < (value := _number(line, word, "a rate above 0")) < inf:
            return value
        case "Number" | "Rate":
            raise SpecError(str(line), word, "a number" if kind == "Number" else "a rate above 0")
    return word


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


@_verb
def _start(world: StormWorld, line: Line, *names: Host) -> bool:
    dead = [name for name in names or world.machines if world.machines[name].core is None]
    world.start(*dead)
    return bool(dead)


@_verb
def _submit(world: StormWorld, line: Line, name: Job) -> bool:
    world.submit(*_job_of(line))
    return True


def _job_of(line: Line) -> tuple[JobSpec, float]:
    """Return the job that a line submits, and the draw for it. SpecError: a word of it is none of a job's."""
    given = {JOB_FIELDS.get(key, key): value for key, value in line.options.items()}
    draw = _number(line, given.pop("draw", "0"), "draw from 0 to 1")
    if not 0.0 <= draw < 1.0:
        raise SpecError(str(line), f"draw={draw}", "draw from 0 to 1")
    dirty = _number(line, given.pop("dirty", "0.1"), "dirty from 0 to 1")
    usual = {"name": line.positional[0], "steps": 100, "step_s": 0.1, "payload_bytes": 2_000_000}
    try:
        job = msgspec.convert(usual | {"params": {"dirty_fraction": dirty}} | given, JobSpec, strict=False)
    except msgspec.ValidationError as error:
        raise SpecError(str(line), " ".join(line.words), f"a job ({error})") from None
    return job, draw


@_verb
def _cancel(world: StormWorld, line: Line, name: Job) -> bool:
    job = world.jobs.get(name)
    world.cancel(name)
    return job is not None and job.phase not in OVER


@_verb
def _reclaim(world: StormWorld, line: Line, host: Host, notice_s: Seconds = 0.0) -> bool:
    if host not in world.owned:
        return False
    world.reclaim(host, notice_s, grace="grace" in line.options)
    return True


@_verb
def _return(world: StormWorld, line: Line, host: AnyHost) -> bool:
    away = [name for name in (world.owned if host == ALL else (host,)) if world.is_away(name)]
    for name in away:
        world.give_back(name)
    return bool(away)


# ---------------------------------------------------------------- processes and connections


@_verb
def _kill(world: StormWorld, line: Line, host: Host, notices_s: Seconds = 0.004) -> bool:
    alive = world.machines[host].core is not None
    world.kill(host, notices_s)
    return alive


@_verb
def _crash(world: StormWorld, line: Line, host: Host) -> bool:
    return world.crash(host)


@_verb
def _pause(world: StormWorld, line: Line, host: Host, for_s: Seconds) -> bool:
    machine = world.machines[host]
    if machine.core is None or machine.paused:
        return False
    world.pause(host, for_s)
    world.disturb("an agent stood still", for_s, host=host)
    return True


@_verb
def _cut(
    world: StormWorld, line: Line, host: Host, agent_s: Seconds = 0.0, coordinator_s: Seconds = 0.0
) -> bool:
    link = world.machines[host].link
    open_ = link is not None and link.agent_open and not link.cut
    world.cut(host, agent_s, coordinator_s)
    return open_


@_verb
def _restart(world: StormWorld, line: Line, down_s: Seconds = 0.1) -> bool:
    return world.restart(down_s)


@_verb
def _tear(world: StormWorld, line: Line, down_s: Seconds = 0.1) -> bool:
    world.torn_for_s = down_s
    return False  # counted when it happens


@_verb
def _usurp(world: StormWorld, line: Line, for_s: Seconds) -> bool:
    world.usurped_for_s = for_s
    return False  # counted when it happens


@_verb
def _freeze(world: StormWorld, line: Line, for_s: Seconds) -> bool:
    return world.freeze(for_s)


# ---------------------------------------------------------------- links and messages


@_verb
def _link(world: StormWorld, line: Line, a: Node, b: Node, factor: Seconds, for_s: Seconds = inf) -> bool:
    if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s:
        return False
    world.links.set(a, b, factor)
    if world.links.is_told(a, b):  # the coordinator knows of a trunk that is down
        world.noticed("trunk died")
        for name in world.cut_off():
            world.disturb("every trunk of a host was down", for_s, host=name)
    else:
        cause = "a cable was slow" if factor > 0.0 else "a cable was down"
        world.disturb(cause, for_s, links=(DirectedLink(a, b), DirectedLink(b, a)))
    if for_s < inf:
        world.after(for_s, lambda: world.links.set(a, b, 1.0))
    return True


@_verb
def _drain(world: StormWorld, line: Line, a: Node, b: Node) -> bool:
    if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s or world.links.is_told(a, b):
        return False
    world.links.drain(a, b)
    return True


@_verb
def _research(world: StormWorld, line: Line, source: Node, target: Node, rate: Seconds = inf) -> bool:
    world.research.add(ResearchFlow(source, target, rate))
    return True


@_verb
def _background(world: StormWorld, line: Line, source: Node, target: Node, rate: Seconds) -> bool:
    world.others.send(source, target, rate)
    return True


@_verb
def _late(world: StormWorld, line: Line, host: AnyHost, by_s: Seconds, for_s: Seconds) -> bool:
    world.windows.append(FaultWindow("message", host, world.now_s + for_s, by_s))
    world.disturb("messages were late", for_s + by_s, host=host)
    return True


@_verb
def _repeat(world: StormWorld, line: Line, host: Host, message: Message) -> bool:
    world.repeats.add((message, host))
    return False  # counted when it happens


@_verb
def _overtake(world: StormWorld, line: Line, host: Host, message: Message, by_s: Seconds) -> bool:
    world.overtaken[message, host] = by_s
    world.disturb("a message was overtaken", inf, host=host)
    return False  # counted when it happens


@_verb
def _mute(world: StormWorld, line: Line, host: Host, direction: Direction, for_s: Seconds) -> bool:
    to_host = direction == "to"
    if not world.connections.mute(host, to_host=to_host):
        return False
    if (link := world.machines[host].link) is not None:
        world.env.broken_off(link)
    world.disturb("one direction was dead", for_s, host=host)
    world.after(for_s, lambda: world.connections.unmute(host, to_host=to_host))
    return True


@_verb
def _evade(world: StormWorld, line: Line, host: Host, for_s: Seconds) -> bool:
    world.disturb("an agent did not answer", for_s, host=host)
    if not world.quiet:
        world.evasive[host] = world.now_s + for_s
    return not world.quiet


@_verb
def _clock(world: StormWorld, line: Line, host: Host, offset_s: Number, rate: Rate) -> bool:
    world.clocks[host] = Clock(offset_s, rate)
    return not world.quiet


@_verb
def _step(world: StormWorld, line: Line, host: Host, by_s: Seconds) -> bool:
    world.disturb("a clock jumped", world.protocol.lease_s, host=host)
    machine = world.machines[host]
    core = machine.core
    if not isinstance(core, SkewedAgent):
        return False
    core.clock = world.clocks[host] = Clock(core.clock.offset_s + by_s, core.clock.rate)
    if not machine.paused:
        world.arm(machine)
    return True


# ---------------------------------------------------------------- operations and disks


@_verb
def _fail(world: StormWorld, line: Line, host: AnyHost, what: Operation, for_s: Seconds) -> bool:
    world.windows.append(FaultWindow(what, host, world.now_s + for_s, retryable="retry" in line.options))
    world.disturb(f"a {what} failed", for_s, host=host)
    return False  # counted when it happens


@_verb
def _oom(world: StormWorld, line: Line, host: Host, job: Job) -> bool:
    killed = world.workloads.kill_from_outside(world.machines[host], job)
    if killed:
        world.disturb("a process was killed", 2.0 * world.protocol.restart_s, job=job)
    return killed


@_verb
def _fill(world: StormWorld, line: Line, host: Host) -> bool:
    return world.fill(host, full=True)


@_verb
def _empty(world: StormWorld, line: Line, host: Host) -> bool:
    return world.fill(host, full=False)


@_verb
def _drag(world: StormWorld, line: Line, host: Host, by_s: Seconds, for_s: Seconds) -> bool:
    disk = world.machines[host].disk
    disk.slow_s = by_s
    world.disturb("a disk was slow", for_s + by_s, host=host)
    world.after(for_s, lambda: setattr(disk, "slow_s", 0.0))
    return True


@_verb
def _rot(world: StormWorld, line: Line, host: Host, job: Job) -> bool:
    disk = world.machines[host].disk
    keys = [(job, sequence) for sequence in disk.stored.of(job)]
    disk.rotten.update(keys)
    if keys:
        world.disturb("a checkpoint was rotten", inf, host=host, job=job)
    return bool(keys)


@_verb
def _spoil(world: StormWorld, line: Line, host: Host, job: Job) -> bool:
    store = world.machines[host].store
    keys = [(job, sequence) for sequence in store.of(job)]
    for key in keys:
        del store[key]
    if keys:
        world.disturb("a checkpoint was gone", inf, host=host, job=job)
    return bool(keys)


@_verb
def _stale(world: StormWorld, line: Line, host: Host, after_s: Seconds) -> bool:
    world.disturb("a disk was stale", inf, host=host)
    disk = world.machines[host].disk
    before = dict(disk.stored)

    def lose() -> None:
        world.crash(host)
        disk.stored = StoredCheckpoints(before)
        disk.partial.clear()

    world.after(after_s, lose)
    return True


@_verb
def _upon(world: StormWorld, line: Line, step: Word, host: AnyHost, *_: Word) -> bool:
    action, after_s = action_of(line), float(line.options.get("after", 0.0))

    def act(it: str) -> None:
        world.noticed(f"upon {step}")
        world.after(after_s, partial(later, it))

    def later(it: str) -> None:
        if not world.is_calm:
            perform(world, action, it)

    world.triggers.append(Trigger(step, host, act))
    return False
