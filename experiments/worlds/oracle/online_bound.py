"""How little emergencies and pauses of a run could have taken in the mean: a bound of all choices that do not know the future.

`bound` is of what did happen: who knows the moments of emergencies may have a checkpoint complete just before each. On line
nobody can, and must pay in pauses for what emergencies take in the mean (`experiments.theory.paper_a.least_cost`). As there the
bound is of all schedules that have the jobs where and when the run had them; where hosts are alike, as on paper A's campus,
another place would be no better. Free are when snapshots are taken, at which rates they leave and where they go. It stands
beside `expected_emergencies_s` and the pauses of the same run (`lost_time`), which are what the run had of the two.

*What is counted.* Each time that a job computes on a host whose owner follows the law, until a notice, its end or the run's. The
hazard is that of the law, changed by whoever lends or takes back a host. Left out at its beginning: the steps that were computed
again, for which nothing is at risk, and the first few (`_fresh_steps`), of which a receiver may have much.

*What is taken for granted,* of any schedule: a snapshot of C bytes stops its job for what the world has it stop at least; a step
is interrupted by at most one; bytes leave by the host's whole uplink, at its greatest rate; while a checkpoint is on its way at
most one more snapshot is taken. Systems that compute jobs twice pay neither, and gangs go down together: there is none for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log

from controller.core.model import facts as f
from controller.core.policies.table import policy
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.inputs.traces import JobDraw, Trace
from experiments.results.hazard import Hazard
from experiments.results.history import end_s, only
from experiments.results.link_rates import LinkRates
from experiments.theory.paper_a.least_cost import least_cost_s
from experiments.worlds.oracle.bound import lacking_bytes, uplink_rate
from experiments.worlds.virtual import Overheads, VirtualRun
from experiments.worlds.virtual.overheads import costs_of
from testbed.ranks import rank_of

# of a receiver's state before an attempt, what may still be right after the steps that are left out
STILL_RIGHT = 0.01
_TOLD = frozenset(
    (
        f.HostJoined,
        f.HostReclaimed,
        f.HostReturned,
        f.JobSubmitted,
        f.JobRunning,
        f.JobStopped,
        f.JobFinished,
        f.JobFailed,
        f.JobCancelled,
        f.CheckpointCompleted,
    )
)


@dataclass(frozen=True, slots=True)
class OnlineBound:
    """The least that emergencies in the mean and pauses together take, seconds of a GPU.

    `any_s`: of any schedule; `within_budgets_s`: of those that take a snapshot at least every 2 L_max, as loss budgets ask for.
    """

    any_s: float
    within_budgets_s: float


@dataclass(slots=True)
class _Stay:
    """A job computes on a host; `from_s`: its first steps left out. Pieces are (seconds, emergencies per second)."""

    job: JobDraw
    host: str
    from_s: float
    pieces: list[tuple[float, float]] = field(default_factory=list)
    until_s: float = 0.0

    def add(self, from_s: float, until_s: float, hazard_per_s: float) -> None:
        """What lies behind `from_s` of it, joined to a piece of the same hazard."""
        length_s = until_s - max(from_s, self.from_s)
        if length_s <= 0.0:
            return
        if self.pieces and self.pieces[-1][1] == hazard_per_s:
            length_s += self.pieces.pop()[0]
        self.pieces.append((length_s, hazard_per_s))
        self.until_s = until_s


def online_bound(
    run: VirtualRun, scenario: Scenario, trace: Trace, system: str, costs: Overheads | None = None
) -> OnlineBound | None:
    """The bound of a run; arguments are those that `simulate` had for it.

    None where owners follow no law that the scenario draws from, with gangs, and of a system of replicas. SpecError: no such
    system.
    """
    law = run.context.reclaims
    if policy(system).replication is not None or law is None:
        return None
    costs = costs_of(settings_of(scenario.played())) if costs is None else costs
    jobs = {arrival.job.name: arrival.job for arrival in scenario.scale.apply(trace).arrivals}
    hazard, stays = Hazard(law), list[_Stay]()
    open_stays: dict[str, _Stay] = {}
    newest: dict[str, int] = {}  # job -> the latest step that was complete anywhere

    def until(at_s: float) -> None:
        for from_s, until_s, per_s in hazard.pieces(at_s):
            for stay in open_stays.values():
                stay.add(from_s, until_s, per_s * hazard.factor(stay.host))

    for at_s, fact in only(run.facts, _TOLD):
        until(at_s)
        match fact:
            case f.JobSubmitted(job=name) if rank_of(name) is not None:
                return None
            case f.HostJoined(host=host, lent=lent):
                hazard.lend(host, lent=lent)
            case f.HostReturned(host=host):
                hazard.lend(host, lent=True)
            case f.HostReclaimed(host=host):
                hazard.lend(host, lent=False)
                open_stays = {name: stay for name, stay in open_stays.items() if stay.host != host}
            case f.CheckpointCompleted(job=name, step=step):
                newest[name] = max(step, newest.get(name, 0))
            case f.JobRunning(job=name, host=host, step=step) if name in jobs and host in law.factors:
                job = jobs[name]
                left_out = max(0, newest.get(name, 0) - step) + _fresh_steps(job)
                open_stays[name] = _Stay(job, host, at_s + left_out * (job.step_s + _pause_s(job, costs)))
                stays.append(open_stays[name])
            case (
                f.JobStopped(job=name)
                | f.JobFinished(job=name)
                | f.JobFailed(job=name)
                | f.JobCancelled(job=name)
            ):
                open_stays.pop(name, None)
    until(end_s(run.facts, run.context.ended_at_s))
    rates = LinkRates(run.context.campus, run.facts)
    found = [_least_s(run, rates, stay, costs) for stay in stays if stay.pieces]
    return (
        OnlineBound(*(sum(column) for column in zip(*found, strict=True))) if found else OnlineBound(0.0, 0.0)
    )


def _pause_s(job: JobDraw, costs: Overheads) -> float:
    """For which a snapshot of the job stops it, at least."""
    if costs.snapshot_pause_s is None:
        return costs.snapshot_s[0] + job.payload_bytes / costs.snapshot_bytes_per_s
    return costs.snapshot_pause_s[0] + job.payload_bytes / costs.snapshot_pause_bytes_per_s


def _fresh_steps(job: JobDraw) -> int:
    """Steps until what a receiver had before is wrong but for STILL_RIGHT of it; 0 where states never change."""
    return ceil(log(STILL_RIGHT) / log(1.0 - job.dirty_fraction)) if 0.0 < job.dirty_fraction < 1.0 else 1


def _least_s(run: VirtualRun, rates: LinkRates, stay: _Stay, costs: Overheads) -> tuple[float, float]:
    """(of any schedule, of those within the job's loss budget)."""
    job, pause_s = stay.job, _pause_s(stay.job, costs)
    rate = uplink_rate(run, rates, stay.host, stay.from_s, stay.until_s, keeps_reserve=False)
    transfer_s = 0.0
    if job.dirty_fraction > 0.0 and rate > 0.0:
        longest_s = job.step_s + pause_s
        lacking = lacking_bytes(
            float(job.payload_bytes), job.dirty_fraction, longest_s, _fresh_steps(job), rate
        )
        transfer_s = lacking / rate
    least_s = least_cost_s(stay.pieces, pause_s, transfer_s, step_s=job.step_s)
    within_s = least_cost_s(
        stay.pieces, pause_s, transfer_s, step_s=job.step_s, longest_interval_s=2.0 * job.loss_budget_s
    )
    return least_s, within_s
