"""Charts: lost GPU time by part; over time the queue, research against its reserve, rates against grants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby

from markupsafe import Markup

from controller.core.model import facts as f
from controller.core.parameters import DAY_S
from experiments.results.history import Timed
from experiments.results.link_rates import RoutesThen
from experiments.results.lost_time import HOURS, LostPart
from experiments.results.report.tables import gpu_time
from experiments.results.report.time_chart import TimeCanvas, TimePlot
from experiments.results.report.timeline import clock_of
from experiments.results.run_context import ResearchShare, RunContext, research_shares
from experiments.results.summary import Summary
from experiments.results.svg import Axis, Canvas, Plot, steps
from topologies.errors import SpecError
from topologies.spec import DirectedLink
from topologies.units import MBIT_PER_S, format_duration, format_rate, format_size

WIDTH, PANEL, GAP = 604.0, 96.0, 40.0
BUSIEST = 3  # links whose grants are drawn
MAX_DOTS = 3000  # that a chart draws one by one
CLASSES = ("planned", "presync", "other")
LOST_HEIGHT = 280.0
LOST_WORDS = {
    LostPart.EMERGENCIES: "work since the newest copy, emergencies",
    LostPart.OUT_OF_REACH: "work in copies out of reach",
    LostPart.NOTICES: "work since the newest copy, notices too short",
    LostPart.FAULTS: "work since the newest copy, faults",
    LostPart.PAUSES: "pauses for snapshots",
    LostPart.RESTARTS: "restarts",
    LostPart.DOWNTIME: "waiting, requeued, fetching state",
    LostPart.REDUNDANCY: "redundant computation",
    LostPart.UNFINISHED: "unfinished steps",
}


def _canvas(facts: Sequence[Timed], context: RunContext, height: float) -> TimeCanvas:
    return TimeCanvas(WIDTH, height, clock=clock_of(facts, context), most=MAX_DOTS)


# ---------------------------------------------------------------- queue


def queue(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw r, running mean delay and running mean cost, one above another."""
    canvas = _canvas(facts, context, 3 * PANEL + 2 * GAP + 50.0)
    until_s = canvas.clock.until_s
    dispatched = [(at_s, d) for at_s, d in facts if isinstance(d, f.JobDispatched)]
    delays = running_mean([(at_s, d.delay_s) for at_s, d in dispatched if d.delay_s is not None])
    costs = running_mean([(at_s, d.cost) for at_s, d in dispatched if d.cost is not None])
    levels = [
        (at_s, fact.level)
        for at_s, fact in facts
        if isinstance(fact, f.JobQueued | f.JobRedirected | f.LevelLearned)
    ]
    target_s, k = context.target_delay_s, context.on_demand_cost
    longest_s = max([target_s, *(delay_s for _, delay_s in delays)])
    units = {"d": DAY_S, "h": 3600.0, "min": 60.0, "s": 1.0}
    unit, unit_s = next((unit for unit in units.items() if longest_s > 2 * unit[1]), ("s", 1.0))
    delays = [(at_s, delay_s / unit_s) for at_s, delay_s in delays]
    panels = (
        ("level r = N + p", levels, None, ""),
        (f"mean delay so far, {unit}", delays, target_s / unit_s, f"target {format_duration(target_s)}"),
        ("mean cost so far", costs, k, f"on-demand k = {k:g}"),
    )
    for n, (title, found, bound, words) in enumerate(panels):
        top, points = 24.0 + n * (PANEL + GAP), steps(found, until_s)
        high = max([y for _, y in points] + ([] if bound is None else [bound]), default=1.0)
        plot = TimePlot.place(canvas, 0.0, _above(high), top, top + PANEL)
        plot.grid(title, ticks=3)
        if n == len(panels) - 1:
            plot.times()
        if bound is not None:
            plot.level(bound, words, "target")
        if not points:
            plot.nothing("nothing recorded")
            continue
        plot.curve(points, class_="curve a")
        x, y = points[-1]
        plot.ring(x, y, "point a", 3.0)
        canvas.text(plot.x(x) - 5, plot.y(y) - 6, f"{y:.3g}", class_="label a", text_anchor="end")
    return canvas.svg("Queue level, mean delay and mean cost over time")


def running_mean(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return (s, mean of all values up to then)."""
    totals = accumulate(value for _, value in points)
    return [(at_s, total / n) for n, ((at_s, _), total) in enumerate(zip(points, totals, strict=True), 1)]


def _above(value: float) -> float:
    return value * 1.15 if value > 0.0 else 1.0


# ---------------------------------------------------------------- lost GPU time


def lost_by_class(summary: Summary) -> Markup:
    """Draw lost GPU time at real scale, a bar for all jobs and one for each class of payloads, each part a piece of it."""
    lost, real = summary.lost_time, summary.scale["time"]
    whole = {part: float(getattr(lost, f"{part}_s")) for part in LostPart}
    bars = {"all jobs": whole} | {
        name: {part: some[part] for part in LostPart} for name, some in lost.by_class.items()
    }
    canvas = Canvas(WIDTH, LOST_HEIGHT)
    longest_s = max([sum(max(0.0, s) for s in parts.values()) for parts in bars.values()])
    length = Axis(0.0, longest_s, 96.0, WIDTH - 84.0)
    for n, (name, parts) in enumerate(bars.items()):
        top, at_s = 20.0 + n * 62.0, 0.0
        canvas.text(88.0, top + 20.0, name, class_="label", text_anchor="end")
        for part, lost_s in parts.items():
            if lost_s > 0.0:
                tip = f"{name}: {LOST_WORDS[part]}\n{gpu_time(lost_s / real)}"
                left, right = length(at_s), length(at_s + lost_s)
                canvas.rect(left, top, right - left, 32.0, class_=f"part {part}", data_tip=tip)
                at_s += lost_s
        canvas.text(
            length(at_s) + 6.0, top + 20.0, format_duration(sum(parts.values()) / real), class_="label"
        )
    return canvas.svg("Lost GPU time by part, of all jobs and by size of payload")


def lost_by_hour(summary: Summary) -> Markup:
    """Draw lost GPU time at real scale in each hour of the day, over all days of the run, each part a piece of a column."""
    real = summary.scale["time"]
    hours_h = {
        part: [max(0.0, lost_s) / real / 3600.0 for lost_s in summary.lost_time.by_hour[part]]
        for part in LostPart
    }
    columns = [sum(hours[n] for hours in hours_h.values()) for n in range(HOURS)]
    canvas = Canvas(WIDTH, LOST_HEIGHT)
    hours_of_day = Axis(0.0, float(HOURS), 52.0, WIDTH - 12.0)
    plot = Plot(canvas, hours_of_day, Axis(0.0, _above(max(columns)), LOST_HEIGHT - 26.0, 28.0))
    plot.grid("GPU-hours lost, by hour of the day")
    for hour in range(HOURS):
        base = 0.0
        for part, hours in hours_h.items():
            if hours[hour] > 0.0:
                top, bottom = plot.y(base + hours[hour]), plot.y(base)
                tip = f"{hour}:00 to {hour + 1}:00, {LOST_WORDS[part]}\n{gpu_time(hours[hour] * 3600.0)}"
                left, right = plot.x(hour + 0.1), plot.x(hour + 0.9)
                canvas.rect(left, top, right - left, bottom - top, class_=f"part {part}", data_tip=tip)
                base += hours[hour]
        if hour % 3 == 0:
            canvas.text(plot.x(hour), plot.y.start + 16, f"{hour}:00", class_="tick", text_anchor="middle")
    return canvas.svg("Lost GPU time by hour of the day")


# ---------------------------------------------------------------- research


def research(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw each greedy research flow's part of its narrowest link, and the share that is kept for research."""
    canvas = _canvas(facts, context, 3 * PANEL + 2 * GAP + 50.0)
    plot = TimePlot.place(canvas, 0.0, 1.0, 28.0, canvas.height - 26.0)
    plot.grid("research throughput over link capacity")
    plot.times()
    samples = research_shares(context)
    if not samples:
        plot.nothing("no research flow was measured")
        return canvas.svg("Research throughput: nothing measured")
    kept = {s.sample.reserve_bytes_per_s / s.sample.link_capacity_bytes_per_s for s in samples}
    for share in sorted({round(part, 4) for part in kept}):
        plot.band(0.0, share, "reserve")
        plot.level(share, f"reserve {share:.0%}", "target")
    flows = sorted(samples, key=lambda s: (*_ends(s), s.sample.at_s))
    for n, ((source, target), group) in enumerate(groupby(flows, key=_ends)):
        colour, windows = "ab"[n % 2], list(group)
        plot.curve([(s.sample.at_s, s.share) for s in windows], class_=f"curve thin {colour}")
        for s in windows:
            during = f"in the {s.sample.window_s:g} s before {canvas.clock.moment(s.sample.at_s)}"
            tip = f"{source} -> {target}\n{s.share:.1%} of the link {during}"
            plot.dot(s.sample.at_s, s.share, "windows of research", colour, tip, 2.6)
    lowest = min(samples, key=lambda s: s.share)
    moment = canvas.clock.moment(lowest.sample.at_s)
    tip = f"the lowest: {lowest.share:.1%} of the link at {moment}"
    plot.ring(lowest.sample.at_s, lowest.share, "lowest", id_="lowest-share", tip=tip)
    anchor = "end" if lowest.sample.at_s > canvas.clock.until_s / 2 else "start"
    words = f"lowest {lowest.share:.0%} at {moment}"
    canvas.text(
        plot.x(lowest.sample.at_s), plot.y(lowest.share) + 18, words, class_="label", text_anchor=anchor
    )
    return canvas.svg("Research throughput against its reserve")


def _ends(s: ResearchShare) -> tuple[str, str]:
    return s.sample.source, s.sample.target


# ---------------------------------------------------------------- rates


def goodput(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw goodput over grant of every transfer that was long enough to measure, when it ended."""
    canvas = _canvas(facts, context, 300.0)
    kinds: dict[tuple[str, str, str], str] = {}
    dots = []
    for at_s, fact in facts:
        if isinstance(fact, f.Granted):
            kinds[fact.job, fact.source, fact.destination] = fact.traffic_class
        if isinstance(fact, f.TransferFinished) and fact.goodput_over_grant is not None:
            dots.append((at_s, fact, kinds.get((fact.job, fact.source, fact.destination), "other")))
    ratios = [fact.goodput_over_grant or 0.0 for _, fact, _ in dots]
    low, high = min([0.95, *ratios]), max([1.02, *ratios])
    plot = TimePlot.place(canvas, max(0.0, low - 0.01), high, 28.0, canvas.height - 26.0)
    plot.band(0.97, 1.0, "good")
    plot.grid("goodput over grant, by transfer", "band: 0.97 to 1", ticks=6)
    plot.times()
    for at_s, fact, kind in dots:
        ratio = round(fact.goodput_over_grant or 0.0, 3)
        sent, saved = format_size(fact.bytes_sent), format_size(fact.bytes_deduplicated)
        tip = (
            f"{fact.job}: {fact.source} -> {fact.destination}\n{sent} sent in {format_duration(fact.duration_s)}, "
            f"{saved} there already\ngoodput / grant {ratio:.3f}, {fact.drops} drops"
        )
        plot.dot(at_s, ratio, "transfers", kind if kind in CLASSES else "other", tip)
    if not dots:
        plot.nothing("no transfer was long enough to measure")
    else:
        at_s, worst, _ = min(dots, key=lambda dot: dot[1].goodput_over_grant or 0.0)
        ratio, ends = worst.goodput_over_grant or 0.0, f"{worst.job}: {worst.source} -> {worst.destination}"
        tip = f"the lowest: {ratio:.3f}, {ends}, ended at {canvas.clock.moment(at_s)}"
        plot.ring(at_s, ratio, "lowest", id_="worst-transfer", tip=tip)
    return canvas.svg("Goodput over grant of every transfer")


def grants(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw what was granted over the busiest links against what migrations may use of them."""
    history = granted_on_links(facts, context)
    peaks = {link: max(rate for _, rate in line) for link, line in history.items()}

    def part(link: DirectedLink) -> float:
        share = context.share.get(link, 0.0)
        return peaks[link] / share if share > 0.0 else 0.0

    busiest = sorted(peaks, key=lambda link: (-part(link), str(link)))[:BUSIEST]
    height = 60.0
    canvas = _canvas(facts, context, 300.0)
    until_s = canvas.clock.until_s
    gap = (canvas.height - 50.0 - BUSIEST * height) / (BUSIEST - 1)
    for n, link in enumerate(busiest):
        top = 24.0 + n * (height + gap)
        share = context.share.get(link, 0.0) / MBIT_PER_S
        points = steps([(at_s, rate / MBIT_PER_S) for at_s, rate in history[link]], until_s)
        high = _above(max([share, *(y for _, y in points)]))
        plot = TimePlot.place(canvas, 0.0, high, top, top + height)
        most, limit = format_rate(peaks[link]), format_rate(share * MBIT_PER_S)
        plot.grid(f"{link.source} > {link.target}, Mbit/s granted", f"at most {most} of {limit}", ticks=2)
        if n == len(busiest) - 1:
            plot.times()
        plot.area(points, class_="area")
        plot.curve(points, class_="curve thin a")
        plot.level(share, "share", "target")
    if not busiest:
        TimePlot.place(canvas, 0.0, 1.0, 24.0, 270.0).nothing("nothing was granted")
    return canvas.svg("Grants on the busiest links against their share")


def granted_on_links(
    facts: Sequence[Timed], context: RunContext
) -> dict[DirectedLink, list[tuple[float, float]]]:
    """Return link -> (s, payload bytes/s granted over it from then on), for every link that ever had a grant."""
    routes = RoutesThen(context.campus)
    rates: dict[tuple[str, str, str], float] = {}
    on_link: dict[DirectedLink, set[tuple[str, str, str]]] = {}
    history: dict[DirectedLink, list[tuple[float, float]]] = {}
    for at_s, moment in groupby(facts, key=lambda timed: timed[0]):
        touched: dict[DirectedLink, None] = {}
        for _, fact in moment:
            if routes.note(at_s, fact):
                touched |= dict.fromkeys(on_link)
                moved = sorted({flow for flows in on_link.values() for flow in flows if rates[flow] > 0.0})
                on_link.clear()
                for flow in moved:
                    for link in routes.history.latest.way(*flow[1:]):
                        on_link.setdefault(link, set()).add(flow)
                        touched[link] = None
            if isinstance(fact, f.Granted | f.GrantEnded):
                flow = (fact.job, fact.source, fact.destination)
                rates[flow] = fact.rate_bytes_per_s if isinstance(fact, f.Granted) else 0.0
                try:
                    route = routes.history.latest.way(fact.source, fact.destination)
                except SpecError:  # the campus has no such hosts
                    continue
                for link in route:
                    on_link.setdefault(link, set()).add(flow)
                    touched[link] = None
        for link in touched:
            on_link[link] = {flow for flow in on_link.get(link, ()) if rates[flow] > 0.0}
            history.setdefault(link, []).append((at_s, sum(rates[flow] for flow in on_link[link])))
    return history
