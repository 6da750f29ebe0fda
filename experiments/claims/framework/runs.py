"""The runs of claims: tasks, each played once, whichever claim asks for it, and kept in one file beside their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from experiments.claims.framework.claim import Config
from experiments.runtime import revision
from experiments.runtime.tasks import RUNS, Result, Task, results_of

Case = TypeVar("Case")


def gather(cases: Mapping[Case, Sequence[Task]], config: Config) -> dict[Case, list[Result]]:
    """Return the results of each case in the order of its tasks; a task that no claim has had before is played now.

    Results of another text of the project are played again.
    """
    tasks = {task.key: task for some in cases.values() for task in some}
    kept = config.folder / RUNS
    found = results_of(list(tasks.values()), kept, revision.program(), config.engine.opened, config.progress)
    return {case: [found[task.key] for task in some] for case, some in cases.items()}
