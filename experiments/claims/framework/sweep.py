"""The runs of a claim: tasks, kept in its directory and played by the engine of its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from types import ModuleType

from bpf.caches import fingerprint
from experiments.claims.framework.claim import Config
from experiments.runtime.tasks import RUNS, Result, Task, results_of


def sweep(tasks: Sequence[Task], config: Config, modules: Iterable[ModuleType]) -> dict[str, Result]:
    """Play tasks; return every result by its key.

    Results in the directory are not played again.

    `modules` are those with code that decides on a result. ValueError: two tasks of one key.
    """
    code = fingerprint((), *map(inspect.getsource, modules))
    return results_of(tasks, config.directory / RUNS, code, config.engine.opened, config.progress)
