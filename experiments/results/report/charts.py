"""Charts: lost GPU time by part; over time the queue, research against its reserve, rates against grants; jobs' curves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, groupby, pairwise

from markupsafe import Markup

from controller.core.model import facts as f
from controller.core.parameters import DAY_S
from experiments.results.history import Attempt, Timed, attempts
from experiments.results.link_rates import GrantsInForce
from experiments.results.lost_time import HOURS, LostPart
from experiments.results.measurements import MeasuredCurve
from experiments.results.narration import CAUSES
from experiments.results.report.drawing import Axis, Panel, Picture, Shape, dot, path, steps
from experiments.results.report.tables import gpu_time
from experiments.results.report.timeline import clock_of
from experiments.results.run_context import ResearchShare, RunContext, research_shares
from experiments.results.summary import Summary
from topologies.errors import SpecError
from topologies.spec import DirectedLink
from topologies.units import MBIT_PER_S, format_duration, format_rate, format_size

WIDTH, HEIGHT, PANEL, GAP = 604.0, 300.0, 96.0, 40.0
TALL = 3 * PANEL + 2 * GAP + 50.0
BUSIEST = 3  # links whose grants are drawn
MAX_DOTS = 3000  # that a chart draws one by one
CLASSES = ("planned", "presync", "other")
LOST_HEIGHT = 280.0
MAX_CURVES = 24
MAX_POINTS = 1000  # of an attempt; of more, every so-and-so-many-th
LABEL_WIDTH = 96.0
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


def _picture(label: str, facts: Sequence[Timed], context: RunContext, height: float = HEIGHT) -> Picture:
    return Picture(label, WIDTH, height, clock_of(facts, context), most=MAX_DOTS)


def _point(
    picture: Picture,
    panel: Panel,
    at_s: float,
    value: float,
    what: str,
    look: str,
    tip: str,
    radius: float = 3.0,
) -> None:
    """Draw a point with a tip; near ones of one look may become one."""
    x, y, height = panel.x(at_s), panel.y(value), 2 * radius
    row = (f"point {look}", round(y / height) * height - radius)
    picture.mark(x, x, dot(x, y, radius, f"point {look}", tip), row=row, height=height, what=what)


# ---------------------------------------------------------------- queue


def queue(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw r, running mean delay and running mean cost, one above another."""
    picture = _picture("Queue level, mean delay and mean cost over time", facts, context, TALL)
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
    for n, (title, found, bounds) in enumerate(
        (
            ("level r = N + p", levels, []),
            (
                f"mean delay so far, {unit}",
                delays,
                [(target_s / unit_s, f"target {format_duration(target_s)}")],
            ),
            ("mean cost so far", costs, [(k, f"on-demand k = {k:g}")]),
        )
    ):
        top, points = 24.0 + n * (PANEL + GAP), steps(found, picture.clock.until_s)
        high = max([y for _, y in points] + [bound for bound, _ in bounds], default=1.0)
        panel = picture.panel(0.0, _above(high), top, top + PANEL, title)
        panel.about, panel.levels, panel.curves = 3, bounds, [(points, "curve a")]
        if not points:
            panel.empty = "nothing recorded"
            continue
        x, y = panel.x(points[-1][0]), panel.y(points[-1][1])
        label = Shape(look="label a", x=x - 5, y=y - 6, text=f"{points[-1][1]:.3g}", anchor="end")
        picture.shapes += dot(x, y, 3.0, "point a"), label
    picture.panels[-1].times = picture.clock.ticks(6)
    return picture.svg()


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
    picture = Picture("Lost GPU time by part, of all jobs and by size of payload", WIDTH, LOST_HEIGHT)
    longest_s = max([sum(max(0.0, s) for s in parts.values()) for parts in bars.values()])
    length = Axis(0.0, longest_s, 96.0, WIDTH - 84.0)
    for n, (name, parts) in enumerate(bars.items()):
        y, at_s = 20.0 + n * 62.0, 0.0
        picture.shapes.append(Shape(look="label", x=88.0, y=y + 20.0, text=name, anchor="end"))
        for part, lost_s in parts.items():
            if lost_s > 0.0:
                tip = f"{name}: {LOST_WORDS[part]}\n{gpu_time(lost_s / real)}"
                x, width = length(at_s), length(at_s + lost_s) - length(at_s)
                picture.shapes.append(Shape(look=f"part {part}", x=x, y=y, width=width, height=32.0, tip=tip))
                at_s += lost_s
        whole_s = format_duration(sum(parts.values()) / real)
        picture.shapes.append(Shape(look="label", x=length(at_s) + 6.0, y=y + 20.0, text=whole_s))
    return picture.svg()


def lost_by_hour(summary: Summary) -> Markup:
    """Draw lost GPU time at real scale in each hour of the day, over all days, each part a piece of a column."""
    real = summary.scale["time"]
    hours_h = {
        part: [max(0.0, lost_s) / real / 3600.0 for lost_s in summary.lost_time.by_hour[part]]
        for part in LostPart
    }
    columns = [sum(hours[n] for hours in hours_h.values()) for n in range(HOURS)]
    picture = Picture("Lost GPU time by hour of the day", WIDTH, LOST_HEIGHT)
    hours_of_day = Axis(0.0, float(HOURS), 52.0, WIDTH - 12.0)
    panel = Panel(hours_of_day, Axis(0.0, _above(max(columns)), LOST_HEIGHT - 26.0, 28.0))
    panel.title, panel.times = (
        "GPU-hours lost, by hour of the day",
        [(n, f"{n}:00") for n in range(0, HOURS, 3)],
    )
    picture.panels.append(panel)
    for hour in range(HOURS):
        base, x, width = 0.0, panel.x(hour + 0.1), panel.x(0.8) - panel.x(0.0)
        for part, hours in hours_h.items():
            if hours[hour] > 0.0:
                y, bottom = panel.y(base + hours[hour]), panel.y(base)
                tip = f"{hour}:00 to {hour + 1}:00, {LOST_WORDS[part]}\n{gpu_time(hours[hour] * 3600.0)}"
                piece = Shape(look=f"part {part}", x=x, y=y, width=width, height=bottom - y, tip=tip)
                picture.shapes.append(piece)
                base += hours[hour]
    return picture.svg()


# ---------------------------------------------------------------- research


def research(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw each greedy research flow's part of its narrowest link, and the share that is kept for research."""
    picture = _picture("Research throughput against its reserve", facts, context, TALL)
    panel = picture.panel(0.0, 1.0, 28.0, TALL - 26.0, "research throughput over link capacity")
    panel.times = picture.clock.ticks(6)
    samples = research_shares(context)
    if not samples:
        panel.empty, picture.label = "no research flow was measured", "Research throughput: nothing measured"
        return picture.svg()
    kept = {s.sample.reserve_bytes_per_s / s.sample.link_capacity_bytes_per_s for s in samples}
    for share in sorted({round(part, 4) for part in kept}):
        panel.bands.append((0.0, share, "reserve"))
        panel.levels.append((share, f"reserve {share:.0%}"))
    flows = sorted(samples, key=lambda s: (*_ends(s), s.sample.at_s))
    for n, ((source, target), group) in enumerate(groupby(flows, key=_ends)):
        colour, windows = "ab"[n % 2], list(group)
        panel.curves.append(([(s.sample.at_s, s.share) for s in windows], f"curve thin {colour}"))
        for s in windows:
            during = f"in the {s.sample.window_s:g} s before {picture.clock.moment(s.sample.at_s)}"
            tip = f"{source} -> {target}\n{s.share:.1%} of the link {during}"
            _point(picture, panel, s.sample.at_s, s.share, "windows of research", colour, tip, 2.6)
    lowest = min(samples, key=lambda s: s.share)
    moment = picture.clock.moment(lowest.sample.at_s)
    x, y = panel.x(lowest.sample.at_s), panel.y(lowest.share)
    tip = f"the lowest: {lowest.share:.1%} of the link at {moment}"
    picture.mark(x, x, dot(x, y, 5.0, "lowest", tip))
    anchor = "end" if lowest.sample.at_s > picture.clock.until_s / 2 else "start"
    words = f"lowest {lowest.share:.0%} at {moment}"
    picture.shapes.append(Shape(look="label", x=x, y=y + 18, text=words, anchor=anchor))
    return picture.svg()


def _ends(s: ResearchShare) -> tuple[str, str]:
    return s.sample.source, s.sample.target


# ---------------------------------------------------------------- rates


def goodput(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw goodput over grant of every transfer that was long enough to measure, when it ended."""
    picture = _picture("Goodput over grant of every transfer", facts, context)
    kinds: dict[tuple[str, str, str], str] = {}
    dots = []
    for at_s, fact in facts:
        if isinstance(fact, f.Granted):
            kinds[fact.job, fact.source, fact.destination] = fact.traffic_class
        if isinstance(fact, f.TransferFinished) and fact.goodput_over_grant is not None:
            dots.append((at_s, fact, kinds.get((fact.job, fact.source, fact.destination), "other")))
    ratios = [fact.goodput_over_grant or 0.0 for _, fact, _ in dots]
    low, high = min([0.95, *ratios]), max([1.02, *ratios])
    title = "goodput over grant, by transfer"
    panel = picture.panel(max(0.0, low - 0.01), high, 28.0, HEIGHT - 26.0, title)
    panel.bands, panel.unit, panel.about = [(0.97, 1.0, "good")], "band: 0.97 to 1", 6
    panel.times = picture.clock.ticks(6)
    for at_s, fact, kind in dots:
        ratio = round(fact.goodput_over_grant or 0.0, 3)
        sent, saved = format_size(fact.bytes_sent), format_size(fact.bytes_deduplicated)
        tip = (
            f"{fact.job}: {fact.source} -> {fact.destination}\n{sent} sent in {format_duration(fact.duration_s)}, "
            f"{saved} there already\ngoodput / grant {ratio:.3f}, {fact.drops} drops"
        )
        _point(picture, panel, at_s, ratio, "transfers", kind if kind in CLASSES else "other", tip)
    if not dots:
        panel.empty = "no transfer was long enough to measure"
    else:
        at_s, worst, _ = min(dots, key=lambda dot: dot[1].goodput_over_grant or 0.0)
        ratio, ends = worst.goodput_over_grant or 0.0, f"{worst.job}: {worst.source} -> {worst.destination}"
        tip = f"the lowest: {ratio:.3f}, {ends}, ended at {picture.clock.moment(at_s)}"
        x = panel.x(at_s)
        picture.mark(x, x, dot(x, panel.y(ratio), 5.0, "lowest", tip))
    return picture.svg()


def grants(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Draw what was granted over the busiest links against what migrations may use of them."""
    history = granted_on_links(facts, context)
    peaks = {link: max(rate for _, rate in line) for link, line in history.items()}

    def part(link: DirectedLink) -> float:
        share = context.share.get(link, 0.0)
        return peaks[link] / share if share > 0.0 else 0.0

    busiest = sorted(peaks, key=lambda link: (-part(link), str(link)))[:BUSIEST]
    height = 60.0
    picture = _picture("Grants on the busiest links against their share", facts, context)
    gap = (HEIGHT - 50.0 - BUSIEST * height) / (BUSIEST - 1)
    for n, link in enumerate(busiest):
        top = 24.0 + n * (height + gap)
        share = context.share.get(link, 0.0) / MBIT_PER_S
        points = steps([(at_s, rate / MBIT_PER_S) for at_s, rate in history[link]], picture.clock.until_s)
        high = _above(max([share, *(y for _, y in points)]))
        title = f"{link.source} > {link.target}, Mbit/s granted"
        panel = picture.panel(0.0, high, top, top + height, title)
        panel.unit = f"at most {format_rate(peaks[link])} of {format_rate(share * MBIT_PER_S)}"
        panel.about, panel.levels = 2, [(share, "share")]
        panel.areas, panel.curves = [(points, "area")], [(points, "curve thin a")]
        panel.times = picture.clock.ticks(6) if n == len(busiest) - 1 else ()
    if not busiest:
        picture.panel(0.0, 1.0, 24.0, 270.0).empty = "nothing was granted"
    return picture.svg()


def granted_on_links(
    facts: Sequence[Timed], context: RunContext
) -> dict[DirectedLink, list[tuple[float, float]]]:
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
    tries = (
        {(attempt.job, attempt.attempt): attempt for attempt in attempts(facts)} if context.measured else {}
    )
    return [_curve(curve, tries) for curve in context.measured[:MAX_CURVES]]


def _curve(curve: MeasuredCurve, tries: dict[tuple[str, int], Attempt]) -> Markup:
    told = sorted(curve.attempts.items())
    values = [value for _, points in told for _, value in points]
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * 0.05
    label = f"{curve.name} of {curve.job} by step, {len(told)} attempts"
    picture = Picture(label, WIDTH, HEIGHT)
    last = max(step for _, points in told for step, _ in points)
    across = Axis(0.0, float(max(1, last)), picture.left, WIDTH - picture.right)
    panel = Panel(across, Axis(low - room, high + room, HEIGHT - 30.0, 44.0), f"{curve.job}: {curve.name}")
    picture.panels.append(panel)
    twice, differ = curve.repeated()
    equal = f"{differ} of them differ" if differ else "the same to the last bit"
    panel.unit = f"steps computed twice: {twice}, {equal}" if twice else "by step"
    panel.times = [(step, f"{step:g}") for step in across.ticks(8)]
    for (_, before), (_, after) in pairwise(told):
        x, y = across(after[0][0]), panel.y.end
        width, height = across(before[-1][0]) - x, panel.y.start - y
        if width > 0.0:
            picture.shapes.append(Shape(look="reserve", x=x, y=y, width=width, height=height))
    free_at = 0.0
    for n, (attempt, points) in enumerate(told):
        stride = -(-len(points) // MAX_POINTS)
        drawn = [(across(step), panel.y(value)) for step, value in (*points[:-1:stride], points[-1])]
        where = tries.get((curve.job, attempt))
        host = where.host if where else "a host that the journal does not know"
        how = CAUSES.get(where.how, where.how.replace("_", " ")) if where else ""
        tip = f"attempt {attempt} on {host}: steps {points[0][0]} to {points[-1][0]}"
        tip += f"\n{how}" if how else ""
        (x, y), colour = drawn[0], "ab"[n % 2]
        if d := path(drawn):
            picture.shapes.append(Shape(look=f"curve thin {colour}", d=d, tip=tip, job=curve.job))
        if n:
            picture.shapes.append(Shape(look="target", d=path([(x, panel.y.end), (x, panel.y.start)])))
        picture.shapes.append(dot(x, y, 3.0, f"point {colour}", tip))
        if x >= free_at:
            words, at_end = f"{attempt}: {host}" if where else str(attempt), x + LABEL_WIDTH > across.end
            x_label, anchor = (x - 4, "end") if at_end else (x + 4, "start")
            picture.shapes.append(
                Shape(look="label", x=x_label, y=panel.y.end + 10, text=words, anchor=anchor)
            )
            free_at = x + LABEL_WIDTH
    return picture.svg()
