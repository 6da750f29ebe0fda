"""A campus at one moment: a fold of facts, one at a time.

Rows are sent to the page (JSON), so their fields are named for it. Times are seconds of the journal, rates payload
bytes/s.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

from controller.core.model import facts as f
from experiments.results.link_rates import WAYS
from topologies.errors import SpecError
from topologies.paths import RouteHistory
from topologies.spec import Campus, DirectedLink, Role

Row = dict[str, Any]  # never changed in place, so that pictures can share it
OVER_BY: dict[type[f.Fact], str] = {f.JobFinished: "finished", f.JobFailed: "failed", f.JobCancelled: "cancelled"}
# facts that are counted one by one, each as (of what, which)
COUNTED: dict[type[f.Fact], tuple[str, str]] = {
    **{kind: ("jobs", over) for kind, over in OVER_BY.items()},
    f.JobSubmitted: ("jobs", "submitted"),
    f.JobRedirected: ("jobs", "redirected"),
    f.MigrationAdmitted: ("migrations", "admitted"),
    f.MigrationDegraded: ("migrations", "degraded"),
    f.CheckpointTaken: ("checkpoints", "taken"),
    f.CheckpointCompleted: ("checkpoints", "completed"),
    f.CheckpointRefused: ("checkpoints", "refused"),
    f.HostLost: ("agents", "lost"),
    f.CoordinatorRestarted: ("coordinator", "restarts"),
}
MAX_ENDED = 200  # jobs that are over and still listed


class CampusState:
    """State of a campus: `apply` each fact in order; `version` counts changes. `routes`: of the run, by its facts of WAYS."""

    def __init__(self, campus: Campus, routes: RouteHistory | None = None) -> None:
        self.campus = campus
        self._routes = RouteHistory(campus) if routes is None else routes
        self._numbers = {
            link: 2 * number + way
            for number, cable in enumerate(campus.links)
            for way, link in enumerate((DirectedLink(cable.a, cable.b), DirectedLink(cable.b, cable.a)))
        }
        self.version, self.at_s, self.number = 1, 0.0, 0  # before the first fact; version 0 is nothing
        self.hosts: dict[str, Row] = {}
        self.jobs: dict[str, Row] = {}
        self.flows: dict[str, Row] = {}
        self.links: dict[str, Row] = {}
        self.head: list[str] = []  # interrupted jobs that wait, before all others
        self.queue: list[str] = []
        self.level: float | None = None
        self.totals: dict[tuple[str, str], float] = defaultdict(int)  # since the run began, by (of what, which)
        self._ended: list[str] = []
        for host in campus.hosts:
            if host.role is not Role.COORDINATOR:
                self._add_host(host.name, host.gpus)

    # ------------------------------------------------------------ reading

    def copy(self) -> CampusState:
        """Copy the picture."""
        made = copy.copy(self)
        made.hosts, made.jobs, made.flows, made.links = (
            rows.copy() for rows in (self.hosts, self.jobs, self.flows, self.links)
        )
        made.head, made.queue, made._ended = self.head.copy(), self.queue.copy(), self._ended.copy()
        made.totals = self.totals.copy()
        return made

    def picture(self) -> Row:
        """Return all of it, as the page takes it."""
        shown = (("jobs", "finished"), ("jobs", "failed"), ("migrations", "in_time"), ("work", "lost_s"))
        totals = {"_".join(each): self.totals[each] for each in shown}
        parts = {"hosts": self.hosts, "jobs": self.jobs, "flows": self.flows, "links": self.links}
        return parts | {"at_s": self.at_s, "queue": self.queue_row(), "totals": totals}

    def queue_row(self) -> Row:
        """Return the queue and its means."""
        n = max(1, self.totals["dispatches", "first"])
        waiting = self.head + self.queue
        return {
            "waiting": waiting[:50],
            "length": len(waiting),
            "level": self.level,
            "mean_delay_s": self.totals["dispatches", "delay_s"] / n,
            "mean_cost": self.totals["dispatches", "cost"] / n,
        }

    def path(self, source: str, destination: str) -> list[int]:
        """Return the links of a way by number: twice the cable's place in the campus, one more for its second direction."""
        try:
            return [self._numbers[link] for link in self._routes.at(self.at_s).way(source, destination)]
        except SpecError:  # a host that the campus does not have
            return []

    # ------------------------------------------------------------ changes

    def apply(self, number: int, at_s: float, fact: f.AnyFact) -> None:
        """Apply a fact."""
        self.version += 1
        self.number, self.at_s = number, max(self.at_s, at_s)
        if counted := COUNTED.get(type(fact)):
            self.totals[counted] += 1
        if isinstance(fact, WAYS):
            self._follow_trunks(fact)
            return
        match fact:
            case f.EgressMeasured(host=host, window_s=window_s) if window_s > 0.0:
                rates = [fact.migration_bytes / window_s, fact.research_bytes / window_s]
                _change(self.hosts, host, egress=rates, egress_at_s=at_s)
                self.totals["packets", "dropped"] += max(0, fact.drops)
            case f.Granted():
                key = f"{fact.job}:{fact.source}>{fact.destination}"
                before = self.flows.get(key) or {"use": None, "path": self.path(fact.source, fact.destination)}
                row = {
                    "job": fact.job,
                    "from": fact.source,
                    "to": fact.destination,
                    "class": fact.traffic_class,
                    "grant": fact.rate_bytes_per_s,
                    "floor": fact.floor_bytes_per_s,
                    "held_by": fact.bottleneck,
                }
                self.flows[key] = before | row
            case f.GrantEnded():
                self.flows.pop(f"{fact.job}:{fact.source}>{fact.destination}", None)
            case f.CheckpointTaken(job=job):
                _change(self.jobs, job, step=fact.step, **({"phase": "moving"} if fact.final else {}))
            case f.CheckpointCompleted(job=job):
                _change(self.jobs, job, saved=fact.step, holder=fact.holder)
            case f.CheckpointPlanned(job=job):
                interval_s = fact.interval_s if fact.interval_s < 1e12 else None
                _change(self.jobs, job, standby=fact.standby, interval_s=interval_s)
            case f.TransferFinished():
                self.totals["transfers", "ok" if fact.ok else "failed"] += 1
                self.totals["transfer_bytes", "sent"] += fact.bytes_sent
                self.totals["transfer_bytes", "deduplicated"] += fact.bytes_deduplicated
            case f.LevelLearned(level=level):
                self.level = level
            case f.HostJoined() | f.HostLost() | f.HostReclaimed() | f.HostReturned():
                self._host(at_s, fact)
            case _:
                self._job(at_s, fact)

    def _follow_trunks(self, fact: f.AnyFact) -> None:
        """Note the rate of a cable; move flows to other ways where a trunk has died, or is back."""
        if isinstance(fact, f.LinkChanged):
            link = self._numbers.get(DirectedLink(fact.source, fact.target))
            if link is not None:
                self.links[str(link)] = {"rate": fact.rate_bytes_per_s}
        if self._routes.latest.has_choice:
            for key, row in self.flows.items():
                self.flows[key] = row | {"path": self.path(row["from"], row["to"])}

    def _host(self, at_s: float, fact: f.HostJoined | f.HostLost | f.HostReclaimed | f.HostReturned) -> None:
        if fact.host not in self.hosts:
            self._add_host(fact.host, 1)
        match fact:
            case f.HostJoined(host=host, lent=lent):
                noticed = (self.hosts.get(host) or {})["until_s"] is not None
                if not (lent and noticed):
                    _change(self.hosts, host, state="lent" if lent else "reclaimed", until_s=None)
            case f.HostLost(host=host):
                _change(self.hosts, host, state="lost")
            case f.HostReclaimed(host=host, notice_s=notice_s) if notice_s > 0.0:
                self.totals["reclaims", "notice"] += 1
                _change(self.hosts, host, state="noticed", until_s=at_s + notice_s)
            case f.HostReclaimed(host=host):
                noticed = (self.hosts.get(host) or {})["until_s"] is not None
                self.totals["reclaims", "emergency"] += not noticed  # else the end of a notice that was counted
                _change(self.hosts, host, state="reclaimed", until_s=None)
            case f.HostReturned(host=host):
                _change(self.hosts, host, state="lent", until_s=None)

    def _job(self, at_s: float, fact: f.AnyFact) -> None:
        jobs, totals = self.jobs, self.totals
        match fact:
            case f.JobSubmitted(job=job):
                row = {
                    "phase": "waiting",
                    "host": "",
                    "to": "",
                    "standby": "",
                    "step": 0,
                    "steps": fact.steps,
                    "step_s": fact.step_s,
                    "attempt": 0,
                    "interval_s": None,
                    "saved": None,
                    "holder": "",
                    "payload": fact.payload_bytes,
                    "submitted_s": at_s,
                    "since_s": at_s,
                    "reason": "",
                }
                jobs[job] = row
            case f.JobQueued(job=job):
                self.queue.append(job)
                self.level = fact.level
            case f.JobRedirected(job=job):
                self._waits_no_more(job)
                self.level = fact.level
                _change(jobs, job, on_demand=True)
            case f.JobWaits(job=job):
                if job not in self.head:
                    self.head.append(job)
                _change(jobs, job, phase="waiting", reason=fact.reason)
            case f.JobDispatched(job=job):
                self._waits_no_more(job)
                if fact.cost is not None:
                    totals["dispatches", "first"] += 1
                    totals["dispatches", "cost"] += fact.cost
                    totals["dispatches", "delay_s"] += fact.delay_s or 0.0
                self._leave(job)
                there = self.hosts.get(fact.host)
                if there is not None and job not in there["jobs"]:
                    _change(self.hosts, fact.host, jobs=[*there["jobs"], job])
                _change(
                    jobs,
                    job,
                    phase="starting",
                    host=fact.host,
                    to="",
                    attempt=fact.attempt,
                    step=fact.restore_step,
                    standby="",
                    interval_s=None,
                    since_s=at_s,
                    reason="",
                )
            case f.JobRunning(job=job):
                _change(jobs, job, phase="running", host=fact.host, step=fact.step, since_s=at_s)
            case f.MigrationAdmitted(job=job):
                _change(jobs, job, phase="moving", to=fact.destination)
            case f.MigrationDegraded(job=job):
                _change(jobs, job, reason=fact.reason, to=fact.rescued_to)
            case f.MigrationFinished():
                totals["migrations", "in_time" if fact.in_time else "late"] += 1
            case f.JobStopped(job=job):
                self._leave(job)
                _change(jobs, job, phase="interrupted", host="", to="", step=fact.last_step, since_s=at_s)
            case f.WorkLost():
                totals["work", "lost_s"] += fact.work_lost_s
            case f.WorkTakenUp():
                totals["work", "lost_s"] -= fact.work_s
            case f.CancelOrdered(job=job):
                _change(jobs, job, phase="cancelling", to="", since_s=at_s)
            case f.JobFinished(job=job) | f.JobFailed(job=job) | f.JobCancelled(job=job):
                self._waits_no_more(job)
                self._leave(job)
                phase = OVER_BY[type(fact)]
                reason = fact.reason if isinstance(fact, f.JobFailed) else ""
                _change(jobs, job, phase=phase, to="", reason=reason, since_s=at_s)
                if not isinstance(fact, f.JobFailed):
                    _change(jobs, job, step=fact.step)
                self._ended.append(job)
                if len(self._ended) > MAX_ENDED:
                    jobs.pop(self._ended.pop(0), None)

    def _waits_no_more(self, job: str) -> None:
        for waiting in (self.head, self.queue):
            if job in waiting:
                waiting.remove(job)

    def _leave(self, job: str) -> None:
        known = self.jobs.get(job)
        row = self.hosts.get(known["host"]) if known else None
        if known and row is not None and job in row["jobs"]:
            _change(self.hosts, known["host"], jobs=[name for name in row["jobs"] if name != job])

    def _add_host(self, name: str, gpus: int) -> None:
        row = {"state": "absent", "jobs": [], "gpus": gpus, "until_s": None, "egress": None}
        self.hosts[name] = row

    def reported(self, steps: dict[str, int], use: dict[str, float]) -> None:
        """Set the counts of agents: steps of jobs, and rates of flows by key, payload bytes/s."""
        self.version += 1
        for job, step in steps.items():
            row = self.jobs.get(job)
            if row is not None and row["phase"] not in OVER_BY.values() and step > row["step"]:
                _change(self.jobs, job, step=step)
        for key, rate in use.items():
            _change(self.flows, key, use=rate)


def _change(rows: dict[str, Row], key: str, **values: Any) -> None:
    """Change some of a row's values; nothing, if there is no such row."""
    if (row := rows.get(key)) is not None:
        rows[key] = row | values
