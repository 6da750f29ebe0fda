"""Lower bound of what checkpoints cost any on-line schedule, one that does not know when emergencies will come.

Lemma 1 has the cost of the best interval of one length under one hazard, sqrt(2 lambda C/B) a second. Here the hazard
changes in steps, any rule may take snapshots at any time, and a checkpoint takes time to be elsewhere. A job computes
on one host during `pieces` of constant hazard lambda. Its cost is the pauses for its snapshots, at least p seconds
each, and the integral of lambda y. Here y is the job's *work at risk*: seconds of work since the state of the newest
checkpoint that is elsewhere. The integral is what emergencies take in the mean over their moments, if what is done
depends on the past alone; a schedule that knows their moments may pay less. Nothing else of what is lost is in it, so
what is lost in all is at least this.

*Assumptions.* A checkpoint is elsewhere `transfer_s` after its snapshot, at the earliest. While one is on its way at
most one other snapshot is taken, for which the job stands still for p. So y is at least d = transfer_s - p whenever a
checkpoint becomes the newest.

*Proof.* Take a piece of hazard lambda and some weight w of at most p (1 - k). With c = sqrt(2 w lambda) and x = y - d, let

    phi(y) = c x - lambda x^2/2 where x < c/lambda, and w beyond,

which rises with y, is 0 at y = d, and w at most. Then cost + phi rises by at least c + lambda d a second:

1. The job computes: y rises by 1 a second, and lambda y + phi'(y) = lambda d + c where x < c/lambda; beyond, phi' = 0 and
   lambda y is more.
2. It stands still for a snapshot: p is paid. Of that, k p is what c + lambda d asks for meanwhile (k is their greatest
   sum over the pieces); w stays for 3.
3. A checkpoint becomes the newest: y falls, to d at least, and phi by w at most.
4. Another piece begins: phi becomes another function. If lambda rises from l to m, the least change is at y = 0:
   -(sqrt(2 w m) - sqrt(2 w l)) d - (m - l) d^2/2. If it falls, the least change is at x = sqrt(2 w/l)/(1 + r),
   r = sqrt(m/l): -w (1 - r)/(1 + r).

At the beginning y is at least 0, at the end phi at most w. So for every w the cost is at least the integral of
c + lambda d, less three terms: -phi(0) at the beginning, w at its end, and what 4. takes. With sqrt(w) as the unknown that
is a parabola; its top is the bound.

*With loss budgets.* Let a snapshot begin at most `longest_interval_s` (2 L_max, eq. 9) after the one before began. Plans
count intervals so, too. Then in a time T at least n = floor((T - p) / longest_interval_s) begin and end
(`forced_snapshots`). Of each, the p (1 - k) - w that 3. does not need are paid, too. Without budgets n is 0.

*For whom.* lambda has to be the hazard given all that a schedule has seen. That holds for a Poisson law, not for
departures that announce others. `experiments.results.online_bound` charges a burst of them once.

Work counts in whole steps: half a step less is at risk in the mean, as in `experiments.results.expected_loss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

from experiments.theory.domain import not_negative, positive


def least_cost_s(
    pieces: Sequence[tuple[float, float]],
    pause_s: float,
    transfer_s: float = 0.0,
    *,
    step_s: float = 0.0,
    longest_interval_s: float = inf,
) -> float:
    """Return the least of pauses and work at risk times hazard, in seconds.

    `pieces` are (seconds, emergencies per second), in order.

    DomainError: a negative number, or an interval of 0.
    """
    for length_s, hazard_per_s in pieces:
        not_negative("seconds of a piece", length_s)
        not_negative("hazard", hazard_per_s)
    for name, value in (("pause", pause_s), ("transfer", transfer_s), ("step", step_s)):
        not_negative(name, value)
    if longest_interval_s != inf:
        positive("longest interval", longest_interval_s)
    if not pieces:
        return 0.0
    # transfers may be left out: short times do not pay for what they take at the beginning
    leads_s = {max(0.0, transfer_s - pause_s), 0.0}
    return max(0.0, *(_top(pieces, pause_s, lead_s, step_s, longest_interval_s) for lead_s in leads_s))


def forced_snapshots(length_s: float, pause_s: float, longest_interval_s: float) -> int:
    """Return the least number of whole snapshots in a time, if each begins at most so long after the one before began."""
    return max(0, int((length_s - pause_s) // longest_interval_s))


def lacking_bytes(
    payload_bytes: float, dirty_fraction: float, step_s: float, before: int, rate_bytes_per_s: float
) -> float:
    """Return the least number of bytes of a step's state that are yet to cross when the step is complete.

    `before` is the number of steps of its attempt before it. Of that state, C bytes, every step rewrites a share f,
    above 0. A byte that crossed the wire i steps before is still right with a share of at most (1 - f)^i. (1 - i f, in
    one go, is less.) At most r s bytes cross in a step of s. So earlier bytes are worth at most r s (1 + (1 - f) + ...)
    = r s / f bytes of it. The state before the attempt began is worth at most C (1 - f)^before. Nor is it ever more
    than (1 - f) C, for the step itself rewrote f C.
    """
    dirty = min(1.0, dirty_fraction)
    worth = rate_bytes_per_s * step_s / dirty + payload_bytes * (1.0 - dirty) ** before
    return payload_bytes - min((1.0 - dirty) * payload_bytes, worth)


def _top(
    pieces: Sequence[tuple[float, float]], pause_s: float, lead_s: float, step_s: float, longest_interval_s: float
) -> float:
    """Return the maximum of the parabola `rising` sqrt(w) - `falling` w + `rest`; 0 where k is 1 or more."""
    greatest = max(hazard_per_s for _, hazard_per_s in pieces)
    left = 1.0 - sqrt(2.0 * pause_s * greatest) - greatest * lead_s  # 1 - k
    if left <= 0.0:
        return 0.0
    weight_s = pause_s * left
    snapshots = forced_snapshots(sum(length_s for length_s, _ in pieces), pause_s, longest_interval_s)
    rising, falling, rest = 0.0, 1.0 + snapshots, snapshots * weight_s
    before = 0.0
    for length_s, hazard_per_s in pieces:
        rising += length_s * sqrt(2.0 * hazard_per_s)
        rest += length_s * hazard_per_s * (lead_s - step_s / 2.0)
        if hazard_per_s > before:
            rising -= lead_s * (sqrt(2.0 * hazard_per_s) - sqrt(2.0 * before))
            rest -= lead_s * lead_s / 2.0 * (hazard_per_s - before)
        elif hazard_per_s < before:
            part = sqrt(hazard_per_s / before)
            falling += (1.0 - part) / (1.0 + part)
        before = hazard_per_s
    root = max(0.0, min(sqrt(weight_s), rising / (2.0 * falling)))
    return rising * root - falling * root * root + rest
