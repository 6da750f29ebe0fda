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

*For whom it is proved.* Schedules may follow from all that was seen, the departures of other hosts included. Under a
Poisson law these announce nothing. Where owners leave in bursts (`Owners.burst`), the first departure of a burst announces
the others. So only the first is charged (`ReclaimLaw.leading` of the hazard), and the bound holds for bursts, too. The
number of reclaims is taken to be unknown: a schedule that knows it has (ln N)/(8 N) less to pay, 0.1 % for N = 847.

*The forced part.* Within loss budgets most of it may be pauses that 2 L_max alone forces on every schedule of the class.
They stand in what a run paid and in the bound alike, so the ratio of the two is also given without them. A row whose
intervals are longer is in no such class, and may have paid less than they are.

*What is taken for granted,* of any schedule: a snapshot stops its job for what the world has it stop at least; a step is
interrupted by at most one; bytes leave by the host's whole uplink, at its greatest rate; while a checkpoint is on its way at most
one more snapshot is taken. Systems that compute jobs twice pay neither: there is none for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log

from experiments.results.hazard import EmergencyHazard
from experiments.results.history import Timed, attempts, end_s, story_of
from experiments.results.link_rates import LinkRates
from experiments.results.run_context import CheckpointPrice, RunContext, migration_share
from experiments.theory.paper_a.least_cost import forced_snapshots, lacking_bytes, least_cost_s

# of a receiver's state before an attempt, what may still be right after the steps that are left out
STILL_RIGHT = 0.01


@dataclass(frozen=True, slots=True)
class OnlineBound:
    """The least that emergencies in the mean and pauses together take, seconds of a GPU.

    `any_s`: of any schedule; `within_budgets_s`: of those that begin a snapshot at least every 2 L_max, as loss budgets ask
    for. `forced_s`: the pauses that this alone forces on each of them.
    """

    any_s: float
    within_budgets_s: float
    forced_s: float


def online_bound(facts: Sequence[Timed], context: RunContext) -> OnlineBound | None:
    """Return the bound of a run; None where owners follow no law or nothing is known of prices."""
    law, prices = context.reclaims, context.prices
    if law is None or not prices:
        return None
    ended_s = end_s(facts, context.ended_at_s)
    hazard, story = EmergencyHazard(law, facts, ended_s), story_of(facts)
    rates = LinkRates(context.campus, facts)
    any_s = within_s = forced_s = 0.0
    for attempt in attempts(facts):
        price, running_s = prices.get(attempt.job), attempt.running_s
        if price is None or running_s is None or attempt.host not in law.factors:
            continue
        price = replace(price, step_s=price.step_s / attempt.speed)
        until_s = ended_s if attempt.ended_s is None else attempt.ended_s
        until_s = min(until_s, hazard.reclaimed_s(attempt.host, running_s))
        known = (copy.step for copy in story.copies.get(attempt.job, ()) if copy.at_s <= running_s)
        left_out = max(0, max(known, default=0) - attempt.from_step) + _fresh_steps(price)
        from_s = running_s + left_out * (price.step_s + price.pause_s)
        if from_s < until_s:
            pieces = hazard.pieces(attempt.host, from_s, until_s)
            lengths = [(piece_end_s - start_s, law.leading * per_s) for start_s, piece_end_s, per_s in pieces]
            fastest = rates.fastest_uplink(attempt.host, from_s, until_s)
            rate = migration_share(context.campus, fastest, keeps_reserve=False)
            interval_s, gpus = 2.0 * price.loss_budget_s, story.submitted[attempt.job].gpus
            any_s += gpus * _least_s(price, lengths, rate, inf)
            within_s += gpus * _least_s(price, lengths, rate, interval_s)
            forced = forced_snapshots(until_s - from_s, price.pause_s, interval_s)
            forced_s += gpus * forced * price.pause_s
    return OnlineBound(any_s, within_s, forced_s)


def _fresh_steps(price: CheckpointPrice) -> int:
    """Return the number of steps until what a receiver had before is wrong but for STILL_RIGHT of it."""
    dirty = price.dirty_fraction
    return ceil(log(STILL_RIGHT) / log(1.0 - dirty)) if 0.0 < dirty < 1.0 else 1


def _least_s(
    price: CheckpointPrice, pieces: Sequence[tuple[float, float]], rate: float, longest_interval_s: float
) -> float:
    """Return the least of a stay on a host. `rate`: of its uplink, payload bytes/s."""
    transfer_s = 0.0
    if price.dirty_fraction > 0.0 and rate > 0.0:
        longest_s = price.step_s + price.pause_s
        before = _fresh_steps(price)
        transfer_s = lacking_bytes(price.payload_bytes, price.dirty_fraction, longest_s, before, rate) / rate
    return least_cost_s(pieces, price.pause_s, transfer_s, step_s=price.step_s, longest_interval_s=longest_interval_s)
