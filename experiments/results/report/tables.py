"""What the report says in rows: the verdict, all figures in both scales, migrations, kill-switches, the story."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from experiments.results.history import (
    Notice,
    Timed,
    end_s,
    notices,
)
from experiments.results.narration import Narrator, notable
from experiments.results.report.svg import tag
from experiments.results.run_context import RunContext
from experiments.results.summary import DIMENSIONS, Summary, value_of
from topologies.dimension import Dimension
from topologies.units import format_duration, format_rate, format_size

NUMERIC = {
    "state",
    "notice at",
    "notice",
    "admitted at",
    "down",
    "at",
    "call took",
    "first drop after",
    "got in",
}
MOST_ROWS = 400  # of a table; what is beyond stands in events.jsonl


@dataclass(frozen=True)
class TableRow:
    """One figure: as played, and at real scale where that differs."""

    section: str
    label: str
    played: str
    real: str


_FIGURES: tuple[tuple[str, str, str], ...] = (
    ("jobs", "submitted", "jobs.submitted"),
    ("jobs", "finished", "jobs.finished"),
    ("jobs", "failed by themselves", "jobs.failed"),
    ("jobs", "on a host at the end", "jobs.running"),
    ("jobs", "waiting at the end", "jobs.waiting"),
    ("jobs", "sent to on-demand", "jobs.on_demand"),
    ("jobs", "lost", "jobs.lost"),
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
    ("interruptions", "work lost, time of a GPU", "interruptions.lost_gpu_s"),
    ("interruptions", "work lost for each", "interruptions.lost_per_event_s"),
    ("interruptions", "downtime of all restarts, median", "interruptions.downtime_median_s"),
    ("interruptions", "downtime of all restarts, 90 %", "interruptions.downtime_p90_s"),
    ("checkpoints", "completed", "checkpoints.completed"),
    ("checkpoints", "sent", "checkpoints.bytes_sent"),
    ("checkpoints", "not sent: there already", "checkpoints.bytes_deduplicated"),
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
    """All figures, in order."""
    for section, label, name in _FIGURES:
        value = value_of(summary, name)
        real = summary.real_scale.get(name)
        same = real is None or summary.scale == {"bytes": 1.0, "time": 1.0}
        yield TableRow(
            section, label, _value(name, value), "" if same or real is None else _value(name, real)
        )


def _value(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    dimension = DIMENSIONS.get(name, Dimension.DURATION if name.endswith("_s") else None)
    if dimension is not None:
        return _WRITERS[dimension](value)
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:.3f}"


# ---------------------------------------------------------------- headline


def verdict(summary: Summary) -> tuple[str, str]:
    """(good, bad or invalid; the sentence)."""
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
    """A line for each admitted migration that was not in time for a named cause."""
    return [
        f"excused: {each.job}, admitted from {each.source} to {each.destination} at {each.at_s:.1f} s, was not in time: "
        f"{each.cause}"
        for each in summary.migrations.excuses[:MOST_ROWS]
    ]


def banner(summary: Summary) -> str:
    """The verdict, with every breach's story and every reason against the run's fidelity."""
    kind, words = verdict(summary)
    fidelity = "fidelity: valid" if summary.fidelity.valid else "fidelity: not valid"
    parts = [
        tag("strong", words),
        tag("span", fidelity, class_="pill " + ("ok" if summary.fidelity.valid else "no")),
    ]
    if summary.ended != "completed":
        parts.append(tag("span", summary.ended, class_="pill no"))
    body = "".join(tag("li", reason) for reason in summary.fidelity.reasons)
    body += "".join(tag("li", f"little is shown: {warning}") for warning in summary.warnings)
    for rule, why in summary.not_promised.items():
        body += tag("li", f"not promised: {rule}: {why}")
    body += "".join(tag("li", line) for line in excused(summary))
    for breach in summary.invariants_broken[:50]:
        story = escape("\n".join(breach.story))
        body += f"<li><b>{escape(breach.subject)}</b>: {escape(breach.rule)}<pre>{story}</pre></li>"
    return f'<div class="banner {kind}"><div>{"".join(parts)}</div>{f"<ul>{body}</ul>" if body else ""}</div>'


def tiles(summary: Summary) -> str:
    """The figures to see first."""
    s = summary
    moved = f"{s.migrations.in_time} of {s.migrations.admitted}"
    share = s.research.lowest_share
    worst = s.rates.worst_goodput_over_grant
    call = s.kill_switch.set_to_closed_worst_s
    shown = (
        (
            f"{s.jobs.finished} of {s.jobs.submitted}",
            "jobs finished",
            f"{s.jobs.lost} lost, {s.jobs.on_demand} on-demand",
        ),
        (
            moved,
            "admitted moves in time",
            f"{s.migrations.planned} planned, {s.migrations.degraded} degraded, {s.migrations.excused} excused",
        ),
        (
            f"{s.emergencies.restored_verified} of {s.emergencies.count}",
            "emergencies resumed",
            f"from a proved checkpoint; {s.emergencies.restarted} began again",
        ),
        (
            "-" if worst is None else f"{worst:.3f}",
            "worst goodput / grant",
            f"{s.rates.flows} transfers, {s.rates.bucket_drops} drops",
        ),
        (
            "-" if share is None else f"{share:.0%}",
            "lowest research share",
            f"{s.research.reserve_share:.0%} is kept for it",
        ),
        (
            "-" if s.cost.mean is None else f"{s.cost.mean:.2f}",
            "mean cost of a job",
            f"on-demand costs {s.cost.k:g}",
        ),
        (
            "-" if s.delay.mean_s is None else format_duration(s.delay.mean_s),
            "mean delay",
            f"target {format_duration(s.delay.target_s)}",
        ),
        (
            "-" if call is None else format_duration(call),
            "kill-switch, worst call",
            f"{s.kill_switch.connections_admitted} of {s.kill_switch.connections_tried} connections got in",
        ),
    )
    cells = "".join(
        f'<div class="tile">{tag("b", value)}{tag("span", label)}{tag("small", more)}</div>'
        for value, label, more in shown
    )
    return f'<div class="tiles">{cells}</div>'


# ---------------------------------------------------------------- tables


def figures_table(summary: Summary) -> str:
    """All figures, as played and at real scale."""
    body, before = [], ""
    for row in figures(summary):
        first = row.section if row.section != before else ""
        before = row.section
        cells = tag("th", first, scope="row") + tag("td", row.label)
        cells += tag("td", row.played, class_="n") + tag("td", row.real, class_="n")
        body.append(f"<tr{' class=first' if first else ''}>{cells}</tr>")
    head = "<tr><th></th><th></th><th class=n>as played</th><th class=n>at real scale</th></tr>"
    return f'<table class="figures"><thead>{head}</thead><tbody>{"".join(body)}</tbody></table>'


def migrations_table(facts: Sequence[Timed]) -> str:
    """Every (job, notice): what was decided, and what was left of the notice."""
    found = notices(facts)
    longest = max((notice.notice_s for notice in found), default=1.0)
    until_s = end_s(facts)
    rows = "".join(_notice(notice, longest, until_s) for notice in found[:MOST_ROWS])
    titles = ("job", "from", "to", "state", "notice at", "notice", "admitted at", "down", "margin", "")
    head = "".join(tag("th", title, class_="n" if title in NUMERIC else None) for title in titles)
    more = "" if len(found) <= MOST_ROWS else tag("p", f"{len(found) - MOST_ROWS} more in events.jsonl")
    if not found:
        return tag("p", "No owner gave notice while a job ran.", class_="quiet")
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}'
    )


def _notice(notice: Notice, longest_s: float, until_s: float) -> str:
    outcome, kind = _outcome(notice, until_s)
    margin = notice.margin_s
    cells = [
        tag("td", notice.job, data_job=notice.job),
        tag("td", notice.source),
        tag("td", notice.destination or "-"),
        tag("td", format_size(notice.payload_bytes) if notice.payload_bytes else "-", class_="n"),
        tag("td", f"{notice.at_s:.1f} s", class_="n"),
        tag("td", format_duration(notice.notice_s), class_="n"),
        tag(
            "td", format_rate(notice.floor_bytes_per_s) if notice.admitted_s is not None else "-", class_="n"
        ),
        tag("td", "-" if notice.downtime_s is None else format_duration(notice.downtime_s), class_="n"),
        f"<td>{_margin(notice, longest_s)}{escape('-' if margin is None else format_duration(margin))}</td>",
        f"<td>{tag('span', outcome, class_=f'pill {kind}', title=notice.degraded)}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _margin(notice: Notice, longest_s: float) -> str:
    """The notice as a bar, with the part of it that was needed filled."""
    if notice.margin_s is None or longest_s <= 0.0:
        return ""
    whole = 90.0 * notice.notice_s / longest_s
    used = (
        whole * min(1.0, max(0.0, 1.0 - notice.margin_s / notice.notice_s)) if notice.notice_s > 0 else whole
    )
    return (
        f'<span class="bar-of"><i style="width:{whole:.0f}px"><i style="width:{used:.0f}px"></i></i></span>'
    )


def _outcome(notice: Notice, until_s: float) -> tuple[str, str]:
    if notice.in_time is not None:
        return ("in time", "ok") if notice.in_time else ("late", "no")
    if notice.degraded is not None:
        return "degraded", "warn"
    return (
        ("admitted, ended otherwise", "warn") if notice.admitted_s is not None else ("ended before", "warn")
    )


def switches_table(context: RunContext) -> str:
    """Every watched use of a kill-switch."""
    if not context.switches:
        return tag("p", "No use of a kill-switch was watched.", class_="quiet")
    rows = "".join(
        "<tr>"
        + tag("td", p.host)
        + tag("td", p.kind)
        + tag("td", f"{p.at_s:.1f} s", class_="n")
        + tag("td", format_duration(p.set_to_closed_s), class_="n")
        + tag(
            "td", "-" if p.first_drop_after_s is None else format_duration(p.first_drop_after_s), class_="n"
        )
        + tag("td", f"{p.connections_admitted} of {p.connections_tried}", class_="n")
        + "</tr>"
        for p in context.switches
    )
    titles = ("host", "mode", "at", "call took", "first drop after", "got in")
    head = "".join(tag("th", title, class_="n" if title in NUMERIC else None) for title in titles)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def story(facts: Sequence[Timed], limit: int = 4000) -> str:
    """The run in words; what is not notable is marked, so that the page can hide it."""
    narrator = Narrator()
    lines: list[str] = []
    for at_s, fact in facts:
        told = narrator.tell(fact)
        if told is not None and len(lines) < limit:
            kind = "" if notable(fact) else ' class="minor"'
            lines.append(f"<li{kind}><time>{at_s:.2f} s</time>{escape(told)}</li>")
    return f'<ol class="story">{"".join(lines)}</ol>'
