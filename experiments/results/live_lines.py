"""A run while it runs, in a terminal or a log: a line for each notable event."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from controller.core.model import facts as f
from experiments.results.narration import TONES, notable, sentence

Show = Callable[[float, f.Fact], object]  # gets each fact, and its time
COLOURS = {"bad": "red", "good": "green", "calm": "cyan"}


def lines_on(console: Console) -> Show:
    """Return what prints a run's notable events."""

    def show(at_s: float, fact: f.Fact) -> None:
        told = sentence(fact)
        if told is not None and notable(fact):
            colour = COLOURS.get(TONES.get(type(fact), ""))
            console.print(f"{at_s:7.1f} s  {told}", style=colour, markup=False, highlight=False, soft_wrap=True)

    return show


def unseen(at_s: float, fact: f.Fact) -> None:
    """Show nothing of a run whose figures alone are wanted."""
