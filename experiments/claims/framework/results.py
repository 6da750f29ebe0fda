"""The verdicts of all claims that have been run, as a page for the docs: a line a claim, and its headline numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.claims.framework.claim import ClaimKind, ClaimOutcome
from experiments.claims.framework.index import held_of, in_order
from experiments.claims.framework.records import ClaimRecord
from experiments.claims.framework.values import Value, Values
from experiments.claims.not_covered import NOT_COVERED
from experiments.claims.registry import CLAIMS

PLURAL = {ClaimKind.VALUE: "values", ClaimKind.ORDERING: "orderings"}


def page(out: Path, *, date: str, commit: str) -> str:
    """Markdown, from the directories below `out`. ValuesError: one is not as written."""
    found = in_order(out)
    run = {card.record.name for card in found}
    lines = [
        "# Claims of both papers",
        "",
        f"Written by `reclaimnet reproduce ... --result`, {date}, commit {commit}; `reclaimnet reproduce all` makes the page",
        "with pictures and all values. Counted are the checks that hold, of those judged. Intervals: 95 %, over the seeds.",
        "What holds by construction and what is beyond the paper move no verdict; orderings only: no printed value holds.",
        "",
        f"| claim | what | verdict | {' | '.join(PLURAL.get(kind, f'{kind}') for kind in ClaimKind)} | seeds |",
        "|---" * (4 + len(ClaimKind)) + "|",
        *(_line(card.record, card.values) for card in found),
        *(line for card in found for line in _section(card.record, card.values)),
        *("", "## Not covered", ""),
        f"Claims that have not been run: {', '.join(name for name in CLAIMS if name not in run) or 'none'}.",
        *("", "| item of a paper | why no check judges it |", "|---|---|"),
        *(f"| {_plain(item)} | {_plain(why)} |" for item, why in NOT_COVERED),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _line(record: ClaimRecord, values: Values) -> str:
    held = " | ".join(held_of(record, kind) for kind in ClaimKind)
    seeds = max((row.seeds for row in values.rows), default=0)
    size = f"{seeds}{', quick' if record.is_quick else ''}"
    return f"| {record.name} | {_plain(record.title)} | {record.verdict.level} | {held} | {size} |"


def _section(record: ClaimRecord, values: Values) -> Iterator[str]:
    """Why the verdict is what it is, each check that does not hold, and the headline's numbers."""
    yield from ("", f"## {record.name}: {record.title}", "", f"> {_plain(record.text)}", "")
    yield f"{record.verdict.level.capitalize()}: {_plain(record.verdict.because)}."
    yield from ("", f"What it does not prove: {_plain(record.does_not_prove)}")
    missed = [check for check in record.verdict.checks if check.outcome is not ClaimOutcome.HOLDS]
    if missed:
        yield from ("", *(f"- {c.outcome} ({c.kind}): {_plain(c.text)}: {_plain(c.detail)}" for c in missed))
    for group in values.groups():
        yield from _table(record.headline, [row for row in values.rows if row.group == group], group)


def _table(headline: Sequence[str], rows: Sequence[Value], group: str) -> Iterator[str]:
    """A row a system, a column a quantity of the headline: ours, its interval, and what the paper prints."""
    cells = {(row.system, row.quantity): row for row in rows}
    wanted = [quantity for quantity in headline if any(q == quantity for _, q in cells)]
    systems = [s for s in dict.fromkeys(s for s, _ in cells) if any((s, q) in cells for q in wanted)]
    if not systems:
        return
    units = {row.quantity: row.unit for row in rows}
    yield from (
        "",
        f"| {_plain(group)} | " + " | ".join(f"{q}, {units[q]}" if units[q] else q for q in wanted) + " |",
    )
    yield "|---" * (1 + len(wanted)) + "|"
    for system in systems:
        shown = []
        for row in (cells.get((system, quantity)) for quantity in wanted):
            text = "" if row is None else f"{row.ours:.4g}"
            if row is not None and row.low is not None and row.high is not None:
                text += f" [{row.low:.4g}, {row.high:.4g}]"
            if row is not None and row.published is not None:
                text += f" (paper {row.published:g})"
            shown.append(text)
        yield f"| {_plain(system)} | {' | '.join(shown)} |"


def _plain(text: str) -> str:
    """In one line, and no end of a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")
