"""The page: what stands where, and the two files beside it that make it look and move."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import msgspec
from rich.table import Table

from experiments.results import summary as definitions
from experiments.results.history import Timed
from experiments.results.provenance import Provenance
from experiments.results.report import charts, tables
from experiments.results.report.campus_map import campus_map
from experiments.results.report.svg import tag
from experiments.results.report.timeline import timeline
from experiments.results.run_context import RunContext
from experiments.results.summary import Summary
from topologies.units import format_duration


def write(
    directory: Path,
    summary: Summary,
    facts: Sequence[Timed],
    context: RunContext,
    origin: Provenance | None = None,
) -> Path:
    """`directory`/report.html, one self-contained page; returns its path. The directory is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "report.html"
    path.write_text(page(summary, facts, context, origin), encoding="utf-8")
    return path


def write_summary(directory: Path, summary: Summary, origin: Provenance | None = None) -> Path:
    """`directory`/summary.json, in the shape of `Summary`, and where it comes from under `provenance`; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "summary.json"
    told = msgspec.to_builtins(summary) | (
        {} if origin is None else {"provenance": msgspec.to_builtins(origin)}
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")
    return path


def summary_table(summary: Summary) -> Table:
    """The figures for a terminal."""
    kind, words = tables.verdict(summary)
    colour = "green" if kind == "good" else "red"
    table = Table(title=f"{words} · {summary.world} · seed {summary.seed}", title_style=f"bold {colour}")
    table.add_column("")
    table.add_column("")
    table.add_column("as played", justify="right")
    table.add_column("at real scale", justify="right")
    before = None
    for row in tables.figures(summary):
        if before not in (None, row.section):
            table.add_section()
        table.add_row("" if row.section == before else row.section, row.label, row.played, row.real)
        before = row.section
    if excused := tables.excused(summary):
        table.caption, table.caption_justify = "\n".join(excused), "left"
    return table


def page(
    summary: Summary, facts: Sequence[Timed], context: RunContext, origin: Provenance | None = None
) -> str:
    """The HTML."""
    here = files("experiments.results.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    title = f"ReclaimNet run: {summary.campus}, seed {summary.seed}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f"{_header(summary, facts)}{_body(summary, facts, context)}"
        f"{'' if origin is None else origin.html()}"
        f'</main><div id="tip" hidden></div><script>{script}</script></body></html>\n'
    )


def _header(summary: Summary, facts: Sequence[Timed]) -> str:
    scale = summary.scale
    about = (
        f"{summary.world} world",
        f"campus {summary.campus}",
        f"seed {summary.seed}",
        f"{format_duration(summary.duration_s)} played",
        f"scale: bytes x {scale['bytes']:.4g}, time x {scale['time']:.4g}",
        f"{len(facts)} facts in the journal",
    )
    chips = "".join(tag("span", text) for text in about)
    return (
        f'<header><h1>{escape(summary.campus)}</h1><p class="about">{chips}</p></header>'
        f"{tables.banner(summary)}{tables.tiles(summary)}"
    )


def _body(summary: Summary, facts: Sequence[Timed], context: RunContext) -> str:
    meaning = escape((definitions.__doc__ or "").strip())
    return "".join(
        (
            _section(
                "Time line",
                _TIMELINE_LEGEND,
                f'<div class="scroll">{timeline(facts, context)}</div>',
                wide=True,
            ),
            _section(
                "Campus", _MAP_LEGEND, f'<div class="scroll">{campus_map(facts, context)}</div>', wide=True
            ),
            '<div class="pair">',
            _section(
                "Queue",
                "What the spot queue did: its level, and what jobs waited and cost.",
                charts.queue(facts, context),
            ),
            _section(
                "Research",
                "What a flow that always wants more got, each window a point.",
                charts.research(facts, context),
            ),
            "</div>",
            '<div class="pair">',
            _section("Rates against grants", _RATES_LEGEND, charts.goodput(facts, context)),
            _section(
                "Busiest links",
                "What was granted over a link against what migrations may use of it.",
                charts.grants(facts, context),
            ),
            "</div>",
            _section(
                "Migrations",
                "One row for each job and notice; the bar is the notice, filled as far as it was needed.",
                tables.migrations_table(facts),
                wide=True,
            ),
            _section("Kill-switch", "", tables.switches_table(context), wide=True),
            '<div class="pair">',
            _section("All figures", "", tables.figures_table(summary)),
            _section("In words", _STORY_LEGEND, tables.story(facts)),
            "</div>",
            '<section class="card wide"><details><summary>What each number means</summary>'
            f"<pre>{meaning}</pre></details></section>",
        )
    )


def _section(title: str, legend: str, body: str, *, wide: bool = False) -> str:
    about = f'<p class="legend">{legend}</p>' if legend else ""
    return f'<section class="card{" wide" if wide else ""}"><h2>{escape(title)}</h2>{about}{body}</section>'


_TIMELINE_LEGEND = (
    '<span><i class="k c0"></i>an attempt, coloured by job</span>'
    '<span><i class="k c0 starting"></i>being started or fetched</span>'
    '<span><i class="k tick"></i>checkpoint</span>'
    '<span><i class="k notice"></i>under notice</span>'
    '<span><i class="k closed"></i>with its owner</span>'
    '<span><i class="k silent"></i>agent lost</span>'
    '<span><i class="k move"></i>planned move</span>'
    '<span><i class="k resume"></i>resumed from a checkpoint</span>'
    '<span><i class="k kill">✕</i>ended by force</span>'
    '<span><i class="k death">◆</i>process killed</span>'
)
_MAP_LEGEND = (
    '<span><i class="k c0"></i>time busy</span><span><i class="k closed"></i>time away</span>'
    "<span>rates as played; hover for details</span>"
)
_RATES_LEGEND = (
    '<span><i class="k dot planned"></i>planned moves and recoveries</span>'
    '<span><i class="k dot presync"></i>checkpoints</span>'
)
_STORY_LEGEND = '<label><input type="checkbox" id="all"> every event</label>'
