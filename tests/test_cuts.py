"""Cables that fail by themselves: drawn by a law, kept in a trace's file, played in the virtual campus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.model import facts as f
from experiments.inputs.scenario import Scenario, TrunkLaw, dumps, loads
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces import Trace, generate, load_trace
from experiments.inputs.traces.cuts import cuts, events_of_links
from experiments.inputs.traces.trace_file import write_trace
from experiments.worlds.virtual.invariants import Invariants
from experiments.worlds.virtual.run import simulate
from tests.test_dead_trunks import with_cuts
from topologies import files
from topologies.errors import SpecError
from topologies.scale import Scale


def failing(seed: int = 3, **law: float) -> Scenario:
    scenario = with_cuts(files.load("example:twocores"), [], seed)
    often = TrunkLaw(
        hazard_per_s=law.get("hazard_per_s", 4.0 / scenario.duration_s),
        repair_s=law.get("repair_s", 0.03 * scenario.duration_s),
        announced=law.get("announced", 0.5),
        drain_s=0.01 * scenario.duration_s,
    )
    return replace(scenario, trunks=often)


def test_failures_come_as_often_and_last_as_long_as_the_law_says() -> None:
    scenario = replace(failing(), duration_s=1e6, trunks=TrunkLaw(1e-3, 200.0, 0.25, 20.0))
    found = cuts(scenario)
    assert list(found) == sorted(found, key=lambda cut: cut.at_s)
    of = [cut for cut in found if set(cut.between) == {"library", "core1"}]
    assert [cut.up for cut in of[:4]] == [False, True, False, True]
    downs = [cut for cut in found if cut.up is False]
    assert len(downs) == pytest.approx(4 * 1e6 / 1200.0, rel=0.05)  # each works 1000 s, and is down for 200
    down_s = sum(up.at_s - down.at_s for down, up in zip(of[::2], of[1::2], strict=False))
    assert down_s / 1e6 == pytest.approx(200.0 / 1200.0, rel=0.15)
    assert sum(cut.drain_s == 20.0 for cut in downs) / len(downs) == pytest.approx(0.25, abs=0.03)
    assert cuts(replace(scenario, trunks=None)) == ()


def test_a_trace_with_cuts_is_written_scaled_and_read_as_it_was(tmp_path: Path) -> None:
    scenario = failing()
    trace = generate(scenario)
    assert len(trace.cuts) >= 8 and loads(dumps(scenario)) == scenario
    write_trace(tmp_path, scenario, trace)
    assert load_trace(tmp_path, scenario).cuts == trace.cuts
    played = Scale(time=0.5).apply(trace)
    assert [cut.at_s for cut in played.cuts] == [0.5 * cut.at_s for cut in trace.cuts]
    write_trace(tmp_path, scenario, replace(trace, cuts=()))
    assert load_trace(tmp_path, scenario).cuts == ()


def test_what_no_campus_or_trace_can_have_is_refused() -> None:
    with pytest.raises(SpecError, match="at most 100000 expected failures"):
        cuts(failing(hazard_per_s=1e6))
    with pytest.raises(SpecError, match="two ends of a cable"):
        events_of_links(failing(), Trace("mine", (), (), cuts=(LinkEvent(1.0, ("l1", "p1"), up=False),)))
    with pytest.raises(SpecError, match="up alone"):
        Trace("mine", (), (), cuts=(LinkEvent(1.0, ("library", "core1"), rate_bytes_per_s=1.0),))
    with pytest.raises(SpecError, match="order of time"):
        downs = [LinkEvent(at_s, ("library", "core1"), up=False) for at_s in (2.0, 1.0)]
        Trace("mine", (), (), cuts=tuple(downs))


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_runs_whose_trunks_fail_by_themselves_keep_every_promise(seed: int) -> None:
    scenario = failing(seed)
    trace = generate(scenario)
    run = simulate(scenario, trace, after_each=Invariants())
    assert not run.summary().invariants_broken
    told = [fact for _, fact in run.facts if isinstance(fact, f.LinkChanged)]
    assert sum(fact.rate_bytes_per_s == 0.0 for fact in told) == 2 * sum(
        cut.up is False for cut in trace.cuts
    )
    draining = [fact for _, fact in run.facts if isinstance(fact, f.TrunksDraining) and fact.trunks]
    assert len(draining) >= 1
