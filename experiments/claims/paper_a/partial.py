"""Paper A, section X: what is left of Theorem 4 when only some providers take part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.claims.framework.claim import (
    Check,
    Claim,
    ClaimKind,
    Config,
)
from experiments.claims.framework.pictures import (
    GOOD,
    INK,
    OURS,
    PAPER,
    canvas,
    dress,
)
from experiments.claims.framework.rows import mean_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, below
from experiments.claims.paper_a import reclaim_bursts
from experiments.claims.paper_a.reclaim_bursts import (
    LONG_S,
    MOST,
    RESERVE,
    Wave,
)
from experiments.theory.paper_a.theorems import residual_for_research

BURST = RESERVE  # u over the link: all providers together, if none takes part
PARTICIPATION = (1.0, 0.75, 0.5, 0.25)
AS_IS, WIDER = "reserve as it is", "reserve larger by (1 - phi) u"

CLAIM_TEXT = (
    "With participation phi and uncontrolled bursts u, Theorem 4's guarantee to research degrades by (1 - phi) u; it is "
    "restored by provisioning (1 - phi) u more."
)
LIMITS = (
    "That real tenants burst so: the uncontrolled providers are one flow that gives way to nobody, the worst case. The "
    "paper prints B - B_min - (1 - phi) u as what is guaranteed; that is what is left for migrations, research is left "
    "B_min - (1 - phi) u. Links beyond the controlled bottleneck are outside the theorem."
)


def residual(phi: float) -> float:
    """What the theorem leaves to research, in per cent of the link."""
    return 100.0 * residual_for_research(RESERVE, phi, BURST)


def printed(phi: float) -> float:
    """Section X's expression."""
    return 100.0 * (1.0 - RESERVE - (1.0 - phi) * BURST)


def run(config: Config) -> Values:
    """Waves of seven migrations under P3 beside the bursts of providers that do not take part, with both reserves."""
    seeds = reclaim_bursts.seeds_of(config)
    cases = {
        (phi, remedy): [
            Wave(
                "reclaimnet",
                MOST,
                LONG_S,
                True,
                seed,
                reserve=RESERVE + (1.0 - phi) * BURST * (remedy == WIDER),
                uncontrolled=(1.0 - phi) * BURST,
            )
            for seed in seeds
        ]
        for phi in PARTICIPATION
        for remedy in (AS_IS, WIDER)
    }
    results = reclaim_bursts.gather((wave for some in cases.values() for wave in some), config)
    rows = []
    for (phi, remedy), some in cases.items():
        shares = [100.0 * results[wave]["research_share"] for wave in some]
        exact = residual(phi) if remedy == AS_IS else 100.0 * RESERVE
        note = "of the link, by a greedy research flow"
        rows.append(mean_row(remedy, _name(phi), "research", "% of the link", shares, note, exact=exact))
    settings = {
        "runs": f"{len(seeds)} seeds for each participation",
        "campus": "8 hosts behind an uplink of 1 Gbit/s, 30 % kept for research; 7 migrations under P3, beside "
        f"(1 - phi) {BURST:.0%} of the link from those who take no part and give way to nobody",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }
    return Values(tuple(rows), (), settings)


def _name(phi: float) -> str:
    return f"phi = {phi:g}"


def checks(values: Values) -> Iterator[Check]:
    """The burst gives way to nothing and P3 keeps the reserve, so Theorem 4's subtraction holds in any fluid network; whether
    what the paper prints is left is the question."""
    for phi in PARTICIPATION:
        name, bound = _name(phi), residual(phi)
        kept, restored = (values.find(remedy, name, "research") for remedy in (AS_IS, WIDER))
        text = f"{name}: research keeps at least B_min - (1 - phi) u"
        yield above(ClaimKind.BUILT, text, kept, 0.99 * bound)
        text = f"{name}: it keeps B_min again where (1 - phi) u more is reserved"
        yield above(ClaimKind.BUILT, text, restored, 99.0 * RESERVE)
        text = f"{name}: research keeps what section X prints, B - B_min - (1 - phi) u"
        yield above(ClaimKind.VALUE, text, kept, 0.99 * printed(phi))
    all_in, fewest = (values.find(AS_IS, _name(phi), "research") for phi in (1.0, PARTICIPATION[-1]))
    text = "the guarantee degrades as fewer take part"
    yield below(ClaimKind.BUILT, text, fewest, all_in.low or all_in.ours)


def draw(values: Values, path: Path) -> None:
    """Research's share over participation."""
    title = "Partial participation: what research keeps of the link"
    with canvas(path, 1, 1, (8.6, 5.0), title) as (_, panels):
        axes = panels[0][0]
        line = [n / 100.0 for n in range(2, 101)]
        axes.plot(line, [residual(phi) for phi in line], color=INK, label="Theorem 4: B_min - (1 - phi) u")
        axes.plot(
            line, [printed(phi) for phi in line], color=PAPER, linestyle="--", label="as printed in section X"
        )
        for remedy, tone in ((AS_IS, OURS), (WIDER, GOOD)):
            rows: list[Value] = [values.find(remedy, _name(phi), "research") for phi in PARTICIPATION]
            axes.plot(
                PARTICIPATION,
                [row.ours for row in rows],
                "o",
                color=tone,
                label=f"measured, {remedy}",
                zorder=4,
            )
        axes.set_ylim(0.0, 80.0)
        dress(axes, "phi, share of providers that take part", "% of the link that research gets")
        axes.legend()


CLAIM = Claim(
    name="A-partial",
    paper="Paper A, section X",
    title="Isolation under partial participation",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=("research",),
    run=run,
    draw=draw,
    checks=checks,
)
