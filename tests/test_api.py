"""The program from Python: names that are cheap to import, tables that agree with the summary, docs and a notebook that run."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars
import pytest

from controller.core.policies.table import POLICIES, Policy
from experiments import InverseLaw, RunResult, Scenario, Trace, demo_scenario, simulate, sweep
from experiments.dashboard.sources import open_run
from experiments.results import frames
from tests import run_story
from tests.live_campus import command, live
from topologies.errors import SpecError

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "scipy", "numba", "polars", "matplotlib", "trio", "msgspec", "mininet", "typing", "dataclasses"}
VIRTUAL, KERNEL = (ROOT / "docs/api.md").read_text().split("## On the kernel")


@pytest.fixture(scope="module")
def result() -> RunResult:
    return simulate(demo_scenario(hosts=6, buildings=2, seconds=60.0), seed=2)


@pytest.fixture
def policies() -> Iterator[None]:
    """The table of systems is as it was, after."""
    with patch.dict(POLICIES):
        yield


def test_importing_the_packages_imports_nothing_that_is_not_asked_for() -> None:
    program = "import sys; before = set(sys.modules); import experiments, testbed, topologies; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {name.partition(".")[0] for name in done.stdout.split()} == {"experiments", "testbed", "topologies"}
    assert not HEAVY & set(done.stdout.split())


def test_tables_say_what_the_summary_says(result: RunResult) -> None:
    jobs, summary = result.frame("jobs"), result.summary
    assert jobs.height == summary.jobs.submitted > 0
    assert jobs.filter(state="finished").height == summary.jobs.finished
    assert jobs["attempts"].sum() == summary.jobs.attempts == result.frame("attempts").height
    assert jobs["work_lost_s"].sum() == pytest.approx(summary.lost_time.work_lost_s)
    assert jobs["lost_gpu_s"].sum() == pytest.approx(summary.lost_time.total_s)
    assert jobs["delay_s"].mean() == pytest.approx(summary.delay.mean_s)
    losses, told = result.frame("losses"), summary.interruptions
    assert losses.height == told.events > 0
    assert losses["lost_s"].sum() == pytest.approx(told.lost_gpu_s) == sum(told.work_lost_s.values())
    assert losses["lost_s"].mean() == pytest.approx(told.lost_per_event_s)
    checkpoints = result.frame("checkpoints")
    assert checkpoints.height == summary.checkpoints.taken
    assert checkpoints["completed_s"].is_not_null().sum() == summary.checkpoints.completed
    assert result.frame("TransferFinished")["bytes_sent"].sum() == summary.checkpoints.bytes_sent
    migrations = result.frame("migrations")
    assert migrations.height == summary.migrations.planned > 0
    assert migrations["admitted_s"].is_not_null().sum() == summary.migrations.admitted
    assert sum(result.frame(kind).height for kind in frames.FACTS) == len(result.events)
    links = result.frame("links")
    assert links.height == 2 * len(result.played.context.campus.links)
    campus = result.played.context.campus
    senders = [*(host.name for host in campus.hosts), campus.coordinator.name]
    leaving = links.filter(polars.col("source").is_in(senders))  # every transfer leaves one of them
    assert leaving["bytes_sent"].sum() == summary.checkpoints.bytes_sent
    closings = result.frame("HostReclaimed").filter(notice_s=0.0)
    assert closings.height >= summary.emergencies.reclaims


def test_a_table_has_its_columns_of_their_types_even_without_rows() -> None:
    context = run_story.context()
    kinds: dict[str, Any] = {
        "str": polars.String,
        "int": polars.Int64,
        "float": polars.Float64,
        "bool": polars.Boolean,
        "list[str]": polars.List(polars.String),
        "list[list[str]]": polars.List(polars.List(polars.String)),
    }
    for table in (*frames.TABLES, *frames.FACTS):
        for facts in ([], run_story.facts()):
            found = frames.frame(table, facts, context)
            wanted = {name: kinds[kind.removesuffix(" | None")] for name, kind in frames.columns(table).items()}
            assert dict(found.schema) == wanted, table


def test_wrong_names_are_answered_with_what_is_allowed(result: RunResult) -> None:
    with pytest.raises(SpecError, match="table = 'job': one of jobs, attempts"):
        result.frame("job")
    with pytest.raises(SpecError, match="policy = 'nothing': one of slurm-pr"):
        simulate(result.scenario, policy="nothing")
    stranger = replace(result.trace, owner_events=(), away=("elsewhere",))
    with pytest.raises(SpecError, match="the scenario's volunteers; it has a host elsewhere"):
        simulate(result.scenario, trace=stranger)


def test_a_run_from_python_has_the_bytes_of_the_commands(tmp_path: Path) -> None:
    words = ["simulate", "example:two-worlds", "--system", "static", "--seed", "3"]
    command(*words, "--out", str(tmp_path / "command"), check=True, cwd=ROOT)
    played = simulate("example:two-worlds", policy="static", seed=3)
    played.write(tmp_path / "python")
    ours, theirs = ((tmp_path / name / "events.jsonl").read_bytes() for name in ("python", "command"))
    assert ours == theirs
    assert played.scenario.seed == 3
    assert (tmp_path / "python/report.html").stat().st_size > 10_000


@pytest.mark.usefixtures("policies")
def test_a_policy_may_be_an_object_and_a_trace_too(result: RunResult) -> None:
    quiet = Policy("no third copy", vault=False)
    nobody = Trace("nobody comes", result.trace.arrivals, ())
    played = simulate(result.scenario, policy=quiet, trace=nobody)
    assert "no third copy" in repr(played)
    assert played.summary.interruptions.events == 0
    assert isinstance(played.scenario, Scenario)


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)\n```", page, re.S)


@pytest.mark.usefixtures("policies")
def test_the_page_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks(VIRTUAL)):
        exec(compile(block, f"docs/api.md, block {number}", "exec"), names)
    said = capsys.readouterr().out
    assert "virtual run of lab-afternoon, policy reclaimnet, seed 3" in said
    assert "(12, " in said  # the sweep's runs
    assert (tmp_path / "lab.html").exists()
    assert (tmp_path / "out/sweep/sweep.html").exists()


@pytest.mark.extra
@pytest.mark.long
def test_the_notebook_runs_in_a_kernel_of_this_environment() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "docs/examples/afternoon.ipynb", as_version=4)
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": ROOT / "docs/examples"}}).execute()
    said = [str(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "virtual run of afternoon, policy stable_first:stable-first" in said[0]
    assert "image/png" in said[2]
    assert "difference_low" in said[3]
    nbformat.validate(notebook)


@pytest.mark.parametrize("marks", [pytest.param(None, marks=[*live, pytest.mark.apart])])
def test_the_pages_live_part_runs_beside_a_running_event_loop(
    marks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "seconds=15)" in KERNEL
    sooner = KERNEL.replace("seconds=15)", "seconds=6)")

    async def as_a_notebook_does() -> None:
        names: dict[str, object] = {}
        for number, block in enumerate(blocks(sooner)):
            exec(compile(block, f"docs/api.md, live block {number}", "exec"), names)

    asyncio.run(as_a_notebook_does())
    said = capsys.readouterr().out
    assert "10." in said
    assert (tmp_path / "out/live/events.jsonl").stat().st_size > 1000


def test_the_live_page_reads_the_facts_of_a_run_and_finds_its_campus_beside_them(tmp_path: Path) -> None:
    named = simulate("example:lab", seed=3)
    named.write(tmp_path)
    opened, played = open_run(tmp_path / "events.jsonl"), named.played
    assert opened.campus == played.context.campus
    _, times_s, facts = zip(*opened.facts(1, 10**9), strict=True)
    assert list(times_s) == pytest.approx([at_s for at_s, _ in played.facts], abs=1e-6)
    assert list(facts) == [fact for _, fact in played.facts]


@pytest.mark.parametrize(
    ("played", "wrong"),
    [
        (lambda: simulate(5), "scenario = 5: a Scenario, a scenario file"),
        (lambda: simulate("example:lab", trace=5), "trace = 5: records"),
        (lambda: sweep("example:lab", trace=[5]), r"trace = \[5\]: records"),
        (lambda: sweep("example:lab", seeds=3), "seeds = 3: several"),
        (lambda: sweep("example:lab", policies=3), "policies = 3: several"),
        (lambda: sweep("example:lab", settings=["jobs.step"]), "settings = .*: values by"),
        (lambda: Scenario("x", "example:lab"), "campus = .*: a Campus"),  # type: ignore[arg-type]
        (lambda: replace(demo_scenario(), research=(5,)), "research = .*: a tuple of ResearchFlow"),
        (lambda: InverseLaw("uniform", "x"), "law.uniform = .*: numbers"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_another_kind_is_refused_in_words(played: Callable[[], object], wrong: str) -> None:
    with pytest.raises(SpecError, match=wrong):
        played()


def test_what_is_no_policy_is_refused_and_one_name_is_one_policy() -> None:
    with pytest.raises(SpecError, match="policy = 5: a name"):
        simulate(demo_scenario(hosts=4, buildings=2, seconds=5.0), policy=5)
    scenario = demo_scenario(hosts=4, buildings=2, seconds=5.0)
    with pytest.raises(SpecError, match="other processes have to find them"):
        sweep(scenario, policies=[Policy("mine")], seeds=[1], workers=1)
    found = sweep(scenario, policies="static", seeds=[1], figures="jobs.finished", workers=1)
    assert (found.plan.policies, found.plan.figures) == (("static",), ("jobs.finished",))
