"""Lower bound, over all on-line checkpoint schedules, of a run's emergencies (in the mean) and pauses together.

What a run lost to emergencies shows little of its checkpoints, and an oracle that knows the moments hardly more: it has
a checkpoint complete just before each. An on-line schedule cannot, and pays in pauses for what emergencies take in the
mean (`experiments.theory.paper_a.least_cost`, with the proof). As there the bound is of all schedules that have the
jobs where and when the run had them; where owners are alike, as on paper A's campus, another host would be no better.
Free are when snapshots are taken, at which rates they leave and where they go. It stands beside `expected_loss` and the
pauses of `lost_time`, which are what the run had of the two; the rest of what is lost (notices, waiting, restarts) has
no bound above 0.

*What is counted.* Each time that a job computes on a host whose owner follows the law, until a notice, its end or the
run's. The hazard is that of the law, changed where owners lend or take back hosts. Left out at its beginning: steps
that were computed again, for which nothing is at risk, and the first few (`_fresh_steps`), of which a receiver may have
much.

*What is taken for granted,* of any schedule: a snapshot stops its job for what the world has it stop at least; a step is
interrupted by at most one; bytes leave by the host's whole uplink, at its greatest rate; while a checkpoint is on its way at most
one more snapshot is taken. Systems that compute jobs twice pay neither: there is none for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log

from controller.core.model import facts as f
from experiments.results.hazard import LentHazard
from experiments.results.history import OF_ATTEMPTS, Timed, end_s, only
from experiments.results.link_rates import LinkRates
from experiments.results.run_context import CheckpointPrice, RunContext, migration_share
from experiments.theory.paper_a.least_cost import lacking_bytes, least_cost_s

# of a receiver's state before an attempt, what may still be right after the steps that are left out
STILL_RIGHT = 0.01
_TOLD = OF_ATTEMPTS | {f.HostJoined, f.HostReclaimed, f.HostReturned, f.JobSubmitted, f.CheckpointCompleted}


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

    price: CheckpointPrice
    host: str
    from_s: float
    gpus: int
    pieces: list[tuple[float, float]] = field(default_factory=list)
    until_s: float = 0.0

    def add(self, from_s: float, until_s: float, hazard_per_s: float) -> None:
        """Add what lies in it of this time, joined to a piece of the same hazard."""
        length_s = until_s - max(from_s, self.from_s)
        if length_s <= 0.0:
            return
        if self.pieces and self.pieces[-1][1] == hazard_per_s:
            length_s += self.pieces.pop()[0]
        self.pieces.append((length_s, hazard_per_s))
        self.until_s = until_s


def online_bound(facts: Sequence[Timed], context: RunContext) -> OnlineBound | None:
    """Return the bound of a run; None where owners follow no law or nothing is known of prices."""
    law, prices = context.reclaims, context.prices
    if law is None or not prices:
        return None
    hazard, stays = LentHazard(law), list[_Stay]()
    open_stays: dict[str, _Stay] = {}
    newest: dict[str, int] = {}  # job -> the latest step that was complete anywhere
    gpus: dict[str, int] = {}

    def until(at_s: float) -> None:
        for from_s, until_s, per_s in hazard.pieces(at_s):
            for stay in open_stays.values():
                stay.add(from_s, until_s, per_s * hazard.factor(stay.host))

    for at_s, fact in only(facts, _TOLD):
        until(at_s)
        match fact:
            case f.JobSubmitted(job=name):
                gpus[name] = fact.gpus
            case f.HostJoined(host=host, lent=lent):
                hazard.lend(host, lent=lent)
            case f.HostReturned(host=host):
                hazard.lend(host, lent=True)
            case f.HostReclaimed(host=host):
                hazard.lend(host, lent=False)
                open_stays = {name: stay for name, stay in open_stays.items() if stay.host != host}
            case f.CheckpointCompleted(job=name, step=step):
                newest[name] = max(step, newest.get(name, 0))
            case f.JobRunning(job=name, host=host, step=step) if name in prices and host in law.factors:
                price = prices[name]
                left_out = max(0, newest.get(name, 0) - step) + _fresh_steps(price)
                from_s = at_s + left_out * (price.step_s + price.pause_s)
                open_stays[name] = _Stay(price, host, from_s, gpus.get(name, 1))
                stays.append(open_stays[name])
            case (
                f.JobStopped(job=name)
                | f.JobFinished(job=name)
                | f.JobFailed(job=name)
                | f.JobCancelled(job=name)
            ):
                open_stays.pop(name, None)
    until(end_s(facts, context.ended_at_s))
    rates = LinkRates(context.campus, facts)
    found = [_least_s(context, rates, stay) for stay in stays if stay.pieces]
    return OnlineBound(sum(any_s for any_s, _ in found), sum(within_s for _, within_s in found))


def _fresh_steps(price: CheckpointPrice) -> int:
    """Return the number of steps until what a receiver had before is wrong but for STILL_RIGHT of it."""
    dirty = price.dirty_fraction
    return ceil(log(STILL_RIGHT) / log(1.0 - dirty)) if 0.0 < dirty < 1.0 else 1


def _least_s(context: RunContext, rates: LinkRates, stay: _Stay) -> tuple[float, float]:
    """Return the least (of any schedule, of those within the job's loss budget)."""
    price = stay.price
    fastest = rates.fastest_uplink(stay.host, stay.from_s, stay.until_s)
    rate = migration_share(context.campus, fastest, keeps_reserve=False)
    transfer_s = 0.0
    if price.dirty_fraction > 0.0 and rate > 0.0:
        longest_s = price.step_s + price.pause_s
        before = _fresh_steps(price)
        transfer_s = lacking_bytes(price.payload_bytes, price.dirty_fraction, longest_s, before, rate) / rate
    longest_interval_s = 2.0 * price.loss_budget_s
    any_s = least_cost_s(stay.pieces, price.pause_s, transfer_s, step_s=price.step_s)
    within_s = least_cost_s(
        stay.pieces, price.pause_s, transfer_s, step_s=price.step_s, longest_interval_s=longest_interval_s
    )
    return any_s * stay.gpus, within_s * stay.gpus
