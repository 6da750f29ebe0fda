"""Plots of a run: lost GPU time by part; over time the queue, research against its reserve, rates and grants; jobs' curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, groupby, pairwise
from typing import Any

from markupsafe import Markup

from controller.core.model import facts as f
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
from topologies.units import MBIT_PER_S, NO_LIMIT, format_duration, format_rate, format_size

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


def _lowest(axes: Any, at_s: float, value: float, name: str) -> None:
    """Ring the lowest point."""
    axes.plot([at_s], [value], "o", markersize=10, markerfacecolor="none", color=INK, label=name)


def _above(value: float) -> float:
    return value * 1.15 if value > 0.0 else 1.0


# ---------------------------------------------------------------- queue


def queue(facts: Sequence[Timed], context: RunContext) -> Markup | None:
    """Draw r, running mean delay and running mean cost, one above another; None: no job came to the queue."""
    dispatched = [(at_s, d) for at_s, d in facts if isinstance(d, f.JobDispatched)]
    delays = running_mean([(at_s, d.delay_s) for at_s, d in dispatched if d.delay_s is not None])
    costs = running_mean([(at_s, d.cost) for at_s, d in dispatched if d.cost is not None])
    levels = [
        (at_s, fact.level)
        for at_s, fact in facts
        if isinstance(fact, f.JobQueued | f.JobRedirected | f.LevelLearned) and fact.level < NO_LIMIT
    ]
    target_s, k = context.target_delay_s, context.on_demand_cost
    parts = [
        ("level r = N + p: jobs that may wait", levels, 0.0, ""),
        ("mean delay so far", delays, target_s, f"target {format_duration(target_s)}"),
        ("mean cost of a job so far; on a volunteer's GPU it is 1", costs, k, f"on-demand k = {k:g}"),
    ]
    if not (parts := [part for part in parts if part[1]]):
        return None
    with _over_time(facts, context, len(parts), TALL_IN) as (plot, clock):
        for axes, (title, found, bound, label) in zip(plot.panels.flat, parts, strict=True):
            dress(axes, "", "", title)
            if found is delays:
                _in_time(axes.yaxis, max(bound, *(delay_s for _, delay_s in delays)))
            if label:
                _level(axes, bound, label)
            times, values = _seen(steps(found, clock.until_s), clock)
            axes.plot(times, values, color=OURS, linewidth=2)
            axes.plot(times[-1:], values[-1:], "o", color=OURS, markersize=5, clip_on=False, label="at the end")
            axes.set_ylim(0.0, _above(max(bound, *values)))
    return placed(plot.svg, "Queue level, mean delay and mean cost over time")


def running_mean(points: Points) -> list[tuple[float, float]]:
    """Return (s, mean of all values up to then)."""
    totals = accumulate(value for _, value in points)
    return [(at_s, total / n) for n, ((at_s, _), total) in enumerate(zip(points, totals, strict=True), 1)]


def _in_time(axis: Any, longest_s: float) -> None:
    """Put round times on an axis, each with its unit."""
    axis.set_ticks([at_s for at_s, _ in RunClock(max(longest_s, 1e-3)).ticks(4)])
    axis.set_major_formatter(lambda at_s, _=None: elapsed(at_s))


# ---------------------------------------------------------------- lost GPU time


def lost(summary: Summary) -> list[Markup]:
    """Draw lost GPU time, each part a piece: by class of payloads, and by hour of the day where there are several."""
    time = summary.lost_time
    whole = {"all jobs": parts_of(summary)}
    classes = whole | (time.by_class if len(time.by_class) > 1 else {})
    hours: dict[str, dict[str, float]] = {
        str(hour): {part: time.by_hour[part][hour] for part in LostPart} for hour in range(HOURS)
    }
    found = [stacked(classes, "Lost GPU time by part")] if any(whole["all jobs"].values()) else []
    if sum(any(parts.values()) for parts in hours.values()) > 1:
        found.append(stacked(hours, "Lost GPU time by hour of the day", is_flat=False))
    return found


def parts_of(summary: Summary) -> dict[str, float]:
    """Return the parts of lost GPU time, in seconds as played."""
    return {part: float(getattr(summary.lost_time, f"{part}_s")) for part in LostPart}


def stacked(rows: Mapping[str, Mapping[str, float]], label: str, *, is_flat: bool = True) -> Markup:
    """Draw a bar a row, of its parts of lost GPU time in seconds; all rows on one axis."""
    height_in = HEIGHT_IN if not is_flat else 1.6 + 0.45 * len(rows)
    longest_s = max(sum(max(0.0, lost_s) for lost_s in parts.values()) for parts in rows.values())
    with drawn(1, 1, (WIDTH_IN, height_in)) as plot:
        [[axes]] = plot.panels
        base, shown = [0.0] * len(rows), 0
        for part, (words, colour) in LOST.items():
            sizes = [max(0.0, parts[part]) for parts in rows.values()]
            if any(sizes):
                look = {"color": colour, "label": words, "left" if is_flat else "bottom": base}
                (axes.barh if is_flat else axes.bar)(list(rows), sizes, 0.6 if is_flat else 0.8, **look)
                base = [below + size for below, size in zip(base, sizes, strict=True)]
                shown += 1
        dress(axes, *(("", "") if is_flat else ("hour of the day", "")), label, grid="xy"[not is_flat])
        _in_time(axes.xaxis if is_flat else axes.yaxis, longest_s)
        if is_flat:
            axes.set_yticks(range(len(rows)), list(rows))
            axes.set_ylim(len(rows) - 0.5, -0.5)
        else:
            axes.set_xlim(-0.5, HOURS - 0.5)
            axes.set_xticks(range(0, HOURS, 3))
        if shown:
            plot.figure.legend(loc="outside lower center", ncols=2)
    return placed(plot.svg, label)


# ---------------------------------------------------------------- research


def research(facts: Sequence[Timed], context: RunContext) -> Markup | None:
    """Draw each greedy research flow's part of its narrowest link, and the share that is kept; None: none was measured."""
    if not (samples := research_shares(context)):
        return None
    with _over_time(facts, context, 1, TALL_IN) as (plot, clock):
        [[axes]] = plot.panels
        dress(axes, "", "", "research throughput over link capacity")
        axes.set_ylim(0.0, 1.03 * max([1.0, *(s.share for s in samples)]))
        kept = {s.sample.reserve_bytes_per_s / s.sample.link_capacity_bytes_per_s for s in samples}
        for share in sorted({round(part, 4) for part in kept}):
            axes.axhspan(0.0, share, color=BAD, alpha=0.09, linewidth=0)
            _level(axes, share, f"reserve {share:.0%}")
        flows = sorted(samples, key=lambda s: (*_ends(s), s.sample.at_s))
        for n, ((source, target), windows) in enumerate(groupby(flows, key=_ends)):
            shares = _seen([(s.sample.at_s, s.share) for s in windows], clock)
            look = {"color": (OURS, PEER)[n % 2], "linewidth": 1.2, "markersize": 3}
            axes.plot(*shares, "o-", label=f"{source} -> {target}", **look)
        lowest = min(samples, key=lambda s: s.share)
        _lowest(axes, lowest.sample.at_s, lowest.share, "the lowest")
    return placed(plot.svg, "Research throughput against its reserve")


def _ends(s: ResearchShare) -> tuple[str, str]:
    return s.sample.source, s.sample.target


# ---------------------------------------------------------------- rates


def goodput(facts: Sequence[Timed], context: RunContext) -> Markup | None:
    """Draw goodput over grant of every transfer that was long enough to measure, when it ended; None: no such transfer."""
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
    if not (ratios := [ratio for some in dots.values() for _, ratio in some]):
        return None
    with _over_time(facts, context) as (plot, clock):
        [[axes]] = plot.panels
        dress(axes, "", "", "goodput over grant, by transfer")
        axes.set_ylim(max(0.0, min([0.95, *ratios]) - 0.01), max([1.02, *ratios]) + 0.01)
        axes.axhspan(0.97, 1.0, color=GOOD, alpha=0.13, linewidth=0)
        for kind, some in sorted(dots.items()):
            name, colour = CLASSES.get(kind, ("others", MUTED))
            look = {"color": colour, "markersize": 5, "markeredgecolor": CARD, "markeredgewidth": 0.5}
            axes.plot(*_seen(some, clock), "o", label=name, **look)
        plot.figure.legend(loc="outside lower right", ncols=len(dots))
        _lowest(axes, *worst)
    return placed(plot.svg, "Goodput over grant of every transfer")


def grants(facts: Sequence[Timed], context: RunContext) -> Markup | None:
    """Draw what was granted over the busiest links against what migrations may use of them; None: nothing was granted."""
    if not (history := granted_on_links(facts, context)):
        return None
    peaks = {link: max(rate for _, rate in line) for link, line in history.items()}

    def part(link: DirectedLink) -> float:
        share = context.share.get(link, 0.0)
        return peaks[link] / share if share > 0.0 else 0.0

    busiest = sorted(peaks, key=lambda link: (-part(link), str(link)))[:BUSIEST]
    with _over_time(facts, context, len(busiest)) as (plot, clock):
        for axes, link in zip(plot.panels.flat, busiest, strict=False):
            share = context.share.get(link, 0.0) / MBIT_PER_S
            points = [(at_s, rate / MBIT_PER_S) for at_s, rate in history[link]]
            times, rates = _seen(steps(points, clock.until_s), clock)
            axes.fill_between(times, rates, color=OURS, alpha=0.22, linewidth=0)
            axes.plot(times, rates, color=OURS, linewidth=1.2)
            dress(axes, "", "", f"{link.source} > {link.target}, granted at most {format_rate(peaks[link])}")
            axes.yaxis.set_major_formatter(lambda rate, _=None: f"{rate:g} Mbit/s")
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
    cut = f" ({format_size(curve.unread_bytes)} amid the output not read)" if curve.unread_bytes else ""
    with drawn(1, 1, (WIDTH_IN, HEIGHT_IN)) as plot:
        [[axes]] = plot.panels
        words = f"step; steps computed twice: {twice}, {equal}" if twice else "step"
        dress(axes, words, "", f"{curve.job}: {name}{cut}")
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
