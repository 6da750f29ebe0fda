"""The pages of a folder of values files: a self-contained one with pictures and all values, and one for the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup, escape

from experiments.claims.framework.claim import Claim, ClaimKind, ClaimOutcome, ClaimVerdict, Level
from experiments.claims.framework.values import TIMES, Value, Values, file_of, in_units, read
from experiments.claims.framework.verdicts import judge, who_wins
from experiments.claims.registry import CLAIMS, NOT_COVERED
from experiments.results.pages import render
from experiments.results.pictures import placed
from experiments.results.provenance import provenance
from topologies.writing import write_whole

PICTURE = ".svg"  # beside the values of a claim
TONES = {
    Level.REPRODUCED: "good",
    Level.ORDERING: "warn",
    Level.ORDERINGS_ONLY: "warn",
    Level.UNDECIDED: "warn",
    Level.NOT_REPRODUCED: "bad",
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
    "Recorded owners": "Beyond the papers: owners that others recorded",
}


@dataclass(frozen=True, slots=True)
class ClaimCard:
    """A claim that was run, as the page shows it."""

    path: Path  # of its values
    claim: Claim
    values: Values
    verdict: ClaimVerdict

    @property
    def picture(self) -> Markup | None:
        """The picture; None: there is none."""
        path = self.path.with_suffix(PICTURE)
        return placed(path.read_text("utf-8"), self.claim.title) if path.exists() else None

    @property
    def columns(self) -> Iterator[str]:
        """Each quantity of the headline, with its unit if it has one."""
        for quantity in self.claim.headline:
            units = {row.unit for row in self.values.rows if row.quantity == quantity} - {"ratio", ""}
            yield f"{quantity}, {units.pop()}" if len(units) == 1 and not units <= TIMES.keys() else quantity

    @property
    def headline(self) -> Iterator[tuple[str, list[tuple[str, list[Value | None]]]]]:
        """(group, its systems with the headline's numbers) of each group; systems that have more than half of these."""
        wanted = self.claim.headline
        for group in self.values.groups():
            rows = {(row.system, row.quantity): row for row in self.values.rows if row.group == group}
            found = {system: [rows.get((system, quantity)) for quantity in wanted] for system, _ in rows}
            shown = [(system, cells) for system, cells in found.items() if 2 * cells.count(None) < len(wanted)]
            if shown:
                yield group, shown


def ticked(text: str) -> Markup:
    """Return a text for a page, with what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def write_index(out: Path) -> Path:
    """Write `out`/index.html from the values files there; return its path. ValuesError: one is not as written."""
    cards = cards_of(out)
    levels = [card.verdict.level for card in cards]
    papers = [
        (PAPERS[paper], list(some)) for paper, some in groupby(cards, key=lambda card: card.claim.paper.split(",")[0])
    ]
    page = render(
        Path(__file__).with_name("index.html"),
        title="Claims of both papers",
        found=cards,
        papers=papers,
        counts=[(level, levels.count(level)) for level in Level if level in levels],
        kinds=list(ClaimKind),
        tones=TONES,
        marks=MARKS,
        held_of=held_of,
        in_units=in_units,
        times=TIMES,
        who_wins=who_wins,
        ticked=ticked,
        origin=provenance(),
    )
    path = out / "index.html"
    write_whole(path, page)
    return path


def results_page(out: Path) -> str:
    """Return Markdown from the same files: a line a claim, its headline numbers, and what no claim judges."""
    cards = cards_of(out)
    run = {card.claim.name for card in cards}
    return render(
        Path(__file__).with_name("results.md.jinja"),
        cards=cards,
        kinds=list(ClaimKind),
        holds=ClaimOutcome.HOLDS,
        held_of=held_of,
        not_run=[name for name in CLAIMS if name not in run],
        not_covered=NOT_COVERED,
    )


def cards_of(out: Path) -> list[ClaimCard]:
    """Return all claims that were run, in the registry's order. ValuesError: one is not as written."""
    found = []
    for name, claim in CLAIMS.items():
        if (path := file_of(out, name)).exists():
            values = read(path)
            found.append(ClaimCard(path, claim, values, judge(claim, values)))
    return found


def held_of(verdict: ClaimVerdict, kind: ClaimKind) -> str:
    """Return the number of checks of a kind that hold, as text; empty where there are none."""
    held, judged = verdict.held(kind)
    return f"{held} of {judged}" if judged else ""
