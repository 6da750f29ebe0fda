"""Explanations: the inputs of a replayed core's decisions, in rows and words that the page shows.

A witness keeps its calls during one event. When the event is over, each decided fact of it (`DECIDED`) gets the
decisions that led to it: inputs, candidates with their scores, rejected ones with the reason, and the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite, isnan, sqrt

import numpy as np

from controller.core.admission.admission import Admission, Commitment, minimum_rate
from controller.core.admission.schedule import MigrationRequest
from controller.core.checkpointing.intervals import (
    RateBound,
    StaticPlanner,
    constrained_interval,
    network_floor_s,
)
from controller.core.checkpointing.planner import ClosedForm
from controller.core.lifecycle.candidates import left_for_checkpoints
from controller.core.model import facts as f
from controller.core.model.cluster import Cluster
from controller.core.model.entities import HostState, JobState
from controller.core.network.sharing import Demand
from controller.core.placement import select as p2
from controller.core.placement.select import Candidates, DestinationChoice, NoDestination, PlacementRequest
from controller.numerics.arrays import Floats, Mask
from experiments.dashboard.cache import DECIDED, Decision
from topologies.spec import DirectedLink
from topologies.units import format_duration, format_rate, format_size

MAX_ROWS = 60  # of a table; the chosen one and the best are among them
MAX_REMEMBERED = 500  # jobs whose last choice of a store is remembered: 10 kB each
PURPOSES = {
    "destination": "a destination to move to",
    "rescue": "a host that takes its state before the notice ends",
    "host": "a host to start or resume on",
    "store": "a host to keep its checkpoints",
}


@dataclass
class _Placement:
    """A choice of P2, ready to be shown."""

    purpose: str
    job: str
    told: Callable[[], Decision]


@dataclass
class Explanations:
    """The witness of one core. `explain` after each event; decisions behind no shown fact are dropped."""

    cluster: Cluster
    _placements: list[_Placement] = field(default_factory=list)
    _rounds: list[Callable[[str], Decision | None]] = field(default_factory=list)
    _arrivals: dict[str, Decision] = field(default_factory=dict)
    _plan: Callable[[str], Decision | None] | None = None
    _stores: dict[str, Decision] = field(default_factory=dict)  # each job's last

    # ------------------------------------------------------------ what is shown

    def chose_host(
        self,
        purpose: str,
        job: JobState,
        wanted: PlacementRequest,
        found: Candidates,
        choice: DestinationChoice | NoDestination,
    ) -> None:
        """Record a choice of P2."""
        considered = set(found.hosts)
        others = [
            (host.name, why)
            for host in self.cluster.index.volunteers
            if host.name not in considered and (why := _excluded(host, wanted, job, self.cluster))
        ]
        told = partial(_told_placement, self.cluster, purpose, job.name, wanted, found, choice, others)
        self._placements.append(_Placement(purpose, job.name, told))
        if purpose == "store":
            self._stores.pop(job.name, None)
            self._stores[job.name] = told() | {"at_s": self.cluster.now_s}
            if len(self._stores) > MAX_REMEMBERED:
                del self._stores[next(iter(self._stores))]

    def admitted(
        self,
        asked: Sequence[MigrationRequest],
        share: Mapping[DirectedLink, float],
        commitments: Sequence[Commitment],
        answer: Admission,
    ) -> None:
        """Record an admission of P3."""
        now_s, varies = self.cluster.now_s, self.cluster.policy.rates_vary
        self._rounds.append(partial(_told_admission, now_s, varies, asked, share, commitments, answer))

    def planned(
        self,
        jobs: Sequence[JobState],
        rates_bytes_per_s: Floats,
        intervals_s: Floats,
        hazards_per_s: Floats,
        infeasible: Mask,
    ) -> None:
        """Record a plan of P1."""
        names = [job.name for job in jobs]
        counted = [(job.checkpoint_bytes, job.host or "", job.standby or "") for job in jobs]
        free = left_for_checkpoints(self.cluster, self.cluster.now_s)

        def told(name: str) -> Decision | None:
            if name not in names:
                return None
            row = names.index(name)
            payload, host, standby = counted[row]
            budget_s = self.cluster.jobs[name].spec.loss_budget_s
            numbers = (float(c[row]) for c in (rates_bytes_per_s, intervals_s, hazards_per_s))
            decision = _told_plan(self.cluster, self.cluster.jobs[name], payload, budget_s, *numbers)
            way = self.cluster.routes.way(host, standby)
            if way:
                narrow = min(way, key=lambda link: free[link])
                sharing = [
                    n
                    for n, (_, other, to) in enumerate(counted)
                    if narrow in self.cluster.routes.way(other, to)
                ]
                decision["inputs"].append(
                    [
                        "narrowest link",
                        f"{narrow}, {format_rate(free[narrow])} for {len(sharing)} streams of checkpoints",
                    ]
                )
                rows = sorted(sharing, key=lambda n: -float(rates_bytes_per_s[n]))
                decision["table"] = _table(
                    ["stream on that link", "payload", "hazard /h", "rate", "every"],
                    [
                        (
                            [
                                names[n],
                                format_size(counted[n][0]),
                                _number(3600.0 * float(hazards_per_s[n])),
                                format_rate(float(rates_bytes_per_s[n])),
                                _duration(float(intervals_s[n])),
                            ],
                            "chosen" if n == row else "rejected" if bool(infeasible[n]) else "",
                            "its loss budget cannot be kept" if bool(infeasible[n]) else "",
                        )
                        for n in rows
                    ],
                )
            return decision

        self._plan = told

    def arrived(self, job: JobState, draw: float, ahead: int, chance: float, age_s: float) -> None:
        """Record the queue's decision on an arrival."""
        queue = self.cluster.queue
        standing = [self.cluster.offers[offer.offer_id] for offer in queue.standing()]
        controller = queue.controller
        inputs = {
            "offers that stand": ", ".join(standing[:8]) or "none",
            "jobs that wait": str(ahead),
            "level r": _number(controller.level),
            "last offer": f"{_duration(age_s)} ago",
            "rule": "r = N + p",
            "chance to join": f"{min(1.0, max(0.0, chance)):.3g}",
            "draw": f"{draw:.4f}",
            "cost of on-demand k": _number(self.cluster.terms.on_demand_cost),
        }
        title = f"{job.name}: a volunteer's GPU, the queue, or on-demand"
        self._arrivals[job.name] = _decision("queue", title, inputs, "") | {
            "table": _table(
                ["choice", "cost", "open if"],
                [
                    (
                        [
                            "take an offer that stands",
                            "1",
                            f"{len(standing)} offers suit or not (P2 chooses)",
                        ],
                        "",
                        "",
                    ),
                    (["join the queue", "1, later", f"draw {draw:.4f} < {chance:.4g}"], "", ""),
                    (["on-demand", _number(self.cluster.terms.on_demand_cost), "else"], "", ""),
                ],
            )
        }

    # ------------------------------------------------------------ what is told

    def explain(self, facts: Sequence[f.AnyFact]) -> list[list[Decision]]:
        """Return the decisions behind each fact that the event recorded; an empty list for what was not decided."""
        told = [self._explained(fact) if isinstance(fact, DECIDED) else [] for fact in facts]
        self._placements, self._rounds, self._arrivals, self._plan = [], [], {}, None
        return told

    def _explained(self, fact: f.AnyFact) -> list[Decision]:
        match fact:
            case f.JobQueued(job=job):
                return self._arrival(job, 1, f"it joins, behind {fact.ahead}")
            case f.JobRedirected(job=job) if fact.waited_s == 0.0:
                return self._arrival(job, 2, "it goes to on-demand at once")
            case f.JobRedirected(job=job):
                controller = self.cluster.queue.controller
                inputs = {
                    "it waited": _duration(fact.waited_s),
                    "longest wait": _duration(controller.longest_wait_s),
                    "all leave at an age of the gap of": _duration(controller.leave_at_age_s),
                    "level r": _number(controller.level),
                    "rule": "ages",
                }
                verdict = "no offer is expected soon enough to be worth the wait"
                return [_decision("queue", f"{job} leaves the queue for on-demand", inputs, verdict)]
            case f.JobDispatched(job=job):
                hosts = self._of(job, "host") or self._of(job, "destination", "rescue")
                arrival = self._arrival(job, 0, f"it takes the offer of {fact.host}")
                inputs = {
                    "waited": "-" if fact.delay_s is None else _duration(fact.delay_s),
                    "cost": "-" if fact.cost is None else _number(fact.cost),
                }
                verdict = "a GPU became free, and it was the oldest waiting job that fits there"
                oldest = _decision("queue", f"{fact.job} gets {fact.host}", inputs, verdict)
                return [*arrival, *hosts] or [oldest]
            case f.JobWaits(job=job):
                waits = _decision("queue", f"{job} waits", {"reason": fact.reason}, fact.reason)
                return self._of(job, "host") or [waits]
            case f.MigrationAdmitted(job=job) | f.MigrationDegraded(job=job):
                rounds = [told for each in self._rounds if (told := each(job)) is not None]
                stays = _decision("P2", f"{job} stays", {}, getattr(fact, "reason", ""))
                return [*self._of(job, "destination", "rescue"), *rounds] or [stays]
            case f.CheckpointPlanned(job=job):
                plan = self._plan(job) if self._plan is not None else None
                store = self._stores.get(job)
                return [told for told in (plan, store) if told is not None]
        return []

    def _of(self, job: str, *purposes: str) -> list[Decision]:
        return [each.told() for each in self._placements if each.job == job and each.purpose in purposes]

    def _arrival(self, job: str, chosen: int, verdict: str) -> list[Decision]:
        told = self._arrivals.get(job)
        if told is None:
            return []
        rows = [
            row | {"mark": "chosen" if n == chosen else "rejected"}
            for n, row in enumerate(told["table"]["rows"])
        ]
        hosts = self._of(job, "host") if chosen else []
        return [told | {"verdict": verdict, "table": told["table"] | {"rows": rows}}, *hosts]


# ---------------------------------------------------------------- P2


def _excluded(host: HostState, wanted: PlacementRequest, job: JobState, cluster: Cluster) -> str:
    """Return the reason why a volunteer was no candidate at all."""
    if not host.connected:
        return "its agent is silent" if host.incarnation >= 0 else "it never registered"
    if not host.lent and host.reclaim_at_s is None:
        return "its owner has it"
    if host.reclaim_at_s is not None:
        return f"its notice ends in {_duration(max(0.0, host.reclaim_at_s - cluster.now_s))}"
    if wanted.needs_gpu and host.free_gpus <= 0:
        return "no GPU is free"
    if job.unfit.get(host.name, -inf) > cluster.now_s:
        return "it lately failed to take a checkpoint of this job"
    return "it was not among those asked"


def _told_placement(
    cluster: Cluster,
    purpose: str,
    job: str,
    wanted: PlacementRequest,
    found: Candidates,
    choice: DestinationChoice | NoDestination,
    others: Sequence[tuple[str, str]],
) -> Decision:
    there_s = p2.migrations_s(wanted, found.bandwidth_bytes_per_s)
    in_time = purpose in ("destination", "rescue")
    lacking = p2.first_missing(wanted, found, there_s, in_time)
    scores = _scores(cluster, purpose, wanted, found, there_s)
    chosen = choice.host if isinstance(choice, DestinationChoice) else None
    rows = []
    for n, host in enumerate(found.hosts):
        fits = int(lacking[n]) == len(p2.REQUIREMENTS)
        why = (
            ""
            if fits
            else "it is the source"
            if int(lacking[n]) < 0
            else p2.REQUIREMENTS[int(lacking[n])][0].value
        )
        rate = float(found.bandwidth_bytes_per_s[n])
        rows.append(
            (
                [
                    str(host),
                    format_rate(rate) if isfinite(rate) else "no limit",
                    _duration(float(there_s[n])),
                    f"{float(found.survival[n]):.3f}",
                    _number(float(found.expected_reclaims[n])),
                    _duration(float(found.mean_migration_s[n])),
                    _duration(float(found.added_loss_s[n])),
                    _number(scores[n]) if fits and scores is not None else "",
                ],
                "chosen" if host == chosen else "" if fits else "rejected",
                why,
                scores[n] if fits and scores is not None else inf,
            )
        )
    rows.sort(key=lambda row: (row[1] != "chosen", row[1] == "rejected", row[3], row[0][0]))
    columns = [
        "host",
        "reached at",
        "there in",
        "stays",
        "reclaims",
        "away again in",
        "adds to loss",
        "score, s",
    ]
    empty = [""] * (len(columns) - 1)
    table = _table(
        columns, [row[:3] for row in rows] + [([name, *empty], "rejected", why) for name, why in others]
    )
    if isinstance(choice, DestinationChoice):
        kept = sum(row[1] == "" for row in rows)
        verdict = f"{choice.host}, with score {_number(choice.score_s)}"
        verdict += (
            f", the best of {kept + 1} that could take it" if kept else ", the only one that could take it"
        )
    else:
        near = f"; closest was {choice.closest}" if choice.closest else ""
        verdict = f"none: {choice.reason.value}{near}"
    inputs = {
        "leaves from": wanted.source or "-",
        "carries": format_size(wanted.payload_bytes) if wanted.payload_bytes else "nothing",
        "work left": _duration(wanted.remaining_s),
        "notice": "-" if wanted.notice_s is None else _duration(wanted.notice_s),
        "restart": _duration(wanted.restart_s),
        "needs": f"{format_size(wanted.memory_bytes)} of GPU memory" if wanted.needs_gpu else "a disk",
    }
    note = _SCORES.get(purpose, _SCORES[""]) if scores is not None else "this system's rule has no score"
    decision = _decision("P2", f"{job}: {PURPOSES[purpose]}", inputs, verdict)
    return decision | {"table": table, "note": note}


_SCORES = {
    "": "score = there + alpha x risk x (away again + adds to loss); risk is 1 - stays, or reclaims in the second form",
    "store": "score = the way there + the way on to a GPU, where it has none free",
}


def _scores(
    cluster: Cluster, purpose: str, wanted: PlacementRequest, found: Candidates, there_s: Floats
) -> list[float] | None:
    """Return the score of each candidate under the policy; None: a rule of another kind."""
    rule = cluster.policy.standby if purpose == "store" else cluster.policy.select
    if rule is p2.select_standby:
        with np.errstate(all="ignore"):
            costs_s = p2.standby_costs_s(wanted, found, there_s)
        return [float(cost) for cost in costs_s]
    function, words = (rule.func, rule.keywords) if isinstance(rule, partial) else (rule, {})
    if function is not p2.select:
        return None
    alpha, as_printed = float(words.get("alpha", p2.ALPHA)), bool(words.get("as_printed"))
    risks, away = p2.risks_and_ways_on(found, there_s, as_printed=as_printed)
    return [float(score) for score in p2.score_s(there_s, risks, away, alpha)]


# ---------------------------------------------------------------- P3


def _told_admission(
    now_s: float,
    varies: bool,
    asked: Sequence[MigrationRequest],
    share: Mapping[DirectedLink, float],
    commitments: Sequence[Commitment],
    answer: Admission,
    job: str,
) -> Decision | None:
    mine = next((request for request in asked if request.key == job), None)
    if mine is None:
        return None
    rows = []
    for request in asked:
        rate = minimum_rate(
            request.payload_bytes, request.deadline_s - max(now_s, request.start_s), request.restart_s
        )
        needs = "no rate can" if rate == inf else format_rate(rate)
        turn = ""
        if varies and request.key in answer.admitted:
            begins_s, ends_s = answer.timetable.begins_s(request.key), answer.timetable.ends_s(request.key)
            if isfinite(begins_s):
                turn = f"in {_duration(max(0.0, begins_s - now_s))} to {_duration(ends_s - now_s)}"
        refusal = answer.refused.get(request.key)
        gets = "" if refusal else turn or format_rate(answer.admitted[request.key])
        why = ""
        if refusal:
            why = f"{refusal.reason.value}: {refusal.link}" if refusal.link else refusal.reason.value
        cells = [
            request.key,
            format_size(request.payload_bytes),
            _duration(request.due_s - now_s),
            needs,
            gets,
        ]
        rows.append((cells, "rejected" if refusal else "chosen" if request.key == job else "", why))
    refusal = answer.refused.get(job)
    verdict = "admitted"
    if refusal is not None:
        verdict = f"refused: {refusal.reason.value}" + (f" ({refusal.link})" if refusal.link else "")
    inputs = {
        "bytes to grant": format_size(mine.payload_bytes),
        "must be there in": _duration(mine.due_s - now_s),
        "reserved before": f"{len(commitments)} moves",
    }
    decision = _decision("P3", f"{job}: may it move?", inputs, verdict)
    for link in mine.links:
        held = sum(_held(commitment, now_s) for commitment in commitments if link in commitment.links)
        words = f"{link}: {format_rate(share.get(link, 0.0))}, {format_rate(held)} of it reserved before"
        decision["inputs"].append(["link", words])
    constant = "a constant rate from now to the deadline"
    turns = "earliest deadline first with rates that vary: each has its turn on the links"
    table = _table(["asks", "bytes", "due in", "at least", "gets"], rows)
    return decision | {"table": table, "note": turns if varies else constant}


def _held(commitment: Commitment, now_s: float) -> float:
    if isinstance(commitment, Demand):
        return commitment.floor_bytes_per_s
    rate = minimum_rate(
        commitment.payload_bytes, commitment.deadline_s - max(now_s, commitment.start_s), commitment.restart_s
    )
    return 0.0 if rate == inf else rate


# ---------------------------------------------------------------- P1


def _told_plan(
    cluster: Cluster,
    job: JobState,
    payload: float,
    budget_s: float,
    rate: float,
    interval_s: float,
    hazard_per_s: float,
) -> Decision:
    planner, beta = cluster.policy.plan, cluster.checkpoint_share
    speed = cluster.hosts[job.host].speed if job.host in cluster.hosts else None
    measured = None if speed is None else speed.pause_bytes_per_s
    snapshot_s = cluster.protocol.pauses_s(job.spec.payload_bytes, measured)
    pause_s = snapshot_s if isinstance(planner, ClosedForm) else payload / rate if rate > 0.0 else inf
    best_s = sqrt(2.0 * pause_s / hazard_per_s) if hazard_per_s > 0.0 else inf
    cap_s, floor_s = 2.0 * budget_s, network_floor_s(payload, rate, beta)
    title = f"{job.name}: checkpoints"
    inputs = {
        "payload C": format_size(payload),
        "hazard": f"{_number(3600.0 * hazard_per_s)} departures that hurt an hour",
        "a checkpoint stops it for": _duration(pause_s),
        "loss budget L": _duration(budget_s),
        "rate b": format_rate(rate),
    }
    if isinstance(planner, StaticPlanner):
        return _decision("P1", title, inputs, f"every {_duration(interval_s)}, as this system's row says")
    bound = constrained_interval(hazard_per_s, payload, rate, budget_s, beta, pause_s).bound
    inputs |= {
        "best interval, sqrt(2 p / hazard)": _duration(best_s),
        "at most 2 L": _duration(cap_s),
        "at least C / (beta b)": _duration(floor_s),
    }
    words = {
        RateBound.YOUNG: "the best interval is within both limits",
        RateBound.NETWORK: "the network's floor binds",
        RateBound.LOSS_BUDGET: "the loss budget binds",
    }
    verdict = f"every {_duration(interval_s)} to {job.standby}: {words[bound]}"
    return _decision("P1", title, inputs, verdict)


# ---------------------------------------------------------------- words


def _decision(theory: str, title: str, inputs: Mapping[str, str], verdict: str) -> Decision:
    rows = [[name, value] for name, value in inputs.items()]
    return {"theory": theory, "title": title, "inputs": rows, "verdict": verdict}


def _table(columns: list[str], rows: Sequence[tuple[list[str], str, str]]) -> Decision:
    shown = [{"cells": cells, "mark": mark, "why": why} for cells, mark, why in rows[:MAX_ROWS]]
    return {"columns": columns, "rows": shown, "left_off": max(0, len(rows) - MAX_ROWS)}


def _duration(seconds: float) -> str:
    if isnan(seconds):
        return "-"
    return format_duration(seconds) if isfinite(seconds) else "never"


def _number(value: float) -> str:
    return f"{value:.4g}" if isfinite(value) else "infinite"
