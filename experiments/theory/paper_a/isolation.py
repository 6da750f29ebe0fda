"""P3's closed forms (paper A, section VII): demands, the reserve, which jobs are admitted and what each may send, on one link.

By `controller.core.admission` and `controller.core.network`, which do the same over many links. Theorem 4 is the sum of it:
with all providers taking part, migrations leave B_min; a share 1 - phi that does not, with bursts of u, takes (1 - phi) u of it.
(Section X prints B - B_min - (1 - phi) u as the guarantee, which is what is left for *migrations*.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.admission import admission
from controller.core.network import max_min, sharing
from controller.core.network.links import Network
from experiments.theory.domain import DomainError, not_negative, require
from topologies.spec import DirectedLink, ResearchReserve

LINK = DirectedLink("source", "switch")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Minimum rates (infinite: no time), and the indices admitted by each rule; counts where only those are unique."""

    minimum_rates: tuple[float, ...]
    edf_skip: tuple[int, ...]
    edf_stop: tuple[int, ...]
    smallest_demand_first: tuple[int, ...]
    fluid: tuple[int, ...]


def minimum_rate(payload_bytes: float, notice_s: float, restart_s: float) -> float:
    """r_min = C/(tau - T_r) (eq. 12); infinite, never negative, if tau <= T_r: infeasible.

    Theorem 3: held throughout, such a rate completes the migration by tau.
    """
    not_negative("payload", payload_bytes)
    for name, value in (("tau", notice_s), ("T_r", restart_s)):
        require(not math.isnan(value), name, value, "must be a number")
    found = admission.minimum_rate(payload_bytes, notice_s, restart_s)
    return math.inf if isinstance(found, admission.Infeasible) else found


def reserve(capacity: float, beta: float, minimum: float) -> float:
    """B_res = max(beta B, B_min) as printed (section VII-B): more than B where B_min is."""
    _link(capacity, beta, minimum)
    return max(beta * capacity, minimum)


def migration_share(capacity: float, beta: float, minimum: float) -> float:
    """B_mig = B - B_res, and 0 where B_min > B."""
    _link(capacity, beta, minimum)
    return ResearchReserve(beta, minimum).migration_share_bytes_per_s(capacity)


def residual_for_research(minimum: float, participation: float = 1.0, uncontrolled: float = 0.0) -> float:
    """B_min - (1 - phi) u: what Theorem 4 leaves to others with participation phi and uncontrolled bursts u; 0 or more.

    DomainError: phi outside (0, 1].
    """
    require(0.0 < participation <= 1.0, "phi", participation, "must be above 0, up to 1")
    taken = (1.0 - participation) * not_negative("u", uncontrolled)
    return max(0.0, not_negative("B_min", minimum) - taken)


def admissions(payloads: Sequence[float], slacks_s: Sequence[float], share: float) -> Admitted:
    """Which jobs are admitted on one link of migration share `share`, by each rule; slack is tau - T_r, from now.

    Ties go to the lower index. A flow without time (slack <= 0) is refused and frees nothing.
    """
    require(len(payloads) == len(slacks_s), "payloads", len(payloads), "must be one a slack")
    not_negative("B_mig", share)
    for slack_s in slacks_s:
        require(math.isfinite(slack_s), "slack", slack_s, "must be a finite number")
    requests = [
        admission.MigrationRequest(f"{i:09d}", not_negative("payload", c), slack_s, 0.0, (LINK,))
        for i, (c, slack_s) in enumerate(zip(payloads, slacks_s, strict=True))
    ]
    rules = (admission.edf_skip, admission.edf_stop, admission.smallest_demand_first, admission.fluid_edf)
    admitted = (rule(requests, 0.0, {LINK: share}, ()).admitted for rule in rules)
    chosen = (tuple(sorted(int(key) for key in keys)) for keys in admitted)
    rates = tuple(minimum_rate(r.payload_bytes, r.deadline_s, 0.0) for r in requests)
    return Admitted(rates, *chosen)


def max_min_totals(floors: Sequence[float], caps: Sequence[float], share: float) -> tuple[float, ...]:
    """Max-min of totals with floors and caps (the default reading of section VII-B). DomainError: floors do not fit."""
    demands = _demands(floors, caps)
    try:
        return tuple(sharing.fill(demands, {LINK: share}).rates[d.key] for d in demands)
    except ValueError as error:
        raise DomainError("floors", tuple(floors), str(error)) from error


def equal_increments(floors: Sequence[float], caps: Sequence[float], share: float) -> tuple[float, ...]:
    """The floor of each and the same extra for all, up to the caps (the other reading). DomainError: floors do not fit."""
    max_min_totals(floors, caps, share)  # they fit
    wants = sharing.in_columns(_demands(floors, caps), Network([LINK]))
    rates, _ = max_min.equal_increment(wants, np.array([share]))
    return tuple(rates.tolist())


def _demands(floors: Sequence[float], caps: Sequence[float]) -> list[sharing.Demand]:
    require(len(floors) == len(caps), "floors", len(floors), "must be one a cap")
    for cap in caps:
        require(cap >= 0.0, "cap", cap, "must be 0 or more")
    return [
        sharing.Demand(f"{i:09d}", (LINK,), 1.0, min(not_negative("floor", floor), cap), cap)
        for i, (floor, cap) in enumerate(zip(floors, caps, strict=True))
    ]


def _link(capacity: float, beta: float, minimum: float) -> None:
    not_negative("B", capacity)
    require(0.0 <= beta <= 1.0, "beta", beta, "must be a share from 0 to 1")
    not_negative("B_min", minimum)
