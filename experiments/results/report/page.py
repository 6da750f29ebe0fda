"""The page of a run, and `summary.json` beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec
from rich.table import Table

from experiments.results.events_file import CAMPUS
from experiments.results.history import Timed, notices
from experiments.results.narration import notable, sentence
from experiments.results.pages import render
from experiments.results.provenance import Provenance
from experiments.results.report import charts, tables
from experiments.results.report.timeline import clock_of, timeline
from experiments.results.run_context import RunContext
from experiments.results.summary import MEANINGS, Summary
from topologies import files
from topologies.writing import write_whole

MAX_SENTENCES = 4000  # of the story
PLOTS = {"queue": charts.queue, "research": charts.research, "goodput": charts.goodput, "links": charts.grants}


def write(
    directory: Path, summary: Summary, facts: Sequence[Timed], context: RunContext, origin: Provenance | None = None
) -> Path:
    """Write `directory`/summary.json, in the shape of `Summary` with its origin; return the path of report.html beside it.

    The campus goes into campus.toml. The directory is made if need be.
    """
    directory.mkdir(parents=True, exist_ok=True)
    told = msgspec.to_builtins(summary) | ({} if origin is None else {"provenance": msgspec.to_builtins(origin)})
    write_whole(directory / "summary.json", msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")
    write_whole(directory / CAMPUS, files.dumps(context.campus))
    path = directory / "report.html"
    write_whole(path, page(summary, facts, context, origin))
    return path


def summary_table(summary: Summary) -> Table:
    """Return the figures for a terminal."""
    kind, words = tables.verdict(summary)
    colour = {"good": "green", "invalid": "yellow", "bad": "red"}[kind]
    table = Table(
        title=f"{words} · {summary.policy} · {summary.world} · seed {summary.seed}", title_style=f"bold {colour}"
    )
    table.add_column("")
    table.add_column("")
    table.add_column("as played", justify="right")
    table.add_column("at real scale", justify="right")
    before = None
    for row in tables.occurred(summary):
        if before not in (None, row.section):
            table.add_section()
        table.add_row("" if row.section == before else row.section, row.label, row.played, row.real)
        before = row.section
    if excused := tables.excused(summary):
        table.caption, table.caption_justify = "\n".join(excused), "left"
    return table


def page(summary: Summary, facts: Sequence[Timed], context: RunContext, origin: Provenance | None = None) -> str:
    """Return the HTML."""
    kind, verdict = tables.verdict(summary)
    sentences = ((at_s, words, notable(fact)) for at_s, fact in facts if (words := sentence(fact)) is not None)
    found, clock = notices(facts), clock_of(facts, context)
    plots = {name: draw(facts, context) for name, draw in PLOTS.items()}
    return render(
        Path(__file__).with_name("report.html"),
        title=f"ReclaimNet run: {summary.scenario or summary.campus}, {summary.policy}, seed {summary.seed}",
        summary=summary,
        count=len(facts),
        kind=kind,
        verdict=verdict,
        notes=tables.notes(summary),
        tiles=[tile for tile in tables.tiles(summary, as_played=True) if tile.value != "-"],
        moment=clock.moment,
        timeline=timeline(facts, context),
        lost=charts.lost(summary),
        least=tables.least(summary),
        plots={name: plot for name, plot in plots.items() if plot},
        curves=charts.curves(facts, context),
        curves_in_all=len(context.measured),
        notices=found,
        longest_s=max((notice.notice_s for notice in found), default=1.0),
        outcome_of=tables.outcome_of,
        most=tables.MAX_ROWS,
        switches=context.switches,
        observed=tables.most_disturbed(summary.fidelity.observed)[: tables.MAX_ROWS],
        figures=tables.occurred(summary),
        scale=summary.scale,
        story=islice(sentences, MAX_SENTENCES),
        meanings=MEANINGS,
        origin=origin,
    )
