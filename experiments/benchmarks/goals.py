"""A figure of a benchmark beside its goal, as `measure all` puts it on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KEPT, NOT_KEPT, NOTHING_PROMISED, NOT_JUDGED = "kept", "NOT KEPT", "promises 0", "not judged"


@dataclass(frozen=True, slots=True)
class JudgedFigure:
    """A figure beside its goal; `met` None: not judged."""

    what: str
    goal: str
    measured: str
    met: bool | None


def in_ms(seconds: float) -> str:
    """A time in milliseconds, for people."""
    return f"{seconds * 1e3:.3g} ms"


def all_kept(what: str, verdicts: Sequence[str]) -> JudgedFigure:
    """A promise of which each of the verdicts says whether it was kept, not given, or not judged."""
    judged = [verdict for verdict in verdicts if verdict != NOT_JUDGED]
    kept = sum(verdict == KEPT for verdict in judged)
    promised = sum(verdict != NOTHING_PROMISED for verdict in judged)
    unjudged = len(verdicts) - len(judged)
    words = f"{kept} of {promised} kept" + (f", {unjudged} not judged" if unjudged else "")
    return JudgedFigure(what, "always", words, kept == promised if promised else None)
