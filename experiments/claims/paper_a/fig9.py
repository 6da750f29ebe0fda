"""Paper A, Fig. 9: how much the three parameters of P1, P2 and P3 matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.claims.framework.claim import Check, Claim, ClaimKind, Config
from experiments.claims.framework.pictures import INK, OURS, canvas, dress, upright
from experiments.claims.framework.rows import mean_row
from experiments.claims.framework.values import Value, Values
from experiments.claims.framework.verdicts import above, below, near
from experiments.claims.paper_a import campus_numbers as numbers
from experiments.claims.paper_a import reclaim_bursts
from experiments.claims.paper_a.campus_numbers import DOWNTIME, WORK_LOSS
from experiments.claims.paper_a.campus_runs import AS_IS, Variation, gather, size_of
from experiments.claims.paper_a.reclaim_bursts import MOST, SHORT_S, Wave
from experiments.claims.paper_a.table3 import DEGRADATION, settings

SYSTEM = "reclaimnet"
SWEEPS: dict[str, tuple[float, ...]] = {
    "beta_p1": (0.1, 0.2, 0.3),
    "alpha": (0.5, 1.0, 1.5, 2.0),  # 1.5: of the grid in section VI
    "beta_p3": (0.2, 0.3, 0.4),
}
DEFAULTS = {"beta_p1": 0.2, "alpha": 1.0, "beta_p3": 0.3}
WORDS = {
    "beta_p1": "checkpoints' share (P1)",
    "alpha": "stability penalty (P2)",
    "beta_p3": "research's reserve (P3)",
}
MAKE: dict[str, Callable[[float], Variation]] = {
    "beta_p1": lambda value: Variation(beta_p1=value),
    "alpha": lambda value: Variation(alpha=value),
    "beta_p3": lambda value: Variation(beta_p3=value),
}
FLAT, FLAT_POINTS = 0.064, 1.1  # printed: "at most 6.4 %", "1.1 pp"

CLAIM_TEXT = (
    "Over beta_p1 from .1 to .3, alpha from .5 to 2 and beta_p3 from .2 to .4, work loss varies by at most 5.7 %, downtime by "
    "6.4 % and research degradation by 1.1 percentage points; the defaults are near the minimum."
)
LIMITS = (
    "That other parameters do not matter, or that these do not where reclaims are dense: here loss budgets decide most "
    "intervals, and beta_p1 is swept around the paper's .2, where the default is .9. Degradation under beta_p3 is that "
    "of a wave of seven whose reference workload asks for 30 % of the link, whatever is reserved: reserve less than "
    "that, and the difference is missing by construction."
)


def variation(parameter: str, value: float) -> Variation:
    """Return the change that sets a parameter.

    The default is Table III's scenario, except for beta_p1.

    The paper's beta_p1 differs from the default of the program (`planner.SENDING_SHARE`).
    """
    as_it_is = parameter != "beta_p1" and value == DEFAULTS[parameter]
    return AS_IS if as_it_is else MAKE[parameter](value)


def cell(parameter: str, value: float) -> str:
    """Return the cell's name in the values."""
    return f"{parameter} = {value:g}"


def run(config: Config) -> Values:
    """Run each parameter alone, the others at their defaults."""
    size = size_of(config)
    cases = {(p, v): size.runs(SYSTEM, variation(p, v)) for p, values in SWEEPS.items() for v in values}
    runs = gather(cases, config)
    rows: list[Value] = []
    for (parameter, value), some in runs.items():
        name, standard = cell(parameter, value), cell(parameter, DEFAULTS[parameter])
        rows += numbers.metric_rows(parameter, name, some, None, (WORK_LOSS, DOWNTIME))
        if value != DEFAULTS[parameter]:
            base = runs[parameter, DEFAULTS[parameter]]
            for metric in (WORK_LOSS, DOWNTIME):
                rows += numbers.ratio_row(f"{parameter}, over default", metric, (name, standard), some, base)
    seeds = reclaim_bursts.seeds_of(config)
    waves = {v: [Wave(SYSTEM, MOST, SHORT_S, False, s, reserve=v) for s in seeds] for v in SWEEPS["beta_p3"]}
    for value, of_value in reclaim_bursts.waves_of(waves, config).items():
        lacking = [100.0 * each["degradation"] for each in of_value]
        name = cell("beta_p3", value)
        rows.append(mean_row("beta_p3", name, DEGRADATION, "%", lacking, "in a wave of seven"))
    return Values(
        tuple(rows), (), settings(size.days, size.seeds, {cell(*case): some for case, some in runs.items()})
    )


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    for parameter, swept in SWEEPS.items():
        standard = cell(parameter, DEFAULTS[parameter])
        for value in swept:
            name = cell(parameter, value)
            if name == standard:
                continue
            for quantity in (WORK_LOSS.quantity, DOWNTIME.quantity):
                ratio = values.get(f"{parameter}, over default", f"{name} / {standard}", quantity)
                yield near(
                    ClaimKind.VALUE, f"{name}: {quantity} within 6.4 % of the default's", ratio, 1.0, FLAT
                )
                text = f"{name}: {quantity} is not 6.4 % less than the default's, which is near the minimum"
                yield above(ClaimKind.ORDERING, text, ratio, 1.0 - FLAT)
    for value in SWEEPS["beta_p3"]:
        lacking = values.find("beta_p3", cell("beta_p3", value), DEGRADATION)
        # the workload asks for 30 %: where that is reserved, it has it
        kind = ClaimKind.BUILT if value >= DEFAULTS["beta_p3"] else ClaimKind.VALUE
        text = f"beta_p3 = {value:g}: research loses at most 1.1 points"
        yield below(kind, text, lacking, FLAT_POINTS)


def draw(values: Values, path: Path) -> None:
    """Draw rows of work loss and downtime, a column a parameter; the default is marked."""
    with canvas(path, 2, 3, (12.0, 6.4), "Sensitivity to the three parameters (dark: default)") as (
        _,
        panels,
    ):
        for column, parameter in enumerate(SWEEPS):
            for line, (quantity, unit) in enumerate(
                ((WORK_LOSS.quantity, WORK_LOSS.unit), (DOWNTIME.quantity, "s"))
            ):
                title = f"{parameter}: {WORDS[parameter]}" if line == 0 else ""
                axes = panels[line][column]
                for place, value in enumerate(SWEEPS[parameter]):
                    if (row := values.get(parameter, cell(parameter, value), quantity)) is None:
                        continue
                    is_default = value == DEFAULTS[parameter]
                    upright(axes, place, row, 0.62, color=OURS, alpha=1.0 if is_default else 0.45)
                    if is_default:
                        axes.axhspan(
                            (1.0 - FLAT) * row.measured,
                            (1.0 + FLAT) * row.measured,
                            color=INK,
                            alpha=0.08,
                            zorder=1,
                        )
                axes.set_xticks(range(len(SWEEPS[parameter])), [f"{value:g}" for value in SWEEPS[parameter]])
                dress(axes, parameter, f"{quantity}, {unit}", title)
                axes.set_ylim(bottom=0.0)


CLAIM = Claim(
    name="A-fig9",
    paper="Paper A, Fig. 9",
    title="Sensitivity to parameters",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=("work loss", "downtime"),
    run=run,
    draw=draw,
    checks=checks,
)
