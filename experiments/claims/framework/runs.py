"""The runs of claims: tasks, each played once, whichever claim asks for it, and kept in one file beside their directories."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TypeVar

from bpf.caches import fingerprint
from experiments.claims.framework.claim import Config
from experiments.runtime.tasks import RUNS, Result, Task, results_of

Case = TypeVar("Case")


def gather(
    cases: Mapping[Case, Sequence[Task]], config: Config, modules: Iterable[ModuleType]
) -> dict[Case, list[Result]]:
    """Return the results of each case in the order of its tasks; a task that no claim has had before is played now.

    `modules` are those with code that decides on a result: results of other code are played again.
    """
    tasks = {task.key: task for some in cases.values() for task in some}
    code = fingerprint((), *map(inspect.getsource, modules))
    kept = config.directory.parent / RUNS
    found = results_of(list(tasks.values()), kept, code, config.engine.opened, config.progress)
    return {case: [found[task.key] for task in some] for case, some in cases.items()}
