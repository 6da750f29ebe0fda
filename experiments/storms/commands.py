"""Actions of the lines of a script: a verb is a method of `Actions`, its parameters are the words of the line.

Hosts: a name, or `@job` (where the job is), `>job` (where it moves to), `^job` (its standby), at that moment; in the
action of `upon`, `it` is the host that it happened to. Parameters after `*` are written `name=value`, true as 1.

A line about something that is not there at that moment (a dead agent, a job that does not move) does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from inspect import Parameter, signature
from math import inf
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from controller.core.model.entities import OVER
from experiments.inputs.scenario import ResearchFlow
from experiments.storms.script import Line, Script, options_of
from experiments.storms.world import ALL, Clock, FaultWindow, SkewedAgent, StormWorld, Trigger
from testbed import messages as m
from testbed.agent.core.stored import StoredCheckpoints
from topologies.errors import SpecError
from topologies.spec import DirectedLink

IT = "it"
ABOUT_JOBS = "@>^"
NOT_REPEATED = (m.Hello, m.Welcome, m.Heartbeat, m.HeartbeatAck)  # these begin and keep connections
REPEATABLE = tuple(
    kind.__name__ for side in (m.ToAgent, m.FromAgent) for kind in get_args(side) if kind not in NOT_REPEATED
)
# kinds of words; a description is the text of an error
Host = Annotated[str, "a host"]
AnyHost = Annotated[str, "a host or *"]
Message = Annotated[str, Meta(pattern=f"^({'|'.join(REPEATABLE)})$", description=f"one of {', '.join(REPEATABLE)}")]
Direction = Annotated[Literal["to", "from"], Meta(description="to or from")]
Operation = Annotated[Literal["sending", "snapshot", "workload"], Meta(description="sending, snapshot or workload")]
Seconds = Annotated[float, Meta(ge=0.0, description="SECONDS of at least 0")]
Span = Annotated[float, Meta(gt=0.0, le=1e12, description="SECONDS above 0")]
Number = Annotated[float, Meta(ge=-1e12, le=1e12, description="a number")]
Rate = Annotated[float, Meta(gt=0.0, le=1e12, description="a rate above 0")]
Amount = Annotated[float, Meta(ge=0.0, description="a number of at least 0")]
Count = Annotated[int, Meta(ge=1, description="a whole number of at least 1")]
Share = Annotated[float, Meta(ge=0.0, lt=1.0, description="a number from 0, below 1")]
Flag = Annotated[bool, Meta(description="1 or 0")]


def perform(world: StormWorld, line: Line, it: str = "") -> None:
    """Do the action of a line, now; `it` is the host of the occurrence that it waited for. SpecError: it cannot be read."""
    words, options = _read(line)
    meant = [_host(world, word, it) if kind in (Host, AnyHost) else word for kind, word in words]
    if None not in meant and getattr(Actions(world), VERBS[line.verb])(*meant, **options):
        world.noticed(line.verb)


def check(script: Script, hosts: Sequence[str]) -> None:
    """Check each line for a campus with these hosts. SpecError: no storm can play it."""
    known = {*hosts, IT}
    for line in script.lines:
        _check(line, known)


def _check(line: Line, hosts: set[str]) -> None:
    for kind, word in _read(line)[0]:
        allowed = {Host: hosts, AnyHost: hosts | {ALL}}.get(kind)
        if allowed is not None and word[0] not in ABOUT_JOBS and word not in allowed:
            raise SpecError(str(line), word, "a host of the campus, or @job, >job, ^job")
    if line.verb == "upon":
        _, _, verb, *words = _words(line)[0]
        _check(Line(0.0, verb, tuple(words)), hosts)


def _words(line: Line) -> tuple[Sequence[str], dict[str, str]]:
    """Return the words of a line and its options; those after the verb of an action that waits are the action's."""
    option = "after=" if line.verb == "upon" else "="
    own = [word for word in line.words if option in word]
    return [word for word in line.words if word not in own], options_of(own)


def _read(line: Line) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    """Return the kind and value of each word, and the options. SpecError: no such verb, or it has no meaning with these words."""
    if line.verb not in VERBS:
        raise SpecError("verb", line.verb, f"one of {', '.join(VERBS)}")
    declared = SIGNATURES[line.verb]
    words, options = _words(line)
    try:
        bound = declared.bind(*words, **options)
    except TypeError:
        raise SpecError(str(line), " ".join(line.words), f"arguments: {_usage(line.verb)}") from None
    found: list[tuple[Any, Any]] = []
    for name, given in bound.arguments.items():
        parameter = declared.parameters[name]
        for word in given if parameter.kind is Parameter.VAR_POSITIONAL else (given,):
            try:
                value = msgspec.convert(word, parameter.annotation, strict=False)
            except msgspec.ValidationError:
                equals = "=" if parameter.kind is Parameter.KEYWORD_ONLY else ": "
                allowed = get_args(parameter.annotation)[1].description
                raise SpecError(str(line), word, f"{name}{equals}{allowed}") from None
            if parameter.kind is Parameter.KEYWORD_ONLY:
                options[name] = value
            else:
                found.append((parameter.annotation, value))
    return found, options


def _usage(verb: str) -> str:
    """Return a verb and the names of its words, those in brackets optional."""
    words = [verb]
    for name, parameter in SIGNATURES[verb].parameters.items():
        match parameter.kind:
            case Parameter.VAR_POSITIONAL:
                words.append(f"[{name.upper()} ...]")
            case Parameter.KEYWORD_ONLY:
                words.append(f"[{name}=...]")
            case _:
                words.append(name.upper() if parameter.default is Parameter.empty else f"[{name.upper()}]")
    return " ".join(words)


def _host(world: StormWorld, name: str, it: str) -> str | None:
    if name == IT:
        return it if it in world.machines else None
    if name[0] not in ABOUT_JOBS:
        return name
    job = world.jobs.get(name[1:])
    if job is None:
        return None
    return {"@": job.host, ">": job.move.destination if job.move else None, "^": job.standby}[name[0]]


class Actions:
    """Verbs, each of which changes the world now, and returns whether that took effect; False also if it is counted later."""

    def __init__(self, world: StormWorld) -> None:
        self._world = world

    # ------------------------------------------------------------ jobs and owners

    def start(self, *hosts: Host) -> bool:
        """Start agents, by default all."""
        world = self._world
        dead = [name for name in hosts or world.machines if world.machines[name].core is None]
        world.start(*dead)
        return bool(dead)

    def submit(
        self,
        job: str,
        *,
        steps: Count = 100,
        step: Span = 0.1,
        payload: Count = 2_000_000,
        budget: Span = 900.0,
        memory: Amount = 0.0,
        gpus: Count = 1,
        dirty: Share = 0.1,
        draw: Share = 0.0,
    ) -> bool:
        """Submit a job, with seconds of a `step` and bytes; `draw` decides whether it joins a full queue."""
        params: dict[str, str | int | float | bool] = {"dirty_fraction": dirty}
        spec = m.JobSpec(job, steps, step, payload, params=params, memory_bytes=memory, loss_budget_s=budget, gpus=gpus)
        self._world.submit(spec, draw)
        return True

    def cancel(self, job: str) -> bool:
        """Cancel a job for its user."""
        known = self._world.jobs.get(job)
        self._world.cancel(job)
        return known is not None and known.phase not in OVER

    def reclaim(self, host: Host, notice_s: Seconds = 0.0, *, grace: Flag = False) -> bool:
        """Take a host back for its owner; without notice at once."""
        if host not in self._world.owned:
            return False
        self._world.reclaim(host, notice_s, grace=grace)
        return True

    def return_(self, host: AnyHost) -> bool:
        """Lend a host again for its owner; *: all of them."""
        world = self._world
        away = [name for name in (world.owned if host == ALL else (host,)) if world.is_away(name)]
        for name in away:
            world.give_back(name)
        return bool(away)

    # ------------------------------------------------------------ processes and connections

    def kill(self, host: Host, notices_s: Seconds = 0.004) -> bool:
        """Kill the agent (SIGKILL); the coordinator notices after so long."""
        alive = self._world.machines[host].core is not None
        self._world.kill(host, notices_s)
        return alive

    def crash(self, host: Host) -> bool:
        """Let the host die without a message; its disk stays, its clock will begin at zero."""
        return self._world.crash(host)

    def pause(self, host: Host, for_s: Seconds) -> bool:
        """Stop the agent (SIGSTOP) for a while; its workloads go on."""
        machine = self._world.machines[host]
        if machine.core is None or machine.paused:
            return False
        self._world.pause(host, for_s)
        self._world.disturb("an agent stood still", for_s, host=host)
        return True

    def cut(self, host: Host, agent_s: Seconds = 0.0, coordinator_s: Seconds = 0.0) -> bool:
        """Break the connection; each side notices after so long."""
        link = self._world.machines[host].link
        open_ = link is not None and link.agent_open and not link.cut
        self._world.cut(host, agent_s, coordinator_s)
        return open_

    def restart(self, down_s: Seconds = 0.1) -> bool:
        """Kill the coordinator's process; it begins again from its journal after a while."""
        return self._world.restart(down_s)

    def tear(self, down_s: Seconds = 0.1) -> bool:
        """Restart it while it writes its next event, which is not in the journal then."""
        self._world.torn_for_s = down_s
        return False

    def usurp(self, for_s: Seconds) -> bool:
        """Stop the coordinator between writing its next event and sending what follows.

        Another one goes on with its journal, and the old one wakes after so long.
        """
        self._world.usurped_for_s = for_s
        return False

    def freeze(self, for_s: Seconds) -> bool:
        """Stop the coordinator (SIGSTOP) for a while."""
        return self._world.freeze(for_s)

    # ------------------------------------------------------------ links and messages

    def link(self, a: str, b: str, factor: Amount, for_s: Seconds = inf) -> bool:
        """Let a cable work at a part of its rate for a while; 0: it is down.

        The coordinator is informed if it is a trunk of a campus with several paths.
        """
        world = self._world
        if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s:
            return False
        world.links.set(a, b, factor)
        if world.links.is_told(a, b):
            world.noticed("trunk died")
            for name in world.cut_off():
                world.disturb("every trunk of a host was down", for_s, host=name)
        else:
            cause = "a cable was slow" if factor > 0.0 else "a cable was down"
            world.disturb(cause, for_s, links=(DirectedLink(a, b), DirectedLink(b, a)))
        if for_s < inf:
            world.after(for_s, lambda: world.links.set(a, b, 1.0))
        return True

    def drain(self, a: str, b: str) -> bool:
        """Announce that a trunk will go down; whatever can leaves it, until it does."""
        world = self._world
        if DirectedLink(a, b) not in world.env.campus.capacity_bytes_per_s or world.links.is_told(a, b):
            return False
        world.links.drain(a, b)
        return True

    def research(self, source: str, target: str, bytes_per_s: Amount = inf) -> bool:
        """Begin a research flow; greedy without a rate."""
        self._world.research.add(ResearchFlow(source, target, bytes_per_s))
        return True

    def background(self, source: str, target: str, bytes_per_s: Amount) -> bool:
        """Set others' traffic (wire) from now on; the coordinator gets it, as by switches."""
        self._world.others.send(source, target, bytes_per_s)
        return True

    def late(self, host: AnyHost, by_s: Seconds, for_s: Seconds) -> bool:
        """Delay messages from and to a host, in order."""
        world = self._world
        world.windows.append(FaultWindow("message", host, world.now_s + for_s, by_s))
        world.disturb("messages were late", for_s + by_s, host=host)
        return True

    def repeat(self, host: Host, message: Message) -> bool:
        """Send the next message of that kind, to or from the agent, twice."""
        self._world.repeats.add((message, host))
        return False

    def overtake(self, host: Host, message: Message, by_s: Seconds) -> bool:
        """Delay the next message of that kind so much that others pass it."""
        self._world.overtaken[message, host] = by_s
        self._world.disturb("a message was overtaken", inf, host=host)
        return False

    def mute(self, host: Host, direction: Direction, for_s: Seconds) -> bool:
        """Let nothing arrive in one direction; what is sent waits."""
        world, to_host = self._world, direction == "to"
        if not world.connections.mute(host, to_host=to_host):
            return False
        if (link := world.machines[host].link) is not None:
            world.env.broken_off(link)
        world.disturb("one direction was dead", for_s, host=host)
        world.after(for_s, lambda: world.connections.unmute(host, to_host=to_host))
        return True

    def evade(self, host: Host, for_s: Seconds) -> bool:
        """Let an agent report neither started jobs nor stopped ones, and go on with its heartbeats: a bug, or a lie."""
        world = self._world
        world.disturb("an agent did not answer", for_s, host=host)
        if not world.quiet:
            world.evasive[host] = world.now_s + for_s
        return not world.quiet

    def clock(self, host: Host, offset_s: Number, rate: Rate) -> bool:
        """Set the clock of a host, from its agent's next start on."""
        self._world.clocks[host] = Clock(offset_s, rate)
        return not self._world.quiet

    def step(self, host: Host, by_s: Seconds) -> bool:
        """Let the host's clock jump ahead."""
        world = self._world
        world.disturb("a clock jumped", world.protocol.lease_s, host=host)
        machine = world.machines[host]
        core = machine.core
        if not isinstance(core, SkewedAgent):
            return False
        core.clock = world.clocks[host] = Clock(core.clock.offset_s + by_s, core.clock.rate)
        if not machine.paused:
            world.arm(machine)
        return True

    # ------------------------------------------------------------ operations and disks

    def fail(self, host: AnyHost, what: Operation, for_s: Seconds, *, retry: Flag = False) -> bool:
        """Let an operation fail there for a while; with `retry`, another try may succeed."""
        world = self._world
        world.windows.append(FaultWindow(what, host, world.now_s + for_s, retryable=retry))
        world.disturb(f"a {what} failed", for_s, host=host)
        return False

    def oom(self, host: Host, job: str) -> bool:
        """Kill the job's process there as the kernel does, not its agent."""
        world = self._world
        killed = world.workloads.kill_from_outside(world.machines[host], job)
        if killed:
            world.disturb("a process was killed", 2.0 * world.protocol.restart_s, job=job)
        return killed

    def fill(self, host: Host) -> bool:
        """Fill a disk, so that it has no room for more."""
        return self._world.fill(host, full=True)

    def empty(self, host: Host) -> bool:
        """Give a full disk room again."""
        return self._world.fill(host, full=False)

    def drag(self, host: Host, by_s: Seconds, for_s: Seconds) -> bool:
        """Let each write to its disk take so much longer for a while."""
        disk = self._world.machines[host].disk
        disk.slow_s = by_s
        self._world.disturb("a disk was slow", for_s + by_s, host=host)
        self._world.after(for_s, lambda: setattr(disk, "slow_s", 0.0))
        return True

    def rot(self, host: Host, job: str) -> bool:
        """Corrupt the bytes of the job's checkpoints there; readers notice."""
        disk = self._world.machines[host].disk
        keys = [(job, sequence) for sequence in disk.stored.of(job)]
        disk.rotten.update(keys)
        if keys:
            self._world.disturb("a checkpoint was rotten", inf, host=host, job=job)
        return bool(keys)

    def spoil(self, host: Host, job: str) -> bool:
        """Lose the job's checkpoints there without a message."""
        store = self._world.machines[host].store
        keys = [(job, sequence) for sequence in store.of(job)]
        for key in keys:
            del store[key]
        if keys:
            self._world.disturb("a checkpoint was gone", inf, host=host, job=job)
        return bool(keys)

    def stale(self, host: Host, after_s: Seconds) -> bool:
        """Crash the host after a while, with its disk as it is now."""
        world = self._world
        world.disturb("a disk was stale", inf, host=host)
        disk = world.machines[host].disk
        before = dict(disk.stored)

        def lose() -> None:
            world.crash(host)
            disk.stored = StoredCheckpoints(before)
            disk.partial.clear()

        world.after(after_s, lose)
        return True

    def upon(self, step: str, host: AnyHost, verb: str, *words: str, after: Seconds = 0.0) -> bool:
        """Do an action when a message, a fact or an agent's event of that name happens to a host."""
        world, action = self._world, Line(0.0, verb, words)

        def act(it: str) -> None:
            world.noticed(f"upon {step}")
            world.after(after, partial(later, it))

        def later(it: str) -> None:
            if not world.is_calm:
                perform(world, action, it)

        world.triggers.append(Trigger(step, host, act))
        return False


VERBS = {name.strip("_"): name for name in vars(Actions) if name[0] != "_"}
SIGNATURES = {verb: signature(partial(getattr(Actions, name), None), eval_str=True) for verb, name in VERBS.items()}
