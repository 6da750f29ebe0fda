"""Named policies: each row is a choice of one function for each decision. ReclaimNet and its baselines differ
in nothing else.

To add one: write a function with the signature of its column (`checkpointing.Planner`, `placement.Selector`,
`admission.Admit`, `admission.Share`, `Learner`), and add a row. Nothing registers itself; this file is the
whole list.

What no row changes: links keep their research reserve, and grants are enforced. A baseline without
enforcement is a setting of the world that runs it, not a decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from controller.core import admission, checkpointing, joint_planning, placement, queue
from controller.core.levels.age import Age
from controller.core.levels.replay import Replay
from testbed.errors import SpecError


class Learner(Protocol):
    """Makes the queue's controller; each takes what it needs."""

    def __call__(
        self,
        target_delay_s: float,
        step_per_s: float,
        window: int,
        r0: float,
        r_max: float,
        offer_ttl_s: float = 0.0,
        compiled: bool = False,
    ) -> queue.Controller:
        """delta, alpha, W (arrivals between two corrections), r_0, r_max; how long offers stand; numba or not."""


def algorithm1(
    target_delay_s: float,
    step_per_s: float,
    window: int,
    r0: float,
    r_max: float,
    offer_ttl_s: float = 0.0,
    compiled: bool = False,
) -> queue.Controller:
    """Paper B's, corrected."""
    return queue.Algorithm1(target_delay_s, step_per_s, window, r0, r_max)


def replay(
    target_delay_s: float,
    step_per_s: float,
    window: int,
    r0: float,
    r_max: float,
    offer_ttl_s: float = 0.0,
    compiled: bool = False,
) -> queue.Controller:
    """r from the recorded arrivals."""
    return Replay(target_delay_s, window, r0, r_max, offer_ttl_s=offer_ttl_s, compiled=compiled)


def age(
    target_delay_s: float,
    step_per_s: float,
    window: int,
    r0: float,
    r_max: float,
    offer_ttl_s: float = 0.0,
    compiled: bool = False,
) -> queue.Controller:
    """r and the ages of the gap from the recorded arrivals."""
    return Age(target_delay_s, window, r0, r_max, offer_ttl_s=offer_ttl_s, compiled=compiled)


@dataclass(frozen=True, slots=True)
class Policy:
    """One system. `plan` is P1, `select` P2, `admit` and `share` P3, `learner` paper B."""

    about: str
    plan: checkpointing.Planner = joint_planning.plan_exact
    select: placement.Selector = placement.select
    admit: admission.Admit = admission.fluid_edf
    share: admission.Share = admission.share_totals
    learner: Learner = age

    @property
    def rates_vary(self) -> bool:
        """Whether `admit` answers with a timetable: its promises are pledges, and keep margins."""
        return self.admit is admission.fluid_edf


def _fixed_at_start(
    target_delay_s: float,
    step_per_s: float,
    window: int,
    r0: float,
    r_max: float,
    offer_ttl_s: float = 0.0,
    compiled: bool = False,
) -> queue.Controller:
    """r stays at r_0."""
    return queue.Fixed(r0)


LEARNERS: dict[str, Learner] = {  # by the names that a scenario may give, whatever its policy
    "fixed": _fixed_at_start,
    "algorithm1": algorithm1,
    "replay": replay,
    "age": age,
}

POLICIES: dict[str, Policy] = {
    "reclaimnet": Policy("both papers, with the corrections that each file's first paragraph lists"),
    "reclaimnet-as-printed": Policy(
        "paper A to the letter: budgets clip after allocation, same building first, a misfit stops admission",
        plan=checkpointing.plan_as_printed,
        select=partial(
            placement.select, k_min=1
        ),  # the paper gives k_min no value; 1 is the least that filters
        admit=admission.edf_stop,
        learner=algorithm1,
    ),
    "cube-roots": Policy(
        "P1 by Theorem 1's cube roots with loss budgets as lower bounds, max-min over the links; none is chosen to be kept",
        plan=checkpointing.plan,
    ),
    "static-interval": Policy(
        "paper A's B3 in P1 only: one checkpoint period for everybody, for ever, and equal shares",
        plan=checkpointing.StaticPlanner(),
    ),
    "one-interval": Policy(
        "paper A's B7: one checkpoint period for everybody, from the means of the epoch",
        plan=checkpointing.plan_one_interval,
    ),
    "random-destination": Policy(
        "paper A's B4: any host that can run the job, at random",
        select=placement.select_random,
    ),
    "expected-reclaims": Policy(
        "P2 in its second form: the expected number of reclaims where the paper has the probability of one",
        select=partial(placement.select, second_form=True),
    ),
    "no-admission": Policy(
        "every migration may try, none is promised a rate; fair shares",
        admit=admission.admit_all,
    ),
    "smallest-demand-first": Policy(
        "admission in order of minimum rate, not of deadline",
        admit=admission.smallest_demand_first,
    ),
    "constant-rates": Policy(
        "a migration has one rate from notice to deadline; earliest deadline first, a misfit is skipped",
        admit=admission.edf_skip,
    ),
    "equal-increment": Policy(
        "the other reading of 'remaining by max-min': the same extra for everybody",
        share=admission.share_increments,
    ),
    "replay": Policy("paper B's r found by running the recorded arrivals again", learner=replay),
    "algorithm1": Policy("paper B's r learned by the corrected Algorithm 1", learner=algorithm1),
    "fixed-level": Policy("paper B's queue with r left at r_0", learner=_fixed_at_start),
}


def policy(
    name: str,
    time_scale: float = 1.0,
    *,
    alpha: float = placement.ALPHA,
    theta: float = placement.THETA,
    k_min: int | None = None,
) -> Policy:
    """The row of that name, for a scenario whose durations are `time_scale` times the paper's.

    `alpha`, `theta` and `k_min` are P2's parameters, for rows that score; a row's own choice of one wins. SpecError: no
    such row."""
    row = POLICIES.get(name)
    if row is None:
        raise SpecError("policy", name, f"one of {', '.join(POLICIES)}")
    if isinstance(row.plan, checkpointing.StaticPlanner):
        row = replace(row, plan=checkpointing.StaticPlanner(row.plan.interval_s * time_scale))
    chosen = row.select if isinstance(row.select, partial) else partial(row.select)
    if chosen.func is placement.select:
        given = {"alpha": alpha, "theta": theta, "k_min": k_min}
        row = replace(row, select=partial(placement.select, **{**given, **chosen.keywords}))
    return row
