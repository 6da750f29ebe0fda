"""The verdicts of all claims that have been run, as a page for the docs: a line a claim, and its headline numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.claims.framework.claim import ClaimKind, ClaimOutcome
from experiments.claims.framework.values import Value
from experiments.claims.index import ClaimCard, held_of, in_order
from experiments.claims.not_covered import NOT_COVERED
from experiments.claims.registry import CLAIMS
from experiments.results.pages import render

# the two kinds that a verdict rests on are counted in the plural
KINDS = {
    kind: f"{kind}s" if kind in (ClaimKind.VALUE, ClaimKind.ORDERING) else str(kind) for kind in ClaimKind
}


def page(out: Path, *, date: str, commit: str) -> str:
    """Return the Markdown of the directories below `out`. ValuesError: one is not as written."""
    cards = in_order(out)
    run = {card.record.name for card in cards}
    return render(
        Path(__file__).with_name("results.md.jinja"),
        date=date,
        commit=commit,
        cards=cards,
        kinds=KINDS,
        holds=ClaimOutcome.HOLDS,
        held_of=held_of,
        tables_of=tables_of,
        not_run=[name for name in CLAIMS if name not in run],
        not_covered=NOT_COVERED,
    )


def tables_of(card: ClaimCard) -> Iterator[tuple[str, list[str], list[tuple[str, list[Value | None]]]]]:
    """Yield (group, quantities of the headline, a row a system) of each group that has any of them."""
    for group in card.values.groups():
        rows = [row for row in card.values.rows if row.group == group]
        units = {row.quantity: row.unit for row in rows}
        wanted = [quantity for quantity in card.record.headline if quantity in units]
        cells = {(row.system, row.quantity): row for row in rows if row.quantity in wanted}
        systems = dict.fromkeys(row.system for row in rows if (row.system, row.quantity) in cells)
        if systems:
            names = [f"{quantity}, {units[quantity]}" if units[quantity] else quantity for quantity in wanted]
            yield group, names, [(s, [cells.get((s, q)) for q in wanted]) for s in systems]
