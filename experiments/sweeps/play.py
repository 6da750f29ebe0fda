"""A run of a sweep, and the part of it that is kept: every figure of its summary that is a number, at real scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.warm_up import compile_once
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import trace_of
from experiments.results.events_file import digest
from experiments.results.summary import NUMBERS, Summary, value_of
from experiments.sweeps.plan import fingerprint_of
from experiments.worlds.virtual import simulate
from testbed.errors import SetupError


def play_case(scenario: Scenario, records: Sequence[str], expected: str, until_over: bool) -> dict[str, Any]:
    """Return the result of a run, of what JSON holds.

    SetupError: the records here are not those whose fingerprint is `expected`.
    """
    if fingerprint_of(records) != expected:
        raise SetupError(f"{', '.join(records)}: a worker finds other records there than the sweep was begun with")
    compile_once()
    run = simulate(scenario, trace_of(scenario, [Path(record) for record in records]), until_over=until_over)
    summary = run.summary()
    return {
        "figures": numbers(summary),
        "broken": [f"{broken.rule}: {broken.subject}" for broken in summary.invariants_broken],
        "sha256": digest(run.facts),
    }


def numbers(summary: Summary) -> dict[str, float | int | None]:
    """Return each figure that is a number, by section.name, in the summary's order; those with a unit at real scale."""
    return {
        name: value if (real := summary.real_scale.get(name, value)) == value else real
        for name in NUMBERS
        if "." in name and (value := value_of(summary, name)) is not None
    }
