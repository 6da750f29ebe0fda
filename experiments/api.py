"""The program from Python: `simulate` and `run_live` as functions, and the result of a run as one object.

    from experiments import Scenario, simulate

    result = simulate("example:lab", policy="reclaimnet", seed=3)
    result.summary.jobs.finished
    result.frame("migrations")

Everything is synchronous, also where an event loop runs already (a notebook): what is asynchronous inside runs in a loop of its
own. `run_live` is called in the main thread, as root. `experiments.sweeps.sweep` plays many runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from controller.core.policies.table import POLICIES, Policy
from controller.user_policies import find_policy, guarded
from controller.warm_up import compile_once
from experiments.inputs.scenario import Scenario, load
from experiments.inputs.traces import Trace, check_hosts, records_of, trace_of
from experiments.results import frames, report
from experiments.results.events_file import digest, write_run
from experiments.results.history import Timed
from experiments.results.live_lines import lines_on
from experiments.results.provenance import provenance
from experiments.results.report.page import page
from experiments.results.summary import Summary
from experiments.runtime.sudo_ownership import belonging_to_caller
from experiments.worlds import virtual
from experiments.worlds.played import Played
from topologies.errors import SpecError
from topologies.writing import write_whole

if TYPE_CHECKING:
    import polars

# whose trace, or records of them, or none: generated ones
Owners = Trace | str | Path | Sequence[str | Path] | None


@dataclass(frozen=True)
class RunResult:
    """The result of a run. `scenario` and `trace` are in real units; `played` has its facts and its context."""

    scenario: Scenario
    trace: Trace
    played: Played

    @cached_property
    def summary(self) -> Summary:
        """The figures of `summary.json`, every promise checked."""
        return self.played.summary()

    @property
    def events(self) -> Sequence[Timed]:
        """(seconds, fact) in the journal's order: what `events.jsonl` holds."""
        return self.played.facts

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `events.jsonl`: two virtual runs of one scenario, seed and program have the same."""
        return digest(self.events)

    def frame(self, table: str) -> polars.DataFrame:
        """Return a table of the run as a polars frame; `experiments.results.frames` has them all.

        SpecError: no such table.
        """
        return frames.frame(table, self.played.facts, self.played.context)

    def report(self, path: str | Path) -> Path:
        """Write the page (HTML, self-contained) to a file; return its path. Folders are made if need be."""
        file = Path(path)
        text = page(self.summary, self.played.facts, self.played.context, provenance(self.scenario))
        with belonging_to_caller(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        return file

    def write(self, folder: str | Path) -> Path:
        """Write `summary.json`, `report.html`, `events.jsonl` and `campus.toml` into a folder, as the commands do; return it."""
        out = Path(folder)
        with belonging_to_caller(out):
            report.write(out, self.summary, self.events, self.played.context, provenance(self.scenario))
            write_run(out, self.events, self.played.context.campus)
        return out

    def __repr__(self) -> str:
        jobs, broken = self.summary.jobs, len(self.summary.invariants_broken)
        kept = f"{broken} promises broken" if broken else "every promise kept"
        return (
            f"<{self.summary.world} run of {self.scenario.name}, policy {self.scenario.protocol.policy}, "
            f"seed {self.summary.seed}: {jobs.finished} of {jobs.submitted} jobs finished, {kept}>"
        )


def simulate(
    scenario: Scenario | str | Path,
    *,
    policy: str | Policy | None = None,
    seed: int | None = None,
    trace: Owners = None,
    until_over: bool = False,
) -> RunResult:
    """Play a scenario in virtual time: deterministic, and nothing is needed for it.

    `scenario`: a `Scenario`, a scenario file, or "example:NAME". `policy`: a system's name, "module:NAME" of your own,
    or a row, instead of the scenario's. `seed`: instead of the scenario's, for jobs and owners too. `trace`: a trace,
    or records, or "module:NAME" of a function, instead of generated owners. `until_over` goes on after the scenario's
    end until every job is over. SpecError gives the file, the wrong value and the allowed ones.
    """
    described = prepared(scenario, policy, seed)
    owners = trace_for(described, trace)
    compile_once()
    return RunResult(described, owners, virtual.simulate(described, owners, until_over=until_over))


def run_live(
    scenario: Scenario | str | Path,
    *,
    policy: str | Policy | None = None,
    seed: int | None = None,
    trace: Owners = None,
    out: str | Path = "out/run",
    quiet: bool = True,
) -> RunResult:
    """Play a scenario on the kernel of this machine, in real time; everything that it made is gone when it returns.

    Arguments as of `simulate`. `out`: where the journal and the logs are written. `quiet` False shows the run on the terminal.
    Needs root. SetupError: the machine cannot; SpecError as `simulate`, and for what only virtual time can play.
    """
    from experiments.worlds.live.run import run_live as play

    described = prepared(scenario, policy, seed)
    owners = trace_for(described, trace)
    with belonging_to_caller(Path(out)):
        return RunResult(described, owners, play(described, owners, Path(out), lines_on(Console(quiet=quiet))))


def prepared(scenario: Scenario | str | Path, policy: str | Policy | None, seed: int | None) -> Scenario:
    """Return the scenario, read if a file names it, with another policy and seed where they are given."""
    described = scenario if isinstance(scenario, Scenario) else load(scenario)
    if isinstance(policy, Policy):
        row, policy = policy, f"given: {policy.about}"
        POLICIES[policy] = guarded(policy, row)
    elif not isinstance(policy, str | None):
        raise SpecError("policy", policy, 'a name, "module:NAME" of your own, or a Policy')
    if policy is not None:
        find_policy(policy)
        described = replace(described, protocol=replace(described.protocol, policy=policy))
    return described if seed is None else replace(described, seed=seed)


def trace_for(scenario: Scenario, trace: Owners) -> Trace:
    """Return the trace as it is, of records, or generated."""
    if isinstance(trace, Trace):
        check_hosts(trace, scenario, trace.origin)
        return trace
    return trace_of(scenario, records_of(trace))
