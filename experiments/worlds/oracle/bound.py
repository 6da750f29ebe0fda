"""How little the jobs of a run could have lost: a lower bound, beside the schedules that can be played.

*What can be bounded.* Work loss alone has no bound above 0 over all schedules: a job that never begins loses nothing; nor does
one whose last snapshot is written to its own disk just before its owner comes, and which waits until that host is lent again.
So the bound is of all schedules that have the jobs *where and when a run had them*: each attempt runs on the same host from the
same moment until the same end. Free are how often and when each job is checkpointed, to which hosts, at which rates, over which
of them a copy goes on: all that P1 decides, and what an oracle of checkpoints may choose. For another run it is another bound.

*What is counted.* Attempts that an owner ended without notice (with notice, however short, a prepared job might be moved and
lose nothing: 0), that another attempt followed, and of which nothing was used afterwards that only the closed host held (a
job that waits for its host again may have lost nothing: 0).

*Why it holds.* Let such an attempt run from t_0 to u, and k be the last step that any other machine has when the host closes.
A step takes `step_s` and is interrupted by at most one snapshot of `pause_s`: a schedule that keeps a job standing still by
snapshots wastes more than it saves, and is none of these. Write s = step_s + pause_s for the longest that a step takes.

1. Of the state of step k, C bytes, what was sent before step k was complete, and what was elsewhere before the attempt began, is
   worth little (`experiments.theory.paper_a.least_cost.lacking_bytes`, with the host's uplink as r and m, the steps executed
   until then, as `before`).
2. So what lacks crosses after step k is complete and before u, which takes d seconds at r; messages, handshakes, commits and
   other jobs on the same links only add to it.
3. Meanwhile the job goes on computing: floor(d / s) steps at least, all of them lost. If no step of the attempt came through,
   all its steps are, floor((u - t_0) / s) at least. The bound of the attempt is the smaller of the two, in `step_s`.
4. Attempts add up: what an attempt lost beyond k no later one can take up, so executed less kept is at least their sum.

The r of a system whose grants are enforced and whose checkpoints stay within it is the link's migration share; where they may
borrow (`Policy.borrows`), or nothing is enforced, it is the whole link; of an uplink whose rate changes, at its
greatest. A system that computes jobs twice (replicas) sends no
state at all: there is no bound for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import floor, inf

from controller.core.model import facts as f
from controller.core.policies.table import policy
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.inputs.traces import Trace
from experiments.results.history import Attempt, attempts, only
from experiments.results.link_rates import LinkRates
from experiments.results.run_context import migration_share
from experiments.theory.paper_a.least_cost import lacking_bytes
from experiments.worlds.virtual import Overheads, VirtualRun
from experiments.worlds.virtual.overheads import costs_of
from testbed.messages import SEQUENCES_PER_ATTEMPT

# Of a rate: a flow that is granted nothing trickles, and the sums of grants are rounded.
RATE_SLACK = 1e-3
# The coordinator hears of starts and ends a little late: messages take milliseconds, an agent reads its switch within 2.
HEARD_S = 0.5


@dataclass(frozen=True, slots=True)
class LeastLoss:
    """Of one attempt: the least that any choice of checkpoints would have lost, in steps and in seconds of a GPU."""

    job: str
    attempt: int
    steps: int
    work_s: float


def least_steps(
    payload_bytes: float,
    dirty_fraction: float,
    step_s: float,
    pause_s: float,
    ran_s: float,
    rate_bytes_per_s: float,
) -> int:
    """The bound of one attempt that ran for `ran_s` and was ended without notice (see the module); rates in payload bytes/s."""
    longest_s = step_s + pause_s
    executed = max(0, floor(ran_s / longest_s))
    if dirty_fraction <= 0.0 or rate_bytes_per_s <= 0.0:
        return 0 if rate_bytes_per_s > 0.0 else executed
    all_of_it = floor(payload_bytes / rate_bytes_per_s / longest_s)  # no attempt is bound to lose more
    before = max(0, executed - all_of_it - 1)  # steps executed until step k, at least
    lacking = lacking_bytes(payload_bytes, dirty_fraction, longest_s, before, rate_bytes_per_s)
    return min(executed, floor(lacking / rate_bytes_per_s / longest_s))


def least_losses(
    run: VirtualRun, scenario: Scenario, trace: Trace, system: str, costs: Overheads | None = None
) -> list[LeastLoss]:
    """The least loss of every attempt that the bound is about, in order of dispatch.

    Arguments are those that `simulate` had for the run. Nothing for a system of replicas. SpecError: no such system.
    """
    row, played = policy(system), scenario.played()
    if row.replication is not None:
        return []
    costs = costs_of(settings_of(played)) if costs is None else costs
    specs = {arrival.job.name: arrival.job for arrival in scenario.scale.apply(trace).arrivals}
    used = [fact for _, fact in run.facts if isinstance(fact, f.JobDispatched) and fact.restore_sequence]
    elsewhere_s: dict[tuple[str, int], float] = {}
    for at_s, fact in run.facts:
        if isinstance(fact, f.CheckpointCompleted):
            elsewhere_s.setdefault((fact.job, fact.sequence), at_s)
    found, rates = [], LinkRates(run.context.campus, run.facts)
    for attempt, ended_s, running_s in _ended_at_once(run):
        from_home = (
            each.restore_sequence is not None
            and each.job == attempt.job
            and each.restore_sequence // SEQUENCES_PER_ATTEMPT == attempt.attempt
            and elsewhere_s.get((each.job, each.restore_sequence), inf) > ended_s
            for each in used
        )
        spec = specs.get(attempt.job)
        if spec is None or any(from_home):
            continue
        pause_s = costs.snapshot_s[1] + spec.payload_bytes / costs.snapshot_bytes_per_s
        keeps = row.enforced and not row.borrows  # what checkpoints may use
        fastest = rates.fastest_uplink(attempt.host, running_s, ended_s)  # an event may have changed it
        rate = migration_share(run.context.campus, fastest, keeps_reserve=keeps) * (1.0 + RATE_SLACK)
        ran_s = ended_s - running_s - HEARD_S
        steps = least_steps(float(spec.payload_bytes), spec.dirty_fraction, spec.step_s, pause_s, ran_s, rate)
        gpus = 1 if spec.given is None else spec.given.gpus
        found.append(LeastLoss(attempt.job, attempt.attempt, steps, steps * spec.step_s * gpus))
    return found


def _ended_at_once(run: VirtualRun) -> Iterator[tuple[Attempt, float, float]]:
    """(attempt, its end, its start) of those that ran, were ended by an owner without notice, and were followed by another."""
    warned: set[str] = set()
    sudden: set[tuple[str, int]] = set()
    for _, fact in only(run.facts, (f.HostReclaimed, f.HostReturned, f.JobStopped)):
        match fact:
            case f.HostReclaimed(host=host, notice_s=notice_s) if notice_s > 0.0:
                warned.add(host)
            case f.HostReturned(host=host):
                warned.discard(host)
            case f.JobStopped(job=job, attempt=number, host=host, cause="emergency") if host not in warned:
                sudden.add((job, number))
    of_job: dict[str, list[Attempt]] = {}
    for attempt in attempts(run.facts):
        of_job.setdefault(attempt.job, []).append(attempt)
    for tries in of_job.values():
        for attempt, _ in pairwise(tries):
            if (attempt.job, attempt.attempt) in sudden and attempt.ended_s and attempt.running_s is not None:
                yield attempt, attempt.ended_s, attempt.running_s
