"""Words and figures of the report: the verdict and what qualifies it, all figures in both scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from experiments.results.history import Notice
from experiments.results.report.times import RunClock
from experiments.results.summary import DIMENSIONS, NUMBERS, NetworkObservation, Summary, value_of
from topologies.dimension import Dimension
from topologies.units import format_duration, format_level, format_rate, format_size

MAX_ROWS = 400  # of a table; what is beyond stands in events.jsonl


class Figure(NamedTuple):
    """A number of the summary, by its name there, as played; and at real scale where that differs."""

    name: str
    section: str
    label: str
    played: str
    real: str


_WRITERS: dict[Dimension, Callable[[float], str]] = {
    Dimension.DURATION: format_duration,
    Dimension.SIZE: format_size,
    Dimension.RATE: format_rate,
}


def figures(summary: Summary) -> Iterator[Figure]:
    """Yield all numbers: the run's own, then those of each section, in the summary's order."""
    is_real = summary.scale == {"bytes": 1.0, "time": 1.0}
    for name in sorted(NUMBERS, key=lambda name: "." in name):
        section, _, label = name.rpartition(".")
        words = label.removesuffix("_s").removesuffix("_bytes_per").replace("gpu", "GPU time").replace("_", " ")
        real = None if is_real else summary.real_scale.get(name)
        played = written(name, value_of(summary, name))
        yield Figure(
            name, (section or "run").replace("_", " "), words, played, "" if real is None else written(name, real)
        )


def occurred(summary: Summary) -> list[Figure]:
    """Return the figures that have a value, of those sections in which anything is other than zero."""
    found = [row for row in figures(summary) if row.played != "-"]
    sections = {row.section for row in found if value_of(summary, row.name)}
    return [row for row in found if row.section in sections]


def gpu_time(seconds: float) -> str:
    """Format GPU time in hours, so that parts can be added at sight; what is less than one as any duration."""
    if seconds < 3600.0:
        return format_duration(seconds)
    return f"{seconds / 3600.0:,.1f} GPU-h".replace(",", " ")


def written(name: str, value: float | None) -> str:
    """Format a figure of the summary in its unit; a dash for None."""
    if value is None:
        return "-"
    if name == "level":
        return format_level(value)
    if name.startswith("lost_time.") and name.endswith("_s"):
        return gpu_time(value)
    dimension = DIMENSIONS.get(name, Dimension.DURATION if name.endswith("_s") else None)
    if dimension is not None:
        return _WRITERS[dimension](value)
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:.4g}"


# ---------------------------------------------------------------- headline


def verdict(summary: Summary) -> tuple[str, str]:
    """Return (good, bad or invalid; the sentence)."""
    if summary.invariants_broken:
        count = len(summary.invariants_broken)
        return "bad", f"{count} breach{'es' * (count > 1)} of a promise"
    count = summary.migrations.excused
    but = f", {count} move{'s' * (count > 1)} not in time excused" if count else ""
    if not summary.fidelity.watched:
        return "invalid", f"Every promise kept{but}; fidelity not watched"
    if not summary.fidelity.valid:
        return "invalid", "Every promise kept, but the machine did not keep up: the run is not valid"
    if summary.not_promised:
        return "good", f"Every promise kept, {len(summary.not_promised)} not made{but}"
    if summary.warnings:
        return "good", f"Every promise kept{but}; but little was put to the test"
    return "good", f"Every promise kept{but}"


def excused(summary: Summary) -> list[str]:
    """Return a line for each admitted migration that was not in time for a named cause."""
    clock = RunClock(summary.duration_s)
    return [
        f"excused: {each.job}, admitted from {each.source} to {each.destination} at {clock.moment(each.at_s)}, "
        f"was not in time: {each.cause}"
        for each in summary.migrations.excuses[:MAX_ROWS]
    ]


def notes(summary: Summary) -> list[str]:
    """Return what qualifies the verdict: reasons against the run's fidelity, what was not shown or not promised, excuses."""
    return [
        *summary.fidelity.reasons,
        *(f"little is shown: {warning}" for warning in summary.warnings),
        *(f"not promised: {rule}: {why}" for rule, why in summary.not_promised.items()),
        *excused(summary),
        *(
            f"late: {each.job}, from {each.source} to {each.destination}, notice at {each.at_s:.1f} s: {each.cause}"
            for each in summary.migrations.late_causes[:MAX_ROWS]
        ),
    ]


def most_disturbed(observed: Sequence[NetworkObservation]) -> list[NetworkObservation]:
    """Return hosts by how much went wrong there: by segments sent again, then by the longest waits of tasks."""
    return sorted(observed, key=lambda seen: (-seen.retransmitted, -seen.run_delay_p99_s, seen.where))


def least(summary: Summary) -> str:
    """Compare a run with the on-line bound, in a sentence; empty where there is none."""
    lost = summary.lost_time
    over, covers, forced_s = lost.over_online_bound, lost.online_bound_covers, lost.online_bound_forced_s
    if over is None or covers is None or forced_s is None or lost.expected_emergencies_s is None:
        return ""
    paid_s = lost.expected_emergencies_s + lost.pauses_s
    words = (
        f"Emergencies (in the mean) and pauses, {gpu_time(paid_s)} of {gpu_time(paid_s / covers)} that such a run loses, "
        f"are {over:.2f} times the least of any on-line schedule."
    )
    if (unforced := lost.over_online_bound_unforced) is None:
        return words
    return (
        f"{words} Within loss budgets, without the {gpu_time(forced_s)} of pauses that 2 L_max alone forces on "
        f"every schedule, they are {unforced:.2f} times."
    )


class Tile(NamedTuple):
    """A figure to see first."""

    value: str
    label: str
    more: str  # what stands beside it
    card: str  # part of the page with more about it


def tiles(summary: Summary, *, as_played: bool = False) -> Sequence[Tile]:
    """Return the figures to see first, times at real scale or as played; of what did not occur the value is a dash."""
    s = summary
    at_real = 1.0 if as_played else s.scale["time"]
    lost, work_lost = (format_duration(each / at_real) for each in (s.lost_time.total_s, s.lost_time.work_lost_s))
    begun_s = s.lost_time.begun_s
    moved = f"{s.migrations.in_time} of {s.migrations.admitted}" if s.migrations.planned else "-"
    resumed = f"{s.emergencies.restored_verified} of {s.emergencies.count}" if s.emergencies.count else "-"
    share = s.research.lowest_share
    worst, of_grant = s.rates.worst_goodput_over_guarantee, s.rates.worst_goodput_over_grant
    call, p99_s = s.kill_switch.set_to_closed_worst_s, s.research.completion_p99_s
    flows = (
        f"{s.research.flows} flows, {s.research.flows_cut} cut; 99 % within {format_duration((p99_s or 0.0) / at_real)}"
    )
    rented = gpu_time(s.jobs.on_demand_gpu_s / at_real) if s.jobs.on_demand_gpu_s > 0.0 else "nothing"
    return (
        Tile(
            f"{s.jobs.finished} of {s.jobs.submitted}",
            "jobs finished",
            f"{s.jobs.lost} lost, {rented} rented",
            "timeline",
        ),
        Tile(
            lost,
            "GPU time lost in all",
            f"of {gpu_time(begun_s / at_real)} that jobs had or waited for"
            + (f", {s.lost_time.total_s / begun_s:.1%}" if begun_s > 0.0 else ""),
            "lost",
        ),
        Tile(
            work_lost,
            "work lost",
            f"in {s.interruptions.events} interruptions; the rest: pauses, restarts, downtime",
            "timeline",
        ),
        Tile(
            moved,
            "admitted moves in time",
            f"{s.migrations.planned} planned, {s.migrations.degraded} degraded, {s.migrations.excused} excused",
            "migrations",
        ),
        Tile(
            resumed,
            "emergencies resumed",
            f"from a proved checkpoint; {s.emergencies.restarted} began again",
            "timeline",
        ),
        Tile(
            "-" if of_grant is None else f"{of_grant if worst is None else worst:.3f}",
            "worst goodput / grant" if worst is None else "worst goodput / guaranteed grant",
            f"{s.rates.flows} transfers, {s.rates.bucket_drops} drops",
            "goodput",
        ),
        Tile(
            "-" if share is None else f"{share:.0%}",
            "lowest research share",
            f"{s.research.reserve_share:.0%} is kept for it",
            "research",
        ),
        *(
            Tile(format_duration(median_s / at_real), "median of research flows", flows, "campus")
            for median_s in [s.research.completion_median_s]
            if median_s is not None
        ),
        Tile(
            "-" if s.cost.mean is None else f"{s.cost.mean:.2f}",
            "mean cost of a job",
            f"on-demand costs {s.cost.k:g}",
            "queue",
        ),
        Tile(
            "-" if s.delay.mean_s is None else format_duration(s.delay.mean_s / at_real),
            "mean delay",
            f"target {format_duration(s.delay.target_s / at_real)}",
            "queue",
        ),
        Tile(
            "-" if call is None else format_duration(call),
            "kill-switch, worst call",
            f"{s.kill_switch.connections_admitted} of {s.kill_switch.connections_tried} connections got in",
            "switches",
        ),
    )


def outcome_of(notice: Notice) -> tuple[str, str]:
    """Return (what became of a job under notice, tone)."""
    if notice.in_time is not None:
        return ("in time", "good") if notice.in_time else ("late", "bad")
    if notice.degraded is not None:
        return "degraded", "warn"
    return ("admitted, ended otherwise" if notice.admitted_s is not None else "ended before"), "warn"
