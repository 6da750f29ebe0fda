"""Named policies: each row is a choice of one function for each decision. ReclaimNet and its baselines differ in nothing else.

An ablation needs no row: a name such as `reclaimnet+vault=false` overrides fields of one (`overrides`).

To add one: write a function with the signature of its column (`checkpointing.Planner`, `placement.Selector`,
`admission.Admit`, `admission.Share`, `Learner`), and add a row. Nothing registers itself; this file is the
whole list. `SYSTEMS` are those that Table III compares.

Defaults are those of `reclaimnet`. A baseline that moves no job at a notice has another `Interruption`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from controller.core.admission import admission
from controller.core.checkpointing import planner
from controller.core.network import max_min
from controller.core.parameters import DAY_S, Protocol, Queue
from controller.core.placement import select as placement
from controller.core.policies import baselines
from controller.core.policies.baselines import Interruption, Replication
from controller.core.policies.overrides import base_of, overridden
from controller.core.queueing.controllers.age import Age
from controller.core.queueing.controllers.controller import Algorithm1, Controller
from controller.core.queueing.controllers.replay import Replay
from controller.core.queueing.replay import Rule
from testbed.errors import SpecError
from topologies.spec import ResearchReserve

NO_RESERVE = ResearchReserve(beta=0.0, most_lost=0.0)
MIGRATES = Interruption(migrates=True)

Learner = Callable[[Queue], Controller]  # makes the queue's controller; each takes what it needs


def _fixed(terms: Queue) -> Controller:
    """Return a controller whose r stays at r_0."""
    return Controller(Rule(terms.level_start))


def algorithm1(terms: Queue) -> Controller:
    """Return the controller of paper B, corrected."""
    return Algorithm1(
        terms.target_delay_s, terms.level_step_per_s, terms.level_window, terms.level_start, terms.level_max
    )


def replay(terms: Queue) -> Controller:
    """Return a controller that learns r from the recorded arrivals."""
    return _replaying(Replay, terms)


def age(terms: Queue) -> Controller:
    """Return a controller that learns r and the ages of the gap from the recorded arrivals."""
    return _replaying(Age, terms)


def _replaying(kind: type[Replay], terms: Queue) -> Replay:
    return kind(
        terms.target_delay_s,
        every=terms.level_window,
        r0=terms.level_start,
        r_max=terms.level_max,
        offer_ttl_s=terms.offer_ttl_s,
    )


LEARNERS: dict[str, Learner] = {  # by the names that a scenario may give, whatever its policy
    "fixed": _fixed,
    "algorithm1": algorithm1,
    "replay": replay,
    "age": age,
}


OWN_PLANS = planner.plan_each, planner.plan_alike  # those of jobs that go on while they are sent


class UserFunction:
    """A user's function in a column of a row (`controller.user_policies`): what it reads and does is not known."""


@dataclass(frozen=True)
class Policy:
    """Row of a system: a function for each decision, and switches where it differs in more than a function."""

    about: str  # what it does, in a line
    # P1: rates and intervals of checkpoints
    plan: planner.Planner = planner.plan_each
    # P2: the destination of a move, or of a job that is resumed
    select: placement.Selector = placement.select
    # P3: which migrations are admitted
    admit: admission.Admit = admission.fluid_edf
    # P3: how links are shared among the flows that are open
    share: admission.Share = max_min.fill
    # paper B: makes the queue's controller of r
    learner: Learner = age
    # what becomes of a job whose owner takes its host back
    interruption: Interruption = MIGRATES
    # P2: the host that keeps a job's checkpoints
    standby: placement.Selector = placement.select_standby
    # where research asks for more than its reserve, migrations take as much of that as it may lose (`ResearchReserve.most_lost`)
    takes_allowance: bool = True
    # checkpoints use, beside the migration share, what research does not ask for of its reserve; never where nothing is enforced
    borrows: bool = True
    # a notice too short for a move counts as an emergency (`Cluster.too_short`), and the job's state is rescued (`migration`)
    short_notices: bool = True
    # copies of checkpoints go on to a third host (`second_copy`)
    vault: bool = True
    # a job that began again further back goes on from a better checkpoint when its holder returns (`job_events`)
    takes_up: bool = True
    # the state of jobs that wait for it travels before checkpoints (`grants`)
    recoveries_first: bool = True
    # decisions count with the speed of each GPU; else all count like the reference
    weighs_speed: bool = True
    # owners' calendars are known: P2 counts with the ends of their windows, which are announced before
    weighs_calendars: bool = True

    def __post_init__(self) -> None:
        if not self.enforced:  # then nothing distinguishes classes
            object.__setattr__(self, "borrows", False)
        if self.interruption.stays and not isinstance(self.plan, planner.StaticPlanner):
            raise ValueError("stays: with a StaticPlanner: there is no link to plan for")

    @cached_property
    def enforced(self) -> bool:
        """True if links keep research's reserve and senders their grants.

        Without admission TCP shares links, and grants are advice.
        """
        return self.admit is not admission.admit_all

    @cached_property
    def rates_vary(self) -> bool:
        """True if `admit` answers with a timetable, which no user's function does: migrations have reservations, with margins."""
        return self.admit is admission.fluid_edf

    @cached_property
    def counts_congestion(self) -> bool:
        """True if `select` may count the loss that a job causes its neighbours."""
        rule = self.select if isinstance(self.select, partial) else partial(self.select)
        return isinstance(rule.func, UserFunction) or (
            rule.func is placement.select and not rule.keywords.get("as_printed")
        )

    @cached_property
    def doubles(self) -> bool:
        """True if a job's work at most doubles between checkpoints, whatever hazard P1 counts with (`protection`)."""
        return self.plan in OWN_PLANS

    @property
    def checkpoint_share(self) -> float:
        """The beta of eq. (9) where the scenario gives none.

        It is P1's own where P1 counts on jobs that go on while they are sent, as they do, and for a user's planner;
        else the paper's.
        """
        goes_on = isinstance(self.plan, UserFunction) or self.doubles
        return planner.SENDING_SHARE if goes_on else planner.BETA

    @cached_property
    def reserves_rates(self) -> bool:
        """True if an admitted migration is sure to be in time: it has a rate that holds, and senders keep to their grants."""
        return self.interruption.migrates and self.enforced

    def reserve(self, wanted: ResearchReserve) -> ResearchReserve:
        """Return the reserve for research where the campus wants `wanted`."""
        if not self.enforced:
            return NO_RESERVE
        return wanted if self.takes_allowance else replace(wanted, most_lost=0.0)

    def scaled(self, time_scale: float) -> Policy:
        """Return the same for a scenario whose durations are `time_scale` times the real ones."""
        plan = self.plan
        if isinstance(plan, planner.StaticPlanner):
            plan = replace(plan, interval_s=plan.interval_s * time_scale)
        return replace(self, plan=plan, interruption=self.interruption.scaled(time_scale))


AS_PRINTED = partial(placement.select, k_min=1, as_printed=True)
NAIVE = planner.StaticPlanner(baselines.NAIVE_CHECKPOINT_S)

POLICIES: dict[str, Policy] = {
    "slurm-pr": Policy(
        "preempt and requeue: a checkpoint every 10 min, no migration, back to the queue (see `baselines`)",
        plan=planner.StaticPlanner(baselines.SLURM_CHECKPOINT_S),
        select=baselines.select_first,
        standby=baselines.select_first,
        admit=admission.admit_all,
        interruption=Interruption(wait_s=baselines.SLURM_REQUEUE_WAIT_S, central_store=True),
        takes_up=False,
        recoveries_first=False,
        vault=False,
    ),
    "no-migration": Policy(
        "a job never leaves its host, nor its checkpoints, one in 30 min: it waits for the owner (see `baselines`)",
        plan=NAIVE,
        select=placement.select_random,
        standby=placement.select_random,
        admit=admission.admit_all,
        interruption=Interruption(stays=True),
        takes_up=False,
        recoveries_first=False,
        vault=False,
    ),
    "static": Policy(
        "a checkpoint every 10 min, and neither P2 nor P3, as its downtime and traffic in Table III say",
        plan=planner.StaticPlanner(),
        select=placement.select_random,
        standby=placement.select_random,
        admit=admission.admit_all,
        takes_up=False,
        recoveries_first=False,
    ),
    "bamboo": Policy(
        "pipeline redundancy: a replica computes too and takes over without a restart (see `baselines`)",
        plan=planner.StaticPlanner(),
        select=placement.select_random,
        standby=baselines.select_elsewhere,
        admit=admission.admit_all,
        interruption=Interruption(replication=Replication()),
        takes_up=False,
        recoveries_first=False,
    ),
    "random-dst": Policy(
        "P1 and P3; any host that can run the job, at random",
        select=placement.select_random,
        standby=placement.select_random,
    ),
    "no-tc-bpf": Policy(
        "P1 and P2; every migration may try, no reserve for research, nothing enforced: TCP shares the links",
        admit=admission.admit_all,
    ),
    "tv-fixed-interval": Policy(
        "P2 and P3; one checkpoint period for everybody, from the means of the epoch", plan=planner.plan_one_interval
    ),
    "reclaimnet-as-printed": Policy(
        "paper A to the letter: budgets clip after allocation, same building first, a misfit stops admission",
        plan=planner.plan_as_printed,
        borrows=False,
        takes_allowance=False,
        takes_up=False,
        recoveries_first=False,
        vault=False,
        short_notices=False,
        weighs_speed=False,
        weighs_calendars=False,
        # the paper gives k_min no value; 1 is the least that filters
        select=AS_PRINTED,
        standby=AS_PRINTED,
        admit=admission.edf_stop,
        learner=algorithm1,
    ),
    "reclaimnet": Policy("both papers, with the corrections that each file's first paragraph lists"),
    # ---------------------------------------------------------------- Table IV's other subsets of P1, P2, P3
    "all-off": Policy(
        "none of P1, P2, P3: a checkpoint every 30 min, any host at random, TCP (Table IV, first row)",
        plan=NAIVE,
        select=placement.select_random,
        standby=placement.select_random,
        admit=admission.admit_all,
    ),
    "only-p1": Policy(
        "P1; any host at random, TCP",
        select=placement.select_random,
        standby=placement.select_random,
        admit=admission.admit_all,
    ),
    "only-p2": Policy("P2; a checkpoint every 30 min, TCP", plan=NAIVE, admit=admission.admit_all),
    "only-p3": Policy(
        "P3; a checkpoint every 30 min, any host at random",
        plan=NAIVE,
        select=placement.select_random,
        standby=placement.select_random,
    ),
    "no-p1": Policy("P2 and P3; a checkpoint every 30 min", plan=NAIVE),
    # ---------------------------------------------------------------- one decision otherwise than ReclaimNet's
    "one-interval": Policy(
        "P1 with one interval for all jobs, from the means of hazards and pauses: paper A's TV-FI at reclaimnet's price",
        plan=planner.plan_alike,
    ),
    "one-copy": Policy(
        "one copy, and a job that had to begin again does not go back to a better one that returns",
        takes_up=False,
        vault=False,
    ),
    "share": Policy(
        "checkpoints have the migration share with migrations, and no more when research does not ask for its reserve",
        borrows=False,
    ),
    "research-whole": Policy(
        "migrations take nothing that research asks for; the default takes the 3 % that research may lose",
        takes_allowance=False,
    ),
}

# row -> its name in Table III, in its order
SYSTEMS: dict[str, str] = {
    "slurm-pr": "Slurm-PR (B1')",
    "no-migration": "No-Mig. (B2)",
    "static": "Static (B3)",
    "bamboo": "Bamboo (B1)",
    "random-dst": "Rand-Dst (B4)",
    "no-tc-bpf": "No-BPF (B5)",
    "tv-fixed-interval": "TV-FI (B7)",
    "reclaimnet-as-printed": "ReclaimNet, as printed",
    "reclaimnet": "ReclaimNet",
}

ABLATION: dict[tuple[bool, bool, bool], str] = {  # which of P1, P2, P3 are on -> row; by Table IV, two are B5 and B4
    (False, False, False): "all-off",
    (True, False, False): "only-p1",
    (False, True, False): "only-p2",
    (False, False, True): "only-p3",
    (True, True, False): "no-tc-bpf",
    (True, False, True): "random-dst",
    (False, True, True): "no-p1",
    (True, True, True): "reclaimnet",
}


def policy_of(protocol: Protocol) -> Policy:
    """Return the row of a run, in its time scale and with its parameters of P2: the one that a world and its coordinator hold."""
    scale, alpha = protocol.day_s / DAY_S, protocol.stability_penalty
    return policy(protocol.policy, scale, alpha=alpha, k_min=protocol.k_min)


def row_of(name: str) -> Policy:
    """Return the row of that name, with its overrides (`overrides`). SpecError: no such row, or an override that cannot be."""
    row = POLICIES.get(name)
    if row is not None:
        return row
    if base_of(name) not in POLICIES:
        raise SpecError("policy", name, f"one of {', '.join(POLICIES)}")
    return overridden(name, POLICIES)


def policy(name: str, time_scale: float = 1.0, *, alpha: float = placement.ALPHA, k_min: int | None = None) -> Policy:
    """Return the row of that name, for a scenario whose durations are `time_scale` times the paper's.

    `alpha` and `k_min` are P2's parameters, for rows that score; a row's own choice of one wins. SpecError: no such row, or an
    override of it that cannot be.
    """
    row = row_of(name)
    row = row.scaled(time_scale) if time_scale != 1.0 else row
    return replace(row, select=_with(row.select, alpha, k_min), standby=_with(row.standby, alpha, k_min))


def _with(selector: placement.Selector, alpha: float, k_min: int | None) -> placement.Selector:
    """Return the selector with P2's parameters, if it is one that scores; what it has chosen of them itself stays."""
    chosen = selector if isinstance(selector, partial) else partial(selector)
    if chosen.func is not placement.select:
        return selector
    return partial(placement.select, **{"alpha": alpha, "k_min": k_min, **chosen.keywords})
