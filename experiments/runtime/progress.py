"""A bar on the terminal for runs that are done one after another; lines now and then, where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINES = 10  # where there is no terminal to draw on


@contextmanager
def progress_bar(
    console: Console, what: str, total: int | None = None, lines: int = LINES, *, transient: bool = False
) -> Iterator[Callable[..., None]]:
    """Yield a function of (done, total, more): what is done of all, and more words about it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"))
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, *times, console=console, transient=transient) as shown:
        task, told = shown.add_task(what, total=total, more=""), -1

        def progress(done: int, total: int, more: str = "") -> None:
            nonlocal told
            shown.update(task, completed=done, total=total, more=more)
            if lines and not console.is_terminal and done * lines // max(1, total) > told:
                told = done * lines // max(1, total)
                console.print(f"{done} of {total} {what}{more and ', '}{more}")

        yield progress
