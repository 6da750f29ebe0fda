"""Checkpoints below research, live: what research loses to them in each second, and how much of what it leaves they use.

    r1..r3, slow, p1, p2 -- s1 ==== trunk ==== s2 -- q (research), d (checkpoints)

Three campuses stand side by side and take turns: one whose ports serve checkpoints after research (`checkpoint_class =
"scavenger"`), one in which they may borrow what research leaves of its reserve ("borrow"), one in which they are within the
migration share. Strangers send as fast as TCP goes (CUBIC, unpaced): three over
the whole trunk; one whose own cable carries two fifths of it; one that sends for three seconds and is silent for three; one that
sends half a megabyte, waits a tenth of a second, and sends again. In each trial research is alone first; then p1 and p2 send
checkpoints as well, with the grants that the coordinator would give of a trunk of which nothing was told: half each of all that
the trunk has, or of the share.

Each second with checkpoints is set against the mean of the seconds without that have the same place in the strangers' rhythm.
How far seconds without checkpoints are from that mean is said beside it: no second with can be told nearer than that. Beside
checkpoints that may borrow research is to keep its reserve, which is what it keeps beside those within the share. What
checkpoints use is their class's count on the trunk, over what the trunk has and research did not take; it is asked where
research leaves a tenth or more.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from mininet.log import setLogLevel
from rich import box
from rich.table import Table

from bpf.maps import HostMaps
from controller.core.model.cluster import LEAST_FALL
from experiments.benchmarks.attacks import CHUNK, connected, greedy_tcp
from experiments.benchmarks.goals import JudgedFigure
from experiments.benchmarks.one_trunk import WINDOW_S, one_trunk, play
from experiments.benchmarks.results import machine, write_result
from testbed.emulation.campus import LiveCampus
from testbed.emulation.description.shaping import CHECKPOINT_CLASS, MIGRATION_CLASS, RESEARCH_CLASS
from testbed.emulation.fidelity import FidelityMonitor
from testbed.emulation.processes import ForkRequest
from testbed.enforcement import FlowGuard, choose_congestion, payload_rate, set_aggregate, smooth_pacing
from topologies.spec import (
    Campus,
    CheckpointClass,
    ResearchReserve,
    TrafficClass,
)
from topologies.units import MBIT_PER_S

TRUNK = 200 * MBIT_PER_S
ACCESS, SLOW = 250 * MBIT_PER_S, 0.4 * TRUNK
RESERVE = ResearchReserve(beta=0.3)
STRANGERS, SLOW_STRANGER, PROVIDERS = ("r1", "r2", "r3"), "slow", ("p1", "p2")
RESEARCH, STORE = "q", "d"
BURST_S = 3  # whole seconds for which a stranger sends, and is silent
SHORT_BYTES, THINKS_S = 500_000, 0.1
START_S = 0.3  # until all processes of a trial run
WARM_S, SETTLE_S = 2.0, 1.0  # before the first second that counts, and after checkpoints began
SECONDS, QUICK_SECONDS = 12, 6  # that count, without checkpoints and with
MOST_LOST, LEAST_USED = 0.03, 0.9  # the goals
LEAST_LEFT = 0.1  # of the trunk: what research leaves, if its use is to be asked
RESULT = "scavenger.json"


@dataclass(frozen=True, slots=True)
class Way:
    """How checkpoints are served, and which congestion control sends them."""

    name: str
    checkpoints: CheckpointClass
    congestion: str

    @property
    def usable_bytes_per_s(self) -> float:
        """What checkpoints may use of the trunk, on the wire."""
        return TRUNK if self.is_apart else RESERVE.migration_share_bytes_per_s(TRUNK)

    @property
    def is_apart(self) -> bool:
        """Whether checkpoints have a queue of their own, and no part in what holds migrations."""
        return self.checkpoints is not CheckpointClass.SHARE


WAYS = (
    Way("below research, BBR", CheckpointClass.SCAVENGER, "bbr"),
    Way("below research, CUBIC", CheckpointClass.SCAVENGER, "cubic"),
    Way("borrowing, BBR", CheckpointClass.BORROW, "bbr"),
    Way("within the share, BBR", CheckpointClass.SHARE, "bbr"),
)


@dataclass(frozen=True, slots=True)
class Situation:
    """What strangers do: `send(address, begin_s)` at each of `hosts`, with a rhythm of so many seconds."""

    key: str
    words: str
    hosts: tuple[str, ...]
    send: Callable[[str, float], None] | None
    rhythm_s: int = 1


def greedy(address: str, begin_s: float) -> None:
    """One connection, as fast as it goes."""
    greedy_tcp(address)


def on_and_off(address: str, begin_s: float) -> None:
    """One connection that sends for BURST_S and is silent for as long, counted from `begin_s`."""
    sock = connected(address)
    choose_congestion(sock, "cubic")
    while True:
        phase_s = (time.monotonic() - begin_s) % (2 * BURST_S)
        if phase_s < BURST_S:
            # what a full buffer holds back is not waited for beyond the phase
            sock.settimeout(BURST_S - phase_s)
            with suppress(TimeoutError):
                sock.send(CHUNK)
        else:
            time.sleep(2 * BURST_S - phase_s)


def short_transfers(address: str, begin_s: float) -> None:
    """Transfers of SHORT_BYTES on one connection, which wait for no answer, a pause after each."""
    sock = connected(address)
    choose_congestion(sock, "cubic")
    data = bytes(SHORT_BYTES)
    while True:
        sock.sendall(data)
        time.sleep(THINKS_S)


SITUATIONS = (
    Situation("greedy", "three greedy flows over the whole trunk", STRANGERS, greedy),
    Situation("slow", "one greedy flow from a cable of two fifths of the trunk", (SLOW_STRANGER,), greedy),
    Situation(
        "on-off", "one greedy flow, three seconds on, three off", STRANGERS[:1], on_and_off, 2 * BURST_S
    ),
    Situation("short", "half a megabyte at a time", STRANGERS[:1], short_transfers),
    Situation("none", "no research", (), None),
)


def trunk_campus() -> Campus:
    """The trunk is the narrowest link of every flow but the slow stranger's."""
    cables = dict.fromkeys((*STRANGERS, SLOW_STRANGER, *PROVIDERS), ACCESS) | {SLOW_STRANGER: SLOW}
    return one_trunk(cables, (RESEARCH, STORE), TRUNK, RESERVE)


def measure_scavenger(
    out: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    ways: Sequence[Way] = WAYS,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Every situation under every way; writes scavenger.json, with each second, to `out`.

    `only`: keys of situations. 14 minutes, `quick` 4. SetupError: the machine cannot.
    """
    setLogLevel("error")
    seconds, rounds = (QUICK_SECONDS, 1) if quick else (SECONDS, 2)
    trials = []
    with ExitStack() as stack:
        campuses = {
            checkpoints: stack.enter_context(LiveCampus(trunk_campus(), checkpoints=checkpoints))
            for checkpoints in dict.fromkeys(way.checkpoints for way in ways)
        }
        for situation in SITUATIONS:
            for number in range(rounds if not only or situation.key in only else 0):
                for way in ways:
                    progress(f"{situation.words}, checkpoints {way.name}, {number + 1} of {rounds}")
                    samples = ScavengerTrial(campuses[way.checkpoints], way, situation, seconds).run()
                    trials.append({"situation": situation.key, "way": way.name, **samples})
    result = {
        **machine(),
        "trunk_bytes_per_s": TRUNK,
        "goals": {"most_lost": MOST_LOST, "least_used": LEAST_USED},
        "trials": trials,
    }
    write_result(out / RESULT, result)
    return result


class ScavengerTrial:
    """One situation under one way: `seconds` that count without checkpoints, then as many with."""

    def __init__(self, campus: LiveCampus, way: Way, situation: Situation, seconds: int) -> None:
        self.campus, self.way, self.situation, self.seconds = campus, way, situation, seconds
        settle = round(SETTLE_S / WINDOW_S)
        # of a rhythm checkpoints begin at the same moment
        self.gap = -(-settle // situation.rhythm_s) * situation.rhythm_s
        self.windows = 2 * seconds + self.gap

    def run(self) -> dict[str, Any]:
        """Payload of research and wire bytes of each class on the trunk, second by second, without and with checkpoints."""
        net, situation = self.campus, self.situation
        with FidelityMonitor(net) as monitor:
            begin_s = time.monotonic() + START_S + WARM_S
            with_s = begin_s + self.seconds * WINDOW_S
            requests = [
                ForkRequest(host, partial(self._checkpoints, host, with_s), "checkpoints")
                for host in PROVIDERS
            ]
            if situation.send is not None:
                send = partial(situation.send, str(net.get(RESEARCH).IP()), begin_s)
                requests += [ForkRequest(host, send, "research") for host in situation.hosts]
            what = f"{situation.words}, {self.way.name}"
            look = partial(net.class_counters, "s1", "s2")
            seen, (counted, _) = play(
                net, what, (RESEARCH, STORE), requests, PROVIDERS, look, begin_s, self.windows
            )
        verdict = monitor.verdict()
        research = [sum(taken) for taken in zip(*counted.values(), strict=True)] or [0] * self.windows
        number = CHECKPOINT_CLASS if self.way.is_apart else MIGRATION_CLASS
        return {
            "research_bytes": self._halves(research),
            "research_wire_bytes": self._halves(_steps(seen, RESEARCH_CLASS)),
            "checkpoint_wire_bytes": self._halves(_steps(seen, number)),
            "valid": verdict.valid,
            "reasons": list(verdict.reasons),
        }

    def _halves(self, seconds: Sequence[int]) -> dict[str, list[int]]:
        return {
            "without": list(seconds[: self.seconds]),
            "with": list(seconds[self.seconds + self.gap :]),
        }

    def _checkpoints(self, host: str, begin_s: float) -> None:
        """A stream of checkpoints with its grant, as an agent sends it, from then on."""
        net, way = self.campus, self.way
        maps = HostMaps.open_pinned(net.pin_dir / host)
        share = payload_rate(net.plan.host_cables[host].b.shape.unreserved_bytes_per_s)
        set_aggregate(maps, share, migrations_only=way.is_apart)
        smooth_pacing()
        grant = payload_rate(way.usable_bytes_per_s) * (1.0 - LEAST_FALL) / len(PROVIDERS)
        time.sleep(max(0.0, begin_s - time.monotonic()))
        sock: socket.socket = connected(net.get(STORE).IP())
        FlowGuard(maps, sock, TrafficClass.PRESYNC, grant, congestion=way.congestion)
        with suppress(ConnectionError):
            while True:
                sock.sendall(CHUNK)


def _steps(seen: Sequence[Mapping[int, Any]], number: int) -> list[int]:
    """What a class sent between one look and the next."""
    return [after[number].since(before[number]).sent_bytes for before, after in pairwise(seen)]


# ---------------------------------------------------------------- judging


@dataclass(frozen=True, slots=True)
class Figures:
    """What all trials of a situation under a way came to; shares of research in seconds without checkpoints."""

    situation: Situation
    way: str
    valid: bool
    worst: float | None  # the worst second with checkpoints; None: research sent nothing
    median: float | None
    apart: float | None  # the worst second without
    # of what research left, all seconds with checkpoints together; None: it left next to nothing
    used: float | None
    checkpoint_bytes_per_s: float  # on the wire
    # the worst second of research beside checkpoints, over its reserve, or over what it had alone where that is less
    kept: float | None

    @property
    def keeps_research(self) -> bool | None:
        """Whether each second with checkpoints has what those without had, but for MOST_LOST; None: there is no research.

        Where seconds without checkpoints differ by more than that among themselves, the median second is asked.
        """
        if self.worst is None or self.median is None or self.apart is None:
            return None
        least = 1.0 - MOST_LOST
        return (self.worst if self.apart >= least else self.median) >= least


def figures(result: Mapping[str, Any]) -> list[Figures]:
    """The figures of each situation and way, in order; pure."""
    ways = dict.fromkeys(trial["way"] for trial in result["trials"])
    found = []
    for situation in SITUATIONS:
        for way in ways:
            key = situation.key, way
            trials = [each for each in result["trials"] if (each["situation"], each["way"]) == key]
            if trials:
                found.append(_figures(situation, way, trials, result["trunk_bytes_per_s"]))
    return found


def _figures(situation: Situation, way: str, trials: Sequence[Mapping[str, Any]], trunk: float) -> Figures:
    beside, alone = list[float](), list[float]()
    for trial in trials:
        taken, rhythm = trial["research_bytes"], round(situation.rhythm_s / WINDOW_S)
        means = [statistics.fmean(taken["without"][phase::rhythm]) for phase in range(rhythm)]
        busy = 0.05 * max(means, default=0.0)  # a second in which strangers are silent has nothing to lose
        for half, into in (("with", beside), ("without", alone)):
            into += [
                each / means[n % rhythm] for n, each in enumerate(taken[half]) if means[n % rhythm] > busy
            ]
    kept = list[float]()
    for trial in trials:
        wire, rhythm = trial["research_wire_bytes"], round(situation.rhythm_s / WINDOW_S)
        means = [statistics.fmean(wire["without"][phase::rhythm]) for phase in range(rhythm)]
        own = [min(mean, RESERVE.reserve_bytes_per_s(trunk) * WINDOW_S) for mean in means]
        busy = 0.05 * max(means, default=0.0)
        kept += [each / own[n % rhythm] for n, each in enumerate(wire["with"]) if means[n % rhythm] > busy]
    research = sum(sum(trial["research_wire_bytes"]["with"]) for trial in trials)
    checkpoints = sum(sum(trial["checkpoint_wire_bytes"]["with"]) for trial in trials)
    lasted_s = WINDOW_S * sum(len(trial["checkpoint_wire_bytes"]["with"]) for trial in trials)
    left = trunk * lasted_s - research
    return Figures(
        situation,
        way,
        all(trial["valid"] for trial in trials),
        min(beside, default=None),
        statistics.median(beside) if beside else None,
        min(alone, default=None),
        checkpoints / left if left >= LEAST_LEFT * trunk * lasted_s else None,
        checkpoints / lasted_s,
        min(kept, default=None),
    )


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    classes = {way.name: way.checkpoints for way in WAYS}
    for each in figures(result):
        words = f"{each.situation.words}, checkpoints {each.way}"
        if classes[each.way] is CheckpointClass.SHARE:
            continue
        if classes[each.way] is CheckpointClass.BORROW:
            if each.kept is not None:
                met = each.kept >= 1.0 - MOST_LOST if each.valid else None
                told = f"worst second {each.kept:.1%}"
                yield JudgedFigure(
                    f"research keeps its reserve, {words}", f"{1.0 - MOST_LOST:.0%}", told, met
                )
        elif each.median is not None and each.worst is not None:
            told = f"median {1.0 - each.median:.1%}, worst {1.0 - each.worst:.1%}"
            met = each.keeps_research if each.valid else None
            yield JudgedFigure(f"research loses, {words}", f"{MOST_LOST:.0%} of a second", told, met)
        if each.used is not None:
            met = each.used >= LEAST_USED if each.valid else None
            yield JudgedFigure(
                f"used of what it leaves, {words}", f"{LEAST_USED:.0%}", f"{each.used:.1%}", met
            )


def scavenger_table(result: Mapping[str, Any]) -> Table:
    """Situations and ways down."""
    trunk = result["trunk_bytes_per_s"] / MBIT_PER_S
    table = Table(
        title=f"{result['cpus']} processors, kernel {result['kernel']}; a trunk of {trunk:g} Mbit/s",
        box=box.SIMPLE,
    )
    table.add_column("", no_wrap=True)
    for head in ("median", "worst", "alone", "Mbit/s", "used"):
        table.add_column(head, no_wrap=True)
    last = ""
    for each in figures(result):
        if each.situation.key != last:
            table.add_section()
            table.add_row(each.situation.words, style="bold")
        last = each.situation.key
        table.add_row(
            f"  {each.way}{'' if each.valid else ' (not judged)'}",
            *("" if share is None else f"{share:.3f}" for share in (each.median, each.worst, each.apart)),
            f"{each.checkpoint_bytes_per_s / MBIT_PER_S:.1f}",
            "" if each.used is None else f"{each.used:.1%}",
        )
    table.caption = (
        "median, worst: what research has in a second with checkpoints, over the mean of seconds without; alone: the worst "
        "second without, over the same mean; Mbit/s: of checkpoints, on the wire; used: of what research leaves of the trunk"
    )
    return table


def scavenger_notes(result: Mapping[str, Any]) -> list[str]:
    """Why trials are not judged."""
    return [
        f"{trial['situation']}, {trial['way']}: not judged: {'; '.join(trial['reasons'])}"
        for trial in result["trials"]
        if not trial["valid"]
    ]
