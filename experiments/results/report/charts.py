"""Charts: lost GPU time by part; over time the queue, research against its reserve, rates against grants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

from markupsafe import Markup

from controller.core.model import facts as f
from experiments.results.history import Timed, end_s
from experiments.results.lost_time import HOURS, LostPart
from experiments.results.report.svg import Axis, Canvas, Plot, steps
from experiments.results.report.tables import gpu_time
from experiments.results.run_context import ResearchShare, RunContext, research_shares
from experiments.results.summary import Summary
from topologies.errors import SpecError
from topologies.paths import Routes
from topologies.spec import DirectedLink
from topologies.units import MBIT_PER_S, format_duration, format_rate, format_size

WIDTH, PANEL, GAP = 604.0, 96.0, 40.0
BUSIEST = 3  # links whose grants are drawn
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


def _until(facts: Sequence[Timed], context: RunContext) -> float:
    return max(end_s(facts, context.ended_at_s), 1e-3)


# ---------------------------------------------------------------- queue


def queue(facts: Sequence[Timed], context: RunContext) -> Markup:
    """r, running mean delay and running mean cost, one above another."""
    canvas, until_s = Canvas(WIDTH, 3 * PANEL + 2 * GAP + 50.0), _until(facts, context)
    dispatched = [(at_s, d) for at_s, d in facts if isinstance(d, f.JobDispatched)]
    delays = running_mean([(at_s, d.delay_s) for at_s, d in dispatched if d.delay_s is not None])
    costs = running_mean([(at_s, d.cost) for at_s, d in dispatched if d.cost is not None])
    levels = [
        (at_s, fact.level)
        for at_s, fact in facts
        if isinstance(fact, f.JobQueued | f.JobRedirected | f.LevelLearned)
    ]
    target_s, k = context.target_delay_s, context.on_demand_cost
    marks = ((target_s, f"target {format_duration(target_s)}"), (k, f"on-demand k = {k:g}"))
    panels = (
        ("level r = N + p", levels, ()),
        ("mean delay so far, s", delays, marks[:1]),
        ("mean cost so far", costs, marks[1:]),
    )
    for n, (title, found, marked) in enumerate(panels):
        top, points = 24.0 + n * (PANEL + GAP), steps(found, until_s)
        high = _above(max([y for _, y in points] + [value for value, _ in marked], default=1.0))
        plot = Plot.place(canvas, until_s, 0.0, high, top, top + PANEL)
        plot.grid(title, ticks=3, times=n == len(panels) - 1)
        for value, words in marked:
            plot.level(value, words, "target")
        if not points:
            plot.nothing("nothing recorded")
            continue
        plot.curve(points, class_="curve a")
        x, y = points[-1]
        plot.dot(x, y, class_="point a")
        canvas.text(plot.x(x) - 5, plot.y(y) - 6, f"{y:.3g}", class_="label a", text_anchor="end")
    return canvas.svg("Queue level, mean delay and mean cost over time")


def running_mean(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(s, mean of all values up to then)."""
    values: list[float] = []
    result = []
    for at_s, value in points:
        values.append(value)
        result.append((at_s, fmean(values)))
    return result


def _above(value: float) -> float:
    return value * 1.15 if value > 0.0 else 1.0


# ---------------------------------------------------------------- lost GPU time


def lost_by_class(summary: Summary) -> Markup:
    """Lost GPU time at real scale, a bar for all jobs and one for each class of payloads, each part a piece of it."""
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
    """Lost GPU time at real scale in each hour of the day, over all days of the run, each part a piece of a column."""
    real = summary.scale["time"]
    hours_h = {
        part: [max(0.0, lost_s) / real / 3600.0 for lost_s in summary.lost_time.by_hour[part]]
        for part in LostPart
    }
    columns = [sum(hours[n] for hours in hours_h.values()) for n in range(HOURS)]
    canvas = Canvas(WIDTH, LOST_HEIGHT)
    plot = Plot.place(canvas, float(HOURS), 0.0, _above(max(columns)), 28.0, LOST_HEIGHT - 26.0)
    plot.grid("GPU-hours lost, by hour of the day", times=False)
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
    canvas.line(plot.x.start, plot.y.start, plot.x.end, plot.y.start, class_="axis")
    return canvas.svg("Lost GPU time by hour of the day")


# ---------------------------------------------------------------- research


def research(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Throughput of each greedy research flow over its narrowest link's capacity, with what is kept for research."""
    canvas, until_s = Canvas(WIDTH, 3 * PANEL + 2 * GAP + 50.0), _until(facts, context)
    plot = Plot.place(canvas, until_s, 0.0, 1.0, 28.0, canvas.height - 26.0)
    plot.grid("research throughput over link capacity")
    samples = research_shares(context)
    if not samples:
        plot.nothing("no research flow was measured")
        return canvas.svg("Research throughput: nothing measured")
    kept = {s.sample.reserve_bytes_per_s / s.sample.link_capacity_bytes_per_s for s in samples}
    for share in sorted({round(part, 4) for part in kept}):
        base = plot.y(0.0)
        canvas.rect(
            plot.x.start, plot.y(share), plot.x.end - plot.x.start, base - plot.y(share), class_="reserve"
        )
        plot.level(share, f"reserve {share:.0%}", "target")
    flows = sorted(samples, key=lambda s: (*_ends(s), s.sample.at_s))
    for n, ((source, target), group) in enumerate(groupby(flows, key=_ends)):
        colour, windows = "ab"[n % 2], list(group)
        plot.curve([(s.sample.at_s, s.share) for s in windows], class_=f"curve thin {colour}")
        for s in windows:
            during = f"in the {s.sample.window_s:g} s before {s.sample.at_s:.1f} s"
            tip = f"{source} -> {target}\n{s.share:.1%} of the link {during}"
            plot.dot(s.sample.at_s, s.share, 2.6, class_=f"point {colour}", data_tip=tip)
    lowest = min(samples, key=lambda s: s.share)
    plot.dot(lowest.sample.at_s, lowest.share, 5.0, class_="lowest")
    anchor = "end" if lowest.sample.at_s > until_s / 2 else "start"
    words = f"lowest {lowest.share:.0%} at {lowest.sample.at_s:.0f} s"
    canvas.text(
        plot.x(lowest.sample.at_s), plot.y(lowest.share) + 18, words, class_="label", text_anchor=anchor
    )
    return canvas.svg("Research throughput against its reserve")


def _ends(s: ResearchShare) -> tuple[str, str]:
    return s.sample.source, s.sample.target


# ---------------------------------------------------------------- rates


def goodput(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Goodput over grant of every transfer that was long enough to measure, when it ended."""
    canvas, until_s = Canvas(WIDTH, 300.0), _until(facts, context)
    kinds: dict[tuple[str, str, str], str] = {}
    dots = []
    for at_s, fact in facts:
        if isinstance(fact, f.Granted):
            kinds[fact.job, fact.source, fact.destination] = fact.traffic_class
        if isinstance(fact, f.TransferFinished) and fact.goodput_over_grant is not None:
            dots.append((at_s, fact, kinds.get((fact.job, fact.source, fact.destination), "other")))
    ratios = [fact.goodput_over_grant or 0.0 for _, fact, _ in dots]
    low, high = min([0.95, *ratios]), max([1.02, *ratios])
    plot = Plot.place(canvas, until_s, max(0.0, low - 0.01), high, 28.0, canvas.height - 26.0)
    canvas.rect(
        plot.x.start, plot.y(1.0), plot.x.end - plot.x.start, plot.y(0.97) - plot.y(1.0), class_="good"
    )
    plot.grid("goodput over grant, by transfer", "band: 0.97 to 1", ticks=6)
    for at_s, fact, kind in dots:
        ratio = fact.goodput_over_grant or 0.0
        sent, saved = format_size(fact.bytes_sent), format_size(fact.bytes_deduplicated)
        tip = (
            f"{fact.job}: {fact.source} -> {fact.destination}\n{sent} sent in {format_duration(fact.duration_s)}, "
            f"{saved} there already\ngoodput / grant {ratio:.3f}, {fact.drops} drops"
        )
        plot.dot(at_s, ratio, 3.0, class_=f"point {kind if kind in CLASSES else 'other'}", data_tip=tip)
    if not dots:
        plot.nothing("no transfer was long enough to measure")
    return canvas.svg("Goodput over grant of every transfer")


def grants(facts: Sequence[Timed], context: RunContext) -> Markup:
    """What was granted over the busiest links, over time, against what migrations may use of them."""
    history = granted_on_links(facts, context)
    peaks = {link: max(rate for _, rate in line) for link, line in history.items()}
    until_s = _until(facts, context)

    def part(link: DirectedLink) -> float:
        share = context.share.get(link, 0.0)
        return peaks[link] / share if share > 0.0 else 0.0

    busiest = sorted(peaks, key=lambda link: (-part(link), str(link)))[:BUSIEST]
    height = 60.0
    canvas = Canvas(WIDTH, 300.0)
    gap = (canvas.height - 50.0 - BUSIEST * height) / (BUSIEST - 1)
    for n, link in enumerate(busiest):
        top = 24.0 + n * (height + gap)
        share = context.share.get(link, 0.0) / MBIT_PER_S
        points = steps([(at_s, rate / MBIT_PER_S) for at_s, rate in history[link]], until_s)
        high = _above(max([share, *(y for _, y in points)]))
        plot = Plot.place(canvas, until_s, 0.0, high, top, top + height)
        plot.grid(f"{link.source} > {link.target}, Mbit/s granted", ticks=2, times=n == len(busiest) - 1)
        most, limit = format_rate(peaks[link]), format_rate(share * MBIT_PER_S)
        plot.area(points, class_="area", data_tip=f"{link}: at most {most} granted of {limit}")
        plot.curve(points, class_="curve thin a")
        plot.level(share, "share", "target")
    if not busiest:
        Plot.place(canvas, until_s, 0.0, 1.0, 24.0, 270.0).nothing("nothing was granted")
    return canvas.svg("Grants on the busiest links against their share")


def granted_on_links(
    facts: Sequence[Timed], context: RunContext
) -> dict[DirectedLink, list[tuple[float, float]]]:
    """link -> (s, payload bytes/s granted over it from then on), for every link that ever had a grant."""
    routes = Routes(context.campus)
    rates: dict[tuple[str, str, str], float] = {}
    on_link: dict[DirectedLink, set[tuple[str, str, str]]] = {}
    history: dict[DirectedLink, list[tuple[float, float]]] = {}
    for at_s, moment in groupby(facts, key=lambda timed: timed[0]):
        touched: dict[DirectedLink, None] = {}
        for _, fact in moment:
            if isinstance(fact, f.Granted | f.GrantEnded):
                flow = (fact.job, fact.source, fact.destination)
                rates[flow] = fact.rate_bytes_per_s if isinstance(fact, f.Granted) else 0.0
                try:
                    route = routes.route(fact.source, fact.destination)
                except SpecError:  # the campus has no such hosts
                    continue
                for link in route:
                    on_link.setdefault(link, set()).add(flow)
                    touched[link] = None
        for link in touched:
            on_link[link] = {flow for flow in on_link[link] if rates[flow] > 0.0}
            history.setdefault(link, []).append((at_s, sum(rates[flow] for flow in on_link[link])))
    return history
