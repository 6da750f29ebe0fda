"""The measurement of the virtual world: what it runs is what it says, and its verdict can be no."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from controller.core.policies.table import SYSTEMS
from experiments.benchmarks import virtual
from experiments.benchmarks.tables import virtual_table
from experiments.benchmarks.virtual import (
    TARGETS,
    Growth,
    MeasuredRun,
    VirtualCase,
    alone,
    measure_virtual,
    play,
    progress_line,
    scenario_of,
    verdict,
)
from experiments.inputs.traces import generate
from experiments.results.events_file import digest, write_events
from experiments.worlds.virtual.run import simulate
from topologies.spec import Role

SMALL = VirtualCase(hosts=9, days=0.5)


def a_run(cpu_s: float = 1.0, *, hosts: int = 54, memory_bytes: int = 100_000_000) -> MeasuredRun:
    return MeasuredRun(
        VirtualCase(hosts=hosts), cpu_s, cpu_s / 2.0, memory_bytes, 10, 20, 1000, 300, 50, "0" * 64, True
    )


def test_a_larger_campus_has_jobs_and_reclaims_in_proportion() -> None:
    paper, larger = scenario_of(VirtualCase(days=7.0)), scenario_of(VirtualCase(days=7.0, hosts=500))
    volunteers = [len(list(s.campus.hosts_of(Role.VOLUNTEER))) for s in (paper, larger)]
    assert volunteers == [53, 499]
    for of_paper, of_larger in (
        (paper.jobs.count, larger.jobs.count),
        (paper.owners.count, larger.owners.count),
        (paper.jobs.work_s, larger.jobs.work_s),
    ):
        assert of_paper is not None and of_larger is not None
        assert of_larger / of_paper == pytest.approx(499 / 53, rel=0.02)


def test_more_jobs_are_more_flows_and_the_same_reclaims() -> None:
    one, four = play(VirtualCase(hosts=20, days=0.5)), play(VirtualCase(hosts=20, days=0.5, jobs=4.0))
    assert four.jobs == pytest.approx(4 * one.jobs, abs=2)
    assert four.reclaims == one.reclaims
    assert four.flows > 1.5 * one.flows > 0


def test_a_case_has_one_hash_in_whatever_process_it_runs() -> None:
    here, elsewhere = play(SMALL), alone(SMALL)
    assert elsewhere.sha256 == here.sha256
    assert (elsewhere.events, elsewhere.facts, elsewhere.flows) == (here.events, here.facts, here.flows)
    assert play(replace(SMALL, seed=2)).sha256 != here.sha256


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    scenario = scenario_of(SMALL)
    run = simulate(scenario, generate(scenario))
    write_events(tmp_path / "events.jsonl", run.facts)
    assert digest(run.facts) == hashlib.sha256((tmp_path / "events.jsonl").read_bytes()).hexdigest()
    assert digest(run.facts) == play(SMALL).sha256


def test_processor_time_of_the_run_is_part_of_the_whole() -> None:
    run = play(SMALL)
    assert 0.0 < run.run_s < run.cpu_s
    assert run.events_per_s == run.events / run.run_s
    assert run.memory_bytes > 10_000_000


def test_an_exponent_is_the_slope_in_logarithms() -> None:
    growth = Growth.of([(size, 3.0 * size**1.5) for size in (10.0, 20.0, 40.0)])
    assert growth.exponent == pytest.approx(1.5)
    assert growth.determination == pytest.approx(1.0)
    assert Growth.of([(1.0, 1.0), (2.0, 8.0), (4.0, 2.0)]).determination < 0.5


def test_the_verdict_is_no_where_a_goal_is_missed() -> None:
    quick, goal_s = {system: a_run() for system in SYSTEMS}, TARGETS["one_system_cpu_s"]
    assert all(verdict(quick, [a_run(hosts=500)], goal_s).values())
    assert verdict(quick, [], goal_s * 1.01)["one system, 61 days"] is False
    tired = {system: a_run(TARGETS["all_systems_cpu_s"] / len(SYSTEMS) * 1.01) for system in SYSTEMS}
    assert verdict(tired, [], goal_s)["all systems, 61 days"] is False
    fat = a_run(hosts=500, memory_bytes=int(TARGETS["memory_bytes"]) + 1)
    assert verdict(quick, [fat], goal_s)["memory"] is False
    late = a_run(TARGETS["week_of_500_hosts_cpu_s"] * 1.01, hosts=500)
    assert verdict(quick, [late], goal_s)["500 hosts, a week"] is False
    steep = [a_run(cpu_s, hosts=hosts) for cpu_s, hosts in ((1.0, 500), (2.0, 1000), (11.0, 5000))]
    assert verdict(quick, [], goal_s, steep[:2])["growth to 5 000 hosts"] is True
    assert verdict(quick, [], goal_s, [*steep, a_run(40.0, hosts=5000)])["growth to 5 000 hosts"] is False
    assert "500 hosts, a week" not in verdict(quick, [a_run(hosts=125)], goal_s)


def test_a_measurement_writes_json_and_a_picture_and_says_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "QUICK_DAYS", 0.1)
    monkeypatch.setattr(virtual, "QUICK_HOSTS", (5, 9))
    monkeypatch.setattr(virtual, "SYSTEMS", SYSTEMS[-2:])
    monkeypatch.setattr(virtual, "alone", lambda case, as_python=False: play(case))
    monkeypatch.setattr(virtual.native, "ensure", lambda: None)
    seen: list[str] = []
    result = measure_virtual(tmp_path, quick=True, progress=lambda run: seen.append(progress_line(run)))
    stored = json.loads((tmp_path / "virtual.json").read_text())
    assert set(stored["systems"]) == set(SYSTEMS[-2:])
    assert [run["case"]["hosts"] for run in stored["by_hosts"]] == [5, 9]
    assert stored["all_systems_cpu_s"] == pytest.approx(sum(r["cpu_s"] for r in stored["systems"].values()))
    assert stored["facts_on_disk"]["sha256"] == stored["systems"][SYSTEMS[-1]]["sha256"]
    assert stored["verdict"] == {}
    assert stored["one_system_cpu_s"] == [stored["systems"][SYSTEMS[-1]]["cpu_s"]]
    assert (tmp_path / "virtual.svg").read_bytes().startswith(b"<?xml")
    assert len(seen) == len(SYSTEMS[-2:]) + 1 + 1 + 2 + 2
    assert stored["one_system_as_python"]["sha256"] == stored["systems"][SYSTEMS[-1]]["sha256"]
    console = Console(record=True, width=200, quiet=False, file=(tmp_path / "table").open("w"))
    console.print(virtual_table(result))
    text = console.export_text()
    assert "one system 4 s" in text and "hosts^" in text and result["by_hosts"][0]["sha256"][:16] in text


def test_a_flow_is_a_few_events_even_where_nothing_holds_its_rate() -> None:
    run = play(VirtualCase("slurm-pr", days=4.0, seed=5))
    assert run.flows > 1000
    assert run.events < 12 * run.flows  # with every change of an end left on the heap it was 14, and rising
