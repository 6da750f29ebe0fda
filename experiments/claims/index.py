"""The page of all claims that have been run: what each says, what came of it, and what it does not prove. Self-contained."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from experiments.claims.claim import Check, Kind, Level, Outcome
from experiments.claims.records import PICTURE, Record, directories, read_record
from experiments.claims.values import Value, Values

TONES = {
    Level.REPRODUCED: "good",
    Level.ORDERING: "warn",
    Level.UNDECIDED: "warn",
    Level.NOT_REPRODUCED: "bad",
    Level.NOT_COMPARABLE: "calm",
}
MARKS = {
    Outcome.HOLDS: ("good", "✓ holds"),
    Outcome.FAILS: ("bad", "✕ fails"),
    Outcome.UNDECIDED: ("warn", "? undecided"),
}
LEAD = (
    "Tables and figures of the two papers, run again. A value is reproduced if its whole 95 % interval lies within the tolerance "
    "of theory and of what the paper prints; an ordering if its whole interval lies on the right side. Undecided: the interval "
    "is too wide to say, more seeds would. Lines beyond the paper are about our own policies and move no verdict."
)


def write_index(out: Path) -> Path:
    """`out`/index.html, from the directories below; returns its path. ValuesError: one is not as written."""
    found = [(directory, *read_record(directory)) for directory in directories(out)]
    style = files("experiments.claims").joinpath("index.css").read_text("utf-8")
    cards = "".join(_card(*each) for each in found)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Claims of both papers</title><style>{style}</style></head><body><main>"
        f'<h1>Claims of both papers</h1><p class="lead">{escape(LEAD)}</p>'
        f"{_overview([record for _, record, _ in found])}{cards}</main></body></html>\n"
    )
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def _overview(records: Iterable[Record]) -> str:
    head = "<tr><th>claim</th><th>what</th><th>verdict</th>" + "".join(f"<th>{kind}</th>" for kind in Kind)
    rows = "".join(
        f'<tr><td><a href="#{escape(record.name)}">{escape(record.name)}</a></td><td class="what">{escape(record.title)}'
        f" <small>{escape(record.paper)}</small></td><td>{_pill(record.verdict.level)}</td>"
        + "".join(f"<td>{_held(record, kind)}</td>" for kind in Kind)
        + "</tr>"
        for record in records
    )
    return f'<section class="card"><div class="scroll"><table class="overview">{head}</tr>{rows}</table></div></section>'


def _held(record: Record, kind: Kind) -> str:
    outcomes = [check.outcome for check in record.verdict.checks if check.kind is kind]
    return f"{outcomes.count(Outcome.HOLDS)} of {len(outcomes)}" if outcomes else ""


def _card(directory: Path, record: Record, values: Values) -> str:
    return (
        f'<section class="card" id="{escape(record.name)}"><div class="head"><span class="name">{escape(record.name)} · '
        f"{escape(record.paper)}</span>{_pill(record.verdict.level)}{_pill_of_size(record)}</div>"
        f"<h2>{escape(record.title)}</h2>"
        f'<div class="pair"><div><h3>Claim</h3><blockquote>{escape(record.text)}</blockquote></div>'
        f'<div><h3>What it does not prove</h3><div class="limits">{escape(record.does_not_prove)}</div></div></div>'
        f"<h3>Verdict</h3><p>{escape(_sentence(record))}</p>{_picture(directory, record)}"
        f"{_headline(record, values)}{_checks(record.verdict.checks)}{_values(values)}{_how(directory, record, values)}</section>"
    )


def _pill(level: Level) -> str:
    return f'<span class="pill {TONES[level]}">{escape(level)}</span>'


def _pill_of_size(record: Record) -> str:
    return '<span class="pill warn">quick run</span>' if record.is_quick else ""


def _sentence(record: Record) -> str:
    level, because = record.verdict.level, record.verdict.because
    return (
        f"{level.capitalize()}: {because}."
        if level is Level.REPRODUCED
        else f"{level.capitalize()}, because {because}."
    )


def _picture(directory: Path, record: Record) -> str:
    path = directory / PICTURE
    if not path.exists():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{escape(record.title)}" src="data:image/png;base64,{data}"></figure>'


def _headline(record: Record, values: Values) -> str:
    """A row a system: its numbers with their intervals; above them what theory and the paper say."""
    head = "".join(f'<th class="n">{escape(quantity)}</th>' for quantity in record.headline)
    body = "".join(_headline_group(record, values, group) for group in values.groups())
    return f'<h3>Numbers</h3><div class="scroll"><table><tr><th></th>{head}</tr>{body}</table></div>'


def _headline_group(record: Record, values: Values, group: str) -> str:
    rows = {(row.system, row.quantity): row for row in values.rows if row.group == group}
    systems = dict.fromkeys(system for system, _ in rows if all((system, q) in rows for q in record.headline))
    told = [_told([row for (_, named), row in rows.items() if named == q]) for q in record.headline]
    lines = [f'<tr class="group"><th>{escape(group)}</th>{"".join(told)}</tr>']
    for system in systems:
        cells = "".join(f'<td class="n">{_with_interval(rows[system, q])}</td>' for q in record.headline)
        lines.append(f"<tr><td>{escape(system)}</td>{cells}</tr>")
    return "".join(lines)


def _told(rows: Iterable[Value]) -> str:
    """What theory and the paper say of a quantity, where they say it."""
    rows = list(rows)
    exact = {row.exact for row in rows if row.exact is not None}
    published = {row.published for row in rows if row.published is not None}
    words = [f"theory {_number(number)}" for number in exact] + [
        f"paper {_number(number)}" for number in published
    ]
    return f'<th class="n">{", ".join(words)}</th>'


def _with_interval(row: Value) -> str:
    if row.low is None or row.high is None:
        return f"{_number(row.ours)} {escape(row.unit)}"
    return f"{_number(row.ours)} {escape(row.unit)} <small>[{_number(row.low)}, {_number(row.high)}]</small>"


def _checks(checks: Iterable[Check]) -> str:
    """Those of the paper in sight, with their numbers; those beyond it folded away unless one does not hold."""
    of_paper = [check for check in checks if check.kind is not Kind.BEYOND]
    beyond = [check for check in checks if check.kind is Kind.BEYOND]
    shown = f"<h3>Checks</h3>{_check_table(of_paper)}" if of_paper else ""
    if not beyond:
        return shown
    held = sum(check.outcome is Outcome.HOLDS for check in beyond)
    summary = f"Beyond the paper: {held} of {len(beyond)} hold"
    is_open = "" if held == len(beyond) else " open"
    return f"{shown}<details{is_open}><summary>{summary}</summary>{_check_table(beyond)}</details>"


def _check_table(checks: Iterable[Check]) -> str:
    rows = "".join(
        f'<tr><td><span class="mark {MARKS[check.outcome][0]}">{MARKS[check.outcome][1]}</span></td>'
        f'<td class="what">{escape(check.text)}</td><td>{escape(check.detail)}</td></tr>'
        for check in checks
    )
    return f'<div class="scroll"><table>{rows}</table></div>'


def _values(values: Values) -> str:
    head = "<tr><th>system</th><th>quantity</th>" + "".join(
        f'<th class="n">{name}</th>'
        for name in ("ours", "95 % interval", "theory", "published", "paired p", "seeds")
    )
    body = "".join(
        f'<tr class="group"><th colspan="8">{escape(group)}</th></tr>{"".join(map(_value, rows))}'
        for group, rows in groupby(values.rows, key=lambda row: row.group)
    )
    return (
        f"<details><summary>All {len(values.rows)} values</summary>"
        f'<div class="scroll"><table>{head}</tr>{body}</table></div></details>'
    )


def _value(row: Value) -> str:
    interval = "" if row.low is None or row.high is None else f"{_number(row.low)} … {_number(row.high)}"
    cells = (
        f"{_number(row.ours)} {escape(row.unit)}",
        interval,
        *map(_number, (row.exact, row.published, row.p_value)),
        f"{row.seeds}",
    )
    numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    note = f"<br><small>{escape(row.note)}</small>" if row.note else ""
    return f"<tr><td>{escape(row.system)}</td><td>{escape(row.quantity)}{note}</td>{numbers}</tr>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _how(directory: Path, record: Record, values: Values) -> str:
    return f"<details><summary>How it was run</summary><dl>{''.join(_facts(directory, record, values))}</dl></details>"


def _facts(directory: Path, record: Record, values: Values) -> Iterator[str]:
    command = f"reclaimnet reproduce {record.name}{' --quick' if record.is_quick else ''}"
    beside = f"{directory.name}/values.csv, curves.csv, {PICTURE}"
    facts = {"command": command, **values.settings, "time": f"{record.spent_s:.0f} s", "files": beside}
    for name, text in facts.items():
        yield f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
