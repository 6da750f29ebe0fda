"""Many independent tasks, wherever they are played: each result kept at once, so that a sweep resumes where it stopped.

Results are lines of one file, `runs.jsonl`. A line carries the fingerprint of the project that made it: results of another text
are not taken for those of this one, and need not be thrown away by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]  # of what JSON holds
RUNS = "runs.jsonl"


@dataclass(frozen=True, slots=True)
class Task:
    """`function(*arguments)`, a function of a module and arguments that can be pickled; `key` names it in its sweep."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


# plays tasks and gives each with its result, as they end
Play = Callable[[Sequence[Task]], Iterator[tuple[Task, Any]]]


def silent(done: int, total: int) -> None:
    """Show no progress."""


def results_of(
    tasks: Sequence[Task],
    path: Path | None,
    code: str,
    opened: Callable[[int], AbstractContextManager[Play]],
    progress: Callable[[int, int], None] = silent,
) -> dict[str, Result]:
    """Play tasks; return every result by its key, in the order of the tasks.

    Results in the file are not played again.

    `opened(n)` gives what plays so many tasks. Without `path` nothing is kept. ValueError: two tasks of one key.
    """
    if len({task.key for task in tasks}) < len(tasks):
        raise ValueError("two tasks of one key: the key names everything that a result depends on")
    found = kept(path, code) if path else {}
    missing = [task for task in tasks if task.key not in found]
    done = len(tasks) - len(missing)
    progress(done, len(tasks))
    if missing:
        with opened(len(missing)) as play, _appending(path, code) as append:
            for task, result in play(missing):
                append(task.key, result)
                found[task.key] = result
                done += 1
                progress(done, len(tasks))
    return {task.key: found[task.key] for task in tasks}


def kept(path: Path, code: str) -> dict[str, Result]:
    """Return the results of that code in the file, without lines cut off while written, and without other programs' lines."""
    if not path.exists():
        return {}
    found: dict[str, Result] = {}
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        is_ours = isinstance(entry, dict) and entry.get("code") == code and "result" in entry
        if is_ours and isinstance(entry.get("key"), str):
            found[entry["key"]] = entry["result"]
    return found


@contextmanager
def _appending(path: Path | None, code: str) -> Iterator[Callable[[str, Result], None]]:
    """Open the file; yield a function that appends the result of a key, flushed; without a file, one that does nothing."""
    if path is None:
        yield lambda key, result: None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):  # the last line was cut off
            file.write("\n")

        def append(key: str, result: Result) -> None:
            file.write(json.dumps({"code": code, "key": key, "result": result}) + "\n")
            file.flush()

        yield append
