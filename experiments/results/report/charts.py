"""Plots of a run: lost GPU time by part; over time the queue, research against its reserve, rates and grants; jobs' curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, groupby, pairwise
from typing import Any

from markupsafe import Markup

from controller.core.model import facts as f
from controller.core.parameters import DAY_S
from experiments.results.history import Attempt, Timed, attempts
from experiments.results.link_rates import GrantsInForce
from experiments.results.lost_time import HOURS, LostPart
from experiments.results.measurements import MeasuredCurve
from experiments.results.narration import CAUSES
from experiments.results.pictures import (
    AWAY,
    BAD,
    CARD,
    GOOD,
    INK,
    MUTED,
    OURS,
    PEER,
    SERIES,
    Plot,
    drawn,
    dress,
    placed,
)
from experiments.results.report.drawing import Points, outline, steps
from experiments.results.report.timeline import clock_of
from experiments.results.report.times import RunClock, elapsed
from experiments.results.run_context import ResearchShare, RunContext, research_shares
from experiments.results.summary import Summary
from topologies.errors import SpecError
from topologies.spec import DirectedLink
from topologies.units import MBIT_PER_S, NO_LIMIT, format_duration, format_rate

WIDTH_IN, HEIGHT_IN, TALL_IN = 7.2, 3.6, 4.8
COLUMNS = 600  # of pixels: more points than one can see are not drawn
BUSIEST = 3  # links whose grants are drawn
CLASSES = {"planned": ("planned moves and recoveries", PEER), "presync": ("checkpoints", OURS)}
MAX_CURVES = 24
MAX_POINTS = 1000  # of an attempt; of more, every so-and-so-many-th
LOST = {
    LostPart.EMERGENCIES: ("work since the newest copy, emergencies", SERIES[5]),
    LostPart.OUT_OF_REACH: ("work in copies out of reach", SERIES[3]),
    LostPart.NOTICES: ("work since the newest copy, notices too short", SERIES[2]),
    LostPart.FAULTS: ("work since the newest copy, faults", BAD),
    LostPart.PAUSES: ("pauses for snapshots", SERIES[0]),
    LostPart.RESTARTS: ("restarts", SERIES[1]),
    LostPart.DOWNTIME: ("waiting, requeued, fetching state", AWAY),
    LostPart.REDUNDANCY: ("redundant computation", SERIES[4]),
    LostPart.UNFINISHED: ("unfinished steps", SERIES[7]),
}


@contextmanager
def _over_time(
    facts: Sequence[Timed], context: RunContext, rows: int = 1, height_in: float = HEIGHT_IN
) -> Iterator[tuple[Plot, RunClock]]:
    """Provide a plot whose panels lie one above another over the time of the run."""
    clock = clock_of(facts, context)
    with drawn(rows, 1, (WIDTH_IN, height_in), sharex=True) as plot:
        yield plot, clock
        bottom = plot.panels[-1, 0]
        bottom.set_xlim(0.0, clock.until_s)
        bottom.set_xticks([at_s for at_s, _ in clock.ticks(6)])
        bottom.xaxis.set_major_formatter(lambda at_s, _=None: elapsed(at_s))


def _seen(points: Points, clock: RunClock) -> tuple[list[float], list[float]]:
    """Return (times, values) of the points that can be seen."""
    found = list(outline(points, COLUMNS / clock.until_s))
    return [x for x, _ in found], [y for _, y in found]


def _level(axes: Any, value: float, label: str) -> None:
    axes.axhline(value, color=BAD, linewidth=1.2, linestyle=(0, (5, 4)))
    placing = {"xytext": (-2, 3), "textcoords": "offset points", "xycoords": axes.get_yaxis_transform()}
    axes.annotate(label, (1.0, value), ha="right", color=BAD, fontsize=9, **placing)


def _nothing(axes: Any, words: str) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", color=MUTED)


def _lowest(axes: Any, at_s: float, value: float, name: str) -> None:
    """Ring the lowest point."""
    axes.plot([at_s], [value], "o", markersize=10, markerfacecolor="none", color=INK, label=name)


def _above(value: float) -> float:
    return value * 1.15 if value > 0.0 else 1.0


# ---------------------------------------------------------------- queue


def queue(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw r, running mean delay and running mean cost, one above another."""
    dispatched = [(at_s, d) for at_s, d in facts if isinstance(d, f.JobDispatched)]
    delays = running_mean([(at_s, d.delay_s) for at_s, d in dispatched if d.delay_s is not None])
    costs = running_mean([(at_s, d.cost) for at_s, d in dispatched if d.cost is not None])
    levels = [
        (at_s, fact.level)
        for at_s, fact in facts
        if isinstance(fact, f.JobQueued | f.JobRedirected | f.LevelLearned) and fact.level < NO_LIMIT
    ]
    target_s, k = context.target_delay_s, context.on_demand_cost
    unit, unit_s = _unit(max([target_s, *(delay_s for _, delay_s in delays)]))
    delays = [(at_s, delay_s / unit_s) for at_s, delay_s in delays]
    target = f"target {format_duration(target_s)}"
    with _over_time(facts, context, 3, TALL_IN) as (plot, clock):
        for axes, title, found, bound, label in zip(
            plot.panels.flat,
            ("level r = N + p", f"mean delay so far, {unit}", "mean cost so far"),
            (levels, delays, costs),
            (0.0, target_s / unit_s, k),
            ("", target, f"on-demand k = {k:g}"),
            strict=True,
        ):
            dress(axes, "", "", title)
            if label:
                _level(axes, bound, label)
            if not found:
                _nothing(axes, "nothing recorded")
                continue
            times, values = _seen(steps(found, clock.until_s), clock)
            axes.plot(times, values, color=OURS, linewidth=2)
            axes.plot(times[-1:], values[-1:], "o", color=OURS, markersize=5, clip_on=False, label="at the end")
            axes.set_ylim(0.0, _above(max(bound, *values)))
    return placed(plot.svg, "Queue level, mean delay and mean cost over time")


def running_mean(points: Points) -> list[tuple[float, float]]:
    """Return (s, mean of all values up to then)."""
    totals = accumulate(value for _, value in points)
    return [(at_s, total / n) for n, ((at_s, _), total) in enumerate(zip(points, totals, strict=True), 1)]


def _unit(longest_s: float) -> tuple[str, float]:
    units = {"d": DAY_S, "h": 3600.0, "min": 60.0, "s": 1.0}
    return next((unit for unit in units.items() if longest_s > 2 * unit[1]), ("s", 1.0))


# ---------------------------------------------------------------- lost GPU time


def lost(summary: Summary) -> Markup:
    """Draw lost GPU time at real scale, each part a piece: of all jobs, by class of payloads, and by hour of the day."""
    time, real = summary.lost_time, summary.scale["time"]
    bars = {"all jobs": {part: float(getattr(time, f"{part}_s")) for part in LostPart}} | time.by_class
    hours = {str(hour): {part: time.by_hour[part][hour] for part in LostPart} for hour in range(HOURS)}
    with drawn(1, 2, (2 * WIDTH_IN, HEIGHT_IN)) as plot:
        [[by_class, by_hour]] = plot.panels
        for axes, rows, is_flat in ((by_class, bars, True), (by_hour, hours, False)):
            totals_s = [sum(max(0.0, lost_s) for lost_s in parts.values()) / real for parts in rows.values()]
            unit, unit_s = _unit(max(totals_s))
            base = [0.0] * len(rows)
            for part, (words, colour) in LOST.items():
                sizes = [max(0.0, parts[part]) / real / unit_s for parts in rows.values()]
                if any(sizes):
                    look = {"color": colour, "label": words, "left" if is_flat else "bottom": base}
                    (axes.barh if is_flat else axes.bar)(list(rows), sizes, 0.6 if is_flat else 0.8, **look)
                    base = [below + size for below, size in zip(base, sizes, strict=True)]
            amount = f"GPU time lost, {unit}"
            dress(axes, *((amount, "") if is_flat else ("hour of the day", amount)), grid="xy"[not is_flat])
        by_class.set_yticks(range(len(bars)), list(bars))
        by_class.set_ylim(len(bars) - 0.5, -0.5)
        by_hour.set_xlim(-0.5, HOURS - 0.5)
        by_hour.set_xticks(range(0, HOURS, 3))
        known = dict(zip(*reversed(by_class.get_legend_handles_labels()), strict=True))
        known |= dict(zip(*reversed(by_hour.get_legend_handles_labels()), strict=True))
        if known:
            plot.figure.legend(list(known.values()), list(known), loc="outside lower center", ncols=4)
        else:
            _nothing(by_class, "nothing was lost")
    return placed(plot.svg, "Lost GPU time by part: of all jobs, by size of payload, and by hour of the day")


# ---------------------------------------------------------------- research


def research(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw each greedy research flow's part of its narrowest link, and the share that is kept for research."""
    samples = research_shares(context)
    with _over_time(facts, context, 1, TALL_IN) as (plot, clock):
        [[axes]] = plot.panels
        dress(axes, "", "", "research throughput over link capacity")
        axes.set_ylim(0.0, 1.03 * max([1.0, *(s.share for s in samples)]))
        if not samples:
            _nothing(axes, "no research flow was measured")
        kept = {s.sample.reserve_bytes_per_s / s.sample.link_capacity_bytes_per_s for s in samples}
        for share in sorted({round(part, 4) for part in kept}):
            axes.axhspan(0.0, share, color=BAD, alpha=0.09, linewidth=0)
            _level(axes, share, f"reserve {share:.0%}")
        flows = sorted(samples, key=lambda s: (*_ends(s), s.sample.at_s))
        for n, ((source, target), windows) in enumerate(groupby(flows, key=_ends)):
            shares = _seen([(s.sample.at_s, s.share) for s in windows], clock)
            look = {"color": (OURS, PEER)[n % 2], "linewidth": 1.2, "markersize": 3}
            axes.plot(*shares, "o-", label=f"{source} -> {target}", **look)
        if samples:
            lowest = min(samples, key=lambda s: s.share)
            _lowest(axes, lowest.sample.at_s, lowest.share, "the lowest")
    return placed(plot.svg, "Research throughput against its reserve")


def _ends(s: ResearchShare) -> tuple[str, str]:
    return s.sample.source, s.sample.target


# ---------------------------------------------------------------- rates


def goodput(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw goodput over grant of every transfer that was long enough to measure, when it ended."""
    kinds: dict[tuple[str, str, str], str] = {}
    dots: dict[str, list[tuple[float, float]]] = {}
    worst = (0.0, float("inf"), "")
    for at_s, fact in facts:
        if isinstance(fact, f.Granted):
            kinds[fact.job, fact.source, fact.destination] = fact.traffic_class
        if isinstance(fact, f.TransferFinished) and (ratio := fact.goodput_over_grant) is not None:
            kind = kinds.get((fact.job, fact.source, fact.destination), "")
            dots.setdefault(kind if kind in CLASSES else "", []).append((at_s, ratio))
            if ratio < worst[1]:
                worst = at_s, ratio, f"the lowest: {fact.job}, {fact.source} -> {fact.destination}"
    ratios = [ratio for some in dots.values() for _, ratio in some]
    with _over_time(facts, context) as (plot, clock):
        [[axes]] = plot.panels
        dress(axes, "", "", "goodput over grant, by transfer")
        axes.set_ylim(max(0.0, min([0.95, *ratios]) - 0.01), max([1.02, *ratios]) + 0.01)
        axes.axhspan(0.97, 1.0, color=GOOD, alpha=0.13, linewidth=0)
        for kind, some in sorted(dots.items()):
            name, colour = CLASSES.get(kind, ("others", MUTED))
            look = {"color": colour, "markersize": 5, "markeredgecolor": CARD, "markeredgewidth": 0.5}
            axes.plot(*_seen(some, clock), "o", label=name, **look)
        if ratios:
            plot.figure.legend(loc="outside lower right", ncols=len(dots))
            _lowest(axes, *worst)
        else:
            _nothing(axes, "no transfer was long enough to measure")
    return placed(plot.svg, "Goodput over grant of every transfer")


def grants(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw what was granted over the busiest links against what migrations may use of them."""
    history = granted_on_links(facts, context)
    peaks = {link: max(rate for _, rate in line) for link, line in history.items()}

    def part(link: DirectedLink) -> float:
        share = context.share.get(link, 0.0)
        return peaks[link] / share if share > 0.0 else 0.0

    busiest = sorted(peaks, key=lambda link: (-part(link), str(link)))[:BUSIEST]
    with _over_time(facts, context, max(1, len(busiest))) as (plot, clock):
        if not busiest:
            _nothing(plot.panels[0, 0], "nothing was granted")
        for axes, link in zip(plot.panels.flat, busiest, strict=False):
            share = context.share.get(link, 0.0) / MBIT_PER_S
            points = [(at_s, rate / MBIT_PER_S) for at_s, rate in history[link]]
            times, rates = _seen(steps(points, clock.until_s), clock)
            axes.fill_between(times, rates, color=OURS, alpha=0.22, linewidth=0)
            axes.plot(times, rates, color=OURS, linewidth=1.2)
            most = f"at most {format_rate(peaks[link])} of {format_rate(share * MBIT_PER_S)}"
            dress(axes, "", "", f"{link.source} > {link.target}, Mbit/s granted: {most}")
            _level(axes, share, "share")
            axes.set_ylim(0.0, _above(max(share, *rates)))
    return placed(plot.svg, "Grants on the busiest links against their share")


def granted_on_links(facts: Sequence[Timed], context: RunContext) -> dict[DirectedLink, list[tuple[float, float]]]:
    """Return link -> (s, payload bytes/s granted over it from then on), for every link that ever had a grant."""
    grants, history = GrantsInForce(context.campus), dict[DirectedLink, list[tuple[float, float]]]()
    for at_s, moment in groupby(facts, key=lambda timed: timed[0]):
        changed: set[DirectedLink] = set()
        for _, fact in moment:
            with suppress(SpecError):  # the campus has no such hosts
                changed |= grants.note(at_s, fact)
        for link in changed:
            history.setdefault(link, []).append((at_s, sum(grants.on.get(link, {}).values())))
    return history


# ---------------------------------------------------------------- what jobs measured


def curves(facts: Sequence[Timed], context: RunContext) -> list[Markup]:
    """Draw the first MAX_CURVES quantities that jobs measured, each by step, its attempts marked."""
    tries = {(attempt.job, attempt.attempt): attempt for attempt in attempts(facts)} if context.measured else {}
    return [_curve(curve, tries) for curve in context.measured[:MAX_CURVES]]


def _curve(curve: MeasuredCurve, tries: dict[tuple[str, int], Attempt]) -> Markup:
    told = sorted(curve.attempts.items())
    name = "".join(letter if letter.isprintable() else "?" for letter in curve.name)  # a user's own
    twice, differ = curve.repeated()
    equal = f"{differ} of them differ" if differ else "the same to the last bit"
    with drawn(1, 1, (WIDTH_IN, HEIGHT_IN)) as plot:
        [[axes]] = plot.panels
        dress(axes, f"step; steps computed twice: {twice}, {equal}" if twice else "step", "", f"{curve.job}: {name}")
        for (_, before), (_, after) in pairwise(told):
            if before[-1][0] > after[0][0]:
                axes.axvspan(after[0][0], before[-1][0], color=BAD, alpha=0.09, linewidth=0)
            axes.axvline(after[0][0], color=BAD, linewidth=1.2, linestyle=(0, (5, 4)))
        for n, (attempt, points) in enumerate(told):
            stride = -(-len(points) // MAX_POINTS)
            where = tries.get((curve.job, attempt))
            host = where.host if where else "a host that the journal does not know"
            how = CAUSES.get(where.how, where.how.replace("_", " ")) if where else ""
            label = f"attempt {attempt} on {host}" + (f": {how}" if how else "")
            shown = [*points[:-1:stride], points[-1]]
            colour = (OURS, PEER)[n % 2]
            axes.plot(*zip(*shown, strict=True), color=colour, linewidth=1.2, label=label)
            axes.plot(*points[0], "o", color=colour, markersize=5, label=label)
    return placed(plot.svg, f"{name} of {curve.job} by step, {len(told)} attempts")
