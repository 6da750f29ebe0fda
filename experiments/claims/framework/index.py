"""The page of all claims that have been run: what each says, what came of it, and what it does not prove. Self-contained."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from experiments.claims.framework.claim import (
    Check,
    ClaimKind,
    ClaimOutcome,
    Level,
)
from experiments.claims.framework.records import (
    PICTURE,
    ClaimRecord,
    directories,
    read_record,
)
from experiments.claims.framework.values import Value, Values
from experiments.claims.registry import CLAIMS
from experiments.results.provenance import provenance

TONES = {
    Level.REPRODUCED: "good",
    Level.ORDERING: "warn",
    Level.ORDERINGS_ONLY: "warn",
    Level.UNDECIDED: "warn",
    Level.NOT_REPRODUCED: "bad",
    Level.NOT_COMPARABLE: "calm",
}
MARKS = {
    ClaimOutcome.HOLDS: ("good", "✓ holds"),
    ClaimOutcome.FAILS: ("bad", "✕ fails"),
    ClaimOutcome.UNDECIDED: ("warn", "? undecided"),
}
PAPERS = {
    "Paper A": "Paper A: ReclaimNet, voluntary GPU sharing on a campus",
    "Paper B": "Paper B: when to wait for a spot instance",
    "Both papers": "Both papers at once",
}
LEAD = (
    "Tables and figures of the two papers, run again. A value is reproduced if its whole 95 % interval lies within the "
    "tolerance of theory or of what the paper prints; an ordering if its whole interval lies on the right side. Undecided: "
    "the interval is too wide to say, more seeds would. Orderings only: they hold, and no printed value beside them does. "
    "What holds by construction follows from how the world is built, and lines beyond the paper are about our own policies "
    "and what the paper does not say; neither moves a verdict."
)
QUICK = (
    "Some of these runs were quick: a few seeds of a few days, in which reclaims are too few for most differences to "
    "show. They say that everything runs; what it shows is in the full runs (without --quick)."
)
REASON = 220  # characters of a verdict's reason in the overview


def write_index(out: Path) -> Path:
    """`out`/index.html, from the directories below; returns its path. ValuesError: one is not as written."""
    found = in_order(out)
    records = [record for _, record, _ in found]
    style = files("experiments.claims.framework").joinpath("index.css").read_text("utf-8")
    hint = f'<p class="lead">{escape(QUICK)}</p>' if any(record.is_quick for record in records) else ""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Claims of both papers</title><style>{style}</style></head><body><main>"
        f'<h1>Claims of both papers</h1>{_summary(records)}<p class="lead">{escape(LEAD)}</p>{hint}'
        f"{_overview(records)}{_cards(found)}{provenance().html()}</main></body></html>\n"
    )
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def in_order(out: Path) -> list[tuple[Path, ClaimRecord, Values]]:
    """All claims that were run, with their directories, in the order of the registry. ValuesError: one is not as written."""
    found = [(directory, *read_record(directory)) for directory in directories(out)]
    return sorted(found, key=lambda each: _place(each[1].name))


def _place(name: str) -> tuple[int, str]:
    """The registry's order; what it does not know comes last, by name."""
    known = list(CLAIMS)
    return (known.index(name) if name in known else len(known)), name


def _summary(records: Sequence[ClaimRecord]) -> str:
    """How many there are of each verdict."""
    counts = {level: sum(record.verdict.level is level for record in records) for level in Level}
    pills = (
        f'<span class="pill {TONES[level]}">{count} {escape(level)}</span>'
        for level, count in counts.items()
        if count
    )
    return f'<p class="summary">{len(records)} claims: {" ".join(pills)}</p>'


def _paper(record: ClaimRecord) -> str:
    return record.paper.split(",")[0]


def _overview(records: Iterable[ClaimRecord]) -> str:
    """A table a paper: what, verdict and why, and how many checks held."""
    head = "<tr><th>claim</th><th>what</th><th>verdict</th>" + "".join(
        f"<th>{kind}</th>" for kind in ClaimKind
    )
    tables = (
        f'<h2>{escape(PAPERS.get(paper, paper))}</h2><div class="scroll"><table class="overview">{head}</tr>'
        f"{''.join(map(_line, some))}</table></div>"
        for paper, some in groupby(records, key=_paper)
    )
    return f'<section class="card">{"".join(tables)}</section>'


def _line(record: ClaimRecord) -> str:
    because = record.verdict.because
    short = because if len(because) <= REASON else because[:REASON].rsplit(" ", 1)[0] + " ..."
    why = "" if record.verdict.level is Level.REPRODUCED else f"<br><small>{escape(short)}</small>"
    return (
        f'<tr><td><a href="#{escape(record.name)}">{escape(record.name)}</a></td><td class="what">{escape(record.title)}'
        f" <small>{escape(record.paper)}</small>{why}</td><td>{_pill(record.verdict.level)}</td>"
        + "".join(f"<td>{held_of(record, kind)}</td>" for kind in ClaimKind)
        + "</tr>"
    )


def _cards(found: Iterable[tuple[Path, ClaimRecord, Values]]) -> str:
    """Under a heading for each paper."""
    return "".join(
        f'<h2 class="paper">{escape(PAPERS.get(paper, paper))}</h2>{"".join(_card(*each) for each in some)}'
        for paper, some in groupby(found, key=lambda each: _paper(each[1]))
    )


def held_of(record: ClaimRecord, kind: ClaimKind) -> str:
    """How many checks of a kind hold; nothing where none is."""
    held, judged = record.verdict.held(kind)
    return f"{held} of {judged}" if judged else ""


def _card(directory: Path, record: ClaimRecord, values: Values) -> str:
    return (
        f'<section class="card" id="{escape(record.name)}"><div class="head"><span class="name">{escape(record.name)} · '
        f"{escape(record.paper)}</span>{_pill(record.verdict.level)}{_pill_of_size(record)}</div>"
        f"<h2>{escape(record.title)}</h2>"
        f'<div class="pair"><div><h3>Claim</h3><blockquote>{escape(record.text)}</blockquote></div>'
        f'<div><h3>What it does not prove</h3><div class="limits">{escape(record.does_not_prove)}</div></div></div>'
        f"<h3>Verdict</h3><p>{escape(_sentence(record))}</p>{_picture(directory, record)}"
        f"{_headline(record, values)}{_checks(record.verdict.checks)}"
        f"{_values(values, is_open=not record.headline)}{_how(directory, record, values)}</section>"
    )


def _pill(level: Level) -> str:
    return f'<span class="pill {TONES[level]}">{escape(level)}</span>'


def _pill_of_size(record: ClaimRecord) -> str:
    return '<span class="pill warn">quick run</span>' if record.is_quick else ""


def _sentence(record: ClaimRecord) -> str:
    level, because = record.verdict.level, record.verdict.because
    return (
        f"{level.capitalize()}: {because}."
        if level is Level.REPRODUCED
        else f"{level.capitalize()}, because {because}."
    )


def _picture(directory: Path, record: ClaimRecord) -> str:
    path = directory / PICTURE
    if not path.exists():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{escape(record.title)}" src="data:image/png;base64,{data}"></figure>'


def _headline(record: ClaimRecord, values: Values) -> str:
    """A row a system: its numbers with their intervals; above them what theory and the paper say where that is one number."""
    if not record.headline or not values.rows:
        return ""
    units = {
        q: {row.unit for row in values.rows if row.quantity == q and row.unit != "ratio"}
        for q in record.headline
    }
    head = "".join(f'<th class="n">{escape(_named(q, units[q]))}</th>' for q in record.headline)
    body = "".join(_headline_group(record, values, group) for group in values.groups())
    return f'<h3>Numbers</h3><div class="scroll"><table><tr><th></th>{head}</tr>{body}</table></div>'


def _named(quantity: str, units: Collection[str]) -> str:
    """A column with its unit, if it has one."""
    unit = next(iter(units), "") if len(units) == 1 else ""
    return f"{quantity}, {unit}" if unit else quantity


def _headline_group(record: ClaimRecord, values: Values, group: str) -> str:
    """Systems that have more than half of the numbers; what the paper says above them if it is one number, else in the cells."""
    rows = {(row.system, row.quantity): row for row in values.rows if row.group == group}
    wanted = record.headline
    systems = dict.fromkeys(s for s, _ in rows if 2 * sum((s, q) in rows for q in wanted) > len(wanted))
    if not systems:
        return ""
    of_quantity = {
        q: [row for (system, named), row in rows.items() if named == q and system in systems] for q in wanted
    }
    told = [_told(of_quantity[q]) for q in wanted]
    alone = {q for q in wanted if _one_published(of_quantity[q])}
    lines = [f'<tr class="group"><th>{escape(group)}</th>{"".join(told)}</tr>']
    for system in systems:
        cells = "".join(f'<td class="n">{_cell(rows.get((system, q)), q in alone)}</td>' for q in wanted)
        lines.append(f"<tr><td>{escape(system)}</td>{cells}</tr>")
    return "".join(lines)


def _one_published(rows: Iterable[Value]) -> bool:
    return len({row.published for row in rows if row.published is not None}) <= 1


def _told(rows: Sequence[Value]) -> str:
    """What theory and the paper say of a quantity, where each says one thing."""
    exact = {row.exact for row in rows if row.exact is not None}
    published = {row.published for row in rows if row.published is not None}
    words = [f"theory {_number(number)}" for number in exact] if len(exact) == 1 else []
    words += [f"paper {_number(number)}" for number in published] if len(published) == 1 else []
    return f'<th class="n">{", ".join(words)}</th>'


def _cell(row: Value | None, published_is_told: bool) -> str:
    """A number with its interval, and the paper's below it unless it stands above."""
    if row is None:
        return ""
    ends = (
        ""
        if row.low is None or row.high is None
        else f" <small>[{_number(row.low)}, {_number(row.high)}]</small>"
    )
    printed = (
        "" if published_is_told or row.published is None else f"<small>paper {_number(row.published)}</small>"
    )
    return f"{_number(row.ours)}{ends}{printed}"


def _checks(checks: Sequence[Check]) -> str:
    """Those that judge in sight, with their numbers; those that do not folded away unless one does not hold."""
    folded = (ClaimKind.BUILT, ClaimKind.BEYOND)
    judging = [check for check in checks if check.kind not in folded]
    shown = f"<h3>Checks</h3>{_check_table(judging)}" if judging else ""
    for kind in folded:
        some = [check for check in checks if check.kind is kind]
        held = sum(check.outcome is ClaimOutcome.HOLDS for check in some)
        summary = f"{kind.capitalize()}, in no verdict: {held} of {len(some)} hold"
        is_open = "" if held == len(some) else " open"
        if some:
            shown += f"<details{is_open}><summary>{summary}</summary>{_check_table(some)}</details>"
    return shown


def _check_table(checks: Iterable[Check]) -> str:
    rows = "".join(
        f'<tr><td><span class="mark {MARKS[check.outcome][0]}">{MARKS[check.outcome][1]}</span></td>'
        f'<td class="what">{escape(check.text)}</td><td>{escape(check.detail)}</td></tr>'
        for check in checks
    )
    return f'<div class="scroll"><table>{rows}</table></div>'


def _values(values: Values, *, is_open: bool) -> str:
    head = "<tr><th>system</th><th>quantity</th>" + "".join(
        f'<th class="n">{name}</th>'
        for name in ("ours", "95 % interval", "theory", "published", "paired p", "seeds")
    )
    body = "".join(
        f'<tr class="group"><th colspan="8">{escape(group)}</th></tr>{"".join(map(_value, rows))}'
        for group, rows in groupby(values.rows, key=lambda row: row.group)
    )
    return (
        f"<details{' open' if is_open else ''}><summary>All {len(values.rows)} values</summary>"
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


def _how(directory: Path, record: ClaimRecord, values: Values) -> str:
    return f"<details><summary>How it was run</summary><dl>{''.join(_facts(directory, record, values))}</dl></details>"


def _facts(directory: Path, record: ClaimRecord, values: Values) -> Iterator[str]:
    command = f"reclaimnet reproduce {record.name}{' --quick' if record.is_quick else ''}"
    beside = f"{directory.name}/values.csv, curves.csv, {PICTURE}"
    facts = {"command": command, **values.settings, "time": f"{record.spent_s:.0f} s", "files": beside}
    for name, text in facts.items():
        yield f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
