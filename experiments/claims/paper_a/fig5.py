"""Paper A, Fig. 5: what research keeps of a link when several owners come back at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.core.policies.table import POLICIES
from experiments.claims.framework.claim import (
    Check,
    Claim,
    ClaimKind,
    Config,
)
from experiments.claims.framework.pictures import (
    INK,
    PRINTED_MARK,
    canvas,
    colour,
    dress,
    line_of_rows,
)
from experiments.claims.framework.rows import mean_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import (
    above,
    below,
    near,
)
from experiments.claims.paper_a import reclaim_bursts
from experiments.claims.paper_a.fig4 import settings_of
from experiments.claims.paper_a.reclaim_bursts import (
    LONG_S,
    MOST,
    RESERVE,
    SHORT_S,
    Wave,
)

SYSTEMS = ("reclaimnet", "reclaimnet-as-printed", "random-dst", "no-tc-bpf")
KEEPING = SYSTEMS[:3]
PRINTED_DEGRADATION = {"reclaimnet": 2.8, "no-tc-bpf": 31.0, "random-dst": 7.3}  # per cent, Table III
NEAR_ZERO = 5.0  # per cent of the link
COMPARED = f"{MOST} at once"

CLAIM_TEXT = (
    "With K' concurrent migrations P3 sustains the B_min reserve for research traffic, while without TC/BPF enforcement it "
    "collapses to near zero. Under up to seven events and a co-running reference workload P3 holds its degradation to 2.8 %, "
    "against 31 % without."
)
LIMITS = (
    "What packets do: in a fluid network flows have their max-min share at once, and one research flow among seven "
    "migrations keeps an eighth of the link, not nothing. Bursts and losses of real TCP, and what the kernel's buckets "
    "make of them, are measured live (`reclaimnet measure rates`, `reclaimnet demo`). How large the paper's reference "
    "workload was it does not say; here it asks for exactly the reserve."
)


def run(config: Config) -> Values:
    """Each system, each K': a greedy research flow, and the reference workload."""
    seeds, sizes = reclaim_bursts.seeds_of(config), reclaim_bursts.sizes_of(config)
    cases = {
        (system, k, greedy): [Wave(system, k, LONG_S if greedy else SHORT_S, greedy, seed) for seed in seeds]
        for system in SYSTEMS
        for k in sizes
        for greedy in (True, False)
    }
    results = reclaim_bursts.gather((wave for some in cases.values() for wave in some), config)
    rows: list[Value] = []
    for k in sizes:
        for system in SYSTEMS:
            greedy, reference = ([results[wave] for wave in cases[system, k, how]] for how in (True, False))
            percent = [100.0 * each["research_share"] for each in greedy]
            note = "of the uplink, by a greedy flow, in the 30 s after the notices"
            rows.append(mean_row(f"{k} at once", system, "research", "% of the link", percent, note))
            lacking = [100.0 * each["degradation"] for each in reference]
            published = PRINTED_DEGRADATION.get(system) if k == MOST else None
            note = "what a workload that asks for exactly the reserve does not get"
            rows.append(
                mean_row(f"{k} at once", system, "degradation", "%", lacking, note, published=published)
            )
    return Values(tuple(rows), (), settings_of(len(seeds), sizes))


def checks(values: Values) -> Iterator[Check]:
    """What the paper says, from the values alone."""
    floor = 100.0 * RESERVE * 0.99
    for system in KEEPING:
        least = min(
            (values.find(group, system, "research") for group in values.groups()), key=lambda row: row.ours
        )
        yield above(
            ClaimKind.BUILT,  # the reserve is taken from what a fluid network shares
            f"{system}: research keeps its {RESERVE:.0%} of the link at every K'",
            least,
            floor,
        )
        lacking = values.find(COMPARED, system, "degradation")
        yield below(
            ClaimKind.BUILT,  # it asks for exactly the reserve
            f"{system}: the reference workload loses less than 3 %, with 7 at once",
            lacking,
            3.0,
        )
        if system in PRINTED_DEGRADATION:
            printed = PRINTED_DEGRADATION[system]
            text = f"{system}: the reference workload loses the {printed:g} % that are printed"
            yield near(ClaimKind.BUILT, text, lacking, printed, 0.2)
    research, lacking = (values.find(COMPARED, "no-tc-bpf", what) for what in ("research", "degradation"))
    # max-min shares of eight flows are an eighth each, whoever they are, and the reserve is more
    yield below(
        ClaimKind.BUILT, "no-tc-bpf: research falls below the reserve, with 7 at once", research, floor
    )
    yield above(
        ClaimKind.BUILT,
        "no-tc-bpf: the reference workload loses more than 3 %, with 7 at once",
        lacking,
        3.0,
    )
    yield below(
        ClaimKind.VALUE,
        f"no-tc-bpf: research collapses to near zero (below {NEAR_ZERO:g} %)",
        research,
        NEAR_ZERO,
    )
    yield near(
        ClaimKind.VALUE,
        "no-tc-bpf: the reference workload loses the 31 % that are printed",
        lacking,
        31.0,
        0.2,
    )


def draw(values: Values, path: Path) -> None:
    """A greedy flow's share, and the reference workload's degradation, over K'."""
    with canvas(path, 1, 2, (12.0, 5.0), "Research traffic beside simultaneous migrations") as (
        figure,
        panels,
    ):
        left, right = panels[0]
        _lines(left, values, "research")
        left.axhline(100.0 * RESERVE, color=INK, linewidth=0.9, linestyle="--")
        left.annotate(
            "the reserve", (1, 100.0 * RESERVE), xytext=(0, 4), textcoords="offset points", fontsize=8.5
        )
        left.set_ylim(0.0, 100.0)
        dress(left, "K', migrations at once", "% of the link", "A greedy research flow")
        _lines(right, values, "degradation")
        printed = [PRINTED_DEGRADATION[system] for system in ("reclaimnet", "random-dst", "no-tc-bpf")]
        right.plot(
            [MOST] * 3,
            printed,
            "D",
            markersize=6,
            label="Table III: 2.8, 7.3, 31 %",
            clip_on=False,
            zorder=5,
            **PRINTED_MARK,
        )
        dress(
            right,
            "K', migrations at once",
            "% of its demand not served",
            "A workload that asks for the reserve",
        )
        right.set_ylim(-2.0, 100.0)
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower left", ncols=5)


def _lines(axes: Any, values: Values, quantity: str) -> None:
    sizes = [int(word) for word in values.settings["sizes"].split()]
    for place, system in enumerate(SYSTEMS):
        rows = [values.find(f"{k} at once", system, quantity) for k in sizes]
        style = ("o-", "o--", "o:", "o-")[place]  # the first three lie on each other
        line_of_rows(axes, sizes, rows, colour(system), POLICIES[system].label or system, style)
    axes.set_xticks(sizes)


CLAIM = Claim(
    name="A-fig5",
    paper="Paper A, Fig. 5",
    title="Research throughput beside simultaneous migrations",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=("research", "degradation"),
    run=run,
    draw=draw,
    checks=checks,
)
