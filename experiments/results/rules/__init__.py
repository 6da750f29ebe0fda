"""The rules of a run: each stated once, and judged over the journal of every run, live, virtual or a storm.

A check is a function from the facts, in the journal's order, and the run's context to the breaches that it finds. Checks trust
no summary: the share of a link is compared with the sum of what was granted, a restore with the checkpoint that it names.
What only the truth of a virtual world shows is judged in `experiments.worlds.virtual.invariants`, with the same rules in mind.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from controller.core.policies.table import Policy
from experiments.results.history import History, Timed
from experiments.results.narration import concerns, describe
from experiments.results.rules.admissions import admitted_migrations_are_in_time
from experiments.results.rules.breach import Breach, Check
from experiments.results.rules.jobs import (
    checkpoints_complete_once_and_restore,
    hosts_have_the_gpus,
    jobs_end_once,
    no_job_is_lost,
    one_copy_runs,
)
from experiments.results.rules.network import (
    closed_hosts_admit_nobody,
    grants_stay_within_the_share,
    migrations_leave_within_the_share,
    research_keeps_its_reserve,
)
from experiments.results.rules.reports import (
    losses_are_what_was_executed_less_what_was_kept,
    lost_time_is_what_was_not_used,
    reports_are_true,
)
from experiments.results.run_context import RunContext

STORY_LINES = 12
MAX_SHOWN = 20  # breaches of one rule that are shown one by one


class RunRule(Struct, frozen=True):
    """A rule: its sentence, which names it in results, and its check."""

    sentence: str
    check: Check
    # whether it is judged only where the machine kept up: a late process of one that did not is no breach
    is_timed: bool = False


KEPT = "a job that was accepted is never lost"
ONE_COPY = "at most one copy of a job runs"
GPUS = "no host has more GPUs in use than it has"
ENDS_ONCE = "a job ends once, and computes no more"
CHECKPOINTS = "a checkpoint completes once, and restores to its state"
LOSSES = "reported loss is what was executed less what was kept"
ADDS_UP = "lost GPU time is what jobs had and did not use"
REPORTED = "times, costs and notices are reported as they were"
GRANTED = "grants stay within a link's migration share"
IN_SHARE = "migration traffic stays within the host's share"
IN_TIME = "an admitted migration is in time"
RESERVED = "research keeps its reserve"
CLOSED = "a closed host admits nobody"

RULES = {
    rule.sentence: rule
    for rule in (
        RunRule(KEPT, no_job_is_lost),
        RunRule(ONE_COPY, one_copy_runs),
        RunRule(GPUS, hosts_have_the_gpus),
        RunRule(ENDS_ONCE, jobs_end_once),
        RunRule(CHECKPOINTS, checkpoints_complete_once_and_restore),
        RunRule(LOSSES, losses_are_what_was_executed_less_what_was_kept),
        RunRule(ADDS_UP, lost_time_is_what_was_not_used),
        RunRule(REPORTED, reports_are_true),
        RunRule(GRANTED, grants_stay_within_the_share),
        RunRule(IN_SHARE, migrations_leave_within_the_share, is_timed=True),
        RunRule(IN_TIME, admitted_migrations_are_in_time, is_timed=True),
        RunRule(RESERVED, research_keeps_its_reserve, is_timed=True),
        RunRule(CLOSED, closed_hosts_admit_nobody),
    )
}
TIMED = frozenset(rule.sentence for rule in RULES.values() if rule.is_timed)


class Broken(Struct, frozen=True):
    """A rule that did not hold: its sentence, its subject, and what led to it."""

    rule: str
    subject: str
    story: list[str]


def broken(facts: Sequence[Timed], context: RunContext) -> list[Broken]:
    """Return every breach of every rule, with its story; empty if all held.

    What the system does not promise (`context.not_promised`) is not judged. Beyond `MAX_SHOWN` breaches of one rule, the rest
    are one entry that counts them.
    """
    facts = facts if isinstance(facts, History) else History(facts)
    found: list[Broken] = []
    for rule in RULES.values():
        if rule.sentence in context.not_promised or (rule.is_timed and not context.fidelity.valid):
            continue
        breaches = list(rule.check(facts, context))
        found += [Broken(rule.sentence, each.subject, _story(facts, each)) for each in breaches[:MAX_SHOWN]]
        if rest := breaches[MAX_SHOWN:]:
            subjects = ", ".join(sorted({breach.subject for breach in rest}))
            words = f"{len(rest)} breaches more, the last at {rest[-1].at_s:.3f} s"
            found.append(Broken(rule.sentence, subjects, [words]))
    return found


def not_promised(row: Policy) -> dict[str, str]:
    """Return the rules that a system does not promise to keep, and the reasons: no baseline is blamed for these."""
    waived = {}
    if not row.enforced:
        waived[IN_SHARE] = "nothing holds its senders to a share of a link"
        waived[RESERVED] = "it keeps no reserve for research"
    if not row.reserves_rates:
        waived[IN_TIME] = "it promises no migration a rate"
    return waived


def _story(facts: Sequence[Timed], breach: Breach) -> list[str]:
    before = [
        f"{at_s:9.3f} s  {describe(fact)}"
        for at_s, fact in facts
        if at_s <= breach.at_s and concerns(fact, breach.subject)
    ]
    return [*before[-STORY_LINES:], f"{breach.at_s:9.3f} s  {breach.what}"]
