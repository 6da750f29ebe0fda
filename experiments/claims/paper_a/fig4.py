"""Paper A, Fig. 4: how long migrations take when several owners come back at once."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from controller.core.policies.table import SYSTEMS as LABELS
from experiments.claims.framework.claim import Check, Claim, ClaimKind, Config
from experiments.claims.framework.pictures import INK, canvas, colour, dress, line_of_rows
from experiments.claims.framework.rows import mean_row, paired_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, below, near
from experiments.claims.paper_a import reclaim_bursts
from experiments.claims.paper_a.reclaim_bursts import LONG_S, MOST, SHORT_S, Wave

SYSTEMS = ("reclaimnet", "reclaimnet-as-printed", "random-dst", "no-tc-bpf")
RESERVING = ("reclaimnet", "reclaimnet-as-printed", "random-dst")  # whose admissions are reservations
COMPARED, OVER_ALL, BEND = f"{MOST} at once", "over all K'", "completion over a line"
STRAIGHT = 0.1  # how far the mean over all K' may be from that of a straight line between its ends

CLAIM_TEXT = (
    "With K' concurrent migrations P3 keeps admitted flows within their notice windows, while baselines degrade "
    "linearly with K', the number of owners who come back at once."
)
LIMITS = (
    "That P3 moves more bytes: a link carries what it carries, and with a long notice completion grows with K' under "
    "every system (the left panel), under P3 the more so as it leaves 30 % to research. What P3 changes is who is begun "
    "at all when not all can finish. Flows share a fluid network by max-min fairness; that real TCP flows hold their "
    "grants is measured live, by `reclaimnet measure rates`."
)


def run(config: Config) -> Values:
    """Run each system and each K', with a notice too short for all and with one that is long enough."""
    seeds, sizes = reclaim_bursts.seeds_of(config), reclaim_bursts.sizes_of(config)
    wanted = {
        (system, k, notice_s): [Wave(system, k, notice_s, notice_s == LONG_S, seed) for seed in seeds]
        for system in SYSTEMS
        for k in sizes
        for notice_s in (SHORT_S, LONG_S)
    }
    runs = reclaim_bursts.waves_of(wanted, config)
    rows: list[Value] = []
    for k in sizes:
        group = f"{k} at once"
        for system in SYSTEMS:
            short, long = runs[system, k, SHORT_S], runs[system, k, LONG_S]
            in_time = [each["in_time"] / k for each in short]
            admitted = [each["admitted"] / k for each in short]
            late = [float(each["late"]) for each in short]
            times = [sum(each["completions_s"]) / len(each["completions_s"]) for each in long]
            note = f"notice {SHORT_S:g} s"
            rows.append(mean_row(group, system, "in time", "of K'", in_time, note))
            rows.append(mean_row(group, system, "admitted", "of K'", admitted, note))
            rows.append(mean_row(group, system, "admitted and late", "migrations", late, note))
            note = f"from notice to running again, notice {LONG_S:g} s"
            rows.append(mean_row(group, system, "completion", "s", times, note))
        for other in SYSTEMS[1:]:
            first, second = (
                [each["in_time"] / k for each in runs[name, k, SHORT_S]] for name in (SYSTEMS[0], other)
            )
            rows.append(paired_row(group, f"{SYSTEMS[0]} - {other}", "in time", "of K'", first, second))
    for system in SYSTEMS:
        bends = []
        for place in range(len(seeds)):
            each = [runs[system, k, LONG_S][place]["completions_s"] for k in sizes]
            times = [statistics.fmean(some) for some in each]
            bends.append(statistics.fmean(times) / statistics.fmean((times[0], times[-1])))
        note = f"mean over K' over the mean of {sizes[0]} and {sizes[-1]}, notice {LONG_S:g} s; 1 is linear"
        rows.append(mean_row(OVER_ALL, system, BEND, "ratio", bends, note))
    return Values(tuple(rows), (), settings_of(len(seeds), sizes))


def settings_of(seeds: int, sizes: Sequence[int]) -> dict[str, str]:
    """Return the settings of the waves; also those of Fig. 5."""
    return {
        "runs": f"{seeds} seeds, K' of {', '.join(map(str, sizes))}",
        "sizes": " ".join(map(str, sizes)),
        "campus": "8 hosts with a job each behind an uplink of 1 Gbit/s, all destinations beyond it; 30 % kept for research",
        "payloads": "lognormal around 3.2 GB, 1.6 to 6.4 GB",
        "notices": f"{SHORT_S:g} s (three median payloads fit) and {LONG_S:g} s (all fit), all at the same second",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    for system in RESERVING:
        worst = max(
            (
                values.find(group, system, "admitted and late")
                for group in values.groups()
                if group != OVER_ALL
            ),
            key=lambda row: row.measured,
        )
        text = f"{system}: no admitted migration misses its window, at any K'"
        # a fluid net gives what is granted, and admission grants what is enough
        yield below(ClaimKind.BUILT, text, worst, 1e-9)
    late = values.find(COMPARED, "no-tc-bpf", "admitted and late")
    yield above(
        ClaimKind.ORDERING,
        "no-tc-bpf: with 7 at once, migrations that it let begin miss their window",
        late,
        0.0,
    )
    more = values.find(COMPARED, "reclaimnet - no-tc-bpf", "in time")
    yield above(
        ClaimKind.ORDERING, "with 7 at once, P3 brings more home in time than no admission", more, 0.0
    )
    for system in SYSTEMS:
        alone, seven = (values.find(f"{k} at once", system, "completion") for k in (1, MOST))
        kind = ClaimKind.ORDERING if system == "no-tc-bpf" else ClaimKind.BEYOND
        text = f"{system}: with 7 at once and time enough, completion takes more than twice as long as alone"
        yield above(kind, text, seven, 2.0 * alone.measured)
    bend = values.find(OVER_ALL, "no-tc-bpf", BEND)
    text = "no-tc-bpf: completion grows linearly with K' (its mean is that of a straight line)"
    yield near(ClaimKind.VALUE, text, bend, 1.0, STRAIGHT)
    better = values.find(COMPARED, "reclaimnet - reclaimnet-as-printed", "in time")
    yield above(
        ClaimKind.BEYOND, "with 7 at once, rates over time admit more than the printed rule", better, 0.0
    )


def draw(values: Values, path: Path) -> None:
    """Draw completion over K' with time enough; jobs in time, and jobs admitted, with too little."""
    title = "Simultaneous reclaims: what is admitted is in time"
    with canvas(path, 1, 2, (12.0, 5.0), title) as (figure, panels):
        _lines(panels[0][0], values, "completion")
        dress(
            panels[0][0],
            "K', migrations at once",
            "s from notice to running again (mean)",
            f"Notice {LONG_S:g} s: all fit",
        )
        panels[0][0].set_ylim(bottom=0.0)
        _lines(panels[0][1], values, "in time")
        _lines(panels[0][1], values, "admitted", alone=True)
        title = f"Notice {SHORT_S:g} s: about three fit"
        dress(panels[0][1], "K', migrations at once", "share of K' (dotted: admitted)", title)
        panels[0][1].set_ylim(-0.03, 1.05)
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower left", ncols=4)


def _lines(axes: Any, values: Values, quantity: str, *, alone: bool = False) -> None:
    """Draw a line for each system. `alone`: only the admitted migrations of systems that reserve nothing, dotted."""
    sizes = [int(word) for word in values.settings["sizes"].split()]
    for system in SYSTEMS:
        rows = [values.find(f"{k} at once", system, quantity) for k in sizes]
        if alone:
            measured = [row.measured for row in rows]
            axes.plot(sizes, measured, color=colour(system), linestyle=":", linewidth=1.4, zorder=2)
        else:
            line_of_rows(axes, sizes, rows, colour(system), LABELS[system])
    if quantity == "completion":
        axes.axhline(LONG_S, color=INK, linewidth=0.8, linestyle="--")
        axes.annotate(
            "the notice", (sizes[0], LONG_S), xytext=(0, -11), textcoords="offset points", fontsize=8.5
        )
    axes.set_xticks(sizes)


CLAIM = Claim(
    name="A-fig4",
    paper="Paper A, Fig. 4",
    title="Completion time of simultaneous migrations",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=("completion", "in time", "admitted", "admitted and late", BEND),
    run=run,
    draw=draw,
    checks=checks,
)
