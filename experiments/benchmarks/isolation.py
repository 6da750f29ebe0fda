"""Theorem 4, live: research's share of a trunk that granted migrations cross, beside hosts that ignore their grants.

    r1..r3, p1..p4 -- s1 ==== trunk ==== s2 -- q (research), d (granted flows), x (the others)

Three campuses stand side by side and take turns, row by row: `reclaimnet`; paper A's bucket at the senders and nothing on the
switches' side ("as printed"); and no enforcement. Three strangers send research as fast as TCP goes (CUBIC, unpaced). In one set
of rows a share phi of the four providers takes part: their grants fill the migration share, and each of the others sends a fourth
of u, once in a migration class, once unmarked. In the other set p1 and p2 keep their grants, and p3 and p4 attack (`attacks`).

Research is counted by its receiver in seconds that all processes share, and granted flows likewise. The attackers' traffic is
counted by class at the port towards x. Bounds: the reserve
max(beta B, B_min), and Theorem 4's B_min - (1 - phi) u, with the reserve as B_min. In attacks (1 - phi) u is the traffic of
p3 and p4 beyond their grants. A second may fall short of a bound by 5 %: windows cut bursts.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from mininet.log import setLogLevel
from rich.table import Table

from experiments.benchmarks import attacks
from experiments.benchmarks.attacks import ATTACKS, Frames, SendingHost
from experiments.benchmarks.frame import (
    NOT_KEPT,
    NOTHING_PROMISED,
    Goal,
    Result,
    Run,
    all_kept,
    in_mbit,
    table_of,
    verdict,
)
from experiments.benchmarks.one_trunk import START_S, WINDOW_S, one_trunk, play, sending_host
from experiments.theory.paper_a.theorems import residual_for_research
from testbed.emulation.campus import LiveCampus
from testbed.emulation.description.shaping import CHECKPOINT_CLASS, MIGRATION_CLASS, RESEARCH_CLASS
from testbed.emulation.fidelity import FidelityMonitor
from testbed.emulation.processes import ForkRequest
from testbed.emulation.safety.observation import cause_of
from testbed.enforcement import Enforcement, payload_rate, wire_rate
from topologies.spec import Campus, GpuModel, ResearchReserve
from topologies.units import GBIT_PER_S, MBIT_PER_S

TRUNK = 200 * MBIT_PER_S
RESERVE = ResearchReserve(beta=0.3, minimum_bytes_per_s=50 * MBIT_PER_S)
STRANGERS, PROVIDERS = ("r1", "r2", "r3"), ("p1", "p2", "p3", "p4")
ATTACKERS = PROVIDERS[2:]
RESEARCH, GRANTED, ATTACKED = "q", "d", "x"
UNCONTROLLED = 75 * MBIT_PER_S  # u: a little more than the reserve
PHIS, QUICK_PHIS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.5, 1.0)
WARM_S, QUICK_WARM_S = 2.0, 1.0
WINDOWS, QUICK_WINDOWS = 5, 2
ALL = "phi-1"  # the row in which all take part
# in these rows unauthorised traffic competes as research: no switch can distinguish them
AS_RESEARCH = ("sockets", "udp", "frames-unmarked")
SHORT = 0.05  # as `RunContext.research_tolerance`
# a sender of frames that sent a smaller share of its intended rate did not attack
MIN_SENT = 0.8


@dataclass(frozen=True, slots=True)
class Control:
    """Enforcement of migrations: at their senders, and on the switches' side or not."""

    name: str
    enforcement: Enforcement
    switches_hold: bool
    congestion: str | None = None


SYSTEMS = (
    Control("reclaimnet", Enforcement.PACE, switches_hold=True),
    Control("as printed", Enforcement.DROP, switches_hold=False, congestion="cubic"),
    Control("no enforcement", Enforcement.NONE, switches_hold=False, congestion="cubic"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Situation: the senders and their traffic. Grants are payload bytes/s."""

    key: str
    words: str
    keeping: tuple[str, ...]  # hosts that keep their grants
    grant_bytes_per_s: float
    ignoring: tuple[str, ...]
    send: Callable[[SendingHost], None] | None
    offered_bytes_per_s: float = 0.0  # the intended rate of each that ignores; 0: unlimited
    phi: float | None = None  # of rows in which a share of the providers takes part
    u_bytes_per_s: float = 0.0


def rows(*, quick: bool = False) -> list[Row]:
    """Return rows of participation first, then of attacks."""
    found: list[Row] = []
    share = payload_rate(TRUNK - reserve_bytes_per_s())
    each = UNCONTROLLED / len(PROVIDERS)
    for kind, dscp in (("unmarked", attacks.BEST_EFFORT), ("AF41", attacks.AF41)):
        for phi in QUICK_PHIS if quick else PHIS:
            taking = PROVIDERS[: round(phi * len(PROVIDERS))]
            if phi == 1.0 and any(row.key == ALL for row in found):
                continue  # no sender is left in this way or that
            words = "phi = 1, all take part" if phi == 1.0 else f"phi = {phi:g}, the others {kind}"
            send = attacks.at_rate(Frames(dscp), each)
            grant = share / max(1, len(taking))
            others = PROVIDERS[len(taking) :]
            key = ALL if phi == 1.0 else f"phi-{phi:g}-{kind}"
            found.append(Row(key, words, taking, grant, others, send, each, phi, UNCONTROLLED))
    keeping = PROVIDERS[:2]
    for key, attack in ATTACKS.items():
        if attack.in_quick or not quick:
            ignoring = ATTACKERS if attack.send else ()
            offered = attack.links * TRUNK
            found.append(Row(key, attack.words, keeping, share / 4, ignoring, attack.send, offered))
    return found


def reserve_bytes_per_s() -> float:
    """Return research's reserve of the trunk, on the wire."""
    return RESERVE.reserve_bytes_per_s(TRUNK)


def trunk_campus() -> Campus:
    """Return a campus whose senders' cables are as fast as the trunk, which is so the narrowest link of every flow."""
    senders = dict.fromkeys((*STRANGERS, *PROVIDERS), TRUNK)
    receivers = dict.fromkeys((RESEARCH, GRANTED, ATTACKED), GBIT_PER_S)
    return one_trunk(senders, receivers, TRUNK, RESERVE, {"": GpuModel("gpu", 8e9, 8.6)})


def predicted_bytes_per_s(phi: float, u_bytes_per_s: float) -> float:
    """Return research's rate by Theorem 4, on the wire; at phi = 0 by its formula, which the paper gives for phi > 0."""
    least = reserve_bytes_per_s()
    if phi == 0.0:
        return max(0.0, least - u_bytes_per_s)
    return residual_for_research(least, phi, u_bytes_per_s)


def measure(run: Run, *, only: Sequence[str] = (), systems: Sequence[Control] = SYSTEMS) -> dict[str, Any]:
    """Try every row, or those of the keys `only`, under every system: 9 minutes, `quick` 2."""
    setLogLevel("error")
    warm_s, windows = (QUICK_WARM_S, QUICK_WINDOWS) if run.quick else (WARM_S, WINDOWS)
    found = []
    with ExitStack() as stack:
        campuses = {
            system: stack.enter_context(
                LiveCampus(trunk_campus(), hold_migrations=system.switches_hold, one_queue=not system.switches_hold)
            )
            for system in systems
        }
        for row in run.each(
            (each for each in rows(quick=run.quick) if not only or each.key in only), lambda r: r.words
        ):
            for system, campus in campuses.items():
                samples = IsolationTrial(campus, system, row, warm_s, windows).run()
                found.append(judged(row, system.name, samples))
    return {
        "trunk_bytes_per_s": TRUNK,
        "reserve_bytes_per_s": reserve_bytes_per_s(),
        "u_bytes_per_s": UNCONTROLLED,
        "warm_s": warm_s,
        "window_s": WINDOW_S,
        "tolerance": SHORT,
        "rows": found,
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield the reserve beside migrations in their classes, and Theorem 4, both under `reclaimnet`."""
    own = [row for row in result["rows"] if row["system"] == "reclaimnet"]
    marked = [row for row in own if row["row"] not in AS_RESEARCH and not row["row"].endswith("-unmarked")]
    yield all_kept("research keeps its reserve, of migrations in their classes", [r["reserve"] for r in marked])
    yield all_kept("research keeps what Theorem 4 leaves", [row["theorem"] for row in own])


# ---------------------------------------------------------------- one trial


class IsolationTrial:
    """Trial of one row under one system: processes are forked, and killed when the last second is counted."""

    def __init__(self, campus: LiveCampus, system: Control, row: Row, warm_s: float, windows: int) -> None:
        self.campus, self.system, self.row, self.warm_s, self.windows = campus, system, row, warm_s, windows

    def run(self) -> dict[str, Any]:
        """Return raw samples: bytes a window of each flow, of each class towards x and on the trunk, packets refused at ports."""
        net, row = self.campus, self.row
        net.get(ATTACKED).cmd(f"ping -c 1 -W 1 {net.get(PROVIDERS[0]).IP()}")  # switches learn where x is
        with FidelityMonitor(net) as monitor:
            begin_s = time.monotonic() + START_S + self.warm_s
            research = partial(attacks.greedy_tcp, str(net.get(RESEARCH).IP()))
            requests = [ForkRequest(host, research, "research") for host in STRANGERS]
            requests += [
                ForkRequest(host, partial(attacks.granted_tcp, self._station(host, GRANTED)), "granted")
                for host in row.keeping
            ]
            if row.send:
                requests += [
                    ForkRequest(host, partial(row.send, self._station(host, ATTACKED)), "ignores its grant")
                    for host in row.ignoring
                ]
            receivers = (RESEARCH, GRANTED, *([ATTACKED] if row.ignoring else []))
            what = f"{row.words}, {self.system.name}"
            seen, counted = play(net, what, receivers, requests, PROVIDERS, self._look, begin_s, self.windows)
        steps = list(pairwise(seen))
        verdict, disturbances = monitor.verdict(), monitor.disturbances
        places = sorted({each.where for each in disturbances})
        samples: dict[str, Any] = {
            "research_bytes": self._by_host(counted[0], STRANGERS),
            "granted_bytes": self._by_host(counted[1], row.keeping),
            "towards_attacked": [_classes(after["x"], before["x"]) for before, after in steps],
            "trunk": [_classes(after["trunk"], before["trunk"]) for before, after in steps],
            "ports": {host: _between(seen[-1]["ports"][host], seen[0]["ports"][host]) for host in row.ignoring},
            "valid": verdict.valid,
            "reasons": list(verdict.reasons),
            "fidelity": verdict.figures,
            "causes": [
                cause_of(disturbances, places, begin_s + n * WINDOW_S, begin_s + (n + 1) * WINDOW_S)
                for n in range(self.windows)
            ],
        }
        if reason := self._too_weak(samples["ports"]):
            samples |= {"valid": False, "reasons": [*samples["reasons"], reason]}
        return samples

    def _too_weak(self, ports: Mapping[str, Mapping[str, int]]) -> str:
        """Return the reason why this was no attack, if it was none: on a busy machine its senders sent too little."""
        offered = self.row.offered_bytes_per_s * self.windows * WINDOW_S
        for host, counted in ports.items():
            sent = sum(counted[name] for name in ("migration_bytes", "research_bytes", "refused_bytes"))
            if sent < MIN_SENT * offered:
                return f"senders that ignore grants did not get them out: {host} only {sent / offered:.0%}"
        return ""

    def _station(self, host: str, target: str) -> SendingHost:
        grant, system = self.row.grant_bytes_per_s, self.system
        return sending_host(self.campus, host, target, grant, system.enforcement, system.congestion, PROVIDERS[0])

    def _look(self) -> dict[str, Any]:
        return {
            "x": self.campus.class_counters("s2", ATTACKED),
            "trunk": self.campus.class_counters("s1", "s2"),
            "ports": {host: self.campus.port_counters(host) for host in self.row.ignoring},
        }

    def _by_host(self, counted: Mapping[str, list[int]], hosts: Sequence[str]) -> dict[str, list[int]]:
        return {host: counted.get(self.campus.get(host).IP(), [0] * self.windows) for host in hosts}


def _classes(after: Mapping[int, Any], before: Mapping[int, Any]) -> dict[str, int]:
    """Return bytes sent and packets dropped of research's queue and of those of the testbed's own classes."""
    since = {number: after[number].since(before[number]) for number in after}
    own = [since[number] for number in (MIGRATION_CLASS, CHECKPOINT_CLASS) if number in since]
    return {
        "research_bytes": since[RESEARCH_CLASS].sent_bytes,
        "migration_bytes": sum(each.sent_bytes for each in own),
        "research_drops": since[RESEARCH_CLASS].dropped_packets,
        "migration_drops": sum(each.dropped_packets for each in own),
    }


def _between(after: Any, before: Any) -> dict[str, int]:
    """Return a port's bytes of a host: in the class held to the migration share, otherwise, and dropped."""
    own, link = after.own.bytes - before.own.bytes, after.link.bytes - before.link.bytes
    dropped = (getattr(after, kind).dropped_bytes - getattr(before, kind).dropped_bytes for kind in ("link", "forged"))
    return {"migration_bytes": own, "research_bytes": link - own, "refused_bytes": sum(dropped)}


# ---------------------------------------------------------------- judging


def judged(row: Row, system: str, samples: dict[str, Any]) -> dict[str, Any]:
    """Return a row's figures and verdicts beside its samples; rates are wire bytes/s. A pure function of the JSON's samples."""
    windows = [sum(taken) for taken in zip(*samples["research_bytes"].values(), strict=True)]
    research = [wire_rate(taken / WINDOW_S) for taken in windows]
    granted = [
        sum(taken) / (len(taken) * WINDOW_S * row.grant_bytes_per_s) for taken in samples["granted_bytes"].values()
    ]
    through = {
        name: statistics.fmean(each[f"{name}_bytes"] for each in samples["towards_attacked"]) / WINDOW_S
        for name in ("migration", "research")
    }
    if row.phi is None:
        allowed = wire_rate(row.grant_bytes_per_s) * len(row.ignoring)
        uncontrolled = max(0.0, sum(through.values()) - allowed)
        prediction = max(0.0, reserve_bytes_per_s() - uncontrolled)
    else:
        uncontrolled = (1.0 - row.phi) * row.u_bytes_per_s
        prediction = predicted_bytes_per_s(row.phi, row.u_bytes_per_s)
    worst = min(research)
    return {
        "row": row.key,
        "words": row.words,
        "system": system,
        "phi": row.phi,
        "grant_bytes_per_s": row.grant_bytes_per_s,
        "research_worst_bytes_per_s": worst,
        "research_median_bytes_per_s": statistics.median(research),
        "granted_over_grant": granted,
        "through_bytes_per_s": through,
        "uncontrolled_bytes_per_s": uncontrolled,
        "predicted_bytes_per_s": prediction,
        "reserve": bounded(worst, reserve_bytes_per_s(), valid=samples["valid"]),
        "theorem": bounded(worst, prediction, valid=samples["valid"]),
        "samples": samples,
    }


def bounded(worst_bytes_per_s: float, bound_bytes_per_s: float, *, valid: bool) -> str:
    """Return the verdict on a bound of research in its worst second."""
    if valid and bound_bytes_per_s <= 0.0:
        return NOTHING_PROMISED
    return verdict(worst_bytes_per_s >= (1.0 - SHORT) * bound_bytes_per_s, valid=valid)


def tables(result: Result) -> Iterator[Table | str]:
    """Yield rows and systems down, rates in Mbit/s on the wire; then reasons of trials without verdicts, and of broken bounds."""
    reserve, trunk = (result[f"{name}_bytes_per_s"] / MBIT_PER_S for name in ("reserve", "trunk"))
    rows: list[tuple[str, ...]] = []
    last = ""
    for row in result["rows"]:
        if row["row"] != last:
            rows += [(), (row["words"],)]
        granted, through = row["granted_over_grant"], row["through_bytes_per_s"]
        rows.append(
            (
                f"  {row['system']}",
                f"{in_mbit(row['research_worst_bytes_per_s'])}, {in_mbit(row['research_median_bytes_per_s'])}",
                row["reserve"],
                f"{row['theorem']}: {in_mbit(row['predicted_bytes_per_s'])}",
                f"{min(granted):.2f}-{max(granted):.2f}" if granted else "",
                f"{in_mbit(through['migration'])} + {in_mbit(through['research'])}" if any(through.values()) else "",
            )
        )
        last = row["row"]
    yield table_of(
        f"A trunk of {trunk:g} Mbit/s, {reserve:g} for research",
        ("", "research", "reserve", "Theorem 4", "grants", "through"),
        rows,
        "Mbit/s on the wire. research: worst and median second; reserve: kept if the worst has max(beta B, B_min); Theorem 4: "
        "if it has B_min - (1 - phi) u, the figure; grants: goodput over grant of the flows that keep theirs; through: traffic "
        "of the others to x, in the migration classes + else (a trunk without classes: all is else)",
    )
    doubts = Counter(
        doubt for row in result["rows"] for doubt in {each.partition(":")[0] for each in row["samples"]["reasons"]}
    )
    for doubt, count in doubts.most_common():
        yield f"{count} of {len(result['rows'])} trials are not judged: {doubt}"
    for row in result["rows"]:
        where, samples = f"{row['words']}, {row['system']}", row["samples"]
        if NOT_KEPT in (row["reserve"], row["theorem"]):
            seconds = [sum(taken) for taken in zip(*samples["research_bytes"].values(), strict=True)]
            yield f"{where}: in the worst second {samples['causes'][seconds.index(min(seconds))]}"
