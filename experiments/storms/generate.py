"""Draw a storm from one number: a record of options, and from it a script of jobs, owners and faults.

Storms are a swarm (Groce and others, 2012): each has half of all kinds of faults, so that one kind cannot hide another.
A kind of fault is a text. Its lines are separated by `/`, and a line may begin with a delay:

    A|B        one of these words; `-` is no word
    A~B        a number between these
    +A+B       so many seconds after the fault begins, all parts added
    JOB HOST ... the same name wherever the text has it (`_Names`)

A part of the faults begin at a time, the others upon a step of the protocol.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controller.core.policies.overrides import with_overrides
from controller.core.policies.table import LEARNERS, POLICIES, row_of
from experiments.storms.script import Line, Script
from experiments.storms.setup import campus_line
from topologies.paths import junctions
from topologies.spec import Campus, Role

STORM_S = 30.0
SUBMIT_S = 20.0
JOB_WORDS = "@>^"  # where a job is, moves to, and has its standby
# the class of checkpoints is drawn for every row: rows that are nothing but a class are left out
# one decision each: every promise has to be kept without it, too
ABLATIONS = (
    "vault=false",
    "takes_up=false",
    "short_notices=false",
    "recoveries_first=false",
    "weighs_speed=false",
    "weighs_calendars=false",
    "plan=no-p1",
    "standby=reclaimnet-as-printed",
    "admit=reclaimnet-as-printed",
    "admit=no-tc-bpf",
)
ROWS = (
    *(name for name in POLICIES if name != "share"),  # any other row may be drawn without borrowing
    *(f"reclaimnet+{each}" for each in ABLATIONS),
)
RESERVING = tuple(name for name in ROWS if row_of(name).reserves_rates)

FACTS = "MigrationAdmitted|JobDispatched|JobStopped|CheckpointCompleted|MigrationDegraded|HostReclaimed"
LOCAL = "SnapshotDone|CheckpointReceived|WorkloadStarted|SendEnded|SnapshotFailed|Disconnected"
ORDERS = "StartJob|Migrate|StopJob|Protect|SendStored|CancelTransfers|Forget"
REPORTS = "JobStarted|SnapshotTaken|CheckpointStored|TransferEnded|JobEnded|OwnerReclaims|OwnerReturns"
MESSAGES = f"{ORDERS}|{REPORTS}|Hello|Welcome"
REPEATED = f"{ORDERS}|{REPORTS}|CheckpointStored|Grant|Unprotect"
DOWN = "0.01|0.3|1.5|4"

# kind -> (weight, text)
FAULTS: dict[str, tuple[int, str]] = {
    # processes and machines
    "agent killed": (3, "kill HOST 0.004|0.5|5 / +0.01|0.3|2|6 start"),
    "agents killed together": (1, "kill NEIGHBOURS / +1|4 start"),
    "host crashed": (1, "crash HOST / +0.01|0.3|2|6 start"),
    "disk rolled back": (1, "stale HOST 0.5|3|8 / +9 start"),
    "agent paused": (2, "pause HOST 0.1|1|1.9|2.1|5"),
    "agent evasive": (1, "evade NAME 1|8|90"),
    "process killed": (2, f"upon {FACTS}|{LOCAL}|JobRunning * after=0|0.01|0.1|0.3 oom it|@JOB|>JOB JOB"),
    "process killed in its start": (1, "upon StartJob * after=0.05|0.2|0.4 oom it JOB"),
    "process killed at a time": (1, "oom @JOB JOB"),
    # the coordinator
    "coordinator restarted": (3, f"restart {DOWN}"),
    "journal torn": (1, f"tear {DOWN}"),
    "coordinator frozen": (1, "freeze 0.1|1|2.1|5"),
    "coordinator usurped": (1, "usurp 0.3|1.5|3|8"),
    # connections and messages
    "connection cut": (3, "cut HOST 0|0.1|1|4 0|0.1|1|4"),
    "connection half open": (2, "pause @JOB 3|6 / +0|0.2|1 cut @JOB 0 0"),
    "order lost": (2, "upon Grant|Expect|SendStored|Unprotect|CancelTransfers|Forget * cut it 0|0.1|1 0|0.1"),
    "messages late": (2, "late NAME|* 0.05|0.4|1|1.9 0.1|1|5"),
    "message overtaken": (2, f"overtake NAME {REPEATED} 0.01|0.1|1"),
    "message repeated": (2, f"repeat NAME {REPEATED}"),
    "one direction dead": (2, "mute HOST to|from 0.3|1.5|2.5|6"),
    "start overtaken by its owner": (
        2,
        "overtake OWNED StartJob 0.3|1 / upon JobDispatched OWNED after=0.1 reclaim it / +0.5~6 return *",
    ),
    # the network
    "cable slow or down": (3, "link LINK 0|0|0.1|0.3|0.5 0.3|1.5|4|10"),
    "trunk down": (4, "link TRUNK 0 0.05|0.5|3|10"),
    "trunk drained": (2, "drain TRUNK / +0.005|0.05|1 link TRUNK 0 0.05|0.5|3|10"),
    # operations, disks, clocks
    "operation fails": (3, "fail NAME|* sending|snapshot|workload 0.3|2|6 retry=1|-"),
    "sending fails as a job moves": (4, "upon MigrationAdmitted|JobStopped * fail * sending 0.5|2 retry=1"),
    "disk full": (1, "fill NAME / +1|5|15 empty NAME"),
    "disk slow": (1, "drag HOST 0.05|0.5|3 1|5"),
    "checkpoints gone": (1, "spoil ^JOB|^JOB|@JOB|>JOB JOB"),
    "checkpoints rotten": (1, "rot ^JOB|^JOB|@JOB|>JOB JOB"),
    "clock jumps": (1, "step NAME 0.1|1.9|60|1e6"),
    # users and owners
    "job cancelled": (1, "cancel JOB"),
    "job cancelled as its host ends": (
        1,
        "upon CancelOrdered * after=0|0.002|0.05 kill|reclaim|cut it / cancel JOB / +1~8 start / +1~8 return *",
    ),
    "job submitted again": (1, "submit JOB"),
    "owner at once": (3, "reclaim OWNER / +0.05~8 return *"),
    "owner with notice": (9, "reclaim @JOB|OWNER NOTICE grace=1|- / +NOTICE+-0.5~6 return *"),
    "owner changes the notice": (2, "reclaim OWNED 1|4 / +0.5 reclaim OWNED 0|0.3|5 / +2~9 return OWNED"),
    "owner flaps": (2, "reclaim OWNED 0|0.2|3 / +0~0.4 return OWNED / +0.4 reclaim OWNED 0|3 / +0.4~0.8 return OWNED"),
    "all owners": (1, "+0~0.3 reclaim OWNERS 0|2 / +3~6 return OWNERS"),
    "owners of a building": (1, "reclaim BUILDING NOTICE / +NOTICE+0.1~8 return BUILDING"),
}
# a world that leaves out what can change nothing sends no heartbeats, so nothing is done to its messages
LOUD = {
    *("coordinator frozen", "coordinator usurped", "messages late", "message overtaken", "message repeated"),
    *("one direction dead", "clock jumps", "start overtaken by its owner", "order lost", "agent evasive"),
}
GENTLE = ("owner with notice", "owners of a building")
# faults of these verbs may begin upon a step of the protocol, the others at a time
STRUCK = {
    *("kill", "crash", "pause", "cut", "reclaim", "fail", "restart", "link", "drain", "cancel"),
    *("mute", "usurp", "freeze"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a storm, drawn before any line of it."""

    seed: int
    campus: Mapping[str, str]
    settings: Mapping[str, str]
    jobs: int
    # steps of a job are drawn between these
    steps: tuple[int, int]
    # seconds that owners give
    notices_s: tuple[float, ...]
    # number of faults, and the kinds of which each is
    faults: int
    kinds: tuple[str, ...]
    # probability that a fault begins upon a step of the protocol
    upon: float
    # clocks of hosts have offsets and drifts
    skewed: bool
    # none, research (greedy, measured against its reserve), or background (others' traffic that comes and goes)
    traffic: str


def options_of(seed: int, *, campus_file: str | None = None, policy: str | None = None) -> Options:
    """Draw the options of a storm; `campus_file` and `policy`, if given, replace a drawn campus and row."""
    rng = random.Random(f"storm {seed}")
    quiet, gentle = rng.random() < 0.2, rng.random() < 0.4
    campus = {"seed": str(seed)}
    campus |= {"file": campus_file} if campus_file is not None else _drawn_campus(rng)
    if quiet:
        campus["quiet"] = "1"
    if rng.random() < 0.1 and not gentle:
        campus["enforcement"] = rng.choice(["drop", "none"])
    if rng.random() < 0.7:
        campus["switch_s"] = "0.1"
    settings = {
        "policy": policy or rng.choice(["reclaimnet", rng.choice(RESERVING if gentle else ROWS)]),
        "spare_gpus": rng.choice("0001"),
        "level_start": rng.choice(["0.5", "1", "3"]),
        "offer_ttl_s": "inf" if gentle else rng.choice(["inf", "inf", "4", "0"]),
    }
    if rng.random() < 0.3:
        settings["learner"] = rng.choice(sorted(LEARNERS))
    if rng.random() < 0.3:
        settings["k_min"] = "1"
    if policy is None and rng.random() < 0.35:
        settings["policy"] = with_overrides(settings["policy"], {"borrows": False})
    kinds = [kind for kind in FAULTS if rng.random() < 0.5 and not (quiet and kind in LOUD)]
    return Options(
        seed,
        campus,
        settings,
        rng.randint(2, 16),
        (150, 400) if gentle else rng.choice([(5, 60), (60, 200), (5, 200)]),
        (4.0, 8.0, 12.0, 20.0) if gentle else (0.3, 1.0, 3.0, 5.0, 8.0, 12.0),
        rng.choice([3, 5, 8] if gentle else [4, 10, 25, 50]),
        GENTLE if gentle and rng.random() < 0.5 else tuple(dict.fromkeys((*kinds, "owner with notice"))),
        0.0 if gentle else rng.choice([0.1, 0.5, 0.9]),
        not quiet and rng.random() < 0.5,
        rng.choice(["none", "none", "research", "background"]),
    )


def _drawn_campus(rng: random.Random) -> dict[str, str]:
    hosts = rng.choice([2, 3, 3, 4, 5, 5, 6, 7, 8, 10, 14, 20])
    campus = {
        "hosts": str(hosts),
        "buildings": str(rng.randint(1, min(5, hosts))),
        "slots": rng.choice("124"),
        "mix": rng.choice(["one", "small", "small", "paper"]),
        "beta": rng.choice(["0.3", "0.3", "0.1", "0.6"]),
    }
    # several paths: uplinks carry little more than one host, and migrations share them
    if rng.random() < 0.15:
        return campus | {"spines": rng.choice("223"), "on_demand": "0", "uplink_mb": rng.choice(["4", "6", "12", "20"])}
    on_demand = rng.choice("0112")
    leave = {"leave": rng.choice("28")} if on_demand != "0" and rng.random() < 0.1 else {}
    return campus | {"on_demand": on_demand, "uplink_mb": rng.choice(["8", "20", "40"])} | leave


def generate(seed: int, *, campus_file: str | None = None, policy: str | None = None) -> Script:
    """Draw the storm of a seed."""
    return script_of(options_of(seed, campus_file=campus_file, policy=policy))


def script_of(options: Options) -> Script:
    """Draw the lines of a storm with these options."""
    ground = Script((), options.campus, options.settings, (f"storm {options.seed}",))
    rng, campus = random.Random(f"lines {options.seed}"), campus_line(ground).campus()
    jobs = [f"j{n}" for n in range(min(options.jobs, 2 * len(campus.hosts)))]
    names = _Names(rng, campus, jobs, options.notices_s)
    lines = [*_arrivals(options, names), *_traffic(options, names)]
    weights = [FAULTS[kind][0] for kind in options.kinds]
    for kind in rng.choices(options.kinds, weights, k=options.faults):
        names.meant = {}
        lines += _fault(options, names, FAULTS[kind][1])
    return ground.with_lines(lines)


# ---------------------------------------------------------------- what there is without any fault


def _arrivals(options: Options, names: _Names) -> Iterator[Line]:
    rng = names.rng
    for host in names.hosts:
        if options.skewed:
            offset_s = rng.choice([-1e4, 0.0, 3e5, 1e7]) + rng.uniform(0, 9)
            yield _line(0.0, "clock", host, offset_s, 1.0 + rng.choice([-0.03, -0.001, 0.0, 0.001, 0.03]))
        yield _line(rng.uniform(0.0, 0.5), "start", host)
    scale = names.access_bytes_per_s / 10e6
    for job in names.jobs:
        words = {
            "steps": rng.randint(*options.steps),
            "payload": int(rng.choice([100_000, 2_000_000, 8_000_000, 30_000_000]) * scale),
            "draw": round(0.999 * rng.random(), 3),
            "budget": rng.choice([3, 10, 900]),
        } | ({"memory": 30e9} if rng.random() < 0.15 else {})
        yield _line(rng.uniform(0.0, SUBMIT_S), "submit", job, *(f"{k}={_word(v)}" for k, v in words.items()))


def _traffic(options: Options, names: _Names) -> Iterator[Line]:
    rng = names.rng
    if options.traffic == "none" or len(names.hosts) < 2:
        return
    source, target = rng.sample(names.hosts, 2)
    if options.traffic == "research":
        yield _line(rng.uniform(0.0, 5.0), "research", source, target)
        return
    for _ in range(rng.randint(2, 8)):
        rate = names.access_bytes_per_s * rng.choice([0.0, 0.2, 0.5, 1.0])
        yield _line(rng.uniform(0.0, STORM_S), "background", source, target, rate)


# ---------------------------------------------------------------- faults


@dataclass
class _Names:
    """Names in a storm, and the meaning of the words in capitals of one fault."""

    rng: random.Random
    campus: Campus
    jobs: list[str]
    notices_s: tuple[float, ...]
    meant: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = [host.name for host in self.campus.hosts if host.role is not Role.COORDINATOR]
        self.owned = [host.name for host in self.campus.hosts if host.role is Role.VOLUNTEER]
        inner = set(junctions(self.campus))
        self.links = [(link.a, link.b) for link in self.campus.links]
        self.trunks = [ends for ends in self.links if inner.issuperset(ends)] or self.links
        self.access_bytes_per_s = self.campus.access_link(self.owned[0]).rate_bytes_per_s

    def of(self, word: str) -> list[str]:
        """Return the words that one in capitals stands for; several are a line each, but for the ends of a cable."""
        if word not in self.meant:
            self.meant[word] = self._drawn(word)
        return self.meant[word]

    def _drawn(self, word: str) -> list[str]:
        rng = self.rng
        match word:
            case "JOB":
                return [rng.choice(self.jobs)]
            case "NAME":
                return [rng.choice(self.hosts)]
            case "OWNED":
                return [rng.choice(self.owned)]
            case "HOST" | "OWNER":  # often one that has to do with a job
                there = self.hosts if word == "HOST" else self.owned
                about = rng.choice("@" + JOB_WORDS) + rng.choice(self.jobs)
                return [about if rng.random() < 0.4 else rng.choice(there)]
            case "NOTICE":
                return [_word(rng.choice(self.notices_s))]
            case "LINK" | "TRUNK":
                return [" ".join(rng.choice(self.links if word == "LINK" else self.trunks))]
            case "NEIGHBOURS":  # whose agents share a process
                first = rng.randrange(len(self.hosts))
                return self.hosts[first : first + rng.choice([2, 3, 5])]
            case "BUILDING":
                building = rng.choice(self.campus.buildings).name
                return [name for name in self.owned if self.campus.host_by_name[name].building == building]
            case "OWNERS":
                return self.owned
        return [word]


def _fault(options: Options, names: _Names, text: str) -> Iterator[Line]:
    """Draw the lines of a fault."""
    begins_s = names.rng.uniform(0.5, STORM_S)
    struck = names.rng.random() < options.upon
    for number, written in enumerate(text.split(" / ")):
        words = written.split()
        delay = words.pop(0) if words[0][0] == "+" else ""
        plural = next((word for word in words if word in ("NEIGHBOURS", "BUILDING", "OWNERS")), "")
        for name in names.of(plural):
            after_s = sum(float(_chosen(names, part)) for part in delay[1:].split("+") if delay)
            said = [name if word == plural else _chosen(names, word) for word in words]
            said = [part for word in said if word != "-" for part in word.split()]
            if struck and number == 0 and said[0] in STRUCK and not plural:
                said = _upon(options, names, said)
                after_s += 1.0  # what follows it comes later, when it has happened
            yield _line(begins_s + after_s, *said)


def _upon(options: Options, names: _Names, said: list[str]) -> list[str]:
    """Let a fault wait for a step of the protocol; most often its host is the one that the step happens to."""
    rng, steps = names.rng, f"{FACTS}|{LOCAL}" if "quiet" in options.campus else f"{FACTS}|{LOCAL}|{MESSAGES}"
    whom = rng.choice(["*", "*", rng.choice(names.hosts)])
    after = [] if rng.random() < 0.6 else [f"after={rng.choice(['0.002', '0.01', '0.1', '0.5'])}"]
    if (
        said[0] not in ("link", "drain")
        and len(said) > 1
        and (said[1][0] in JOB_WORDS or said[1] in names.hosts)
        and rng.random() < 0.6
    ):
        said = [said[0], "it", *said[2:]]
    return ["upon", rng.choice(steps.split("|")), whom, *after, *said]


def _chosen(names: _Names, word: str) -> str:
    """Choose one of the alternatives of a word, draw a number of a range, and put names in the place of capitals."""
    key, equals, rest = word.rpartition("=") if "=" in word.split("|")[0] else ("", "", word)
    chosen = names.rng.choice(rest.split("|"))
    if chosen == "-":
        return "-"
    low, tilde, high = chosen.partition("~")
    if tilde:
        chosen = _word(round(names.rng.uniform(float(low), float(high)), 3))
    mark = chosen[0] if chosen[0] in JOB_WORDS else ""
    return f"{key}{equals}{mark}{names.of(chosen[len(mark) :])[0]}"


def _line(at_s: float, verb: str, *words: object) -> Line:
    return Line(round(max(0.0, at_s), 3), verb, tuple(map(_word, words)))


def _word(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
