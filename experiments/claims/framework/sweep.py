"""Many independent tasks: in this process or in a pool, each result kept at once, so that a sweep resumes where it stopped.

Results are lines of one file, `runs.jsonl`. A line carries the fingerprint of the code that made it: results of other code
are not taken for those of this one, and need not be thrown away by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bpf.caches import fingerprint
from experiments.claims.framework.claim import Config
from experiments.runtime import native
from experiments.runtime.workers import workers

Result = Mapping[str, Any]  # of what JSON holds


@dataclass(frozen=True, slots=True)
class Task:
    """`function(*arguments)`, a function of a module and arguments that can be pickled; `key` names it in its sweep."""

    key: str
    function: Callable[..., Result]
    arguments: tuple[Any, ...]


def sweep(tasks: Sequence[Task], config: Config, modules: Iterable[ModuleType]) -> dict[str, Result]:
    """Every task's result by its key; those already in the directory are not run again.

    `modules` are those whose code decides on a result. ValueError: two tasks of one key.
    """
    if len({task.key for task in tasks}) < len(tasks):
        raise ValueError("two tasks of one key: the key names everything that a result depends on")
    path, code = config.directory / "runs.jsonl", fingerprint((), *map(native.source, modules))
    wanted = {task.key for task in tasks}
    results = {key: result for key, result in kept(path, code).items() if key in wanted}
    missing = [task for task in tasks if task.key not in results]
    config.progress(len(results), len(tasks))
    if not missing:
        return results
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):  # the last line was cut off
            file.write("\n")
        for key, result in _done(missing, config):
            file.write(json.dumps({"code": code, "key": key, "result": result}) + "\n")
            file.flush()
            results[key] = result
            config.progress(len(results), len(tasks))
    return results


def kept(path: Path, code: str) -> dict[str, Result]:
    """The results of that code in the file; a line that was cut off while it was written counts as none."""
    if not path.exists():
        return {}
    found: dict[str, Result] = {}
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if entry["code"] == code:
            found[entry["key"]] = entry["result"]
    return found


def _done(tasks: Sequence[Task], config: Config) -> Iterator[tuple[str, Result]]:
    """As they end. Interrupted, it leaves those that have not begun."""
    if config.workers == 1 or len(tasks) == 1:
        for task in tasks:
            yield task.key, task.function(*task.arguments)
        return
    with workers(config.workers, prefer_native=native.is_preferred()) as pool:
        running = {pool.submit(task.function, *task.arguments): task.key for task in tasks}
        for future in as_completed(running):
            yield running[future], future.result()
