"""What emergencies and pauses take at least of whoever does not know the future: from journals by hand, and below every row."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from controller.core.policies.table import POLICIES
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace, generate, paper_campus
from experiments.inputs.traces.paper_campus import PaperCampus
from experiments.worlds.oracle.online_bound import online_bound
from experiments.worlds.virtual import VirtualRun, simulate

DAYS = 2.0
ROWS = sorted(name for name, row in POLICIES.items() if row.label)
CHOICES = {"as it is": PaperCampus(), "owners who differ": PaperCampus(host_sigma=1.0)}


@cache
def played(row: str, campus: str = "as it is", seed: int = 3) -> tuple[Scenario, Trace, VirtualRun]:
    """Two days of the paper's campus."""
    scenario, trace = paper_campus(seed, days=DAYS, choices=CHOICES[campus])
    return scenario, trace, simulate(scenario, trace, seed, system=row)


@pytest.mark.parametrize("campus", CHOICES)
@pytest.mark.parametrize("row", ROWS)
def test_every_row_pays_at_least_as_much(row: str, campus: str) -> None:
    scenario, trace, run = played(row, campus)
    found, lost = online_bound(run, scenario, trace, row), run.summary().lost_time
    if lost.expected_emergencies_s is None or POLICIES[row].replication is not None:
        assert found is None
        return
    assert found is not None
    assert 0.0 < found.any_s <= found.within_budgets_s
    assert found.any_s <= lost.expected_emergencies_s + lost.pauses_s
