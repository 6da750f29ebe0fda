"""Sweeps: which runs, each once, going on where they stopped; tables that depend on nothing but the plan and the program."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import polars
import pytest

from controller.core.policies.table import POLICIES
from experiments.cli.compare import sweep as sweep_command
from experiments.inputs.scenario import demo_scenario, dumps
from experiments.inputs.traces import generate
from experiments.results.statistics import paired
from experiments.runtime.engines import Engine
from experiments.runtime.exit_status import ExitStatus, report
from experiments.runtime.tasks import Play, Task
from experiments.sweeps import SweepPlan, run_sweep, sweep
from experiments.sweeps.plan import read_plan
from experiments.sweeps.result import SweepResult, words_of
from experiments.worlds.virtual import simulate
from tests.patience import wait_until
from topologies.errors import SpecError

SMALL = replace(demo_scenario(hosts=4, buildings=2, seconds=15.0), name="small")
FIGURES = ("interruptions.lost_gpu_s", "jobs.finished")
POLICY = "from controller.core.policies.table import Policy\nmine = Policy({!r}, vault=False)\n"
CLI = [sys.executable, "-m", "experiments.cli", "sweep"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder with a scenario and a policy; what it brings is gone after."""
    (tmp_path / "small.toml").write_text(dumps(SMALL))
    (tmp_path / "of_sweeps.py").write_text(POLICY.format("mine"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with patch.dict(POLICIES):
        yield tmp_path
    sys.modules.pop("of_sweeps", None)


def plan_of(**changed: Any) -> SweepPlan:
    given: dict[str, Any] = {"policies": ("reclaimnet", "static"), "seeds": (1, 2), "figures": FIGURES}
    return SweepPlan(SMALL, **{**given, **changed})


def test_runs_are_every_policy_with_every_seed_and_all_values(folder: Path) -> None:
    values = {"protocol.checkpoint_share": (0.1, 0.2), "owners.hazard": ("0.5 /h", "1 /h")}
    cases = list(plan_of(values=values).cases())
    assert len(cases) == len(plan_of(values=values)) == 2 * 2 * 2 * 2
    assert cases[-1].values == (("protocol.checkpoint_share", "0.2"), ("owners.hazard", "1 /h"))
    assert cases[-1].label == "static, protocol.checkpoint_share 0.2, owners.hazard 1 /h"
    last = cases[-1].scenario
    assert (last.protocol.policy, last.protocol.checkpoint_share, last.seed) == ("static", 0.2, 2)
    assert last.owners.hazard_per_s == pytest.approx(1 / 3600)
    assert replace(last, owners=SMALL.owners, protocol=SMALL.protocol, seed=SMALL.seed) == SMALL


def test_a_run_is_named_by_all_that_its_result_depends_on(folder: Path) -> None:
    plan = plan_of(policies=("of_sweeps:mine",), seeds=(1,))
    [case] = plan.cases()
    key = plan.key_of(case)
    assert plan_of(policies=("of_sweeps:mine",), seeds=(1,)).key_of(case) == key
    assert replace(plan, until_over=True).key_of(case) != key
    assert plan.key_of(replace(case, scenario=replace(case.scenario, duration_s=1.0))) != key
    (folder / "record.csv").write_text("host,at_s,event\n")
    with_record = replace(plan, records=("record.csv",))
    before = with_record.key_of(case)
    assert before != key
    (folder / "record.csv").write_text("host,at_s,event\n\n")
    assert replace(with_record).key_of(case) != before
    (folder / "of_sweeps.py").write_text(POLICY.format("another"))
    assert plan.key_of(case) != key


@contextmanager
def backwards(_: int) -> Iterator[Play]:
    def play(tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        yield from [(task, task.function(*task.arguments)) for task in reversed(tasks)]

    yield play


def test_tables_do_not_depend_on_which_run_ended_first(tmp_path: Path) -> None:
    forwards, reverse = Engine(1), Engine(1)
    reverse.opened = backwards
    for name, engine in (("a", forwards), ("b", reverse)):
        run_sweep(plan_of(), engine, None).write(tmp_path / name)
    for file in ("runs.csv", "runs.parquet", "intervals.csv", "sweep.svg"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.parametrize("values", [{}, {"protocol.checkpoint_share": (0.1, 0.3)}])
def test_one_seed_has_a_mean_and_a_difference_but_no_interval_and_no_p(
    tmp_path: Path, values: dict[str, tuple[float, ...]]
) -> None:
    found = run_sweep(plan_of(seeds=(1,), values=values), Engine(1), None)
    page = found.write(tmp_path).read_text()
    for row in csv.DictReader((tmp_path / "intervals.csv").open()):
        assert row["mean"]
        bounds = {row[name] for name in ("low", "high", "difference_low", "difference_high", "p_value")}
        assert bounds == {""}
        assert bool(row["difference"]) == (row["policy"] == "static")
    assert '<span class="quiet">[' not in page
    assert (tmp_path / "sweep.svg").read_text().count("<use") >= len(found.rows)  # a mark a mean


def test_tables_have_a_row_a_run_and_paired_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.results.statistics.ENOUGH_SEEDS", 3)
    values = {"protocol.checkpoint_share": (0.1, 0.3)}
    found = run_sweep(plan_of(seeds=(1, 2, 3), values=values), Engine(1), None)
    found.write(tmp_path)
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [(row["policy"], row["seed"], row["protocol.checkpoint_share"]) for row in rows[2:5]] == [
        ("reclaimnet", "3", "0.1"),
        ("static", "1", "0.1"),
        ("static", "2", "0.1"),
    ]
    frame = polars.read_parquet(tmp_path / "runs.parquet")
    assert frame.equals(found.runs)
    assert frame.schema["protocol.checkpoint_share"] == polars.Float64
    assert len(set(frame["events_sha256"])) == 9  # static has fixed times, whatever the share
    lost = {
        policy: frame.filter(policy=policy).filter(polars.col("protocol.checkpoint_share") == 0.3)[FIGURES[0]].to_list()
        for policy in ("reclaimnet", "static")
    }
    [row] = [
        row
        for row in found.rows
        if (row.policy, row.values[0][1], row.figure) == ("static", "0.3", "interruptions.lost_gpu_s")
    ]
    apart = paired(lost["static"], lost["reclaimnet"])
    assert (row.difference, row.difference_low, row.p_value, row.pairs) == (
        apart.difference.mean,
        apart.difference.low,
        apart.p_value,
        3,
    )
    assert found.intervals.height == 2 * 2 * 2
    assert ElementTree.parse(tmp_path / "sweep.svg").getroot().tag.endswith("svg")
    assert "paired" not in (tmp_path / "sweep.html").read_text()  # nothing is left of the template
    assert "lost GPU time" in (tmp_path / "sweep.html").read_text()


def played(lost_s: dict[str, Sequence[float]]) -> SweepResult:
    """A sweep whose runs lost so much, and finished as many jobs as seconds were lost."""
    seeds = range(1, 1 + len(next(iter(lost_s.values()))))
    plan = plan_of(policies=tuple(lost_s), seeds=tuple(seeds))
    figures = (dict(zip(FIGURES, (each, each), strict=True)) for some in lost_s.values() for each in some)
    results = tuple({"figures": each, "broken": [], "sha256": ""} for each in figures)
    return SweepResult(plan, tuple(plan.cases()), results)


def test_a_sentence_names_who_wins_or_says_that_they_are_level() -> None:
    rising = [60.0 + n for n in range(8)]
    noisy = [each + (90.0 if n % 2 else -90.0) + 1.0 for n, each in enumerate(rising)]
    found = dict(played({"reclaimnet": rising, "static": [each + 60.0 for each in rising], "share": noisy}).winners)
    less, more = (found[words_of(figure)] for figure in FIGURES)
    assert less.startswith("reclaimnet, 1.06 min, is level with share (apart ")
    assert less.endswith("; ahead of static by 1 min (1 min to 1 min)")
    assert more.startswith("static, 123.5, ")
    [few] = {
        words for _, words in played({"reclaimnet": [1.0, 2.0], "static": [3.0, 4.0]}).winners if "static" not in words
    }
    assert few == "not judged: below 6 seeds there is no interval; best mean: reclaimnet"
    assert dict(played({"reclaimnet": rising, "static": rising}).winners)[words_of(FIGURES[0])].endswith(
        "is level with static"
    )


@pytest.mark.timeout(300)
def test_a_full_disk_at_any_table_is_the_machines_fault(tmp_path: Path) -> None:
    found = run_sweep(plan_of(), Engine(1), None)
    for table in ("runs.csv", "runs.parquet", "intervals.csv"):
        out = tmp_path / f"full at {table}"
        out.mkdir()
        (out / table).symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left") as full:
            found.write(out)
        assert report(full.value) == ExitStatus.NOT_RUN


@pytest.mark.timeout(600)
def test_a_sweep_whose_process_is_killed_goes_on_and_gives_the_same_tables(folder: Path) -> None:
    words = [*CLI, "small.toml", "--policy", "reclaimnet,of_sweeps:mine", "--seeds", "1:4", "--workers", "2"]
    with subprocess.Popen([*words, "--out", "out"], stdout=subprocess.PIPE, text=True) as process:
        runs = folder / "out" / "runs.jsonl"
        wait_until(lambda: runs.exists() and "\n" in runs.read_text(), within_s=300.0)
        process.send_signal(signal.SIGKILL)
    kept = len(runs.read_text().splitlines())
    assert 1 <= kept < 6
    asked: dict[str, Any] = {"policies": ["reclaimnet", "of_sweeps:mine"], "seeds": range(1, 4), "workers": 1}
    sweep("small.toml", out="out", **asked)
    keys = [json.loads(line)["key"] for line in runs.read_text().splitlines() if line.endswith("}")]
    assert len(keys) == len(set(keys)) == 6  # none was played again
    sweep("small.toml", out="whole", **asked)
    for file in ("runs.csv", "intervals.csv"):
        assert Path("out", file).read_bytes() == Path("whole", file).read_bytes()


def test_a_sweep_file_says_what_the_options_say(folder: Path) -> None:
    (folder / "sweep.toml").write_text(
        'scenario = "small.toml"\npolicies = ["reclaimnet", "of_sweeps:mine"]\nseeds = "1:4"\nuntil_over = true\n'
        'figures = ["jobs.finished"]\n[set]\n"protocol.checkpoint_share" = [0.1, 0.2]\n"owners.hazard" = ["1 /h"]\n'
    )
    plan = read_plan("sweep.toml")
    assert plan == SweepPlan(
        SMALL,
        ("reclaimnet", "of_sweeps:mine"),
        (1, 2, 3),
        {"protocol.checkpoint_share": (0.1, 0.2), "owners.hazard": ("1 /h",)},
        until_over=True,
        figures=("jobs.finished",),
        folder=Path(),
    )
    assert read_plan("sweep.toml", seeds=(7,)).seeds == (7,)
    (folder / "four.toml").write_text('scenario = "small.toml"\nseeds = 4\n')
    assert read_plan("four.toml").seeds == (1, 2, 3, 4)  # as --seeds 4
    assert read_plan("small.toml").policies == ("reclaimnet",)


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"seeds": "3:1"}, "A:B with whole numbers A < B"),
        ({"seeds": "one"}, "whole numbers with commas"),
        ({"set_": ["protocol.checkpoint_share"]}, "KEY=A,B"),
        ({"set_": ["protocol.checkpoint_share=3"]}, "the scenario with protocol.checkpoint_share = 3: "),
        ({"set_": ["jobs.step=1 s", "jobs.step=2 s"]}, "each key once"),
        ({"trace": [Path("nowhere.csv")]}, "a file that is there"),
        ({"policy": "static,nobodys:policy"}, "there is no module nobodys"),
        ({"policy": ","}, "names, with commas"),
    ],
)
def test_a_wrong_option_says_what_is_allowed(folder: Path, changed: dict[str, Any], wrong: str) -> None:
    with pytest.raises(SpecError, match=wrong):
        sweep_command("small.toml", workers=1, out=folder, **changed)


def test_campuses_are_twelve_variants_that_each_change_something_and_can_be_played() -> None:
    plan = read_plan("example:campuses")
    first = {case.values: case for case in plan.cases() if case.policy == "reclaimnet" and case.seed == 1}
    assert len(first) == 12 and len(plan) == 12 * len(plan.policies) * 10
    assert len({dumps(case.scenario) for case in first.values()} | {dumps(plan.scenario)}) == 13
    for case in replace(plan, policies=("reclaimnet",), seeds=(7,)).cases():
        part = 0.1 * 86_400.0 / case.scenario.duration_s
        jobs, owners = case.scenario.jobs, case.scenario.owners
        played = replace(
            case.scenario,
            duration_s=part * case.scenario.duration_s,
            jobs=replace(jobs, count=2, work_s=4 * 3600.0),
            owners=replace(owners, count=max(1, round(part * (owners.count or 0)))),
        )
        summary = simulate(played, generate(played)).summary()
        assert summary.jobs.submitted == 2 and not summary.invariants_broken, case.label


def test_variants_are_columns_and_rows_of_the_page(folder: Path, tmp_path: Path) -> None:
    (folder / "named.toml").write_text(
        'scenario = "small.toml"\nseeds = [1]\nwith = { "protocol.max_load" = 0.9 }\n'
        'variants = { low = { "protocol.checkpoint_share" = 0.1 }, high = { "protocol.checkpoint_share" = 0.3 } }\n'
    )
    found = run_sweep(read_plan(str(folder / "named.toml")), Engine(1), None)
    assert [case.values for case in found.cases] == [(("variant", "low"),), (("variant", "high"),)]
    assert {case.scenario.protocol.max_load for case in found.cases} == {0.9}
    assert found.runs["variant"].to_list() == ["low", "high"]
    page = found.write(tmp_path).read_text()
    assert "<th>variant</th>" in page and "<td>high</td>" in page
