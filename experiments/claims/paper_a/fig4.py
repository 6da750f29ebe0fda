"""Paper A, Fig. 4: how long migrations take when several owners come back at once."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.rows import mean_row, paired_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, near
from experiments.claims.paper_a import reclaim_bursts
from experiments.claims.paper_a.reclaim_bursts import LONG_S, MOST, SHORT_S, Wave

SYSTEMS = ("reclaimnet", "reclaimnet-as-printed", "random-dst", "no-tc-bpf")
COMPARED, OVER_ALL, BEND = f"{MOST} at once", "over all K'", "completion over a line"
STRAIGHT = 0.1  # how far the mean over all K' may be from that of a straight line between its ends


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
            first, second = ([each["in_time"] / k for each in runs[name, k, SHORT_S]] for name in (SYSTEMS[0], other))
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
    late = values.find(COMPARED, "no-tc-bpf", "admitted and late")
    yield above(
        ClaimKind.ORDERING, "no-tc-bpf: with 7 at once, migrations that it let begin miss their window", late, 0.0
    )
    more = values.find(COMPARED, "reclaimnet - no-tc-bpf", "in time")
    yield above(ClaimKind.ORDERING, "with 7 at once, P3 brings more home in time than no admission", more, 0.0)
    for system in SYSTEMS:
        alone, seven = (values.find(f"{k} at once", system, "completion") for k in (1, MOST))
        kind = ClaimKind.ORDERING if system == "no-tc-bpf" else ClaimKind.BEYOND
        text = f"{system}: with 7 at once and time enough, completion takes more than twice as long as alone"
        yield above(kind, text, seven, 2.0 * alone.measured)
    bend = values.find(OVER_ALL, "no-tc-bpf", BEND)
    text = "no-tc-bpf: completion grows linearly with K' (its mean is that of a straight line)"
    yield near(ClaimKind.VALUE, text, bend, 1.0, STRAIGHT)
    better = values.find(COMPARED, "reclaimnet - reclaimnet-as-printed", "in time")
    yield above(ClaimKind.BEYOND, "with 7 at once, rates over time admit more than the printed rule", better, 0.0)


_SIZES = {f"{k} at once": float(k) for k in range(1, MOST + 1)}
PANELS = (
    Panel(
        "completion",
        f"Notice {LONG_S:g} s: all fit",
        xs=_SIZES,
        x="K', migrations at once",
        y="s from notice to running again (mean)",
        marks={"the notice": LONG_S},
    ),
    Panel("in time", f"Notice {SHORT_S:g} s: about three fit", xs=_SIZES, x="K'", y="in time, of K'"),
    Panel("admitted", f"Notice {SHORT_S:g} s", xs=_SIZES, x="K'", y="admitted, of K'"),
)
