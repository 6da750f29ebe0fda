"""Words and figures of the report: the verdict and what qualifies it, all figures in both scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.results.history import Notice
from experiments.results.report.times import RunClock
from experiments.results.summary import DIMENSIONS, NetworkObservation, Summary, value_of
from topologies.dimension import Dimension
from topologies.units import format_duration, format_rate, format_size

MAX_ROWS = 400  # of a table; what is beyond stands in events.jsonl


@dataclass(frozen=True)
class TableRow:
    """A figure as played, and at real scale where that differs."""

    section: str
    label: str
    played: str
    real: str


_FIGURES: tuple[tuple[str, str, str], ...] = (
    ("jobs", "submitted", "jobs.submitted"),
    ("jobs", "finished", "jobs.finished"),
    ("jobs", "failed by themselves", "jobs.failed"),
    ("jobs", "cancelled by their users", "jobs.cancelled"),
    ("jobs", "on a host at the end", "jobs.running"),
    ("jobs", "waiting at the end", "jobs.waiting"),
    ("jobs", "sent to on-demand", "jobs.on_demand"),
    ("jobs", "  GPU time there", "jobs.on_demand_gpu_s"),
    ("jobs", "lost", "jobs.lost"),
    ("lost GPU time", "in all", "lost_time.total_s"),
    ("lost GPU time", "work lost", "lost_time.work_lost_s"),
    ("lost GPU time", "  of emergencies", "lost_time.emergencies_s"),
    ("lost GPU time", "    in the mean over their moments", "lost_time.expected_emergencies_s"),
    ("lost GPU time", "  copies out of reach", "lost_time.out_of_reach_s"),
    ("lost GPU time", "  notices too short", "lost_time.notices_s"),
    ("lost GPU time", "  faults", "lost_time.faults_s"),
    ("lost GPU time", "pauses for snapshots", "lost_time.pauses_s"),
    ("lost GPU time", "restarts", "lost_time.restarts_s"),
    ("lost GPU time", "downtime: waiting, fetching", "lost_time.downtime_s"),
    ("lost GPU time", "redundancy", "lost_time.redundancy_s"),
    ("lost GPU time", "unfinished steps", "lost_time.unfinished_s"),
    ("lost GPU time", "useful, beside it", "lost_time.useful_s"),
    ("lost GPU time", "the least of emergencies (mean) and pauses, on line", "lost_time.online_bound_s"),
    ("lost GPU time", "  within loss budgets", "lost_time.online_bound_within_budgets_s"),
    ("migrations", "planned (job, notice)", "migrations.planned"),
    ("migrations", "admitted", "migrations.admitted"),
    ("migrations", "in time", "migrations.in_time"),
    ("migrations", "not in time, excused for a cause", "migrations.excused"),
    ("migrations", "not in time, nothing excuses it", "migrations.late"),
    ("migrations", "under notice at the end", "migrations.under_notice"),
    ("migrations", "degraded", "migrations.degraded"),
    ("migrations", "downtime, median", "migrations.downtime_median_s"),
    ("migrations", "downtime, 90 %", "migrations.downtime_p90_s"),
    ("emergencies", "attempts ended without notice", "emergencies.count"),
    ("emergencies", "resumed, state proved", "emergencies.restored_verified"),
    ("emergencies", "work lost", "emergencies.work_lost_s"),
    ("interruptions", "of attempts, by owners and faults", "interruptions.events"),
    ("interruptions", "work lost for each", "interruptions.lost_per_event_s"),
    ("interruptions", "downtime of all restarts, median", "interruptions.downtime_median_s"),
    ("interruptions", "downtime of all restarts, 90 %", "interruptions.downtime_p90_s"),
    ("checkpoints", "completed", "checkpoints.completed"),
    ("checkpoints", "sent", "checkpoints.bytes_sent"),
    ("checkpoints", "not sent: there already", "checkpoints.bytes_deduplicated"),
    ("checkpoints", "pause for a snapshot, median", "checkpoints.pause_median_s"),
    ("checkpoints", "pause for a snapshot, 99 %", "checkpoints.pause_p99_s"),
    ("checkpoints", "jobs that stood still for a write or fetch", "checkpoints.stopped"),
    ("rates", "transfers measured", "rates.flows"),
    ("rates", "goodput / grant, worst", "rates.worst_goodput_over_grant"),
    ("rates", "goodput / grant, median", "rates.median_goodput_over_grant"),
    ("rates", "packets dropped by buckets", "rates.bucket_drops"),
    ("rates", "peak of migrations at a host, wire", "traffic.peak_migration_bytes_per_s"),
    ("research", "reserve, wire", "research.reserve_bytes_per_s"),
    ("research", "reserve / capacity", "research.reserve_share"),
    ("research", "lowest throughput / capacity", "research.lowest_share"),
    ("queue", "mean cost", "cost.mean"),
    ("queue", "cost of on-demand, k", "cost.k"),
    ("queue", "mean delay", "delay.mean_s"),
    ("queue", "target delay", "delay.target_s"),
    ("queue", "level r at the end", "level"),
    ("kill-switch", "watched uses", "kill_switch.probes"),
    ("kill-switch", "length of the call, median", "kill_switch.set_to_closed_median_s"),
    ("kill-switch", "length of the call, worst", "kill_switch.set_to_closed_worst_s"),
    ("kill-switch", "connections tried after it", "kill_switch.connections_tried"),
    ("kill-switch", "connections that got in", "kill_switch.connections_admitted"),
)
_WRITERS: dict[Dimension, Callable[[float], str]] = {
    Dimension.DURATION: format_duration,
    Dimension.SIZE: format_size,
    Dimension.RATE: format_rate,
}


def figures(summary: Summary) -> Iterator[TableRow]:
    """Return all figures, in order."""
    return (row for _, row in named_figures(summary))


def named_figures(summary: Summary) -> Iterator[tuple[str, TableRow]]:
    """Yield the figures in order, with their names in the summary."""
    for section, label, name in _FIGURES:
        value = value_of(summary, name)
        real = summary.real_scale.get(name)
        same = real is None or summary.scale == {"bytes": 1.0, "time": 1.0}
        played = _value(name, value)
        yield name, TableRow(section, label, played, "" if same or real is None else _value(name, real))


def gpu_time(seconds: float) -> str:
    """Format GPU time in hours, so that parts can be added at sight; what is less than one as any duration."""
    if seconds < 3600.0:
        return format_duration(seconds)
    return f"{seconds / 3600.0:,.1f} GPU-h".replace(",", " ")


def _value(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.startswith("lost_time."):
        return gpu_time(value)
    dimension = DIMENSIONS.get(name, Dimension.DURATION if name.endswith("_s") else None)
    if dimension is not None:
        return _WRITERS[dimension](value)
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:.3f}"


# ---------------------------------------------------------------- headline


def verdict(summary: Summary) -> tuple[str, str]:
    """Return (good, bad or invalid; the sentence)."""
    if summary.invariants_broken:
        count = len(summary.invariants_broken)
        return "bad", f"{count} breach{'es' * (count > 1)} of a promise"
    count = summary.migrations.excused
    but = f", {count} move{'s' * (count > 1)} not in time excused" if count else ""
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


class Tile(NamedTuple):
    """A figure to see first."""

    value: str
    label: str
    more: str  # what stands beside it
    link: str  # where it leads, a key of `tile_links`


def tiles(summary: Summary) -> Sequence[Tile]:
    """Return the figures to see first."""
    s = summary
    at_real = s.scale["time"]
    lost, work_lost = (
        format_duration(each / at_real) for each in (s.lost_time.total_s, s.lost_time.work_lost_s)
    )
    begun_s = s.lost_time.begun_s
    moved = f"{s.migrations.in_time} of {s.migrations.admitted}"
    share = s.research.lowest_share
    worst = s.rates.worst_goodput_over_grant
    call = s.kill_switch.set_to_closed_worst_s
    rented = gpu_time(s.jobs.on_demand_gpu_s / at_real) if s.jobs.on_demand_gpu_s > 0.0 else "nothing"
    return (
        Tile(
            f"{s.jobs.finished} of {s.jobs.submitted}",
            "jobs finished",
            f"{s.jobs.lost} lost, {rented} rented",
            "jobs",
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
            "work lost",
        ),
        Tile(
            moved,
            "admitted moves in time",
            f"{s.migrations.planned} planned, {s.migrations.degraded} degraded, {s.migrations.excused} excused",
            "moves",
        ),
        Tile(
            f"{s.emergencies.restored_verified} of {s.emergencies.count}",
            "emergencies resumed",
            f"from a proved checkpoint; {s.emergencies.restarted} began again",
            "emergencies",
        ),
        Tile(
            "-" if worst is None else f"{worst:.3f}",
            "worst goodput / grant",
            f"{s.rates.flows} transfers, {s.rates.bucket_drops} drops",
            "rates",
        ),
        Tile(
            "-" if share is None else f"{share:.0%}",
            "lowest research share",
            f"{s.research.reserve_share:.0%} is kept for it",
            "research",
        ),
        Tile(
            "-" if s.cost.mean is None else f"{s.cost.mean:.2f}",
            "mean cost of a job",
            f"on-demand costs {s.cost.k:g}",
            "queue",
        ),
        Tile(
            "-" if s.delay.mean_s is None else format_duration(s.delay.mean_s),
            "mean delay",
            f"target {format_duration(s.delay.target_s)}",
            "queue",
        ),
        Tile(
            "-" if call is None else format_duration(call),
            "kill-switch, worst call",
            f"{s.kill_switch.connections_admitted} of {s.kill_switch.connections_tried} connections got in",
            "switch",
        ),
    )


def outcome_of(notice: Notice) -> tuple[str, str]:
    """Return (what became of a job under notice, tone)."""
    if notice.in_time is not None:
        return ("in time", "good") if notice.in_time else ("late", "bad")
    if notice.degraded is not None:
        return "degraded", "warn"
    return ("admitted, ended otherwise" if notice.admitted_s is not None else "ended before"), "warn"
