"""Paper B's learning figures: running averages of cost and of delay over the jobs so far, with r in an inset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from experiments.claims.learning import AGE, ALGORITHM1, FIXED, LARGE, PRINTED, REPLAY, SMALL, Case, labels
from experiments.claims.values import Point, Values

COLOURS: Final = {
    FIXED: "#8a8a8a",
    PRINTED: "#b9a7c9",
    ALGORITHM1: "#d1622b",
    REPLAY: "#2b6cb0",
    AGE: "#2f855a",
}
WORDS: Final = {
    FIXED: "r* known and fixed",
    PRINTED: "Algorithm 1 as printed",
    ALGORITHM1: "Algorithm 1, corrected",
    REPLAY: "replay (ours)",
    AGE: "age (ours)",
}
DASHES: Final[dict[float, Any]] = {SMALL: (0, (4, 1.6)), LARGE: "-"}
BAND: Final = (ALGORITHM1, AGE)  # whose spread over the seeds is drawn
INK: Final = "#222222"


def draw(title: str, cases: Sequence[Case], values: Values, path: Path) -> None:
    """A column a case, cost above delay; one case alone lies on its side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    alone = len(cases) == 1
    shape = (1, 2) if alone else (2, len(cases))
    figure, panels = plt.subplots(
        *shape, figsize=(13, 5.6) if alone else (13, 9), layout="constrained", squeeze=False
    )
    for column, case in enumerate(cases):
        cost_axes, delay_axes = panels[0] if alone else panels[:, column]
        _cost_panel(cost_axes, case, values)
        _delay_panel(delay_axes, case, values)
    figure.legend(
        handles=_keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9.5, handlelength=3.2
    )
    figure.suptitle(title, fontsize=14, fontweight="bold", x=0.012, ha="left", color=INK)
    figure.text(0.012, 0.0, _about(values), fontsize=9, color="#555555", ha="left", va="top")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140, bbox_inches="tight", pad_inches=0.12)
    plt.close(figure)


def _cost_panel(axes: Any, case: Case, values: Values) -> None:
    exact = case.exact
    _lines(axes, case, values, "cost")
    axes.set_ylim(0.9, 10.2)
    _target(axes, exact.cost_star, f"theory: cost* = {exact.cost_star:.3f}", above=True)
    if exact.age_aware_cost is not None and exact.cost_star - exact.age_aware_cost > 0.01:
        _target(axes, exact.age_aware_cost, f"bound with the age: {exact.age_aware_cost:.3f}", above=False)
    _dress(axes, case, values, "cost a job (a spot costs 1, on-demand 10)", "Running average of cost")


def _delay_panel(axes: Any, case: Case, values: Values) -> None:
    delta_h = case.exact.delta_h
    top_h = 4.0 * delta_h if delta_h < 10.0 else 2.5 * delta_h
    _lines(axes, case, values, "delay")
    axes.set_ylim(0.0, top_h)
    _target(axes, delta_h, f"target: {delta_h:g} h", above=False)
    _dress(axes, case, values, "delay of all jobs, h", "Running average of delay")
    _off_the_chart(axes, case, values, top_h)
    _inset(axes, case, values)


def _lines(axes: Any, case: Case, values: Values, quantity: str, width: float = 1.7) -> None:
    for name, (system, start) in labels().items():
        points = values.curve(case.group, name, quantity)
        if not points:
            continue
        style = ":" if system == FIXED else DASHES[start]
        thin = 0.6 if system in (FIXED, PRINTED) else 1.0
        xs = [point.x for point in points]
        order = 2 + list(COLOURS).index(system)
        if system in BAND and start == LARGE:
            _bands(axes, points, COLOURS[system])
        axes.plot(
            xs,
            [point.mean for point in points],
            color=COLOURS[system],
            linestyle=style,
            linewidth=width * thin,
            zorder=order,
        )


def _bands(axes: Any, points: Sequence[Point], colour: str) -> None:
    """Light: 80 % of the seeds. Darker: 95 % interval of the mean."""
    xs = [point.x for point in points]
    spread = [point.tenth for point in points], [point.ninetieth for point in points]
    sure = [point.low for point in points], [point.high for point in points]
    axes.fill_between(xs, *spread, color=colour, alpha=0.11, linewidth=0, zorder=1)
    axes.fill_between(xs, *sure, color=colour, alpha=0.22, linewidth=0, zorder=1)


def _target(axes: Any, level: float, words: str, *, above: bool) -> None:
    axes.axhline(level, color=INK, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=9)
    place = {"xytext": (4, 3 if above else -3), "va": "bottom" if above else "top"}
    axes.annotate(
        words,
        (0.0, level),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        fontsize=9,
        color=INK,
        zorder=10,
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0},
        **place,
    )


def _dress(axes: Any, case: Case, values: Values, unit: str, title: str) -> None:
    _jobs_axis(axes, values)
    axes.set_xlabel("jobs so far (log)")
    axes.set_ylabel(unit)
    axes.set_title(f"{title} · {case.group}", fontsize=11.5, loc="left", fontweight="bold", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)


def _jobs_axis(axes: Any, values: Values) -> None:
    most = float(values.settings["jobs"])
    axes.set_xscale("log")
    axes.set_xlim(10, most)
    ticks = [tick for tick in (10, 100, 1_000, 10_000, 100_000) if tick <= most]
    axes.set_xticks(ticks, [f"{tick:,}".replace(",", " ") for tick in ticks])


def _off_the_chart(axes: Any, case: Case, values: Values, top_h: float) -> None:
    """Where what is printed ends, if that is above the panel."""
    ends = [
        points[-1].mean
        for name, (system, _) in labels().items()
        if system == PRINTED and (points := values.curve(case.group, name, "delay"))
    ]
    if ends and max(ends) > top_h:
        words = f"as printed: {min(ends):.0f} to {max(ends):.0f} h, off the chart"
        axes.annotate(
            words,
            (0.985, 0.015),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            fontsize=8.5,
            color="#7d6894",
        )


def _inset(axes: Any, case: Case, values: Values) -> None:
    inset = axes.inset_axes((0.56, 0.52, 0.42, 0.44))
    inset.set_zorder(20)
    inset.patch.set_alpha(0.96)
    for name, (system, start) in labels().items():
        points = values.curve(case.group, name, "r")
        if points and system in (ALGORITHM1, REPLAY, PRINTED):
            xs, means = [point.x for point in points], [point.mean for point in points]
            thin = 0.7 if system == PRINTED else 1.2
            inset.plot(xs, means, color=COLOURS[system], linestyle=DASHES[start], linewidth=thin)
    inset.axhline(case.exact.r_star, color=INK, linewidth=0.8, linestyle=(0, (1, 1.5)))
    _jobs_axis(inset, values)
    inset.set_yscale("log")
    inset.set_ylim(0.03, 11.0)
    inset.set_yticks([0.05, 0.3, 1, 3, 8], ["0.05", "0.3", "1", "3", "8"])
    inset.minorticks_off()
    inset.tick_params(labelsize=7.5)
    inset.set_title(f"r: theory {case.exact.r_star:.3f}", fontsize=8.5, loc="left", pad=3)
    inset.grid(axis="y", color="#eeeeee", linewidth=0.6)


def _keys() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys: list[Any] = [
        Line2D(
            [],
            [],
            color=COLOURS[system],
            linestyle=":" if system == FIXED else "-",
            linewidth=2,
            label=WORDS[system],
        )
        for system in (ALGORITHM1, REPLAY, AGE, PRINTED, FIXED)
    ]
    keys += [
        Line2D([], [], color=INK, linestyle=DASHES[start], linewidth=1.4, label=f"from r_init = {start:g}")
        for start in (SMALL, LARGE)
    ]
    return [
        *keys,
        Patch(color=INK, alpha=0.15, linewidth=0, label="80 % of the seeds; darker: 95 % of the mean"),
    ]


def _about(values: Values) -> str:
    settings = values.settings
    return f"Means over seeds, all systems on the same arrivals: {settings['runs']}. Jobs sent to on-demand wait 0 h."
