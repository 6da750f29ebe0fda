"""The page: both runs above one another on one axis of time, every figure in two columns, every job as two dots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from html import escape
from importlib.resources import files

from experiments.compare.comparison import ComparedQuantity, Comparison, Played
from experiments.compare.costs import MeasuredCosts
from experiments.compare.journeys import Journey, first_submission_s
from experiments.results.history import Timed
from experiments.results.provenance import Provenance
from experiments.results.report.svg import Axis, Canvas, tag
from experiments.results.report.timeline import timeline
from experiments.worlds.virtual.overheads import Overheads
from topologies.units import format_duration, format_rate

WIDTH, LEFT, RIGHT, ROW = 620.0, 52.0, 20.0, 26.0


def page(
    name: str,
    live: Played,
    virtual: Played,
    judged: Comparison,
    usual: Comparison,
    measured: MeasuredCosts,
    assumed: Overheads,
    origin: Provenance | None = None,
) -> str:
    """The HTML. `judged` compares with virtual time at measured costs, `usual` with virtual time at the usual ones."""
    here = files("experiments.results.report")
    style, script = (here.joinpath(each).read_text("utf-8") for each in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}: live and virtual</title><style>{style}{_STYLE}</style></head><body><main>"
        f"{_header(name, live)}{_banner(judged)}"
        f"{_section('Figures', _FIGURES, _quantities(judged, usual))}"
        f"{_section('Both runs', _RUNS, _timelines(live, virtual))}"
        f'<div class="pair">{_section("Jobs", _DOTS, _dots(judged.jobs))}'
        f"{_section('Costs of the machinery', _COSTS, _costs(measured, assumed))}</div>"
        f"{_section('Every job', '', _jobs(judged.jobs))}"
        f"{'' if origin is None else origin.html()}"
        f'</main><div id="tip" hidden></div><script>{script}</script></body></html>\n'
    )


def _header(name: str, live: Played) -> str:
    context = live.context
    about = (
        f"campus {context.campus.name}",
        f"seed {context.seed}",
        f"{format_duration(context.ended_at_s or 0.0)} played",
        f"scale: bytes x {context.scale.bytes:.4g}, time x {context.scale.time:.4g}",
    )
    chips = "".join(tag("span", text) for text in about)
    return f'<header><h1>{escape(name)}: live and virtual</h1><p class="about">{chips}</p></header>'


def _banner(judged: Comparison) -> str:
    ways = f"{judged.same_ways} of {len(judged.jobs)} jobs went the same way"
    if judged.reasons:
        kind, words = "invalid", "Not judged: this machine did not keep up with the live run"
    elif judged.is_near:
        kind, words = "good", "The two worlds agree"
    else:
        kind, words = "bad", "The two worlds differ by more than they may"
    reasons = "".join(tag("li", reason) for reason in judged.reasons)
    listed = f"<ul>{reasons}</ul>" if reasons else ""
    return f'<div class="banner {kind}"><div><strong>{words}</strong><span>{escape(ways)}</span></div>{listed}</div>'


def _section(title: str, legend: str, body: str) -> str:
    about = f'<p class="legend">{legend}</p>' if legend else ""
    return f'<section class="card wide"><h2>{escape(title)}</h2>{about}<div class="scroll">{body}</div></section>'


# ---------------------------------------------------------------- figures


def _quantities(judged: Comparison, usual: Comparison) -> str:
    head = "".join(
        tag("th", text, class_="n" if text not in ("", "allowed") else None)
        for text in ("", "live", "virtual", "difference", "at usual costs", "difference", "allowed")
    )
    rows = (_quantity(one, other) for one, other in zip(judged.quantities, usual.quantities, strict=True))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _quantity(one: ComparedQuantity, other: ComparedQuantity) -> str:
    return (
        f"<tr><td>{escape(one.name)}</td>{_number(one.live, one.unit)}{_number(one.virtual, one.unit)}"
        f'<td class="n">{_difference(one)}</td>{_number(other.virtual, other.unit)}'
        f'<td class="n">{_difference(other)}</td><td>within {one.tolerance:.0%}</td></tr>'
    )


def _number(value: float | None, unit: str) -> str:
    return tag("td", told(value, unit), class_="n")


def told(value: float | None, unit: str) -> str:
    """A figure in its unit; a dash for what did not happen."""
    match unit:
        case _ if value is None:
            return "–"
        case "s":
            return f"{value:.2f} s"
        case "bytes/s":
            return format_rate(value)
        case _:
            return f"{value:.3f}"


def _difference(quantity: ComparedQuantity) -> str:
    if quantity.difference is None:
        return tag("span", "neither" if quantity.is_near else "one only", class_="pill warn")
    return tag("span", f"{quantity.difference:+.1%}", class_="pill ok" if quantity.is_near else "pill no")


# ---------------------------------------------------------------- runs


def _timelines(live: Played, virtual: Played) -> str:
    shift_s = first_submission_s(live.facts) - first_submission_s(virtual.facts)
    moved = [(max(0.0, at_s + shift_s), fact) for at_s, fact in virtual.facts]
    end_s = max(live.context.ended_at_s or 0.0, (virtual.context.ended_at_s or 0.0) + shift_s)
    return _run("live", live.facts, live, end_s) + _run(
        "virtual, at the costs measured live", moved, virtual, end_s
    )


def _run(title: str, facts: Sequence[Timed], played: Played, end_s: float) -> str:
    context = replace(played.context, ended_at_s=end_s)
    return f"<h3>{escape(title)}</h3>{timeline(facts, context)}"


def _dots(jobs: Sequence[tuple[Journey, Journey]]) -> str:
    """A row for each job: when it was done in one world and in the other."""
    ends = [end for pair in jobs for end in (pair[0].finished_s, pair[1].finished_s) if end is not None]
    canvas = Canvas(WIDTH, ROW * len(jobs) + 34.0)
    axis = Axis(0.0, max(ends, default=1.0) * 1.03, LEFT, WIDTH - RIGHT)
    for tick in axis.ticks(6):
        canvas.line(axis(tick), 8.0, axis(tick), canvas.height - 24.0, class_="grid")
        canvas.text(axis(tick), canvas.height - 8.0, f"{tick:g} s", class_="when", text_anchor="middle")
    for row, (live, virtual) in enumerate(jobs):
        _job_dots(canvas, axis, 22.0 + ROW * row, live, virtual)
    return canvas.svg("when each job was done, live and virtual")


def _job_dots(canvas: Canvas, axis: Axis, y: float, live: Journey, virtual: Journey) -> None:
    canvas.text(LEFT - 8.0, y + 4.0, live.job, class_="when", text_anchor="end")
    canvas.line(axis(live.submitted_s), y, axis(live.finished_s or axis.high), y, class_="stay")
    if live.finished_s is not None:
        canvas.add("circle", cx=axis(live.finished_s), cy=y, r=6.0, class_="here")
    if virtual.finished_s is not None:
        canvas.add("circle", cx=axis(virtual.finished_s), cy=y, r=3.2, class_="there")


# ---------------------------------------------------------------- tables


def _jobs(jobs: Iterable[tuple[Journey, Journey]]) -> str:
    names = ("", "way live", "way virtual", "completed live", "virtual", "difference", "down live", "virtual")
    head = "".join(tag("th", name) for name in names)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(_job(*pair) for pair in jobs)}</tbody></table>"
    )


def _job(live: Journey, virtual: Journey) -> str:
    same = live.hosts == virtual.hosts
    way = tag("td", "the same" if same else " → ".join(virtual.hosts), class_="quiet" if same else None)
    done = ComparedQuantity("", "s", live.completion_s, virtual.completion_s, 0.10)
    cells = (
        tag("td", live.job),
        tag("td", " → ".join(live.hosts)),
        way,
        tag("td", told(done.live, "s")),
        tag("td", told(done.virtual, "s")),
        f"<td>{_difference(done)}</td>",
        tag("td", told(live.downtime_s or None, "s")),
        tag("td", told(virtual.downtime_s or None, "s")),
    )
    return f"<tr>{''.join(cells)}</tr>"


def _costs(measured: MeasuredCosts, assumed: Overheads) -> str:
    head = "".join(tag("th", text) for text in ("", "measured here", "observations", "usual"))
    rows = "".join(
        f"<tr>{tag('td', field.name.removesuffix('_s'))}{tag('td', _span(getattr(measured.costs, field.name)))}"
        f"{tag('td', str(measured.counts[field.name.removesuffix('_s')]))}"
        f"{tag('td', _span(getattr(assumed, field.name)))}</tr>"
        for field in fields(Overheads)
        if field.name.removesuffix("_s") in measured.counts
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _span(cost: float | tuple[float, float]) -> str:
    ends = sorted(set(cost)) if isinstance(cost, tuple) else [cost]
    return " – ".join(f"{1000 * end:.1f}" for end in ends) + " ms"


_STYLE = """
h3 { font-size: 13px; font-weight: 600; color: var(--muted); margin: 14px 0 2px; }
.grid { stroke: var(--line); } .when { fill: var(--muted); font-size: 12px; }
.stay { stroke: var(--line); stroke-width: 6; stroke-linecap: round; }
.here { fill: none; stroke: var(--a); stroke-width: 2.5; } .there { fill: var(--b); }
i.ring { display: inline-block; width: 11px; height: 11px; border: 2.5px solid var(--a); border-radius: 50%; }
i.dot2 { display: inline-block; width: 8px; height: 8px; background: var(--b); border-radius: 50%; }
"""
_FIGURES = (
    "<span>virtual: with what starts, snapshots and commits took in this live run, which is the machine's and no model's; "
    "beside it what it gives without having been told</span>"
)
_RUNS = "<span>the same jobs, the same owners; the same axis, from the same first submission</span>"
_DOTS = '<span><i class="ring"></i>done, live</span><span><i class="dot2"></i>done, virtual</span>'
_COSTS = "<span>the middle half of what the journal shows</span>"
