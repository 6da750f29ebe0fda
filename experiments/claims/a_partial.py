"""Paper A, section X: what is left of Theorem 4 when only some providers take part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.claims import waves
from experiments.claims.claim import Check, Claim, Config, Kind, Verdict
from experiments.claims.pictures import INK, OURS, PAPER, canvas, dress
from experiments.claims.rows import mean_row
from experiments.claims.values import Value, Values
from experiments.claims.verdicts import above, below, decide, near
from experiments.claims.waves import LONG_S, MOST, RESERVE, Wave
from experiments.theory import isolation

BURST = RESERVE  # u over the link: all providers together, if none takes part
TAKING_PART = (7, 5, 3, 1)  # of seven
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
    return 100.0 * isolation.residual_for_research(RESERVE, phi, BURST)


def printed(phi: float) -> float:
    """Section X's expression."""
    return 100.0 * (1.0 - RESERVE - (1.0 - phi) * BURST)


def run(config: Config) -> Values:
    """Waves of phi times seven migrations beside the bursts of the others, with both reserves."""
    seeds = waves.seeds_of(config)
    cases = {
        (taking, remedy): [_wave(taking, remedy, seed) for seed in seeds]
        for taking in TAKING_PART
        for remedy in (AS_IS, WIDER)
    }
    results = waves.gather((wave for some in cases.values() for wave in some), config)
    rows = []
    for (taking, remedy), some in cases.items():
        phi = taking / MOST
        shares = [100.0 * results[wave]["research_share"] for wave in some]
        exact = residual(phi) if remedy == AS_IS else 100.0 * RESERVE
        note = "of the link, by a greedy research flow"
        rows.append(mean_row(remedy, _name(taking), "research", "% of the link", shares, note, exact=exact))
    settings = {
        "runs": f"{len(seeds)} seeds for each participation",
        "campus": "8 hosts behind an uplink of 1 Gbit/s, 30 % kept for research; phi of 7 owners reclaim at once under P3, the "
        f"others send up to {BURST:.0%} of the link and give way to nobody",
        "world": "virtual campus: the live coordinator's and agents' cores over a fluid network",
    }
    return Values(tuple(rows), (), settings)


def _wave(taking: int, remedy: str, seed: int) -> Wave:
    burst = (1.0 - taking / MOST) * BURST
    reserve = RESERVE + burst if remedy == WIDER else RESERVE
    return Wave("reclaimnet", taking, LONG_S, True, seed, reserve=reserve, uncontrolled=burst)


def _name(taking: int) -> str:
    return f"phi = {taking}/{MOST}"


def judge(values: Values) -> Verdict:
    """From the values alone."""
    return decide(list(_checks(values)))


def _checks(values: Values) -> Iterator[Check]:
    for taking in TAKING_PART:
        name, bound = _name(taking), residual(taking / MOST)
        kept, restored = (values.find(remedy, name, "research") for remedy in (AS_IS, WIDER))
        yield above(Kind.VALUE, f"{name}: research keeps at least B_min - (1 - phi) u", kept, 0.99 * bound)
        yield above(
            Kind.VALUE,
            f"{name}: it keeps B_min again where (1 - phi) u more is reserved",
            restored,
            99.0 * RESERVE,
        )
    all_in, fewest = (values.find(AS_IS, _name(taking), "research") for taking in (MOST, TAKING_PART[-1]))
    yield below(Kind.ORDERING, "the guarantee degrades as fewer take part", fewest, all_in.low or all_in.ours)
    literal = values.find(AS_IS, _name(TAKING_PART[-1]), "research")
    text = f"{_name(TAKING_PART[-1])}: the bound is tight (research keeps no more than twice it)"
    yield below(Kind.BEYOND, text, literal, 2.0 * residual(TAKING_PART[-1] / MOST))
    yield near(Kind.BEYOND, "phi = 1: research keeps just its reserve", all_in, 100.0 * RESERVE, 0.25)


def draw(values: Values, path: Path) -> None:
    """Research's share over participation."""
    title = "Partial participation: what research keeps of the link"
    with canvas(path, 1, 1, (8.6, 5.0), title) as (_, panels):
        axes, phis = panels[0][0], [taking / MOST for taking in TAKING_PART]
        line = [n / 100.0 for n in range(2, 101)]
        axes.plot(line, [residual(phi) for phi in line], color=INK, label="Theorem 4: B_min - (1 - phi) u")
        axes.plot(
            line, [printed(phi) for phi in line], color=PAPER, linestyle="--", label="as printed in section X"
        )
        for remedy, tone in ((AS_IS, OURS), (WIDER, "#2f855a")):
            rows: list[Value] = [values.find(remedy, _name(taking), "research") for taking in TAKING_PART]
            axes.plot(
                phis, [row.ours for row in rows], "o", color=tone, label=f"measured, {remedy}", zorder=4
            )
        axes.set_ylim(0.0, 80.0)
        dress(axes, "phi, share of providers that take part", "% of the link that research gets")
        axes.legend(frameon=False, fontsize=9)


CLAIM = Claim(
    name="A-partial",
    paper="Paper A, section X",
    title="Isolation under partial participation",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=("research",),
    run=run,
    draw=draw,
    check=judge,
)
