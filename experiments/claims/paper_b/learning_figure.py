"""Paper B's learning figures: running averages of cost and of delay over the jobs so far, with r in an inset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from experiments.claims.framework.values import Values
from experiments.claims.paper_b.learning import LearningCase
from experiments.claims.paper_b.learning_runs import (
    AGE,
    ALGORITHM1,
    FIXED,
    LARGE,
    PRINTED,
    REPLAY,
    SMALL,
    labels,
)
from experiments.results.pictures import GOOD, INK, MUTED, OURS, PEER, SERIES, canvas, dress

COLOURS: Final = {FIXED: MUTED, PRINTED: SERIES[3], ALGORITHM1: PEER, AGE: GOOD, REPLAY: OURS}
WORDS: Final = {
    FIXED: "r* known and fixed",
    PRINTED: "Algorithm 1 as printed",
    ALGORITHM1: "Algorithm 1, corrected",
    REPLAY: "replay (this project)",
    AGE: "age (this project)",
}
DASHES: Final[dict[float, Any]] = {SMALL: (0, (4, 1.6)), LARGE: "-"}
# replay is seen on top of age
WIDTHS: Final = {FIXED: 1.1, PRINTED: 1.0, ALGORITHM1: 1.8, REPLAY: 1.2, AGE: 2.4}
BAND: Final = (ALGORITHM1, AGE)  # whose spread over the seeds is drawn


def draw(title: str, cases: Sequence[LearningCase], values: Values, path: Path) -> None:
    """Draw a column for each case, cost above delay; a single case has its panels side by side."""
    alone = len(cases) == 1
    shape = (1, 2) if alone else (2, len(cases))
    with canvas(path, *shape, (13, 5.6) if alone else (13, 9), title) as (figure, panels):
        for column, case in enumerate(cases):
            cost_axes, delay_axes = panels[0] if alone else panels[:, column]
            exact = case.exact
            _lines(cost_axes, case, values, "cost")
            cost_axes.set_ylim(0.9, 10.2)
            _target(cost_axes, exact.cost_star, f"theory\n{exact.cost_star:.3f}", "bottom")
            if exact.age_aware_cost is not None and exact.cost_star - exact.age_aware_cost > 0.01:
                words = f"bound with\nthe age\n{exact.age_aware_cost:.3f}"
                _target(cost_axes, exact.age_aware_cost, words, "top")
            unit = "cost a job (a spot costs 1, on-demand 10)"
            dress(cost_axes, "jobs so far (log)", unit, f"Running average of cost · {case.group}")

            _lines(delay_axes, case, values, "delay")
            delay_axes.set_yscale("log")
            delay_axes.set_ylim(0.3, 4_000.0)  # room for the inset above all curves
            ticks = (0.3, 1, 3, 10, 30, 100)
            delay_axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            delay_axes.set_yticks([], minor=True)
            _target(delay_axes, exact.delta_h, f"target\n{exact.delta_h:g} h", "center")
            unit = "delay of all jobs, h (log)"
            dress(delay_axes, "jobs so far (log)", unit, f"Running average of delay · {case.group}")
            _inset(delay_axes, case, values)
        figure.legend(
            handles=_keys(),
            title=f"Means over seeds, all systems on the same arrivals: {values.settings['runs']}. "
            "Jobs sent to on-demand wait 0 h.",
            title_fontsize=9.5,
            alignment="left",
            loc="outside lower left",
            ncols=4,
            fontsize=9.5,
            handlelength=3.2,
        )


def _lines(axes: Any, case: LearningCase, values: Values, quantity: str) -> None:
    """Draw a curve for each system and start. Bands of some: light, 80 % of the seeds; darker, 95 % interval of the mean."""
    for name, (system, start) in labels().items():
        if not (points := values.curve(case.group, name, quantity)):
            continue
        xs, tone = [point.x for point in points], COLOURS[system]
        if system in BAND:
            spread = [point.tenth for point in points], [point.ninetieth for point in points]
            sure = [point.low for point in points], [point.high for point in points]
            axes.fill_between(xs, *spread, color=tone, alpha=0.11, linewidth=0, zorder=1)
            axes.fill_between(xs, *sure, color=tone, alpha=0.22, linewidth=0, zorder=1)
        axes.plot(
            xs,
            [point.mean for point in points],
            color=tone,
            linestyle=":" if system == FIXED else DASHES[start],
            linewidth=WIDTHS[system],
            zorder=2 + list(COLOURS).index(system),
        )
    _jobs_axis(axes, values)


def _target(axes: Any, level: float, words: str, va: str) -> None:
    """Draw a dotted line, named beyond the right end of the panel."""
    axes.axhline(level, color=INK, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=9)
    place = {"xytext": (5, 0), "textcoords": "offset points", "va": va, "annotation_clip": False}
    axes.annotate(words, (1.0, level), xycoords=axes.get_yaxis_transform(), fontsize=9, color=INK, **place)


def _jobs_axis(axes: Any, values: Values) -> None:
    most = float(values.settings["jobs"])
    axes.set_xscale("log")
    axes.set_xlim(10, most)
    ticks = [tick for tick in (10, 100, 1_000, 10_000, 100_000) if tick <= most]
    axes.set_xticks(ticks, [f"{tick:,}".replace(",", " ") for tick in ticks])


def _inset(axes: Any, case: LearningCase, values: Values) -> None:
    inset = axes.inset_axes((0.5, 0.68, 0.49, 0.25))
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
    inset.set_yticks([0.05, 0.3, 1, 6], ["0.05", "0.3", "1", "6"])
    inset.minorticks_off()
    inset.tick_params(labelsize=7.5)
    inset.set_title(
        f"r after so many jobs (log); theory: {case.exact.r_star:.3f}", fontsize=8.5, loc="left", pad=3
    )
    inset.grid(axis="y")


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
