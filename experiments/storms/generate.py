"""From a seed to a script: a campus, settings, jobs, owners and faults, all drawn from one stream, written as text.

Half of the faults come at a time, half upon an occurrence: somewhere between two steps of the protocol, where bugs are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from controller.core.policies.table import LEARNERS, POLICIES
from experiments.storms.script import Line, Script
from experiments.storms.setup import ground_of
from topologies.paths import junctions
from topologies.spec import Campus, CheckpointClass, Role

RESEARCH_SHARE = 0.5  # of storms: traffic that is not ours
STORM_S = 30.0
SUBMIT_S = 20.0
STEP_S = 0.1  # of all jobs
MOST_HOSTS = 20
QUIET_SHARE = 0.2  # of storms: what can change nothing is left out, as in runs over months
SKEWED_SHARE = 0.5
FORGETFUL_SHARE = 0.2  # of storms that are not gentle: the coordinator's journal is cut
# the class of checkpoints is drawn for each of these: rows that are nothing but a class are left out, as are those that came
# later, so that storms stay as they are
LATER = {"no-deadlines", "one-by-one", "moves-ahead"}
DRAWN = tuple(name for name in POLICIES if name not in {*CheckpointClass, *LATER})
RESERVING = tuple(name for name in DRAWN if POLICIES[name].reserves_rates)
SCAVENGER_SHARE, SHARE_SHARE = 0.4, 0.3  # of storms: checkpoints are below research, or within the share
GENTLE_SHARE = 0.4  # of storms: long notices and few faults, so that most admissions have to be in time
EVASIVE_SHARE = 0.2  # of storms that are neither quiet nor gentle: an agent does not answer
DATED_SHARE = 0.5  # of storms with on-demand hosts: half of the jobs have deadlines
CANCEL_SHARE = 0.25  # of storms: users cancel jobs
MESSAGES = (
    "StartJob",
    "JobStarted",
    "Migrate",
    "SnapshotTaken",
    "CheckpointStored",
    "SendStored",
    "TransferEnded",
    "Hello",
    "Welcome",
    "JobEnded",
    "StopJob",
    "Protect",
    "OwnerReclaims",
    "OwnerReturns",
    "CancelTransfers",
    "Forget",
)
# Messages that are said twice, or that later ones overtake.
TWICE = (
    *(name for name in MESSAGES if name not in ("Hello", "Welcome")),
    "CheckpointStored",
    "Grant",
    "Unprotect",
)
MOVES = (
    "Migrate",
    "SnapshotTaken",
    "SnapshotDone",
    "CheckpointReceived",
    "CheckpointStored",
    "SendEnded",
    "SendStored",
)
FACTS = ("MigrationAdmitted", "JobDispatched", "JobStopped", "CheckpointCompleted", "MigrationDegraded")
LOCAL = (
    "SnapshotDone",
    "CheckpointReceived",
    "WorkloadStarted",
    "SendEnded",
    "SnapshotFailed",
    "Disconnected",
)


class _Draft:
    """Lines, as they are drawn."""

    def __init__(
        self, rng: random.Random, campus: Campus, jobs: Sequence[str], *, quiet: bool, gentle: bool
    ) -> None:
        self.rng, self.campus, self.quiet, self.gentle = rng, campus, quiet, gentle
        self.hosts = [host.name for host in campus.hosts if host.role is not Role.COORDINATOR]
        self.owned = [host.name for host in campus.hosts if host.role is Role.VOLUNTEER]
        self.links = [(link.a, link.b) for link in campus.links]
        self.jobs = jobs
        self.lines: list[Line] = []

    def say(self, at_s: float, *words: object) -> None:
        """A line at that time."""
        verb, *rest = [_word(word) for word in words]
        self.lines.append(Line(round(max(0.0, at_s), 3), verb, tuple(rest)))

    def host(self) -> str:
        """Any host, or where a job is, moves to, or keeps its checkpoints."""
        return self._some(self.hosts)

    def owner(self) -> str:
        """A volunteer, or where a job is, moves to, or keeps its checkpoints (nothing happens on a host without an owner)."""
        return self._some(self.owned)

    def _some(self, names: Sequence[str]) -> str:
        rng = self.rng
        return rng.choice("@@>^") + rng.choice(self.jobs) if rng.random() < 0.4 else rng.choice(names)


def generate(
    seed: int,
    *,
    campus_file: str | None = None,
    policy: str | None = None,
    trunks: bool = False,
) -> Script:
    """The storm of a seed, on a random campus or the one of a file, under a random row of the policies or this one.

    `trunks`: a random campus has several paths, and on any that
    has, trunks die and come back.
    """
    rng = random.Random(f"storm {seed}")
    quiet, gentle = rng.random() < QUIET_SHARE, rng.random() < GENTLE_SHARE
    where = _campus(rng, seed, campus_file, quiet=quiet, gentle=gentle)
    # its stream is its own: other storms stay as they are
    at, given = random.Random(f"class {seed}").random(), dict[str, str]()
    if policy is None and at < SCAVENGER_SHARE:
        given = {"checkpoint_class": CheckpointClass.SCAVENGER.value}
    elif policy is None and at < SCAVENGER_SHARE + SHARE_SHARE:
        given = {"checkpoint_class": CheckpointClass.SHARE.value}
    script = Script(
        (),
        _mesh(where) if trunks and campus_file is None else where,
        _settings(rng, policy, gentle=gentle) | given,
        {"switch_s": "0,0.1"} if rng.random() < 0.7 else {},
        (f"storm {seed}",),
    )
    campus = ground_of(script).campus
    most_jobs = max(4, min(16, len(campus.hosts) if gentle else 2 * len(campus.hosts)))
    draft = _Draft(
        rng, campus, [f"j{n}" for n in range(rng.randint(2, most_jobs))], quiet=quiet, gentle=gentle
    )
    _plan_clocks(draft)
    _plan_arrivals(draft)
    _plan_research(draft)
    if gentle:
        for owner in rng.sample(draft.owned, min(len(draft.owned), rng.randint(3, 8))):
            # time enough to move a job; the owner returns some time after it has come
            at_s, notice_s = rng.uniform(5.0, STORM_S), rng.choice([4.0, 8.0, 12.0, 20.0])
            draft.say(at_s, "reclaim", owner, notice_s, *(["grace=1"] if rng.random() < 0.5 else []))
            draft.say(at_s + notice_s + rng.uniform(0.1, 8.0), "return", owner)
    drawn = [plan for plan, how in FAULTS.items() for _ in range(how.weight) if not (quiet and how.is_loud)]
    for _ in range(rng.choice([0, 0, 1, 3] if gentle else [4, 10, 25, 50])):
        rng.choice(drawn)(draft, rng.uniform(0.5, STORM_S))
    _plan_forgetting(draft, random.Random(f"forget {seed}"), gentle=gentle)
    _plan_cancels(draft, random.Random(f"cancel {seed}"))
    if not quiet and not gentle:
        _plan_evasions(draft, random.Random(f"evade {seed}"))
    if trunks:
        _plan_trunks(draft, random.Random(f"trunks {seed}"))
    if any(host.role is Role.ON_DEMAND for host in campus.hosts):
        _give_deadlines(draft, random.Random(f"deadlines {seed}"))
    draft.lines.sort(key=lambda line: line.at_s)
    return script.with_lines(draft.lines)


# ---------------------------------------------------------------- ground


def _campus(
    rng: random.Random, seed: int, campus_file: str | None, *, quiet: bool, gentle: bool
) -> dict[str, str]:
    options = {"seed": str(seed)}
    if quiet:
        options["quiet"] = "1"
    if rng.random() < 0.1 and not gentle:
        options["enforcement"] = rng.choice(["drop", "none"])
    leave = {"leave": _word(rng.choice([2.0, 8.0]))} if rng.random() < 0.1 else {}
    if campus_file is not None:
        return {"file": campus_file, **options}
    on_demand = rng.choice([0, 1, 1, 2])
    hosts = rng.choice([2, 3, 3, 4, 5, 5, 6, 7, 8, 10, 14, MOST_HOSTS])
    return {
        "hosts": str(hosts),
        "on_demand": str(on_demand),
        "buildings": str(rng.randint(1, min(5, hosts))),
        "slots": str(rng.choice([1, 2, 4])),
        "mix": rng.choice(["one", "small", "small", "paper"]),
        "uplink_mb": str(rng.choice([8, 20, 40])),
        "beta": _word(rng.choice([0.3, 0.3, 0.1, 0.6])),
        **(leave if on_demand else {}),  # to where?
        **options,
    }


def _mesh(options: dict[str, str]) -> dict[str, str]:
    """The same campus, with two or three uplinks a building in place of one. Its stream is its own."""
    rng = random.Random(f"mesh {options['seed']}")
    # uplinks that carry little more than one host: they are what migrations share
    mesh = {
        "spines": str(rng.choice([2, 2, 3])),
        "uplink_mb": str(rng.choice([4, 6, 12, 20])),
        "on_demand": "0",
    }
    return {key: value for key, value in options.items() if key != "leave"} | mesh


def _settings(rng: random.Random, policy: str | None, *, gentle: bool) -> dict[str, str]:
    options = {
        "policy": policy or rng.choice(["reclaimnet", *(RESERVING if gentle else DRAWN)]),
        "spare_gpus": str(rng.choice([0, 0, 0, 1])),
        "level_start": _word(rng.choice([0.5, 1.0, 3.0])),
        "offer_ttl_s": _word(inf if gentle else rng.choice([inf, inf, 4.0, 0.0])),
    }
    if rng.random() < 0.3:
        options["learner"] = rng.choice(sorted(LEARNERS))
    if rng.random() < 0.3:
        options["k_min"] = "1"
    return options


# ---------------------------------------------------------------- what happens


def _plan_clocks(draft: _Draft) -> None:
    rng = draft.rng
    if draft.quiet or rng.random() >= SKEWED_SHARE:
        return
    for host in draft.hosts:
        draft.say(
            0.0,
            "clock",
            host,
            round(rng.choice([-1e4, 0.0, 3e5, 1e7]) + rng.uniform(0, 9), 3),
            1.0 + rng.choice([-0.03, -0.001, 0.0, 0.001, 0.03]),
        )


def _plan_arrivals(draft: _Draft) -> None:
    rng = draft.rng
    late = rng.random() < 0.2
    for name in draft.hosts:
        draft.say(rng.uniform(0.0, 8.0 if late else 0.5), "start", name)
    scale = draft.campus.access_link(draft.owned[0]).rate_bytes_per_s / 10e6
    for name in draft.jobs:
        size = int(rng.choice([100_000, 2_000_000, 8_000_000, 30_000_000]) * scale)
        steps = (
            rng.randint(150, 400) if draft.gentle else rng.choice([rng.randint(5, 60), rng.randint(60, 200)])
        )
        options = {"steps": steps, "payload": size, "draw": round(0.999 * rng.random(), 3)}
        options["budget"] = rng.choice([3, 10, 900])
        if rng.random() < 0.15:
            options["memory"] = 30e9
        draft.say(
            rng.uniform(0.0, 0.3 * SUBMIT_S if draft.gentle else SUBMIT_S),
            "submit",
            name,
            *(f"{k}={_word(v)}" for k, v in options.items()),
        )


def _plan_research(draft: _Draft) -> None:
    """Greedy research, measured against its reserve, or others' traffic that comes and goes (both at once would share it)."""
    rng = draft.rng
    if rng.random() >= RESEARCH_SHARE or len(draft.hosts) < 2:
        return
    source, target = rng.sample(draft.hosts, 2)
    if rng.random() < 0.5:
        draft.say(rng.uniform(0.0, 5.0), "research", source, target)
        return
    for _ in range(rng.randint(2, 8)):
        rate = draft.campus.access_link(source).rate_bytes_per_s * rng.choice([0.0, 0.2, 0.5, 1.0])
        draft.say(rng.uniform(0.0, STORM_S), "background", source, target, rate)


def _plan_forgetting(draft: _Draft, rng: random.Random, *, gentle: bool) -> None:
    """The coordinator begins again from a journal whose end was cut off. Its stream is its own: other storms stay as they are."""
    if gentle or rng.random() >= FORGETFUL_SHARE:
        return
    for _ in range(rng.choice([1, 1, 2])):
        events, down_s = rng.choice([1, 3, 10, 30, 100, 1000]), rng.choice([0.01, 0.3, 1.5, 4.0])
        at_s = rng.uniform(2.0, STORM_S)
        upon = rng.choice(
            ["", "JobDispatched", "StartJob", "JobRunning", "MigrationAdmitted", "SnapshotDone"]
        )
        when = ["upon", upon, "*", f"after={rng.choice([0.0, 0.1, 1.0])}"] if upon else []
        draft.say(at_s, *when, "forget", events, down_s)


def _plan_trunks(draft: _Draft, rng: random.Random) -> None:
    """Trunks die, for a while, at a time or in the middle of something; sometimes all of a building at once."""
    inner = set(junctions(draft.campus))
    trunks = [ends for ends in draft.links if inner.issuperset(ends)]
    if not trunks:
        return
    for _ in range(rng.choice([2, 4, 8, 16])):
        at_s, for_s = rng.uniform(1.0, STORM_S), rng.choice([0.05, 0.5, 3.0, 10.0])
        a, b = rng.choice(trunks)
        upon = rng.choice(["", "", *MOVES[:2], "MigrationAdmitted", "CoordinatorRestarted", "LinkChanged"])
        when = ["upon", upon, "*", f"after={rng.choice([0.0, 0.01, 0.3, 1.0])}"] if upon else []
        together = [ends for ends in trunks if a in ends] if rng.random() < 0.1 else [(a, b)]
        if rng.random() < 0.25:  # owners of a building leave at once: what is there shares its trunks
            building = rng.choice(draft.campus.buildings).name
            begin_s, notice_s = max(0.0, at_s - rng.choice([0.5, 3.0])), rng.choice([8.0, 12.0, 20.0])
            for owner in draft.owned:
                if draft.campus.host_by_name[owner].building == building:
                    draft.say(begin_s, "reclaim", owner, notice_s)
                    draft.say(begin_s + notice_s + rng.uniform(0.1, 8.0), "return", owner)
        for ends in together:
            if rng.random() < 0.5:
                draft.say(max(0.0, at_s - rng.choice([0.005, 0.05, 1.0])), *when, "drain", *ends)
            draft.say(at_s, *when, "link", *ends, 0.0, for_s)


def _give_deadlines(draft: _Draft, rng: random.Random) -> None:
    """Half of the jobs are to be finished in time. Its stream is its own: other storms stay as they are."""
    if rng.random() >= DATED_SHARE:
        return
    for n, line in enumerate(draft.lines):
        if line.verb == "submit" and "steps" in line.options and rng.random() < 0.5:
            work_s = float(line.options["steps"]) * STEP_S
            within_s = work_s * rng.choice([1.1, 1.5, 3.0]) + rng.choice([1.0, 6.0, 20.0])
            draft.lines[n] = replace(line, words=(*line.words, f"deadline={_word(round(within_s, 1))}"))


def _plan_cancels(draft: _Draft, rng: random.Random) -> None:
    """Users cancel jobs, at a time or in the middle of something. Its stream is its own: other storms stay as they are."""
    if rng.random() >= CANCEL_SHARE:
        return
    for job in rng.sample(draft.jobs, rng.randint(1, max(1, len(draft.jobs) // 2))):
        upon = rng.choice(
            [
                "",
                "",
                *FACTS,
                *LOCAL,
                "StartJob",
                "Migrate",
                "SendStored",
                "HostReclaimed",
                "CoordinatorRestarted",
            ]
        )
        when = ["upon", upon, "*", f"after={rng.choice([0.0, 0.01, 0.1, 1.0])}"] if upon else []
        at_s = rng.uniform(0.5, STORM_S)
        draft.say(at_s, *when, "cancel", job)
        if rng.random() < 0.2:
            draft.say(at_s + rng.choice([0.0, 0.05, 2.0]), "cancel", job)
        if rng.random() < 0.2:  # something happens to its host while it ends
            actions = [
                ("kill", "it"),
                ("reclaim", "it"),
                ("cut", "it", 0.1, 0.1),
                ("restart", 0.3),
                ("pause", "it", 3.0),
            ]
            draft.say(
                0.5,
                "upon",
                "CancelOrdered",
                "*",
                f"after={rng.choice([0.0, 0.002, 0.05])}",
                *rng.choice(actions),
            )
            draft.say(at_s + rng.uniform(1.0, 8.0), "start")
            draft.say(at_s + rng.uniform(1.0, 8.0), "return", "*")


def _plan_evasions(draft: _Draft, rng: random.Random) -> None:
    """An agent does not answer, sometimes for longer than it is asked. Its stream is its own: other storms stay as they are."""
    if rng.random() >= EVASIVE_SHARE:
        return
    for _ in range(rng.choice([1, 1, 2])):
        host, for_s = rng.choice(draft.hosts), rng.choice([1.0, 8.0, 90.0])
        draft.say(rng.uniform(0.5, STORM_S), "evade", host, for_s)


# ---------------------------------------------------------------- faults

Plan = Callable[[_Draft, float], None]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """How often a kind of fault is drawn; loud ones are done to messages, which a quiet world leaves out."""

    weight: int
    is_loud: bool = False


FAULTS: dict[Plan, FaultKind] = {}


def _fault(weight: int, *, is_loud: bool = False) -> Callable[[Plan], Plan]:
    def add(plan: Plan) -> Plan:
        FAULTS[plan] = FaultKind(weight, is_loud)
        return plan

    return add


@_fault(3)
def _kill(draft: _Draft, at_s: float) -> None:
    rng, host = draft.rng, draft.host()
    verb = ("crash", host) if rng.random() < 0.3 else ("kill", host, rng.choice([0.004, 0.5, 5.0]))
    draft.say(at_s, *verb)
    draft.say(at_s + rng.choice([0.01, 0.3, 2.0, 6.0]), "start")


@_fault(1)
def _pool(draft: _Draft, at_s: float) -> None:
    """The process that several agents share dies, and with it all of them and their jobs; they begin again together."""
    rng = draft.rng
    first = rng.randrange(len(draft.hosts))
    together = draft.hosts[first : first + rng.choice([2, 3, 5])]
    for host in together:
        draft.say(at_s, "kill", host, 0.004)
    draft.say(at_s + rng.choice([1.0, 4.0]), "start", *together)


@_fault(2)
def _pause(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "pause", draft.host(), draft.rng.choice([0.1, 1.0, 1.9, 2.1, 5.0]))


@_fault(3)
def _cut(draft: _Draft, at_s: float) -> None:
    late = [0.0, 0.1, 1.0, 4.0]
    draft.say(at_s, "cut", draft.host(), draft.rng.choice(late), draft.rng.choice(late))


@_fault(2)
def _half_open(draft: _Draft, at_s: float) -> None:
    """The agent of a job's host stands still; the coordinator learns that the connection is gone, the agent only later."""
    host = "@" + draft.rng.choice(draft.jobs)
    draft.say(at_s, "pause", host, draft.rng.choice([3.0, 6.0]))
    draft.say(at_s + draft.rng.choice([0.0, 0.2, 1.0]), "cut", host, 0.0, 0.0)


@_fault(2)
def _restart(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    clock = [f"clock={rng.choice([-1e9, 0.5, 3.0, 1e3, 1e6]):g}"] if rng.random() < 0.3 else []
    draft.say(at_s, "restart", rng.choice([0.01, 0.3, 1.5, 4.0]), *clock)


@_fault(1)
def _tear(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "tear", draft.rng.choice([0.01, 0.3, 1.5, 4.0]))


@_fault(1, is_loud=True)
def _usurp(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "usurp", draft.rng.choice([0.3, 1.5, 3.0, 8.0]))


@_fault(2)
def _link(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    draft.say(
        at_s,
        "link",
        *rng.choice(draft.links),
        rng.choice([0.0, 0.0, 0.1, 0.5]),
        rng.choice([0.3, 1.5, 4.0, 10.0]),
    )


@_fault(2, is_loud=True)
def _late(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    host = rng.choice([*draft.hosts, "*"])
    draft.say(at_s, "late", host, rng.choice([0.05, 0.4, 1.0, 1.9]), rng.choice([0.1, 1.0, 5.0]))


@_fault(3)
def _fail(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    what = rng.choice(["sending", "sending", "snapshot", "snapshot", "workload"])
    retry = ["retry=1"] if rng.random() < 0.5 else []
    draft.say(at_s, "fail", rng.choice([*draft.hosts, "*"]), what, rng.choice([0.3, 2.0, 6.0]), *retry)


@_fault(1)
def _fill(draft: _Draft, at_s: float) -> None:
    host = draft.rng.choice(draft.hosts)
    draft.say(at_s, "fill", host)
    draft.say(at_s + draft.rng.choice([1.0, 5.0, 15.0]), "empty", host)


@_fault(1)
def _spoil(draft: _Draft, at_s: float) -> None:
    job = draft.rng.choice(draft.jobs)
    draft.say(at_s, "spoil", draft.rng.choice("^^^@>") + job, job)


@_fault(4)
def _passing_failure(draft: _Draft, at_s: float) -> None:
    """Sendings fail for a while just when a job moves, or is to be restored elsewhere."""
    rng = draft.rng
    upon = rng.choice(["MigrationAdmitted", "MigrationAdmitted", "MigrationAdmitted", "JobStopped"])
    draft.say(at_s, "upon", upon, "*", "fail", "*", "sending", rng.choice([0.5, 2.0]), "retry=1")


@_fault(2, is_loud=True)
def _stale_order(draft: _Draft, at_s: float) -> None:
    """The order to start a job comes when its owner has taken the host, and perhaps lent it again."""
    rng, host = draft.rng, draft.rng.choice(draft.owned)
    draft.say(at_s, "overtake", host, "StartJob", rng.choice([0.3, 1.0]))
    draft.say(at_s, "upon", "JobDispatched", host, "after=0.1", "reclaim", "it")
    draft.say(at_s + rng.uniform(0.5, 6.0), "return", "*")


@_fault(2, is_loud=True)
def _lost_word(draft: _Draft, at_s: float) -> None:
    """What the coordinator says is lost with the connection that it is on."""
    rng = draft.rng
    word = rng.choice(
        ["Grant", "Grant", "Grant", "Expect", "SendStored", "Unprotect", "CancelTransfers", "Forget"]
    )
    draft.say(at_s, "upon", word, "*", "cut", "it", rng.choice([0.0, 0.1, 1.0]), rng.choice([0.0, 0.1]))


@_fault(2)
def _kill_process(draft: _Draft, at_s: float) -> None:
    """A job's process is killed from outside while it starts, runs, is copied, moves or has just arrived."""
    rng, job = draft.rng, draft.rng.choice(draft.jobs)
    upon = rng.choice(
        [*FACTS, "CheckpointTaken", "WorkloadStarted", "SnapshotDone", "JobRunning", "MigrationFinished"]
    )
    after = f"after={rng.choice([0.0, 0.01, 0.1, 0.3])}"
    draft.say(at_s, "upon", upon, "*", after, "oom", rng.choice(["it", "@" + job, ">" + job]), job)


@_fault(2)
def _oom(draft: _Draft, at_s: float) -> None:
    job, rng = draft.rng.choice(draft.jobs), draft.rng
    if rng.random() < 0.5:
        draft.say(at_s, "upon", "StartJob", "*", f"after={rng.choice([0.05, 0.2, 0.4])}", "oom", "it", job)
    else:
        draft.say(at_s, "oom", "@" + job, job)


@_fault(2, is_loud=True)
def _mute(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    draft.say(at_s, "mute", draft.host(), rng.choice(["to", "from"]), rng.choice([0.3, 1.5, 2.5, 6.0]))


@_fault(1, is_loud=True)
def _freeze(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "freeze", draft.rng.choice([0.1, 1.0, 2.1, 5.0]))


@_fault(1, is_loud=True)
def _step(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "step", draft.rng.choice(draft.hosts), draft.rng.choice([0.1, 1.9, 60.0, 1e6]))


@_fault(1)
def _loss(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    draft.say(
        at_s, "loss", *rng.choice(draft.links), rng.choice([0.003, 0.01, 0.05]), rng.choice([1.5, 4.0, 10.0])
    )


@_fault(1)
def _drag(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "drag", draft.host(), draft.rng.choice([0.05, 0.5, 3.0]), draft.rng.choice([1.0, 5.0]))


@_fault(1)
def _rot(draft: _Draft, at_s: float) -> None:
    job = draft.rng.choice(draft.jobs)
    draft.say(at_s, "rot", draft.rng.choice("^^^@>") + job, job)


@_fault(1)
def _stale(draft: _Draft, at_s: float) -> None:
    after_s = draft.rng.choice([0.5, 3.0, 8.0])
    draft.say(at_s, "stale", draft.host(), after_s)
    draft.say(at_s + after_s + draft.rng.choice([0.3, 2.0]), "start")


@_fault(2, is_loud=True)
def _overtake(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    draft.say(at_s, "overtake", rng.choice(draft.hosts), rng.choice(TWICE), rng.choice([0.01, 0.1, 1.0]))


@_fault(2, is_loud=True)
def _repeat(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "repeat", draft.rng.choice(draft.hosts), draft.rng.choice(TWICE))


@_fault(3)
def _now(draft: _Draft, at_s: float) -> None:
    draft.say(at_s, "reclaim", draft.owner())
    draft.say(at_s + draft.rng.uniform(0.05, 8.0), "return", "*")


@_fault(9)
def _notice(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    notice_s = rng.choice([0.3, 1.0, 3.0, 5.0, 8.0, 12.0])
    owner = "@" + rng.choice(draft.jobs) if rng.random() < 0.6 else draft.owner()
    draft.say(at_s, "reclaim", owner, notice_s, *(["grace=1"] if rng.random() < 0.5 else []))
    draft.say(at_s + notice_s + rng.uniform(-0.5, 6.0), "return", "*")


@_fault(2)
def _flap(draft: _Draft, at_s: float) -> None:
    rng, owner = draft.rng, draft.rng.choice(draft.owned)
    for turn in range(rng.randint(2, 5)):
        begin_s = at_s + 0.4 * turn
        draft.say(begin_s, "reclaim", owner, rng.choice([0.0, 0.2, 3.0]))
        draft.say(begin_s + rng.uniform(0.0, 0.4), "return", owner)


@_fault(1)
def _everybody(draft: _Draft, at_s: float) -> None:
    rng = draft.rng
    for owner in draft.owned:
        draft.say(at_s + rng.uniform(0.0, 0.3), "reclaim", owner, rng.choice([0.0, 2.0]))
        draft.say(at_s + rng.uniform(3.0, 6.0), "return", owner)


@_fault(2)
def _again(draft: _Draft, at_s: float) -> None:
    rng, owner = draft.rng, draft.rng.choice(draft.owned)
    draft.say(at_s, "reclaim", owner, rng.choice([1.0, 4.0]))
    draft.say(at_s + 0.5, "reclaim", owner, rng.choice([0.0, 0.3, 5.0]))
    draft.say(at_s + rng.uniform(2.0, 9.0), "return", owner)


@_fault(1)
def _submit_again(draft: _Draft, at_s: float) -> None:
    """Submit a job again, as after an answer that was lost."""
    draft.say(at_s, "submit", draft.rng.choice(draft.jobs))


@_fault(12)
def _upon(draft: _Draft, at_s: float) -> None:
    """Something happens to a host in the middle of something else."""
    rng = draft.rng
    kinds: tuple[str, ...] = (*FACTS, *LOCAL) if draft.quiet else (*FACTS, *LOCAL, *MESSAGES)
    after = [] if rng.random() < 0.6 else [f"after={rng.choice([0.002, 0.01, 0.1, 0.5])}"]
    kinds = MOVES if rng.random() < 0.4 and not draft.quiet else kinds
    host = rng.choice(["*", "*", rng.choice(draft.hosts)])
    whom = "it" if rng.random() < 0.6 else draft.host()
    actions: list[tuple[object, ...]] = [
        ("kill", whom, rng.choice([0.004, 0.5])),
        ("crash", whom),
        ("pause", whom, rng.choice([0.1, 1.0, 2.1])),
        ("cut", whom, rng.choice([0.0, 0.1, 1.0]), rng.choice([0.0, 0.1, 1.0])),
        ("reclaim", whom),
        ("reclaim", whom, rng.choice([0.3, 1.0, 3.0])),
        ("return", whom),
        ("fail", whom, rng.choice(["sending", "snapshot", "workload"]), 1.0),
    ]
    actions += [("restart", rng.choice([0.01, 1.0]))] * 2
    draft.say(at_s, "upon", rng.choice(kinds), host, *after, *rng.choice(actions))
    back_s = at_s + rng.uniform(1.0, 8.0)
    draft.say(back_s, "start")
    draft.say(back_s, "return", "*")


def _word(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
