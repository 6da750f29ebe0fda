"""Other campuses: is ours first where buildings, uplinks, payloads, loads, owners and snapshots are not the paper's?

Each case changes one thing of `PaperCampus`; `standings` says how it is judged. Two rules of ours came of what was seen on two of
these campuses (`LIMITS`). The paper's own campus is Table III's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claims.compared import run_figures, standings
from experiments.claims.compared.run_figures import figures_of
from experiments.claims.framework.claim import Check, Claim, Config
from experiments.claims.framework.rows import exact_row, row
from experiments.claims.framework.values import Value, Values
from experiments.claims.paper_a.campus_runs import with_source
from experiments.claims.paper_a.table3 import OURS
from experiments.inputs.traces import paper_campus
from experiments.inputs.traces.paper_campus import PaperCampus
from experiments.results.statistics import crossed
from experiments.runtime.tasks import Result, Task
from experiments.worlds.virtual import simulate
from topologies.errors import SpecError
from topologies.presets import three_tier
from topologies.spec import ResearchReserve
from topologies.units import MBIT_PER_S

FULL_SEEDS, QUICK_SEEDS = 10, 2
QUICK_PART = 0.1  # of the days
ALL = "all campuses"  # the group of differences over all cases
RESERVE = ResearchReserve(beta=0.3)  # as on the paper's


@dataclass(frozen=True, slots=True)
class CampusCase:
    """A campus, and the days for which it is played: those with more hosts or jobs for fewer."""

    name: str
    choices: PaperCampus
    days: float = 20.0


@dataclass(frozen=True, slots=True)
class CampusRun:
    """One run of one system."""

    case: CampusCase = field(repr=False)
    system: str
    seed: int
    days: float

    @property
    def key(self) -> str:
        """Names everything that the result depends on, but for the project's code."""
        choices = blake2b(repr(self.case.choices).encode(), digest_size=8).hexdigest()
        system, days = with_source(self.system), f"{self.days:g} days"
        return f"campuses: {self.case.name}, {choices}, {system}, seed {self.seed}, {days}"


CASES = (
    CampusCase("two buildings", PaperCampus(campus=three_tier(54, 2, hosts_per_access=9, reserve=RESERVE))),
    CampusCase("200 hosts in eight buildings", PaperCampus(campus=three_tier(200, 8, reserve=RESERVE)), 7.0),
    # old switches: below what the law of the background leaves of either level, so nobody else is on them
    CampusCase(
        "slow uplinks",
        PaperCampus(
            campus=three_tier(
                54,
                access_bytes_per_s=100 * MBIT_PER_S,
                uplink_bytes_per_s=200 * MBIT_PER_S,
                core_bytes_per_s=200 * MBIT_PER_S,
                reserve=RESERVE,
            )
        ),
    ),
    CampusCase("payloads four times as large", PaperCampus(payload_median_bytes=12.8e9)),
    CampusCase("load .3 of what is lent", PaperCampus(load=0.3), 10.0),
    CampusCase("load .7 of what is lent", PaperCampus(load=0.7), 5.0),
    CampusCase("bursts within a building", PaperCampus(burst_in_building=True, burst_share=0.24)),
    # a tenth of the hosts with a hazard below .17, and a tenth above 2.2 times the mean
    CampusCase("owners who differ", PaperCampus(host_sigma=1.0)),
    CampusCase("notices of half a minute", PaperCampus(notice_mean_s=30.0)),
    CampusCase("no storage server", PaperCampus(head_stores=False)),
    CampusCase("loss budgets of an hour", PaperCampus(loss_budget_s=3600.0)),
    # an H100 copies a state within its memory, and what steps then take longer is as if it did so at 36 GB/s (docs/measured.md)
    CampusCase("snapshots within a GPU", PaperCampus(copy_gb_per_s=36.0)),
)

CLAIM_TEXT = (
    "With hazards, bandwidth and deadlines a system loses less than without: on other campuses, too, ours is first in work lost "
    "and in lost GPU time, among systems that leave research 97 % of what it asks for "
    "and keep loss budgets (intervals of at most 2 L_max) as ours does."
)
LIMITS = (
    "What any paper prints: no paper has played these. One thing is changed at a time. Owners, notices, payloads and the "
    "traffic of others are drawn from the paper's laws, unless it is they that change; that traffic is a load that does not "
    "yield, and the coordinator is told what it asks for of every link. Jobs of fuller campuses are as long as the paper's; a "
    "run begins without any, and some do not end in it. Ours was not made in ignorance of them: that checkpoints borrow came of "
    "slow uplinks, and how a standby is chosen of bursts within a building (docs/notebook.md). Rows meet the same jobs and do "
    "not get the same work done of them in a run: one that waits or lets jobs compute twice has less to lose (useful GPU time "
    "stands beside what is lost). A job that waits when a run ends has lost nothing yet, which spares no-migration a little."
)


def chosen(only: tuple[str, ...]) -> list[CampusCase]:
    """All cases, or those whose names hold one of these texts. SpecError: none does."""
    found = [case for case in CASES if not only or any(text in case.name for text in only)]
    if not found:
        names = "; ".join(case.name for case in CASES)
        raise SpecError("--only", ", ".join(only), f"a part of the name of a case: {names}")
    return found


def play(wanted: CampusRun) -> dict[str, Any]:
    """The run of one task."""
    scenario, trace = paper_campus(wanted.seed, days=wanted.days, choices=wanted.case.choices)
    run = simulate(scenario, trace, wanted.seed, system=wanted.system)
    return figures_of(run, trace, wanted.days)


def run(config: Config) -> Values:
    """Every system in every case. SpecError: no such case."""
    count = config.seeds or (QUICK_SEEDS if config.quick else FULL_SEEDS)
    part = QUICK_PART if config.quick else 1.0
    cases, systems = chosen(config.only), dict.fromkeys((*standings.systems(), *config.systems))
    wanted = {
        (case.name, system): [
            Task(each.key, play, (each,))
            for each in (CampusRun(case, system, seed, part * case.days) for seed in range(1, count + 1))
        ]
        for case in cases
        for system in systems
    }
    found = standings.played(wanted, config, (run_figures,))
    values = Values((*standings.rows(found), *_over_cases(found)))
    settings = {
        **standings.told(values, found),
        "days": ", ".join(f"{case.name} {part * case.days:g}" for case in cases),
        "jobs and owners": "the laws of `experiments.inputs.traces.paper_campus`, but for what the case changes",
    }
    return replace(values, settings=settings)


def _over_cases(found: Mapping[tuple[str, str], Sequence[Result]]) -> Iterator[Value]:
    """Differences between ours and each other row over all cases. Losses differ a hundredfold between cases, so their logarithms
    are compared, and each case counts once.

    Cases share their seeds, and most of them jobs and owners, too, seed by seed: that makes a case a fair comparison with the
    others, and twelve cases less than twelve samples. So the interval is over cases and seeds at once (`crossed`). One run may
    lose nothing, and has no logarithm: a seed's part is how far each row is from its own mean of the case, which is what the
    logarithm of the ratio of means moves by, to first order. Cases where either of a pair loses nothing are left out of that
    pair. With one seed there is no telling."""
    cases, systems = (list(dict.fromkeys(key[place] for key in found)) for place in range(2))
    values = []
    for quantity in standings.JUDGED:
        samples = {
            system: [standings.numbers(quantity, found[case, system]) for case in cases] for system in systems
        }
        lost = {system: np.array(some) for system, some in samples.items() if all(some)}
        if OURS not in lost or lost[OURS].shape[1] < 2:
            continue
        for system, of_system in lost.items():
            told = (lost[OURS].mean(axis=1) > 0.0) & (of_system.mean(axis=1) > 0.0)
            if (count := int(told.sum())) < 2:
                continue
            means = of_system[told].mean(axis=1, keepdims=True)
            of_cases = f"of {count} campuses" if count < len(cases) else "of all campuses"
            mean = float(np.exp(np.log(means).mean()))
            values.append(exact_row(ALL, system, quantity, "GPU-h", mean, f"geometric mean {of_cases}"))
            if system != OURS:
                ours = lost[OURS][told]
                own = ours.mean(axis=1, keepdims=True)
                apart = crossed(100.0 * (np.log(own / means) + ours / own - of_system[told] / means))
                note = f"100 ln of the ratio, {of_cases}"
                values.append(row(ALL, f"{OURS} - {system}", quantity, "%", apart, note))
    if values:
        yield from standings.constraint_rows(
            ALL, {system: [run for case in cases for run in found[case, system]] for system in systems}
        )
        yield from values


def checks(values: Values) -> Iterator[Check]:
    """How ours stands in each case and over all of them, and what it pays for what others break."""
    return standings.checks(values, values.groups())


def draw(values: Values, path: Path) -> None:
    """Draw what the systems lose in each case, over what ours loses."""
    names = [group for group in values.groups() if group != ALL]
    standings.draw(values, names, path, "Other campuses: what is lost, over ours")


CLAIM = Claim(
    name="campuses",
    paper="Other campuses",
    title="The systems on campuses that are not the paper's",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=(*standings.QUANTITIES, standings.WORST),
    run=run,
    draw=draw,
    checks=checks,
)
