"""Play of a sweep: the engine plays the runs that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import cpu_count
from pathlib import Path
from typing import Any

from controller.warm_up import compile_once
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import records_of
from experiments.runtime import revision
from experiments.runtime.engines import Engine
from experiments.runtime.sudo_ownership import belonging_to_caller
from experiments.runtime.tasks import RUNS, Task, results_of, silent
from experiments.sweeps import play
from experiments.sweeps.plan import SweepPlan, read_plan
from experiments.sweeps.result import SweepResult
from topologies.errors import SpecError


def run_sweep(
    plan: SweepPlan, engine: Engine, out: Path | None, progress: Callable[[int, int], None] = silent
) -> SweepResult:
    """Play what `out` does not have of the plan's runs. SetupError: workers were lost; what they played is kept."""
    compile_once()
    cases = list(plan.cases())
    keys = [plan.key_of(case) for case in cases]
    engine.modules = plan.modules
    tasks = [
        Task(key, play.play_case, (case.scenario, plan.places, plan.of_records, plan.until_over))
        for case, key in zip(cases, keys, strict=True)
    ]
    kept = out / RUNS if out else None
    found = results_of(tasks, kept, revision.program(), engine.opened, progress)
    return SweepResult(plan, tuple(cases), tuple(found[key] for key in keys))


def sweep(
    scenario: Scenario | str | Path,
    *,
    policies: str | Sequence[str] | None = None,
    seeds: Iterable[int] | None = None,
    settings: Mapping[str, Sequence[Any]] | None = None,
    trace: str | Path | Sequence[str | Path] | None = None,
    until_over: bool = False,
    figures: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    dask: str | None = None,
) -> SweepResult:
    """Play a scenario, or a sweep file, in virtual time under all policies, with all seeds and values.

    `policies`: names, or "module:NAME" of your own (other processes must find them); the first is the one that others
    are compared with; none: the scenario's. `settings`: key of the scenario file -> values as the file has them, such
    as {"protocol.checkpoint_share": [0.1, 0.2]}. `trace`: records as of `simulate`. `out`: a folder that keeps each
    run, so that a sweep goes on where it stopped, and gets the tables, the picture and the page; none: nothing is kept.
    `workers`: processes, as many as there are cores; `dask`: the address of a scheduler whose workers play instead.
    SpecError names the fault; SetupError: workers cannot be had.
    """
    for key, given in (("policies", policies), ("seeds", seeds), ("figures", figures)):
        if not isinstance(given, Iterable | None):
            raise SpecError(key, given, "several, say in a list")
    if not isinstance(settings or {}, Mapping):
        raise SpecError("settings", settings, "values by the key of the scenario file that they are for")
    values = {
        key: (some,) if isinstance(some, str | int | float) else tuple(some) for key, some in (settings or {}).items()
    }
    plan = read_plan(
        scenario,
        policies=_several(policies),
        seeds=() if seeds is None else tuple(seeds),
        values=values,
        records=tuple(map(str, records_of(trace))),
        until_over=until_over,
        figures=_several(figures),
    )
    engine = Engine(workers or cpu_count() or 1, dask)
    if out is None:
        return run_sweep(plan, engine, None)
    with belonging_to_caller(Path(out)):
        result = run_sweep(plan, engine, Path(out))
        result.write(out)
        return result


def _several(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
