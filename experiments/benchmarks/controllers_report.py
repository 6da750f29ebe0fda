"""The figures of `controllers` as tables on a terminal, and as a picture: how far from delta, how far from cost*."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.results.pictures import canvas

COLOURS = {
    "hindsight": "#d0b000",
    "fixed": "#9a9a9a",
    "algorithm1": "#c0703a",
    "replay": "#2f6f9f",
    "age": "#3f8f4f",
}
SPREAD = 0.18  # between the points of one case
MOST, LARGEST = 1.5, 1.5  # delay over delta, cost over the best, at which the axes end


def cases_table(result: Mapping[str, Any]) -> Table:
    """A row a case and controller: all jobs from a cold start on, then the last half of them."""
    low, high = result["starts"]
    title = (
        f"{result['seeds']} seeds, from r = {low:g} and {high:g}; within: share of seeds at most "
        f"{result['tolerance']:.0%} off; saving: share of what knowing the gap's age can save"
    )
    delay, cost = "delay / delta (within)", "cost (within cost*)"
    heads = (
        delay,
        cost,
        "saving",
        f"last half: {delay}",
        cost,
        "saving",
        f"r learned, for ever: {delay}",
        cost,
    )
    table = Table("case", "controller", *heads, title=title)
    for name, case in result["cases"].items():
        label = f"{name}, {case['jobs']:,} jobs\ndelta {case['delta_h']:g} h, cost* {case['cost_star']:.4g}"
        for controller, of in case["controllers"].items():
            cells = *_cells(case, of, ""), *_cells(case, of, "last_"), *_learned(case, of)
            table.add_row(label, controller, *cells)
            label = ""
        table.add_section()
    return table


def traces_table(result: Mapping[str, Any]) -> Table:
    """A row a record, target delay and controller; intervals are 90 % of the replicates."""
    table = Table(
        *("record", "delta / time between jobs", "controller", "delay / delta", "cost", "cost against fixed"),
        title="Recorded offers, resampled in blocks; `fixed` knows the best r of each replicate in hindsight",
    )
    for name, record in result["traces"].items():
        label = _short(name)
        if "left_out" in record:
            table.add_row(label, "", "left out", record["left_out"])
        for share, controllers in record.get("deltas", {}).items():
            for controller, of in controllers.items():
                table.add_row(label, share, controller, *_trace_cells(of))
                label = share = ""
        table.add_section()
    return table


def laws_table(result: Mapping[str, Any]) -> Table:
    """A row a law of offers and target delay."""
    laws = result["laws"]
    beyond = "; ".join(laws["beyond"]) or "none"
    table = Table(
        *(
            "offers",
            "delta",
            "hindsight: cost",
            "replay: delay / delta (worst)",
            "cost",
            "age: delay / delta (worst)",
            "cost",
        ),
        title=f"Laws that nobody assumed: {laws['seeds']} seeds, {laws['jobs']:,} jobs",
        caption=f"more than 5 % off delta on average, or 2 % dearer than replay: {beyond}",
    )
    for law, deltas in laws["laws"].items():
        for delta, of in deltas.items():
            cells = [cell for name in ("replay", "age") for cell in _law_cells(of[name])]
            table.add_row(law, f"{delta} h", f"{of['hindsight']['cost']:.3f}", *cells)
    return table


def _law_cells(of: Mapping[str, float]) -> tuple[str, str]:
    return f"{of['delay_over_delta']:.3f} ({of['worst_off']:.1%})", f"{of['cost']:.3f}"


def _short(record: str) -> str:
    """Day and place of a record's file: the rest of its path is the same for all, or long."""
    path = Path(record)
    return f"{path.parent.name} {path.stem}".strip()


def _cells(case: Mapping[str, Any], of: Mapping[str, Any], part: str) -> Iterator[str]:
    saving = of[f"{part}saving"]
    yield f"{of[f'{part}delay_h']['mean'] / case['delta_h']:.3f} ({of[f'{part}delay_within']:.0%})"
    yield f"{of[f'{part}cost']['mean']:.3f} ({of[f'{part}cost_within']:.0%})"
    yield "" if saving is None else f"{saving:.0%}"


def _learned(case: Mapping[str, Any], of: Mapping[str, Any]) -> Iterator[str]:
    """Of the level that was learned, if the rule is one."""
    if of["learned_cost_within"] is None:
        return
    yield f"{of['learned_delay_h']['mean'] / case['delta_h']:.3f} ({of['learned_delay_within']:.0%})"
    yield f"{of['learned_cost']['mean']:.3f} ({of['learned_cost_within']:.0%})"


def _trace_cells(of: Mapping[str, Any]) -> Iterator[str]:
    delay, cost, against = (of[key] for key in ("delay_over_delta", "cost", "cost_against_fixed"))
    yield f"{delay['mean']:.2f} [{delay['low']:.2f}, {delay['high']:.2f}]"
    yield f"{cost['mean']:.2f} [{cost['low']:.2f}, {cost['high']:.2f}]"
    yield f"{against['mean']:+.1%} [{against['low']:+.1%}, {against['high']:+.1%}]"


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Delay over delta and cost over its reference, a row a case; records below, if they were measured."""
    rows = list(_rows(result))
    title = "All jobs from a cold start on (95 % intervals; records: 90 % of replicates)"
    with canvas(path, 1, 2, (10.5, 1.2 + 0.42 * len(rows)), title, sharey=True) as (figure, [panels]):
        for place, (_, bound, controllers) in enumerate(rows):
            for order, (name, (delay, cost)) in enumerate(controllers.items()):
                y = place + SPREAD * (order - (len(controllers) - 1) / 2)
                _mark(panels[0], y, delay, name, None if place else name, MOST)
                _mark(panels[1], y, cost, name, None, LARGEST)
            if bound is not None:
                panels[1].plot([bound, bound], [place - 0.4, place + 0.4], color="black", linewidth=1.2)
        panels[0].set(
            xlabel="delay / delta",
            xlim=(0.5, MOST),
            yticks=range(len(rows)),
            yticklabels=[r[0] for r in rows],
        )
        panels[1].set(xlabel="cost / cost of the best r;  bar: bound over all policies", xlim=(0.7, LARGEST))
        panels[0].set_ylim(len(rows) - 0.4, -0.6)
        for panel in panels:
            panel.axvline(1.0, color="#bbbbbb", linewidth=0.8, zorder=0)
        figure.legend(loc="outside lower center", ncols=5)


Spread = tuple[float, float, float]


def _rows(result: Mapping[str, Any]) -> Iterator[tuple[str, float | None, dict[str, tuple[Spread, Spread]]]]:
    """(label, bound, {controller: (delay over delta, cost over reference)}), each as (mean, low, high)."""
    for name, case in result["cases"].items():
        bound, star = case["age_aware_bound"], case["cost_star"]
        controllers = {
            key: (_scaled(of["delay_h"], case["delta_h"]), _scaled(of["cost"], star))
            for key, of in case["controllers"].items()
        }
        yield f"{name}, {case['delta_h']:g} h", bound and bound / star, controllers
    for name, record in result.get("traces", {}).items():
        for share, of_all in record.get("deltas", {}).items():
            controllers = {
                key: (_scaled(of["delay_over_delta"], 1.0), _shifted(of["cost_against_fixed"]))
                for key, of in of_all.items()
            }
            yield f"{_short(name)}, {share}", None, controllers


def _scaled(spread: Mapping[str, float], by: float) -> Spread:
    return spread["mean"] / by, spread["low"] / by, spread["high"] / by


def _shifted(spread: Mapping[str, float]) -> Spread:
    return 1.0 + spread["mean"], 1.0 + spread["low"], 1.0 + spread["high"]


def _mark(panel: Any, y: float, spread: Spread, name: str, label: str | None, end: float) -> None:
    """A point with its interval; beyond the end of the axis an arrow, and the number."""
    mean, low, high = spread
    colour = COLOURS[name.split()[0]]
    panel.plot([low, high], [y, y], color=colour, linewidth=1.5)
    panel.plot([mean], [y], "o", color=colour, markersize=4, label=label)
    if mean > end:
        panel.plot([end], [y], ">", color=colour, markersize=6, clip_on=False)
        panel.annotate(f"{mean:.2f}   ", (end, y), color=colour, ha="right", va="center", fontsize=8)
